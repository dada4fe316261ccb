//! What the machinery around one controller counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_control::RecordKind;
use plimsoll_model::{FailureKind, Outcome};

/// Upper bounds of the probe latency histogram, seconds: from a cache hit to the usual time-out, each
/// 2 to 2.5 times the last.
pub const LATENCY_BUCKETS: [f64; 12] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// What became of a probe, as metrics name it.
fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Failure(FailureKind::Refused) => "refused",
        Outcome::Failure(FailureKind::Reset) => "reset",
        Outcome::Failure(FailureKind::Timeout) => "timeout",
        Outcome::Failure(FailureKind::Status) => "status",
        Outcome::Failure(FailureKind::Body) => "body",
        Outcome::Failure(FailureKind::Protocol) => "protocol",
        Outcome::Failure(FailureKind::Tls) => "tls",
    }
}

/// A kind of record, as metrics and JSON name it.
fn kind_name(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Plan => "plan",
        RecordKind::Rollback => "rollback",
        RecordKind::SetAside => "set_aside",
        RecordKind::Restored => "restored",
        RecordKind::Failed => "failed",
        RecordKind::Ejected => "ejected",
        RecordKind::Returned => "returned",
        RecordKind::GivenBack => "given_back",
        RecordKind::Doubted => "doubted",
        RecordKind::Relearned => "relearned",
        RecordKind::Underestimated => "underestimated",
        RecordKind::Joined => "joined",
        RecordKind::Left => "left",
        RecordKind::Drift => "drift",
        RecordKind::Refresh => "refresh",
        RecordKind::Phase => "phase",
        RecordKind::Balancer => "balancer",
        RecordKind::Foreign => "foreign",
        RecordKind::Warning => "warning",
    }
}

/// Counts by a name of a fixed set.
type ByName = BTreeMap<&'static str, u64>;

/// Counts of one service since the daemon started. Every method may be called from any thread, and
/// waits for a map look-up at most.
#[derive(Debug, Default)]
pub struct Counters {
    records: Mutex<ByName>,
    probes: Mutex<BTreeMap<String, ByName>>,
    probe_latency: Histogram,
    polled: AtomicBool,
    polls: Spans,
    solves: Spans,
    sink_errors: AtomicU64,
    store_errors: AtomicU64,
    applies: AtomicU64,
    commands: AtomicU64,
}

impl Counters {
    /// A probe of this backend ended; `took` is of no meaning on a failure.
    pub fn probe(&self, backend: &str, outcome: Outcome, took: Duration) {
        if outcome == Outcome::Success {
            self.probe_latency.observe(took);
        }
        let mut probes = lock(&self.probes);
        if !probes.contains_key(backend) {
            probes.insert(backend.to_owned(), ByName::from([("success", 0)]));
        }
        if let Some(counts) = probes.get_mut(backend) {
            *counts.entry(outcome_name(outcome)).or_default() += 1;
        }
    }

    /// The balancer was read, in this time. The first makes the service ready.
    pub fn polled(&self, took: Duration) {
        self.polls.observe(took);
        self.polled.store(true, Relaxed);
    }

    /// The balancer could not be read or programmed.
    pub fn sink_failed(&self) {
        self.sink_errors.fetch_add(1, Relaxed);
    }

    /// Keeping what was learned began to fail.
    pub fn store_failed(&self) {
        self.store_errors.fetch_add(1, Relaxed);
    }

    /// A plan was carried out with this many commands.
    pub fn applied(&self, commands: u32) {
        self.applies.fetch_add(1, Relaxed);
        self.commands.fetch_add(u64::from(commands), Relaxed);
    }

    /// A packing was computed, in this time.
    pub fn solved(&self, took: Duration) {
        self.solves.observe(took);
    }

    pub(crate) fn recorded(&self, kind: RecordKind) {
        *lock(&self.records).entry(kind_name(kind)).or_default() += 1;
    }

    pub(crate) fn has_polled(&self) -> bool {
        self.polled.load(Relaxed)
    }

