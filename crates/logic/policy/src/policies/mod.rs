//! One file per policy.

mod least_connections;
mod least_time;
mod leastconn_haproxy;
mod peak_ewma;
mod power_of_n;
mod power_of_n_latency;
mod random;
mod round_robin;

pub use least_connections::LeastConnections;
pub use least_time::LeastTime;
pub use leastconn_haproxy::HaproxyLeastconnPolicy;
pub use peak_ewma::PeakEwma;
pub use power_of_n::PowerOfN;
pub use power_of_n_latency::PowerOfNLatency;
pub use random::Random;
pub use round_robin::RoundRobin;
