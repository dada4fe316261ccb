//! A pool behind a balancer in simulated time, driving the very controller that the daemon runs.
//!
//! Requests arrive as a Poisson process and are picked by HAProxy's real leastconn key or by smooth
//! weighted round robin; backends of several cores serve first in first out. The controller sees what
//! it would see of a real HAProxy: polled counters, liveness rounds, probes. A run is its seed.

mod pool;
mod world;

pub use pool::{BackendModel, Method, paper_pool, small_pool};
pub use world::{Answer, World, WorldSpec};
