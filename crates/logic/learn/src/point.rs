use serde::{Deserialize, Serialize};

/// One measured point of a curve: the mean latency at a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Load, in the units of the curve (a share of the traffic, or requests per second).
    pub load: f64,
    /// Mean latency of the successful requests, microseconds.
    pub latency_us: f64,
    /// Requests that the mean is over: the weight of the point.
    pub requests: f64,
}
