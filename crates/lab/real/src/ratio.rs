//! How much longer clients wait in one lane than in another, with its error, by batch means.

use std::ops::Range;
use std::time::Duration;

use plimsoll_lanes::{student, within};
use plimsoll_testbed::load::Record;
use serde::Serialize;

/// Stretches are cut into so many batches of time: long against the queues at these loads, which last
/// seconds, and enough of them for an interval.
pub const BATCHES: u32 = 20;

/// A ratio of means with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The estimate.
    pub value: f64,
    /// The lower end of the interval; none where there are too few batches for one.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// Standard error of the logarithm, and how many degrees of freedom it has.
    #[serde(skip)]
    error: Option<(f64, f64)>,
}

/// Mean response times of one batch in two lanes, milliseconds.
pub type Pair = (f64, f64);

/// The batches of this stretch in which both lanes answered a request.
pub fn pairs(own: &[Record], other: &[Record], stretch: &Range<Duration>) -> Vec<Pair> {
    let length = stretch.end.saturating_sub(stretch.start);
    let batch =
        |i: u32| stretch.start + length * i / BATCHES..stretch.start + length * (i + 1) / BATCHES;
    let mean = |records: &[Record], batch: &Range<Duration>| {
        let (mut sum, mut count) = (0.0, 0_u32);
        for record in within(records, batch).iter().filter(|r| r.ok) {
            sum += f64::from(record.latency_us) / 1e3;
            count += 1;
        }
        (count > 0).then(|| sum / f64::from(count))
    };
    let pair = |i| Some((mean(own, &batch(i))?, mean(other, &batch(i))?));
    (0..BATCHES).filter_map(pair).collect()
}

impl Ratio {
    /// Of the means of the first to those of the second; none without batches. Both lanes had the same
    /// arrivals at the same time, so their batches are taken in pairs: what both suffered cancels out.
    pub fn of(pairs: &[Pair]) -> Option<Ratio> {
        let n = pairs.len() as f64;
        let sums = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        if pairs.is_empty() || sums.0 <= 0.0 || sums.1 <= 0.0 {
            return None;
        }
        let (value, other_mean) = (sums.0 / sums.1, sums.1 / n);
        let squares: f64 = pairs.iter().map(|(a, b)| (a - value * b).powi(2)).sum();
        let relative = (squares / (n * (n - 1.0))).sqrt() / other_mean / value;
        let error = (pairs.len() > 1).then_some((relative, n - 1.0));
        Some(Ratio::from_log(value, error))
    }

    /// The geometric mean of independent ratios; none of none.
    pub fn geometric_mean(ratios: &[Ratio]) -> Option<Ratio> {
        if ratios.is_empty() {
            return None;
        }
        let n = ratios.len() as f64;
        let log = ratios.iter().map(|r| r.value.ln()).sum::<f64>() / n;
        let errors: Option<Vec<(f64, f64)>> = ratios.iter().map(|r| r.error).collect();
        let error = errors.map(|errors| {
            let variance: f64 = errors.iter().map(|(e, _)| e * e).sum();
            (variance.sqrt() / n, errors.iter().map(|(_, freedom)| freedom).sum())
        });
        Some(Ratio::from_log(log.exp(), error))
    }

    fn from_log(value: f64, error: Option<(f64, f64)>) -> Ratio {
        let span = error.map(|(error, freedom)| (error * student(freedom)).exp());
        Ratio { value, low: span.map(|s| value / s), high: span.map(|s| value * s), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_known_batches() {
        // Differences from 1.5 × the other: +5, −5, +5, −5: s² = 100/3, standard error of their mean
        // 2.887, of the ratio 0.02887, of its logarithm 0.01925; t(3) = 3.18.
        let pairs = [(155.0, 100.0), (145.0, 100.0), (155.0, 100.0), (145.0, 100.0)];
        let ratio = Ratio::of(&pairs).unwrap();
        assert!((ratio.value - 1.5).abs() < 1e-12);
        let half = (ratio.high.unwrap() / ratio.value).ln();
        assert!((half - 0.01925 * 3.18).abs() < 0.001, "{half}");
        // What both lanes suffer together is no error.
        let together: Vec<Pair> =
            (1..20).map(|i| (f64::from(i) * 12.0, f64::from(i) * 10.0)).collect();
        let ratio = Ratio::of(&together).unwrap();
        assert!((ratio.value - 1.2).abs() < 1e-12 && ratio.high.unwrap() - 1.2 < 1e-9);
        assert_eq!(Ratio::of(&[]), None);
        assert_eq!(Ratio::of(&pairs[..1]).unwrap().low, None);
    }

    #[test]
    fn the_geometric_mean_is_surer_than_its_parts() {
        let pairs = [(155.0, 100.0), (145.0, 100.0), (155.0, 100.0), (145.0, 100.0)];
        let one = Ratio::of(&pairs).unwrap();
        let inverse: Vec<Pair> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let both = Ratio::geometric_mean(&[one, Ratio::of(&inverse).unwrap()]).unwrap();
        assert!((both.value - 1.0).abs() < 0.01, "{both:?}");
        assert!(both.high.unwrap() / both.value < one.high.unwrap() / one.value);
        assert_eq!(Ratio::geometric_mean(&[]), None);
    }

    #[test]
    fn only_batches_with_answers_in_both_lanes_count() {
        let record = |second: u64, ms: u32, ok| Record {
            start_ns: second * 1_000_000_000,
            latency_us: ms * 1000,
            ok,
        };
        let own: Vec<Record> = (0..40).map(|s| record(s, 20, s < 30)).collect();
        let other: Vec<Record> = (0..40).map(|s| record(s, 10, true)).collect();
        let found = pairs(&own, &other, &(Duration::ZERO..Duration::from_secs(40)));
        assert_eq!(found, vec![(20.0, 10.0); 15]);
    }
}
