//! Service time, cores and capacity of a backend of which only means are known: response times at some rates, from a
//! monitoring system that averages. Nothing is known of single requests, so that [`ThroughputEstimator`] has nothing to
//! work on.
//!
//! For each number of cores the best service time of a queue with so many cores is fitted to the points; the number is
//! the one that fits best. Where a backend without any queue fits as well (its response time does not grow with its
//! load by more than the noise), the least number of cores that the points do not contradict is a lower bound. Cost:
//! some 50 numbers of cores × 40 steps × points.
//!
//! It fails where means are of too few loads: one load alone shows no capacity, only a bound. It takes arrivals to be
//! Poisson and service to be exponential.
//!
//! [`ThroughputEstimator`]: crate::ThroughputEstimator

use plimsoll_model::Curve;
use plimsoll_queueing::QueueCurve;

use crate::golden::minimise;
use crate::{Point, Throughput};

/// Relative noise of a mean, besides that of its requests: ranges overlap, and clocks differ.
const NOISE: f64 = 0.03;
/// A mean over this many requests has a relative noise of 1, as of exponential times.
const SCATTER: f64 = 1.0;
/// Least requests for an estimate.
const LEAST_REQUESTS: f64 = 20.0;
/// Numbers of cores beyond the first whole ones grow by this factor, up to the last.
const WHOLE: u32 = 12;
const GROWS: f64 = 1.25;
const MOST_CORES: f64 = 512.0;
/// A queue was observed where none fits worse by this much: two standard deviations, squared.
const OBSERVED: f64 = 4.0;
/// What is not contradicted: one standard deviation.
const AGREES: f64 = 1.0;
/// No estimate is better than this.
const LEAST_ERROR: f64 = 0.03;
/// Loads up to this part of the capacity are believed to be settled.
const FULL: f64 = 0.995;
const STEPS: u32 = 40;

/// The fit of a queue with some number of cores.
#[derive(Clone, Copy)]
struct Fit {
    cores: f64,
    service_us: f64,
    misfit: f64,
}

impl Fit {
    fn capacity_rps(&self) -> f64 {
        self.cores * 1e6 / self.service_us
    }
}

/// The service of a backend with these points, whose loads are in requests per second; `unloaded` is its unloaded
/// service time where that was measured, microseconds, and its relative standard deviation. `None` while too little is
/// known.
pub fn from_averages(points: &[Point], unloaded: Option<(f64, f64)>) -> Option<Throughput> {
    let is_one = |p: &&Point| {
        p.load > 0.0 && p.latency_us > 0.0 && p.load.is_finite() && p.latency_us.is_finite()
    };
    let points: Vec<Point> = points.iter().filter(is_one).copied().collect();
    if points.iter().map(|p| p.requests).sum::<f64>() < LEAST_REQUESTS {
        return None;
    }
    let seen = Seen::of(&points);
    let fits: Vec<Fit> = numbers().map(|cores| best(cores, &points, &seen, unloaded)).collect();
    let flat = fits.last()?.misfit;
    let least = fits.iter().map(|fit| fit.misfit).fold(f64::INFINITY, f64::min);
    // Noise that the points themselves show: a bad fit makes nothing certain.
    let noise = (least / (points.len() as f64 - 2.0).max(1.0)).max(1.0);
    let agrees = |fit: &&Fit| (fit.misfit - least) / noise <= AGREES;
    let lower_bound = (flat - least) / noise < OBSERVED;
    let chosen = match lower_bound {
        true => fits.iter().find(agrees)?,
        false => fits.iter().min_by(|a, b| a.misfit.total_cmp(&b.misfit))?,
    };
    let (low, high) =
        fits.iter().filter(agrees).fold((f64::INFINITY, 0.0_f64), |(low, high), fit| {
            (low.min(fit.capacity_rps()), high.max(fit.capacity_rps()))
        });
    let capacity_rps = chosen.capacity_rps();
    let spread = ((high - low) / (2.0 * capacity_rps)).max(LEAST_ERROR);
    Some(Throughput {
        service_us: chosen.service_us,
        cores: chosen.cores,
        capacity_rps,
        rel_se: if lower_bound { NOISE } else { spread },
        cores_rel_se: (!lower_bound).then_some(spread),
        lower_bound,
        margin: 0.0,
    })
}

fn numbers() -> impl Iterator<Item = f64> {
    let more = std::iter::successors(Some(f64::from(WHOLE) * GROWS), |c| Some(c * GROWS));
    (1..=WHOLE).map(f64::from).chain(more.take_while(|c| *c <= MOST_CORES))
}

/// Between what points lie.
struct Seen {
    busiest: f64,
    slowest: f64,
    quickest: f64,
}

