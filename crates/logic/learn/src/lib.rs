//! From measured points to curves: how each backend's latency depends on its load, inferred from few measurements that
//! cost clients little.
//!
//! 1. [`fit()`] fits a curve to [`Point`]s, means of successful requests at a load: a hyperbola by default, a monotone
//!    interpolation where the backend's curve has another shape, the paper's parabola on request; with the
//!    cross-validated error, and whether the capacity was observed or is only a lower bound.
//! 2. [`ThroughputEstimator`] is for in-flight methods, where weights are not shares: it infers service time, cores and
//!    capacity from windows of (in flight, throughput).
//! 3. [`drift`] detects when a backend's service rate has changed, and distinguishes that from noise.
//!
//! Everything here is arithmetic: no clock, no socket, no randomness.

mod averages;
pub mod drift;
mod fit;
mod fitted;
mod golden;
mod hyperbola;
mod pchip;
mod point;
mod poly2;
mod throughput;

pub use averages::from_averages;
pub use fit::{CapacityHint, CurveFit, FitError, FitOptions, IdleLatency, fit};
pub use fitted::{Family, FittedCurve};
pub use pchip::{Knot, Pchip};
pub use point::Point;
pub use poly2::Poly2;
pub use throughput::{
    Dispersion, Hints, InFlightWindow, LONG_BEFORE, Lagged, Throughput, ThroughputEstimator,
    ThroughputOptions, WindowError,
};

/// No curve is used beyond this part of its capacity: over the last 1.5 % of a hyperbola latency rises by a factor of
/// dozens, and no fit is that accurate.
pub const USABLE_CAPACITY: f64 = 0.985;
