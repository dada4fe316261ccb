//! What a running proxy says of itself.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::balance::BackendState;
use crate::tally::{BUCKETS, BackendTally, EntryTally};

/// The whole proxy, summed over its threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// How many threads serve.
    pub threads: usize,
    /// Most connections of clients at a time, all entries together, that the limit of open files leaves room for.
    #[serde(default)]
    pub most_connections: u64,
    /// Seconds since it was started.
    pub uptime_s: f64,
    /// The access log, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_log: Option<LogStatus>,
    /// Entries before applications.
    pub ingress: Vec<IngressStatus>,
    /// Entries beside callers, or before pools.
    pub egress: Vec<EgressStatus>,
}

/// The access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Lines written.
    pub written: u64,
    /// Lines dropped, because the file did not take them in time, or at all.
    pub dropped: u64,
}

/// What an entry counts of its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Connections open now.
    pub connections: u64,
    /// Requests read.
    pub requests: u64,
    /// Requests that could not be passed on: no host, no route.
    pub malformed: u64,
    /// Requests without a response in time.
    pub timeouts: u64,
    /// Connections turned away at the limit.
    pub turned_away: u64,
    /// Times that no connection could be accepted.
    pub accept_failures: u64,
    /// Connections turned away because they began with TLS.
    #[serde(default)]
    pub tls: u64,
    /// Connections turned away because they began with HTTP/2.
    #[serde(default)]
    pub http2: u64,
}

/// An egress entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EgressStatus {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its clients.
    #[serde(flatten)]
    pub clients: ClientStatus,
    /// Its pools.
    pub pools: Vec<PoolStatus>,
}

/// A pool, as one entry sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// The policy's name.
    pub policy: String,
    /// Requests sent once more, after a refusal or a failure.
    pub retried: u64,
    /// Requests that were not, for want of tries or by the budget.
    pub not_retried: u64,
    /// Requests for which no backend could be picked.
    pub without_backend: u64,
    /// Picks of a backend that was not eligible, for none was: all were without a chip, or ejected. Up to a second old.
    #[serde(default)]
    pub ineligible: u64,
    /// Requests that wait for room, where the pool lets them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueStatus>,
    /// Why it is not known which backends it has now; those of before serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Its backends.
    pub backends: Vec<BackendStatus>,
}

/// Requests that wait for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// How many wait now.
    pub now: u64,
    /// How many have waited, those that do so now included.
    pub total: u64,
    /// Of these, how many were refused in the end.
    pub refused: u64,
    /// Of these, how many clients left while they waited.
    pub client_left: u64,
}

/// A backend, as one entry sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendStatus {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its weight in force.
    pub weight: u32,
    /// Whether it serves.
    pub state: BackendState,
    /// What was sent to it.
    #[serde(flatten)]
    pub requests: RequestStatus,
}

/// Requests to one backend, or application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStatus {
    /// Sent and not ended.
    pub in_flight: u64,
    /// Sent, tries counted each.
    pub sent: u64,
    /// Answered as they should be.
    pub succeeded: u64,
    /// Without an answer, or with one that says that the backend could not serve.
    pub failed: u64,
    /// Given up by their clients.
    pub abandoned: u64,
    /// Not sent: the proxy had no file or port left for a connection.
    #[serde(default)]
    pub no_socket: u64,
    /// Refused by the backend's ingress, which had too many.
    pub rejected: u64,
    /// Refused by the backend's ingress, for they would have been late.
    pub too_late: u64,
    /// Responses with chip 1.
    pub chips: u64,
    /// Responses with chip 0.
    pub responses_without_chip: u64,
    /// Connections that could not be made.
    pub connections_failed: u64,
    /// Sum of the response times of those that succeeded, to the last byte, seconds.
    pub latency_sum_s: f64,
    /// How many of these took at most so many seconds: pairs of a bound and a number; all others took longer than the
    /// last bound.
    pub latency_buckets: Vec<(f64, u64)>,
}

/// An ingress entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IngressStatus {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// The application.
    pub upstream: SocketAddr,
    /// Its clients.
    #[serde(flatten)]
    pub clients: ClientStatus,
    /// The most that may be in flight; none while all is admitted.
    pub capacity: Option<f64>,
    /// Requests admitted.
    pub admitted: u64,
    /// Refused: too many in flight.
    pub full: u64,
    /// Refused: they would have been late for those that wait.
    pub queue: u64,
    /// Refused: they would have been late anyway.
    pub deadline: u64,
    /// Responses with chip 1.
    pub chips_sent: u64,
    /// Responses with chip 0.
    pub sent_without_chip: u64,
    /// What went to the application.
    pub application: RequestStatus,
}

impl RequestStatus {
    pub(crate) fn sum<'a>(tallies: impl Iterator<Item = &'a BackendTally>) -> Self {
        let mut sum = RequestStatus::default();
        let (mut latency_us, mut buckets) = (0, [0; BUCKETS.len()]);
        for tally in tallies {
            sum.sent += tally.started.get();
            sum.succeeded += tally.succeeded.get();
            sum.failed += tally.failed.get();
            sum.abandoned += tally.abandoned.get();
            sum.no_socket += tally.no_socket.get();
            sum.rejected += tally.rejected.get();
            sum.too_late += tally.too_late.get();
            sum.chips += tally.chips.get();
            sum.responses_without_chip += tally.responses_without_chip.get();
            sum.connections_failed += tally.connections_failed.get();
            sum.in_flight += tally.in_flight();
            latency_us += tally.latency_us.get();
            for (bucket, count) in buckets.iter_mut().zip(&tally.buckets) {
                *bucket += count.get();
            }
        }
        sum.latency_sum_s = latency_us as f64 / 1e6;
        let mut below = 0;
        sum.latency_buckets = BUCKETS
            .into_iter()
            .zip(buckets)
            .map(|(bound, count)| {
                below += count;
                (bound, below)
            })
            .collect();
        sum
    }
}

impl ClientStatus {
    pub(crate) fn sum<'a>(open: usize, tallies: impl Iterator<Item = &'a EntryTally>) -> Self {
        let mut sum = ClientStatus { connections: open as u64, ..ClientStatus::default() };
        for tally in tallies {
            sum.requests += tally.requests.get();
            sum.malformed += tally.malformed.get();
            sum.timeouts += tally.timeouts.get();
            sum.turned_away += tally.turned_away.get();
            sum.accept_failures += tally.accept_failures.get();
            sum.tls += tally.tls.get();
            sum.http2 += tally.http2.get();
        }
        sum
    }
}