impl Seen {
    fn of(points: &[Point]) -> Self {
        let times = || points.iter().map(|p| p.latency_us);
        Seen {
            busiest: points.iter().map(|p| p.load).fold(0.0, f64::max),
            slowest: times().fold(0.0, f64::max),
            quickest: times().fold(f64::INFINITY, f64::min),
        }
    }
}

fn best(cores: f64, points: &[Point], seen: &Seen, unloaded: Option<(f64, f64)>) -> Fit {
    let Seen { busiest, slowest, quickest } = *seen;
    // With this service time the busiest load would fill it.
    let full = FULL * cores * 1e6 / busiest;
    let most = slowest.min(full).ln();
    let least = (quickest / 100.0).min(full / 2.0).ln();
    let misfit = |log: f64| misfit(cores, log.exp(), points, unloaded);
    let log = minimise(misfit, least, most, STEPS);
    Fit { cores, service_us: log.exp(), misfit: misfit(log) }
}

fn misfit(cores: f64, service_us: f64, points: &[Point], unloaded: Option<(f64, f64)>) -> f64 {
    let curve = QueueCurve { service_us, cores, variability: 1.0 };
    let of_point = |p: &Point| {
        // Near the capacity queues last, and a mean is over fewer of them than over requests.
        let room = (1.0 - p.load / curve.capacity()).max(1.0 - FULL);
        let noise = NOISE * NOISE + SCATTER / (p.requests.max(1.0) * room * room);
        (p.latency_us / curve.latency_at(p.load)).ln().powi(2) / noise
    };
    let at_rest = unloaded
        .map_or(0.0, |(us, deviation)| ((us / service_us).ln() / deviation.max(NOISE)).powi(2));
    points.iter().map(of_point).sum::<f64>() + at_rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(cores: f64, service_us: f64, loads: &[f64], wrong: f64) -> Vec<Point> {
        let curve = QueueCurve { service_us, cores, variability: 1.0 };
        let one = |(at, part): (usize, &f64)| {
            let load = part * curve.capacity();
            let off = if at % 2 == 0 { 1.0 + wrong } else { 1.0 - wrong };
            Point { load, latency_us: off * curve.latency_at(load), requests: 3_000.0 }
        };
        loads.iter().enumerate().map(one).collect()
    }

    #[test]
    fn capacity_is_found_where_a_queue_was_seen() {
        for (cores, service_us) in [(1.0, 30_000.0), (2.0, 50_000.0), (8.0, 20_000.0)] {
            for wrong in [0.0, 0.03] {
                let seen = points(cores, service_us, &[0.3, 0.55, 0.75, 0.9], wrong);
                let found = from_averages(&seen, None).expect("an estimate");
                let off = found.capacity_rps / (cores * 1e6 / service_us) - 1.0;
                assert!(!found.lower_bound && off.abs() < 0.15, "{cores}, {wrong}: {found:?}");
            }
        }
    }

    #[test]
    fn without_a_queue_there_is_a_bound_that_is_no_more_than_the_capacity() {
        for (cores, service_us) in [(4.0, 30_000.0), (16.0, 30_000.0)] {
            let seen = points(cores, service_us, &[0.1, 0.2, 0.3], 0.01);
            let found = from_averages(&seen, None).expect("an estimate");
            let carried = seen[2].load;
            assert!(found.lower_bound, "{found:?}");
            assert!(found.capacity_rps >= carried, "it carries {carried}: {found:?}");
            assert!(found.capacity_rps < 1.3 * cores * 1e6 / service_us, "{found:?}");
        }
        // One load alone shows none either.
        let one = points(1.0, 30_000.0, &[0.8], 0.0);
        let found = from_averages(&one, None).expect("an estimate");
        assert!(found.lower_bound && found.capacity_rps >= one[0].load, "{found:?}");
    }

    #[test]
    fn an_unloaded_service_time_tells_a_busy_core_from_many_slow_ones() {
        let busy = points(1.0, 10_000.0, &[0.8], 0.0);
        let found = from_averages(&busy, Some((10_000.0, 0.05))).expect("an estimate");
        assert!((found.capacity_rps / 100.0 - 1.0).abs() < 0.15, "{found:?}");
    }

    #[test]
    fn nonsense_gives_nothing_and_never_panics() {
        assert_eq!(from_averages(&[], None), None);
        let few = Point { load: 3.0, latency_us: 5.0, requests: 3.0 };
        assert_eq!(from_averages(&[few], None), None);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300] {
            for point in [
                Point { load: bad, latency_us: 3e4, requests: 1e3 },
                Point { load: 30.0, latency_us: bad, requests: 1e3 },
                Point { load: bad, latency_us: bad, requests: 1e3 },
            ] {
                let sane = Point { load: 10.0, latency_us: 3e4, requests: 1e3 };
                if let Some(found) = from_averages(&[sane, point], None) {
                    assert!(found.capacity_rps >= 0.0, "{found:?}");
                }
            }
        }
    }
}
