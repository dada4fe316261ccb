//! What a load measured.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Why a request has no latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// No connection: refused, unreachable, out of ports or file descriptors.
    Connect,
    /// The connection was cut before the answer was complete. No request is ever sent twice.
    Cut,
    /// No complete answer within the time-out, counted from the intended start.
    Timeout,
    /// A status of 400 or more.
    Status,
    /// The answer is not HTTP, or its head is too long.
    Protocol,
    /// Too many requests were unanswered to send another.
    Overflow,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Intended start, nanoseconds since the load began, warm-up included.
    pub start_ns: u64,
    /// From the intended start to the end of the answer, or to the failure.
    pub latency_us: u32,
    /// Whether it was answered as it should.
    pub ok: bool,
}

/// Latencies of requests answered without error, from their intended start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// All requests that have ended, errors included.
    pub requests: u64,
    /// Those that failed.
    pub errors: u64,
    /// Exact; none when no request succeeded.
    pub mean_ms: Option<f64>,
    /// Percentiles, to three digits.
    pub p50_ms: Option<f64>,
    /// 90th.
    pub p90_ms: Option<f64>,
    /// 99th.
    pub p99_ms: Option<f64>,
    /// 99.9th.
    pub p999_ms: Option<f64>,
    /// The slowest.
    pub max_ms: Option<f64>,
}

/// The requests whose intended start lies within one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slice {
    /// Its beginning, seconds since the load began, warm-up included.
    pub second: u64,
    /// Ended so far, errors included.
    pub requests: u64,
    /// Failed so far.
    pub errors: u64,
    /// Over those that succeeded.
    pub mean_ms: Option<f64>,
    /// The slowest that succeeded.
    pub max_ms: Option<f64>,
}

/// A load's numbers, at its end or so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LoadReport {
    /// The measured part, all backends together.
    #[serde(flatten)]
    pub total: Summary,
    /// Requests answered without error per second of the measured part.
    pub achieved_rps: f64,
    /// What the arrivals aim at now; none for a closed loop.
    pub target_rps: Option<f64>,
    /// Seconds of the measured part that have passed.
    pub measured_seconds: f64,
    /// Requests without answer now.
    pub in_flight: u64,
    /// Open connections now.
    pub connections: u64,
    /// Whether any connection was ever made.
    pub connected: bool,
    /// Errors by kind.
    pub error_kinds: BTreeMap<ErrorKind, u64>,
    /// The first error, in words.
    pub first_error: Option<String>,
    /// By the name in the header; errors without an answer belong to none.
    pub by_backend: BTreeMap<String, Summary>,
    /// How late arrivals were begun, microseconds: the generator's own share of the latencies.
    pub start_lateness_p50_us: u64,
    /// 99th percentile of the same.
    pub start_lateness_p99_us: u64,
    /// Per second of intended start, warm-up included.
    pub series: Vec<Slice>,
    /// Every request in order of its intended start, warm-up included, if asked for; only in the final
    /// report.
    #[serde(skip)]
    pub records: Vec<Record>,
}

impl LoadReport {
    /// The mean as a duration.
    pub fn mean(&self) -> Option<Duration> {
        self.total.mean_ms.map(|ms| Duration::from_secs_f64(ms / 1e3))
    }
}
