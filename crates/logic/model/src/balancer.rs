use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{BackendId, Nanos};

/// How a balancer turns weights into picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MethodKind {
    /// The weight is the share of the traffic (round robin, random, consistent hash, DNS).
    Split,
    /// The weight scales what is in flight (leastconn).
    InFlight,
    /// The balancer does not take weights while it runs (static-rr, map-based hash, first).
    NoLiveWeights,
}

impl MethodKind {
    /// The time between two readings of a balancer that picks in this way, unless an operator says otherwise.
    ///
    /// A slow-down of few cores is seen in requests that meet no other, which polls farther apart than 25 ms miss.
    /// Behind an in-flight method what is in flight is much the same for a while: 50 ms tell cores better there, and
    /// changes hardly later (`docs/benchmarks.md`, "A changing world").
    pub fn poll_interval(self) -> Duration {
        Duration::from_millis(match self {
            MethodKind::InFlight => 50,
            MethodKind::Split | MethodKind::NoLiveWeights => 25,
        })
    }
}

/// A balancer's method of picking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// The balancer's own name for it, such as `roundrobin`; empty when it does not tell.
    pub name: String,
    /// What its weights mean.
    pub kind: MethodKind,
}

impl Method {
    /// Weights split the traffic, and no request belongs to a server: they may change as often as is useful. (A change
    /// of a hash's weights moves keys, and what is cached for them is lost.)
    pub fn is_keyless_split(&self) -> bool {
        self.kind == MethodKind::Split && matches!(self.name.as_str(), "roundrobin" | "random")
    }
}

/// What the balancer says of a server's health and administrative state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerStatus {
    /// Up, or not checked.
    Up,
    /// Up, and the balancer itself ramps its weight (slowstart).
    Starting,
    /// Its health check fails.
    Down,
    /// An administrator drains it: no new traffic, and none of our business.
    Drain,
    /// An administrator took it out.
    Maintenance,
}

impl ServerStatus {
    /// Whether new traffic comes to a server of this status, by its weight.
    pub fn takes_traffic(self) -> bool {
        matches!(self, ServerStatus::Up | ServerStatus::Starting)
    }
}

/// One server as the balancer reports it. Counters run from the balancer's start and fall back to 0
/// when it restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Which server.
    pub backend: BackendId,
    /// The weight as configured by us or an administrator (HAProxy `uweight`), not the momentary
    /// effective one.
    pub weight: u32,
    /// Health and administrative state.
    pub status: ServerStatus,
    /// The balancer checks its health by itself, so that `status` rests on more than traffic.
    #[serde(default)]
    pub checked: bool,
    /// Requests being served now, queued ones not counted (HAProxy `scur`).
    pub in_flight: u32,
    /// Requests waiting in the balancer for this server now (HAProxy `qcur`).
    pub queued: u32,
    /// Requests given to the server so far (HAProxy `stot`).
    pub started_total: u64,
    /// Requests that failed so far: no connection, no valid answer, or a 5xx.
    pub errors_total: u64,
    /// Requests that the server itself has answered so far, well or not (HAProxy in HTTP mode: the sum of `hrsp_*`).
    /// `None` where the balancer counts connections, of which an open one need not wait for anything.
    pub answered_total: Option<u64>,
    /// The response times of all that it has answered well so far, where the balancer measures each; else they are
    /// inferred from what is in flight.
    #[serde(default)]
    pub response_times: Option<ResponseTimes>,
}

impl ServerReport {
    /// One of which no request is known, nor that any was answered.
    pub fn new(backend: BackendId, weight: u32, status: ServerStatus) -> Self {
        ServerReport {
            backend,
            weight,
            status,
            checked: false,
            in_flight: 0,
            queued: 0,
            started_total: 0,
            errors_total: 0,
            answered_total: None,
            response_times: None,
        }
    }
}

/// Response times of a server, summed since the balancer's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseTimes {
    /// Requests that were measured, each when it was answered.
    pub count: u64,
    /// The sum of their response times, microseconds.
    pub sum_us: u64,
}

impl ResponseTimes {
    /// The mean since an `earlier` reading of the same server, microseconds; none if nothing was measured since, or the
    /// counters have fallen.
    pub fn mean_us_since(&self, earlier: &ResponseTimes) -> Option<f64> {
        let count = self.count.checked_sub(earlier.count).filter(|count| *count > 0)?;
        let sum_us = self.sum_us.checked_sub(earlier.sum_us)?;
        Some(sum_us as f64 / count as f64)
    }
}

/// How the numbers of requests in a report came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// Counted: what is in flight is so at the report's instant.
    #[default]
    Counted,
    /// Made from means over some time: only sums and means over many reports say something, and single events nothing.
    Averaged {
        /// For so long a change may not show in them.
        lag: Duration,
    },
    /// Nothing is known of requests now: counters stand, and nothing is in flight.
    Unknown,
}

impl Traffic {
    /// For how long a change may not show in the numbers.
    pub fn lag(self) -> Duration {
        match self {
            Traffic::Averaged { lag } => lag,
            Traffic::Counted | Traffic::Unknown => Duration::ZERO,
        }
    }
}

/// The whole balancer at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancerReport {
    /// When the answer was read.
    pub at: Nanos,
    /// How it picks.
    pub method: Method,
    /// Changes when the balancer was restarted or reloaded: its counters and weights began anew.
    pub generation: u64,
    /// How its numbers of requests came about.
    #[serde(default)]
    pub traffic: Traffic,
    /// Every server that the configuration names, in order of [`BackendId`].
    pub servers: Vec<ServerReport>,
}
