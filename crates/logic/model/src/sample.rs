use serde::{Deserialize, Serialize};

use crate::{BackendId, Nanos};

/// Where a sample comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A request that Plimsoll sent to the backend itself.
    Probe,
    /// What the balancer reports of the clients' own requests.
    Passive,
}

/// Why a probe did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The connection was refused, or the address cannot be reached.
    Refused,
    /// The connection was cut before the answer was complete.
    Reset,
    /// No complete answer within the time-out.
    Timeout,
    /// An answer with a status that was not expected.
    Status,
    /// An answer whose body was not the expected one, or was longer than is read.
    Body,
    /// The answer is not HTTP, or breaks its rules.
    Protocol,
    /// The TLS handshake failed.
    Tls,
}

/// What became of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The expected answer came; only such samples count as latency.
    Success,
    /// Counted as a drop, never as latency: a backend that fails fast is not fast.
    Failure(FailureKind),
}

/// One measurement of one backend: a single probe, or the mean over a window of the balancer's own
/// requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The backend that it measures.
    pub backend: BackendId,
    /// The backend's share of the service's traffic at the time, 0…1.
    pub weight: f64,
    /// Requests per second that the backend served at the time, where the balancer tells.
    pub rate_rps: Option<f64>,
    /// Mean response time, microseconds.
    pub latency_us: f64,
    /// How many requests the mean is over; 1 for a probe.
    pub requests: u32,
    /// Whether it counts as latency or as a drop.
    pub outcome: Outcome,
    /// What measured it.
    pub source: Source,
    /// When it ended.
    pub at: Nanos,
}
