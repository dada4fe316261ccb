//! Samples to curves: what load does to each backend, found out with as few and as gentle
//! measurements as will do.
//!
//! The crate reads in the order the data flow:
//!
//! 1. [`levels`] gathers [`Sample`](plimsoll_model::Sample)s of one backend into load levels, and
//!    [`points`] keeps those that count as latency: failures are drops, never fast answers.
//! 2. [`fit()`] draws a curve through the points: a hyperbola by default, a monotone interpolation where
//!    the backend is shaped otherwise, the paper's parabola on request; with the cross-validated error
//!    and a word on whether capacity was seen or is only a lower bound.
//! 3. [`Exploration`] chooses the next weight to measure (KnapsackLB §4.3), and [`schedule()`] fits the
//!    wishes of all backends into weights that sum to one (§4.6).
//! 4. [`ThroughputEstimator`] is for balancers that count requests in flight, where weights are not
//!    shares: it reads service time, cores and capacity off (in flight, throughput) windows.
//! 5. [`drift`] tells when a backend is no longer what was learned of it, and when it is only noise.
//!
//! Everything here is arithmetic: no clock, no socket, no randomness.

pub mod drift;
mod explore;
mod fit;
mod fitted;
mod golden;
mod hyperbola;
mod pchip;
mod point;
mod poly2;
mod schedule;
mod throughput;

pub use explore::{Exploration, ExploreError, ExploreMode, ExploreOptions, Measurement, Step};
pub use fit::{CapacityHint, CurveFit, FitError, FitOptions, IdleLatency, fit};
pub use fitted::{Family, FittedCurve};
pub use pchip::{Knot, Pchip};
pub use point::{Level, LoadAxis, Point, levels, points};
pub use poly2::Poly2;
pub use schedule::{Assignment, Member, Priority, ScheduleError, Wanted, schedule};
pub use throughput::{
    Dispersion, Hints, InFlightWindow, LONG_BEFORE, Lagged, Throughput, ThroughputEstimator,
    ThroughputOptions, WindowError,
};

/// No curve is used beyond this part of its capacity: the last 1.5 % of a hyperbola multiplies latency
/// by dozens, and no fit is that good.
pub const USABLE_CAPACITY: f64 = 0.985;