    /// All counts at about one instant.
    pub(crate) fn read(&self) -> Counts {
        Counts {
            records: lock(&self.records).clone(),
            probes: lock(&self.probes).clone(),
            probe_latency: self.probe_latency.read(),
            polls: self.polls.read(),
            solves: self.solves.read(),
            sink_errors: self.sink_errors.load(Relaxed),
            store_errors: self.store_errors.load(Relaxed),
            applies: self.applies.load(Relaxed),
            commands: self.commands.load(Relaxed),
        }
    }
}

/// A copy of [`Counters`].
#[derive(Debug)]
pub struct Counts {
    /// By kind.
    pub records: ByName,
    /// By backend and outcome.
    pub probes: BTreeMap<String, ByName>,
    /// Of successful probes.
    pub probe_latency: HistogramRead,
    /// Readings of the balancer: how many, and seconds in all.
    pub polls: (u64, f64),
    /// Packings: how many, and seconds in all.
    pub solves: (u64, f64),
    /// Readings and programmings that failed.
    pub sink_errors: u64,
    /// Times that keeping began to fail.
    pub store_errors: u64,
    /// Plans carried out.
    pub applies: u64,
    /// Commands sent for them.
    pub commands: u64,
}

/// A count is right after every single change, so one left by a panic elsewhere can be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many, and how long in all.
#[derive(Debug, Default)]
struct Spans {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Spans {
    fn observe(&self, took: Duration) {
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.count.fetch_add(1, Relaxed);
    }

    fn read(&self) -> (u64, f64) {
        (self.count.load(Relaxed), self.nanos.load(Relaxed) as f64 / 1e9)
    }
}

#[derive(Debug, Default)]
struct Histogram {
    /// One per bound, then one for all that is longer.
    buckets: [AtomicU64; LATENCY_BUCKETS.len() + 1],
    spans: Spans,
}

/// A copy of a histogram.
#[derive(Debug)]
pub struct HistogramRead {
    /// For each of [`LATENCY_BUCKETS`], how many took at most as long.
    pub cumulative: [u64; LATENCY_BUCKETS.len()],
    /// How many in all.
    pub count: u64,
    /// Seconds in all.
    pub sum: f64,
}

impl Histogram {
    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let slot = LATENCY_BUCKETS.partition_point(|bound| *bound < seconds);
        self.buckets[slot].fetch_add(1, Relaxed);
        self.spans.observe(took);
    }

    fn read(&self) -> HistogramRead {
        let mut seen = 0;
        let mut cumulative = [0; LATENCY_BUCKETS.len()];
        for (total, bucket) in cumulative.iter_mut().zip(&self.buckets) {
            seen += bucket.load(Relaxed);
            *total = seen;
        }
        let longer = self.buckets[LATENCY_BUCKETS.len()].load(Relaxed);
        HistogramRead { cumulative, count: seen + longer, sum: self.spans.read().1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for kind in [FailureKind::Refused, FailureKind::Timeout, FailureKind::Tls] {
            let json = serde_json::to_value(kind).expect("a name");
            assert_eq!(json, outcome_name(Outcome::Failure(kind)));
        }
        for kind in [RecordKind::Plan, RecordKind::Rollback, RecordKind::Foreign] {
            assert_eq!(serde_json::to_value(kind).expect("a name"), kind_name(kind));
        }
    }

    #[test]
    fn a_histogram_counts_each_observation_once() {
        let counters = Counters::default();
        for ms in [0, 1, 2, 30, 9_000] {
            counters.probe("s1", Outcome::Success, Duration::from_millis(ms));
        }
        counters.probe("s1", Outcome::Failure(FailureKind::Timeout), Duration::from_secs(2));
        let counts = counters.read();
        let latency = &counts.probe_latency;
        assert_eq!(latency.cumulative, [1, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4]);
        assert_eq!(latency.count, 5);
        assert!((latency.sum - 9.033).abs() < 1e-9);
        assert_eq!(counts.probes["s1"], ByName::from([("success", 5), ("timeout", 1)]));
    }
}
