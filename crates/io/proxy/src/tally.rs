//! What is counted. Each cell is written by one thread alone, so counting is a load and a store; status and metrics
//! sum over the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_policy::{Ending, Finish};

use crate::balance::Roll;

/// Upper bounds of the buckets of response times, seconds; one more bucket has the rest.
pub const BUCKETS: [f64; 16] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0,
];
const BUCKETS_US: [u64; 16] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000,
];

/// A counter that one thread writes and any reads.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn one_more(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// For what goes up and down.
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One backend, as one thread of one entry counts it.
#[derive(Debug, Default)]
pub(crate) struct BackendTally {
    pub(crate) started: Count,
    pub(crate) succeeded: Count,
    pub(crate) failed: Count,
    /// Of those that failed: with an answer.
    pub(crate) answered_badly: Count,
    pub(crate) abandoned: Count,
    /// Not sent: no socket was left here.
    pub(crate) no_socket: Count,
    pub(crate) rejected: Count,
    pub(crate) too_late: Count,
    pub(crate) chips: Count,
    pub(crate) responses_without_chip: Count,
    pub(crate) connections_failed: Count,
    pub(crate) latency_us: Count,
    pub(crate) buckets: [Count; BUCKETS.len() + 1],
}

impl BackendTally {
    pub(crate) fn finished(&self, finish: &Finish) {
        match finish.ending {
            Ending::Success => {
                self.succeeded.one_more();
                self.latency(finish.latency);
            }
            Ending::Failure => self.failed.one_more(),
            Ending::Abandoned => self.abandoned.one_more(),
            Ending::Rejected => self.rejected.one_more(),
            Ending::TooLate => self.too_late.one_more(),
        }
        match finish.chip {
            Some(true) => self.chips.one_more(),
            Some(false) => self.responses_without_chip.one_more(),
            None => {}
        }
    }

    fn latency(&self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latency_us.add(us);
        self.buckets[BUCKETS_US.partition_point(|bound| *bound < us)].one_more();
    }

    /// Sent and not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        let ended = [
            &self.succeeded,
            &self.failed,
            &self.abandoned,
            &self.no_socket,
            &self.rejected,
            &self.too_late,
        ];
        // The sum over threads is what counts, and reads of one thread's cells may be torn: never below 0.
        self.started.get().saturating_sub(ended.iter().map(|count| count.get()).sum())
    }
}

/// One pool, as one thread of one entry counts it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolTally {
    pub(crate) backends: Vec<Arc<BackendTally>>,
    /// Whose counts these are: of those that had an index one after the other.
    lives: Vec<u64>,
    /// Requests sent once more, after a refusal or a failure.
    pub(crate) retried: Arc<Count>,
    /// Requests that were not, for want of tries or by the budget.
    pub(crate) not_retried: Arc<Count>,
    /// Requests for which no backend could be picked.
    pub(crate) without_backend: Arc<Count>,
    /// Picks of a backend that was not eligible, for none was, as the policy counts them.
    pub(crate) ineligible: Arc<Count>,
    pub(crate) queue: Arc<QueueTally>,
}

/// Requests that wait for room, as one thread counts them.
#[derive(Debug, Default)]
pub(crate) struct QueueTally {
    /// How many wait.
    pub(crate) now: Count,
    /// How many ever began to.
    pub(crate) total: Count,
    /// Of these, how many were refused in the end.
    pub(crate) refused: Count,
    /// Of these, how many clients left meanwhile.
    pub(crate) client_left: Count,
}

impl PoolTally {
    /// The same counts for those that are the same; newcomers begin at 0.
    pub(crate) fn of(&self, roll: &Roll) -> Self {
        let mut next = self.clone();
        next.backends.resize_with(roll.members.len(), Arc::default);
        next.lives.resize(roll.members.len(), 0);
        for (index, member) in roll.members.iter().enumerate() {
            if next.lives[index] != member.life {
                next.lives[index] = member.life;
                next.backends[index] = Arc::default();
            }
        }
        next
    }
}

/// What one thread counts of an entry's clients.
#[derive(Debug, Default)]
pub(crate) struct EntryTally {
    /// Requests read.
    pub(crate) requests: Count,
    /// Requests answered here, for they cannot be passed on.
    pub(crate) malformed: Count,
    /// Requests without an answer in time.
    pub(crate) timeouts: Count,
    /// Connections turned away at the limit.
    pub(crate) turned_away: Count,
    /// Times that no connection could be accepted.
    pub(crate) accept_failures: Count,
    /// Connections that began with TLS.
    pub(crate) tls: Count,
    /// Connections that began with HTTP/2.
    pub(crate) http2: Count,
}

/// What an ingress counts. It has one thread.
#[derive(Debug, Default)]
pub(crate) struct IngressTally {
    pub(crate) in_flight: Count,
    pub(crate) admitted: Count,
    pub(crate) full: Count,
    pub(crate) queue: Count,
    pub(crate) deadline: Count,
    pub(crate) chips: Count,
    pub(crate) responses_without_chip: Count,
    /// Bits of an f64; 0 while all is admitted.
    pub(crate) limit: Count,
    /// To the application.
    pub(crate) upstream: BackendTally,
}
