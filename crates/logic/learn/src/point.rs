//! From samples to points: one mean latency per load level.
//!
//! Samples with loads within a tolerance of one another form a level. Cost O(n log n). It fails where the backend
//! changed between samples of one level: the caller has to drop old samples.

use plimsoll_model::{Outcome, Sample};
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

/// The unit of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadAxis {
    /// The share of the traffic, where rates are unknown; samples of any source count.
    Share,
    /// Requests per second; samples without a rate are ignored.
    Rate,
}

/// All samples at one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Mean load of the samples, weighted by their requests.
    pub load: f64,
    /// Mean latency of the successful requests, microseconds; `None` when none succeeded.
    pub latency_us: Option<f64>,
    /// Successful requests.
    pub succeeded: f64,
    /// Requests that failed, for whatever reason.
    pub dropped: f64,
}

impl Level {
    /// The part of the requests that failed, 0…1.
    pub fn drop_share(&self) -> f64 {
        let all = self.succeeded + self.dropped;
        if all > 0.0 { self.dropped / all } else { 0.0 }
    }
}

/// Groups one backend's samples into levels of ascending load. Loads within `tolerance` (relative, such as 0.05) above
/// the lowest of a level belong to it. Samples with a load or latency that is not finite or is negative are ignored,
/// and so are those over no requests.
pub fn levels(samples: &[Sample], axis: LoadAxis, tolerance: f64) -> Vec<Level> {
    let mut known: Vec<(f64, &Sample)> = samples
        .iter()
        .filter_map(|sample| {
            let load = match axis {
                LoadAxis::Share => sample.weight,
                LoadAxis::Rate => sample.rate_rps?,
            };
            let latency_counts = sample.outcome != Outcome::Success || positive(sample.latency_us);
            let usable = load.is_finite() && load >= 0.0 && sample.requests > 0 && latency_counts;
            usable.then_some((load, sample))
        })
        .collect();
    known.sort_by(|left, right| left.0.total_cmp(&right.0));

    let mut out: Vec<Level> = Vec::new();
    let mut rest = known.as_slice();
    while let Some(&(lowest, _)) = rest.first() {
        let end = rest.partition_point(|(load, _)| *load <= lowest * (1.0 + tolerance.max(0.0)));
        let (level, further) = rest.split_at(end.max(1));
        out.push(gather(level));
        rest = further;
    }
    out
}

/// The points of the levels that lost at most `max_drop_share` of their requests: where a backend drops requests, the
/// latency of the others says nothing about its curve.
pub fn points(levels: &[Level], max_drop_share: f64) -> Vec<Point> {
    levels
        .iter()
        .filter(|level| level.drop_share() <= max_drop_share)
        .filter_map(|level| {
            let latency_us = level.latency_us?;
            Some(Point { load: level.load, latency_us, requests: level.succeeded })
        })
        .collect()
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn gather(samples: &[(f64, &Sample)]) -> Level {
    let (mut all, mut load, mut latency) = (0.0, 0.0, 0.0);
    let (mut succeeded, mut dropped) = (0.0, 0.0);
    for (at, sample) in samples {
        let requests = f64::from(sample.requests);
        all += requests;
        load += requests * at;
        match sample.outcome {
            Outcome::Success => {
                succeeded += requests;
                latency += requests * sample.latency_us;
            }
            Outcome::Failure(_) => dropped += requests,
        }
    }
    let latency_us = (succeeded > 0.0).then(|| latency / succeeded);
    Level { load: load / all, latency_us, succeeded, dropped }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{BackendId, FailureKind, Nanos, Source};

    use super::*;

    fn sample(weight: f64, latency_us: f64, requests: u32, outcome: Outcome) -> Sample {
        Sample {
            backend: BackendId(1),
            weight,
            rate_rps: None,
            latency_us,
            requests,
            outcome,
            source: Source::Probe,
            at: Nanos::ZERO,
        }
    }

    #[test]
    fn close_loads_make_one_level_weighted_by_requests() {
        let ok = Outcome::Success;
        let got = levels(
            &[sample(0.102, 40.0, 3, ok), sample(0.1, 20.0, 1, ok), sample(0.2, 99.0, 1, ok)],
            LoadAxis::Share,
            0.05,
        );
        assert_eq!(got.len(), 2);
        assert!((got[0].load - 0.1015).abs() < 1e-12);
        assert_eq!(got[0].latency_us, Some(35.0));
        assert_eq!(got[0].succeeded, 4.0);
        assert_eq!(got[1].load, 0.2);
    }

    #[test]
    fn a_failure_is_a_drop_and_never_a_fast_answer() {
        let failed = Outcome::Failure(FailureKind::Refused);
        let got = levels(
            &[
                sample(0.1, 20.0, 9, Outcome::Success),
                sample(0.1, 0.001, 1, failed),
                sample(0.5, 0.001, 4, failed),
            ],
            LoadAxis::Share,
            0.05,
        );
        assert_eq!(got[0].latency_us, Some(20.0));
        assert!((got[0].drop_share() - 0.1).abs() < 1e-12);
        assert_eq!(got[1].latency_us, None);
        assert_eq!(points(&got, 0.2).len(), 1, "a level without a success is no point");
        assert_eq!(points(&got, 0.05), vec![], "a level that drops is no point");
    }

    #[test]
    fn invalid_samples_are_ignored() {
        let ok = Outcome::Success;
        let all = [
            sample(f64::NAN, 1.0, 1, ok),
            sample(-0.1, 1.0, 1, ok),
            sample(0.1, f64::INFINITY, 1, ok),
            sample(0.1, 0.0, 1, ok),
            sample(0.1, 1.0, 0, ok),
        ];
        assert_eq!(levels(&all, LoadAxis::Share, 0.05), vec![]);
        assert_eq!(levels(&[sample(0.1, 1.0, 1, ok)], LoadAxis::Rate, 0.05), vec![]);
    }
}
