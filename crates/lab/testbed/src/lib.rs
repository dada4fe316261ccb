//! Emulated backends and a load generator, for proving what Plimsoll claims on one machine.
//!
//! [`Testbed`] hosts backends that speak real HTTP over real TCP, while their cores exist only on an
//! ideal schedule. [`load`] puts a load on any URL and measures from the moment at which each request
//! should have started. [`net`] is for what is at layer 4: services in network namespaces, real servers,
//! clients that notice a connection that breaks or moves.
//!
//! Each runs on one thread around one epoll and one timerfd, keeps no global state, and can be started
//! many times in one process. What is emulated says so in every response.

mod backends;
mod clock;
mod duration_text;
pub mod http;
pub mod load;
pub mod net;

pub use backends::{
    BackendSpec, BackendStats, Change, Discipline, Lateness, Mode, Service, ServiceKind, SetError,
    SpecFileError, SpecProblem, StartError, Testbed, TestbedSpec, TestbedStats,
};
pub use duration_text::{format_duration, parse_duration};

use hdrhistogram::Histogram;

/// Three digits from 1 µs to an hour.
fn micros_histogram() -> Histogram<u64> {
    let bounds = Histogram::new_with_bounds(1, 3_600_000_000, 3);
    bounds.expect("1 ≤ low, 2·low ≤ high and 3 ≤ 5 digits: the library's own conditions")
}
