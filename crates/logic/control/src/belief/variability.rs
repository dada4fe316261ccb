//! Variability of a backend's load: Kingman's factor, by ridge regression of the waits on those of M/M/c, relative to
//! the latencies, with a prior that is worth a number of requests at half load.

use crate::tuning::belief::variability::{
    AT_HALF_LOAD, HALF_WORTH, LEAST_VALIDATED, PRIOR_REQUESTS, VARIABILITY,
};
use plimsoll_learn::Point;
use plimsoll_model::Curve;
use plimsoll_queueing::QueueCurve;

/// Points with the waits that M/M/c predicts for their loads.
pub(crate) struct Waits<'a> {
    service_us: f64,
    points: &'a [Point],
    predictions: Vec<Prediction>,
}

/// Precomputed per point, because it costs a power and cross-validation needs it for every point left out.
struct Prediction {
    /// The wait of M/M/c, microseconds.
    unit_us: f64,
    /// The weight of the point in cross-validation, 0 to 1.
    worth: f64,
    /// The point's contributions to numerator and denominator; none beyond the capacity.
    adds: Option<(f64, f64)>,
}

impl<'a> Waits<'a> {
    /// `unit` is the queue with a variability of 1.
    pub fn of(unit: &QueueCurve, points: &'a [Point]) -> Waits<'a> {
        let predict = |p: &Point| {
            let unit_us = unit.unit_wait_at(p.load);
            // Near the capacity queues last: 1/(1 − ρ)² requests are no more evidence than one.
            let idle = (1.0 - p.load / unit.capacity()).max(0.0);
            let counts = p.requests * idle * idle;
            let weight = counts / (p.latency_us * p.latency_us);
            let scaled = weight * unit_us;
            let adds = (scaled * (p.latency_us - unit.service_us), scaled * unit_us);
            let worth = counts / (counts + HALF_WORTH);
            Prediction { unit_us, worth, adds: unit_us.is_finite().then_some(adds) }
        };
        Waits {
            service_us: unit.service_us,
            points,
            predictions: points.iter().map(predict).collect(),
        }
    }

    /// The factor by all points with this prior.
    pub fn variability(&self, belief: f64, requests: f64) -> f64 {
        self.variability_without(None, belief, requests)
    }

    fn variability_without(&self, left_out: Option<usize>, belief: f64, requests: f64) -> f64 {
        let prior = requests * AT_HALF_LOAD;
        let (mut top, mut bottom) = (prior * belief, prior);
        for (i, predicted) in self.predictions.iter().enumerate() {
            if let Some((to_top, to_bottom)) = predicted.adds.filter(|_| left_out != Some(i)) {
                top += to_top;
                bottom += to_bottom;
            }
        }
        (top / bottom).clamp(VARIABILITY.0, VARIABILITY.1)
    }

    /// Leave-one-out relative error of the queue; `None` below four points.
    pub fn cross_validate(&self) -> Option<f64> {
        if self.points.len() < LEAST_VALIDATED {
            return None;
        }
        let (mut sum, mut weight) = (0.0, 0.0);
        for (i, (p, predicted)) in self.points.iter().zip(&self.predictions).enumerate() {
            let variability = self.variability_without(Some(i), 1.0, PRIOR_REQUESTS);
            let latency_us = self.service_us + variability * predicted.unit_us;
            let error = (latency_us / p.latency_us - 1.0).abs().min(1.0);
            sum += predicted.worth * error * error;
            weight += predicted.worth;
        }
        (weight > 0.0).then(|| (sum / weight).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variability_is_found_and_stays_within_bounds() {
        let unit = QueueCurve { service_us: 30_000.0, cores: 2.0, variability: 1.0 };
        let truth = QueueCurve { variability: 3.0, ..unit };
        let points: Vec<Point> = [0.3, 0.6, 0.8]
            .map(|rho| {
                let load = rho * truth.capacity();
                Point { load, latency_us: truth.latency_at(load), requests: 4_000.0 }
            })
            .to_vec();
        assert!((Waits::of(&unit, &points).variability(1.0, PRIOR_REQUESTS) - 3.0).abs() < 0.3);
        assert!((Waits::of(&unit, &[]).variability(1.0, PRIOR_REQUESTS) - 1.0).abs() < 1e-12);
        let beyond = [Point { load: 1e6, latency_us: 1.0, requests: 1.0 }];
        assert!((Waits::of(&unit, &beyond).variability(1.0, PRIOR_REQUESTS) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn many_requests_near_capacity_are_weaker_evidence_than_a_few_at_half_load() {
        let unit = QueueCurve { service_us: 30_000.0, cores: 1.0, variability: 1.0 };
        let point = |rho: f64, variability: f64, requests: f64| {
            let load = rho * unit.capacity();
            let latency_us = QueueCurve { variability, ..unit }.latency_at(load);
            Point { load, latency_us, requests }
        };
        let points = [point(0.5, 1.0, 1_000.0), point(0.96, 0.3, 2_000.0)];
        let found = Waits::of(&unit, &points).variability(1.0, 0.0);
        assert!((0.75..1.0).contains(&found), "{found}");
    }

    #[test]
    fn a_point_that_the_others_do_not_predict_is_an_error() {
        let unit = QueueCurve { service_us: 30_000.0, cores: 2.0, variability: 1.0 };
        let point = |rho: f64| {
            let load = rho * unit.capacity();
            Point { load, latency_us: unit.latency_at(load), requests: 3_000.0 }
        };
        let mut points = [0.2, 0.4, 0.6, 0.8].map(point);
        assert!(Waits::of(&unit, &points[..3]).cross_validate().is_none());
        assert!(Waits::of(&unit, &points).cross_validate().is_some_and(|error| error < 1e-9));
        points[3].latency_us *= 2.0;
        assert!(Waits::of(&unit, &points).cross_validate().is_some_and(|error| error > 0.2));
    }
}
