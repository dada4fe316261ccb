//! An agent on every backend reports its CPU; weights follow step by step, in the manner of Cheetah's
//! AWRR: `w ← w · L / ((1 − α) l + α L)`, l a backend's utilisation and L the mean. Busy cores are sampled
//! every 10 ms, which is what an agent reads of a kernel's counters.

use plimsoll_feedback::awrr;
use plimsoll_model::{GREATEST_WEIGHT, Nanos};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{Method, PoolModel, RequestPool, integer_weights};

use super::{LOAD, SAME, SERVICE_US, SLOWED, Track, capacities_after, pool, rate_rps};
use crate::Provenance;

/// How often an agent looks.
const SAMPLE_NS: u64 = 10_000_000;
/// The pool runs so long before the change.
const WARM_UP_S: f64 = 30.0;
/// What clients' mean is over.
const LATER_S: f64 = 60.0;

/// How the agents are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Awrr {
    /// The part of the mean in the correction: 0 corrects all at once, 0.5 is Cheetah's.
    pub alpha: f64,
    /// From one report to the next, seconds.
    pub interval_s: f64,
}

/// Runs it for so long after the change. It stops at even utilisation, as it measures it, and goes on
/// once it is uneven again.
pub fn run(how: Awrr, seconds: f64, seed: u64) -> Track {
    let pool = pool();
    let even = vec![GREATEST_WEIGHT; pool.len()];
    let (service, method) = (ServiceTime::Exponential, Method::RoundRobin);
    let mut pool_model = RequestPool::new(&pool, &even, SERVICE_US, service, method, seed);
    pool_model.set_rate(rate_rps());
    pool_model.advance(at(WARM_UP_S));
    pool_model.set_speed(SLOWED.0, SLOWED.1 * pool[SLOWED.0].speed);
    let mut parts = vec![1.0; pool.len()];
    let mut weights = vec![(0.0, even)];
    let (mut stopped_s, mut iterations) = (None, 0);
    let rounds = (seconds / how.interval_s).floor() as usize;
    for round in 1..=rounds {
        let passed_s = round as f64 * how.interval_s;
        if passed_s > seconds - LATER_S {
            pool_model.keep_answers();
        }
        let used = measure(&mut pool_model, at(WARM_UP_S + passed_s), &pool);
        let most = used.iter().copied().fold(0.0, f64::max);
        let least = used.iter().copied().fold(f64::INFINITY, f64::min);
        if most - least <= SAME {
            stopped_s = stopped_s.or(Some(passed_s));
            continue;
        }
        iterations += usize::from(stopped_s.is_none());
        correct(&mut parts, &used, how.alpha);
        let whole = integer_weights(&parts, GREATEST_WEIGHT);
        let changes: Vec<(usize, u32)> = whole.iter().copied().enumerate().collect();
        pool_model.set_weights(&changes);
        weights.push((passed_s, whole));
    }
    let answers = pool_model.take_answers();
    let sum: f64 = answers.iter().map(|a| a.latency_ms).sum();
    let later_ms = sum / answers.len() as f64;
    let provenance = Provenance::Simulated;
    Track { provenance, weights, stopped_s, iterations, end_s: seconds, later_ms }
}

/// How many iterations it takes from equal weights to a spread of utilisation of at most `same`, were every
/// reading exact.
pub fn exact_iterations(alpha: f64, same: f64) -> usize {
    let mut parts = vec![1.0; pool().len()];
    let (capacities, rate) = (capacities_after(), rate_rps());
    let mut iterations = 0;
    loop {
        let sum: f64 = parts.iter().sum();
        let used: Vec<f64> =
            parts.iter().zip(&capacities).map(|(part, c)| part / sum * rate / c).collect();
        let most = used.iter().copied().fold(0.0, f64::max);
        if most - used.iter().copied().fold(f64::INFINITY, f64::min) <= same {
            return iterations;
        }
        correct(&mut parts, &used, alpha);
        iterations += 1;
    }
}

/// The standard deviation of a reading of one backend's utilisation over so many seconds, before the change.
///
/// Busy cores without a queue are an M/M/∞ system: covariance `a·e^(−t/s)`, so that the mean over T has the
/// variance `2·a·s/T` for T ≫ s; a the offered load in cores, s the service time.
pub fn reading_error(interval_s: f64) -> f64 {
    let cores = f64::from(pool()[0].cores);
    (2.0 * LOAD * cores * SERVICE_US / 1e6 / interval_s).sqrt() / cores
}

/// One iteration.
fn correct(parts: &mut [f64], used: &[f64], alpha: f64) {
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    for (part, used) in parts.iter_mut().zip(used) {
        *part *= awrr::correction(*used, mean, alpha);
    }
}

fn at(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

/// The mean part of its cores that each backend uses until then.
fn measure(
    pool_model: &mut RequestPool,
    until: Nanos,
    pool: &[plimsoll_sim::BackendModel],
) -> Vec<f64> {
    let (mut busy, mut samples) = (vec![0u64; pool.len()], 0u64);
    while pool_model.now() < until {
        pool_model.advance(Nanos((pool_model.now().0 + SAMPLE_NS).min(until.0)));
        for ((busy, server), model) in busy.iter_mut().zip(pool_model.report().servers).zip(pool) {
            *busy += u64::from(server.in_flight.min(model.cores));
        }
        samples += 1;
    }
    let part = |(busy, model): (u64, &plimsoll_sim::BackendModel)| {
        busy as f64 / (samples.max(1) * u64::from(model.cores)) as f64
    };
    busy.into_iter().zip(pool).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_scatter_as_they_are_said_to() {
        let pool = pool();
        let (service, method) = (ServiceTime::Exponential, Method::RoundRobin);
        let mut pool_model = RequestPool::new(&pool, &[1; 4], SERVICE_US, service, method, 9);
        pool_model.set_rate(rate_rps());
        pool_model.advance(at(5.0));
        let readings: Vec<f64> = (1..=100)
            .flat_map(|second| measure(&mut pool_model, at(5.0 + f64::from(second)), &pool))
            .collect();
        let n = readings.len() as f64;
        let mean = readings.iter().sum::<f64>() / n;
        let variance = readings.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / n;
        assert!((mean - LOAD).abs() < 0.03, "{mean}");
        let ratio = variance.sqrt() / reading_error(1.0);
        assert!((0.7..1.3).contains(&ratio), "{ratio}");
    }

    #[test]
    fn half_steps_take_four_exact_readings_to_two_points_and_whole_steps_one() {
        assert_eq!((exact_iterations(0.5, 0.02), exact_iterations(0.0, 0.001)), (4, 1));
        assert_eq!(exact_iterations(0.5, 0.5), 0);
    }

    #[test]
    fn long_reports_lead_to_weights_in_proportion_to_capacity() {
        let track = run(Awrr { alpha: 0.5, interval_s: 10.0 }, 300.0, 3);
        assert!(track.iterations >= 1 && track.stopped_s.is_some());
        let (_, last) = track.weights.last().unwrap();
        let others = f64::from(last[0] + last[1] + last[2]) / 3.0;
        assert!((f64::from(last[3]) / others - 0.75).abs() < 0.08, "{last:?}");
    }
}
