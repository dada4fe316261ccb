//! Emulated backends and a load generator, for proving what Plimsoll claims on one machine.
//!
//! [`Testbed`] hosts backends that speak real HTTP over real TCP, while their cores exist only on an
//! ideal schedule.
//!
//! It runs on one thread around one epoll and a timerfd, keeps no global state, and can be started
//! many times in one process. It says of itself that it is emulated, in every response.

#[allow(unused)]
mod backends;
mod clock;
mod duration_text;
#[allow(unused)]
mod http;

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
