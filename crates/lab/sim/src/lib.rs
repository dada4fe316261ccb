//! A pool behind a balancer in simulated time, driving the very controller that the daemon runs.
//!
//! Requests arrive as a Poisson process and are picked by HAProxy's real leastconn key or by smooth
//! weighted round robin; backends of several cores serve first in first out. The controller sees what
//! it would see of a real HAProxy: polled counters, liveness rounds, probes. A run is its seed.

mod arena;
mod fault;
mod law;
mod ledger;
mod luck;
mod names;
mod plant;
mod pool;
mod request;
mod rig;
mod roundrobin;
mod run;
mod sabotage;
mod sample;
mod scenario;
mod world;

pub use arena::{
    Arena, ArenaReport, BackendReport, Change, Step, TypeReport, Window, Yardsticks,
    integer_weights, static_shares, yardsticks,
};
pub use fault::Fault;
pub use ledger::{Rule, Violation};
pub use luck::Luck;
pub use plant::{Condition, Plant};
pub use pool::{BackendModel, Method, paper_pool, small_pool};
pub use request::{Answer, RequestPlant};
pub use rig::{Rig, Tally};
pub use roundrobin::HaproxyRoundRobin;
pub use run::{Failure, Order};
pub use sabotage::Sabotage;
pub use sample::SamplePlant;
pub use scenario::{Cadence, Disturbance, Profile, Scenario};
pub use world::{World, WorldSpec};
