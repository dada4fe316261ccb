//! Collects what becomes of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use plimsoll_model::Nanos;

use super::report::{ErrorKind, LoadReport, Record, Slice, Summary};

/// More names than this in the header share one entry: a header with a request id must not eat the
/// memory.
const MOST_BACKENDS: usize = 1024;
const OTHERS: &str = "(others)";

/// A week of slices; later seconds are not sliced.
const MOST_SLICES: usize = 7 * 24 * 3600;

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub intended: Nanos,
    pub at: Nanos,
    /// Entry of [`Recorder::backend`], when an answer named one.
    pub backend: Option<usize>,
    pub error: Option<ErrorKind>,
}

struct Tally {
    histogram: Histogram<u64>,
    sum_ns: f64,
    max: Duration,
    errors: u64,
}

impl Tally {
    fn new() -> Self {
        Tally { histogram: crate::micros_histogram(), sum_ns: 0.0, max: Duration::ZERO, errors: 0 }
    }

    fn add(&mut self, latency: Duration, ok: bool) {
        if ok {
            self.histogram.saturating_record((latency.as_micros() as u64).max(1));
            self.sum_ns += latency.as_nanos() as f64;
            self.max = self.max.max(latency);
        } else {
            self.errors += 1;
        }
    }

    fn summary(&self) -> Summary {
        let n = self.histogram.len();
        let requests = n + self.errors;
        if n == 0 {
            return Summary { requests, errors: self.errors, ..Summary::default() };
        }
        let max_ms = self.max.as_secs_f64() * 1e3;
        // The histogram names the upper end of a bucket, which may lie beyond the greatest value.
        let at = |q| Some((self.histogram.value_at_quantile(q) as f64 / 1e3).min(max_ms));
        Summary {
            requests,
            errors: self.errors,
            mean_ms: Some(self.sum_ns / n as f64 / 1e6),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: Some(max_ms),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct SliceTally {
    ok: u64,
    errors: u64,
    sum_ns: f64,
    max: Duration,
}

pub(super) struct Recorder {
    /// Requests intended earlier are warm-up.
    from: Nanos,
    total: Tally,
    names: BTreeMap<String, usize>,
    backends: Vec<Tally>,
    kinds: BTreeMap<ErrorKind, u64>,
    first_error: Option<String>,
    slices: Vec<SliceTally>,
    lateness: Histogram<u64>,
    records: Option<Vec<Record>>,
}

impl Recorder {
    pub(super) fn new(warmup: Duration, keep_records: bool) -> Self {
        Recorder {
            from: Nanos::ZERO + warmup,
            total: Tally::new(),
            names: BTreeMap::new(),
            backends: Vec::new(),
            kinds: BTreeMap::new(),
            first_error: None,
            slices: Vec::new(),
            lateness: crate::micros_histogram(),
            records: keep_records.then(Vec::new),
        }
    }

    /// The entry of a backend by the name it gave.
    pub(super) fn backend(&mut self, label: &[u8]) -> usize {
        let name = std::str::from_utf8(label).unwrap_or(OTHERS);
        if let Some(found) = self.names.get(name) {
            return *found;
        }
        let name = if self.names.len() < MOST_BACKENDS { name } else { OTHERS };
        let fresh = self.backends.len();
        let entry = *self.names.entry(name.to_owned()).or_insert(fresh);
        if entry == fresh {
            self.backends.push(Tally::new());
        }
        entry
    }

    /// An arrival was begun this long after its time.
    pub(super) fn begun(&mut self, intended: Nanos, late: Duration) {
        if intended >= self.from {
            self.lateness.saturating_record(late.as_micros() as u64);
        }
    }

    /// A request has ended; `why` puts an error in words, and is asked once only.
    pub(super) fn ended(&mut self, ended: Ended, why: impl FnOnce() -> String) {
        let latency = ended.at.since(ended.intended);
        let ok = ended.error.is_none();
        if let Some(records) = &mut self.records {
            let latency_us = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
            records.push(Record { start_ns: ended.intended.0, latency_us, ok });
        }
        self.slice(ended.intended, latency, ok);
        if ended.intended < self.from {
            return;
        }
        self.total.add(latency, ok);
        if let Some(tally) = ended.backend.and_then(|i| self.backends.get_mut(i)) {
            tally.add(latency, ok);
        }
        if let Some(kind) = ended.error {
            *self.kinds.entry(kind).or_default() += 1;
            self.first_error.get_or_insert_with(why);
        }
    }

    fn slice(&mut self, intended: Nanos, latency: Duration, ok: bool) {
        let second = (intended.0 / 1_000_000_000) as usize;
        if second >= MOST_SLICES {
            return;
        }
        if self.slices.len() <= second {
            self.slices.resize(second + 1, SliceTally::default());
        }
        let slice = &mut self.slices[second];
        if ok {
            slice.ok += 1;
            slice.sum_ns += latency.as_nanos() as f64;
            slice.max = slice.max.max(latency);
        } else {
            slice.errors += 1;
        }
    }

    fn series(&self) -> Vec<Slice> {
        let slice = |(second, s): (usize, &SliceTally)| Slice {
            second: second as u64,
            requests: s.ok + s.errors,
            errors: s.errors,
            mean_ms: (s.ok > 0).then(|| s.sum_ns / s.ok as f64 / 1e6),
            max_ms: (s.ok > 0).then_some(s.max.as_secs_f64() * 1e3),
        };
        self.slices.iter().enumerate().map(slice).collect()
    }

    /// The numbers so far, over a measured part of this length; what the recorder does not know is left
    /// at its default.
    pub(super) fn report(&self, measured: Duration) -> LoadReport {
        let seconds = measured.as_secs_f64();
        let ok = self.total.histogram.len() as f64;
        let named = self.names.iter().map(|(name, i)| (name.clone(), self.backends[*i].summary()));
        LoadReport {
            total: self.total.summary(),
            achieved_rps: if seconds > 0.0 { ok / seconds } else { 0.0 },
            measured_seconds: seconds,
            error_kinds: self.kinds.clone(),
            first_error: self.first_error.clone(),
            by_backend: named.filter(|(_, s)| s.requests > 0).collect(),
            start_lateness_p50_us: self.lateness.value_at_quantile(0.5),
            start_lateness_p99_us: self.lateness.value_at_quantile(0.99),
            series: self.series(),
            ..LoadReport::default()
        }
    }

    /// All records in order of intended start.
    pub(super) fn take_records(&mut self) -> Vec<Record> {
        let mut records = self.records.take().unwrap_or_default();
        records.sort_by_key(|r| r.start_ns);
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn end(start_ms: u64, took_ms: u64, backend: Option<usize>, error: Option<ErrorKind>) -> Ended {
        let intended = Nanos(start_ms * MS);
        Ended { intended, at: Nanos((start_ms + took_ms) * MS), backend, error }
    }

    #[test]
    fn warm_up_counts_in_the_series_and_nowhere_else() {
        let mut r = Recorder::new(Duration::from_secs(1), true);
        let (a, b) = (r.backend(b"a"), r.backend(b"b"));
        assert_eq!(r.backend(b"a"), a);
        r.ended(end(500, 90, Some(a), None), String::new);
        r.ended(end(1500, 10, Some(a), None), String::new);
        r.ended(end(1400, 30, Some(a), None), String::new);
        r.ended(end(1600, 1, Some(b), Some(ErrorKind::Status)), || "status 500".into());
        r.ended(end(1700, 0, None, Some(ErrorKind::Connect)), || "refused".into());
        let report = r.report(Duration::from_secs(2));
        assert_eq!((report.total.requests, report.total.errors), (4, 2));
        assert_eq!((report.total.mean_ms, report.total.max_ms), (Some(20.0), Some(30.0)));
        assert_eq!(report.achieved_rps, 1.0);
        assert_eq!(report.by_backend["a"].requests, 2);
        assert_eq!(report.by_backend["b"].errors, 1);
        assert_eq!(report.first_error.as_deref(), Some("status 500"));
        let series: Vec<_> = report.series.iter().map(|s| (s.requests, s.mean_ms)).collect();
        assert_eq!(series, [(1, Some(90.0)), (4, Some(20.0))]);
        let starts: Vec<u64> = r.take_records().iter().map(|x| x.start_ns / MS).collect();
        assert_eq!(starts, [500, 1400, 1500, 1600, 1700]);
    }

    #[test]
    fn a_header_that_never_repeats_does_not_eat_the_memory() {
        let mut r = Recorder::new(Duration::ZERO, false);
        let entries: Vec<usize> =
            (0..3000).map(|i| r.backend(format!("id{i}").as_bytes())).collect();
        assert_eq!(entries[2999], entries[2000]);
        assert!(r.backends.len() <= MOST_BACKENDS + 1);
    }
}
