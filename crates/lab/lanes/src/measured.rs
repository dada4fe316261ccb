//! What clients saw in one or several stretches of time.

use std::ops::Range;
use std::time::Duration;

use plimsoll_testbed::load::{Record, Slice};
use serde::Serialize;

use crate::standard_error;

/// Stretches are cut into this many batches for the error of the mean, fewer where a batch would be
/// shorter than [`LEAST_BATCH`].
const BATCHES: u32 = 10;
/// Waits of neighbouring requests go together for as long as a queue lasts, which at these loads is a
/// fraction of a second; batches must be much longer.
const LEAST_BATCH: Duration = Duration::from_secs(2);

/// The requests whose intended start lies in the stretches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// All, errors included.
    pub requests: u64,
    /// Those without the answer they wanted.
    pub errors: u64,
    /// Mean response time of the others; nothing when there are none.
    pub mean_ms: Option<f64>,
    /// Standard error of the mean, from the means of batches of time; nothing for less than two.
    pub error_ms: Option<f64>,
    /// Median.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
}

impl Measured {
    /// Over these stretches of a load's clock. `records` are in order of their start.
    pub fn over(records: &[Record], stretches: &[Range<Duration>]) -> Self {
        let mut measured = Measured::default();
        let mut latencies: Vec<u32> = Vec::new();
        let mut means: Vec<f64> = Vec::new();
        for stretch in stretches {
            for batch in batches(stretch) {
                let within = within(records, &batch);
                let first = latencies.len();
                latencies.extend(within.iter().filter(|r| r.ok).map(|r| r.latency_us));
                measured.requests += within.len() as u64;
                measured.errors += (within.len() - (latencies.len() - first)) as u64;
                means.extend(mean_ms(&latencies[first..]));
            }
        }
        measured.mean_ms = mean_ms(&latencies);
        measured.error_ms = standard_error(&means);
        latencies.sort_unstable();
        measured.p50_ms = quantile_ms(&latencies, 0.5);
        measured.p99_ms = quantile_ms(&latencies, 0.99);
        measured
    }
}

/// The records that start within this stretch; they are in order of their start.
pub fn within<'a>(records: &'a [Record], stretch: &Range<Duration>) -> &'a [Record] {
    let place = |at: Duration| records.partition_point(|r| u128::from(r.start_ns) < at.as_nanos());
    let (from, to) = (place(stretch.start), place(stretch.end));
    records.get(from..to).unwrap_or_default()
}

/// The mean of whole seconds of a load's series, milliseconds; nothing when no request was served.
pub fn mean_of(series: &[Slice], seconds: Range<u64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for slice in series.iter().filter(|slice| seconds.contains(&slice.second)) {
        let served = slice.requests - slice.errors;
        sum += slice.mean_ms.unwrap_or(0.0) * served as f64;
        count += served;
    }
    (count > 0).then(|| sum / count as f64)
}

fn batches(stretch: &Range<Duration>) -> impl Iterator<Item = Range<Duration>> + use<> {
    let length = stretch.end.saturating_sub(stretch.start);
    let fit = (length.as_secs_f64() / LEAST_BATCH.as_secs_f64()) as u32;
    let count = fit.clamp(1, BATCHES);
    let start = stretch.start;
    (0..count).map(move |i| start + length * i / count..start + length * (i + 1) / count)
}

fn mean_ms(latencies_us: &[u32]) -> Option<f64> {
    let sum: f64 = latencies_us.iter().map(|&us| f64::from(us)).sum();
    (!latencies_us.is_empty()).then(|| sum / latencies_us.len() as f64 / 1e3)
}

/// The least value that at least this part of the sorted values does not exceed.
fn quantile_ms(sorted_us: &[u32], part: f64) -> Option<f64> {
    let rank = (part * sorted_us.len() as f64).ceil() as usize;
    sorted_us.get(rank.saturating_sub(1)).map(|&us| f64::from(us) / 1e3)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn record(start_ms: u64, latency_ms: u32, ok: bool) -> Record {
        Record { start_ns: start_ms * 1_000_000, latency_us: latency_ms * 1000, ok }
    }

    fn seconds(from: u64, to: u64) -> Range<Duration> {
        Duration::from_secs(from)..Duration::from_secs(to)
    }

    #[test]
    fn only_what_starts_within_counts_and_errors_have_no_latency() {
        let records = [
            record(900, 500, true),
            record(1000, 10, true),
            record(1500, 30, true),
            record(1600, 9000, false),
            record(2000, 700, true),
            record(5000, 50, true),
        ];
        let measured = Measured::over(&records, &[seconds(1, 2), seconds(5, 6)]);
        assert_eq!((measured.requests, measured.errors), (4, 1));
        assert_eq!((measured.mean_ms, measured.p50_ms), (Some(30.0), Some(30.0)));
        assert_eq!(measured.p99_ms, Some(50.0));
        assert_eq!(Measured::over(&records, &[seconds(8, 9)]), Measured::default());
    }

    #[test]
    fn a_mean_over_seconds_is_weighted_by_answered_requests() {
        let slice = |second, requests, errors, mean_ms| Slice {
            second,
            requests,
            errors,
            mean_ms,
            max_ms: None,
        };
        let series =
            [slice(0, 9, 0, Some(1.0)), slice(1, 3, 2, Some(10.0)), slice(2, 3, 0, Some(2.0))];
        assert_eq!(mean_of(&series, 1..3), Some(4.0));
        assert_eq!(mean_of(&series, 3..9), None);
    }

    #[test]
    fn the_error_of_the_mean_comes_from_batches() {
        // Two seconds at 10 ms, two at 14: batch means 10 and 14, standard error 2.
        let slow = |ms| if ms < 2000 { 10 } else { 14 };
        let records: Vec<Record> = (0..400).map(|i| record(i * 10, slow(i * 10), true)).collect();
        let measured = Measured::over(&records, &[seconds(0, 4)]);
        assert_eq!((measured.mean_ms, measured.error_ms), (Some(12.0), Some(2.0)));
        // One batch says nothing of the error.
        assert_eq!(Measured::over(&records, &[seconds(0, 3)]).error_ms, None);
    }
}
