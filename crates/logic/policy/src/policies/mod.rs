//! One file per policy.

mod bloc;
mod cpu_random;
mod expected_delay;
mod first;
mod hash_maglev;
mod hash_map;
mod hash_ring;
mod least_connections;
mod least_time;
mod leastconn_haproxy;
mod peak_ewma;
mod power_of_n;
mod power_of_n_latency;
mod prequal;
mod random;
mod round_robin;
mod roundrobin_haproxy;
mod static_round_robin;

pub use bloc::Bloc;
pub use cpu_random::CpuRandom;
pub use expected_delay::{ExpectedDelay, ExpectedDelaySettings, Sight};
pub use first::First;
pub use hash_maglev::HashMaglev;
pub use hash_map::MapHash;
pub use hash_ring::HashRing;
pub use least_connections::LeastConnections;
pub use least_time::LeastTime;
pub use leastconn_haproxy::HaproxyLeastconnPolicy;
pub use peak_ewma::PeakEwma;
pub use power_of_n::PowerOfN;
pub use power_of_n_latency::PowerOfNLatency;
pub use prequal::{Prequal, PrequalSettings};
pub use random::Random;
pub use round_robin::RoundRobin;
pub use roundrobin_haproxy::HaproxyRoundRobinPolicy;
pub use static_round_robin::StaticRoundRobin;
