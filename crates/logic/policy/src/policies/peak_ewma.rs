//! Peak EWMA: of N backends drawn at random by weight, the least
//!
//! `cost · (requests in flight + 1) / weight`, where for a sample `x` after `Δt`
//! `cost ← max(x, cost·d + x·(1 − d))`, `d = exp(−Δt/τ)`, and `cost·d` when read.
//!
//! It jumps to every peak and forgets it with τ, so that one slow answer is enough to turn away.
//! Source: Finagle's `P2CPeakEwma`, linkerd2-proxy's `balance::PeakEwma` (tower). O(N log n), with one
//! exponential for each drawn. Two deviations: a backend never heard of costs the pool's mean instead
//! of a constant, and a cost never falls below a tenth of it, because a backend that rested for a
//! minute would otherwise seem to answer in no time and be flooded until its first answer.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{InFlight, Sampler, Taken};
use crate::{Draw, Ending, Finish, Policy, Request, Settings};

/// The least cost, as part of the pool's mean latency.
const FLOOR: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
struct Cost {
    us: f64,
    at: Nanos,
}

impl Cost {
    fn decay(self, decay_us: f64, now: Nanos) -> f64 {
        (-(now.since(self.at).as_nanos() as f64 / 1e3) / decay_us).exp()
    }
}

/// Of a few drawn, the lowest peak-sensitive latency times load.
pub struct PeakEwma {
    choices: u32,
    draw: Draw,
    decay_us: f64,
    weights: Vec<u32>,
    sampler: Sampler,
    costs: Vec<Option<Cost>>,
    /// How many of these there are, and their sum.
    heard_of: usize,
    peaks_us: f64,
    in_flight: InFlight,
}

impl PeakEwma {
    /// Over backends of these weights; heeds `choices`, `draw` and `decay_ms`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let draw = settings.draw;
        PeakEwma {
            choices: settings.choices,
            draw,
            decay_us: settings.decay_us(),
            weights: weights.to_vec(),
            sampler: Sampler::new(weights.iter().map(|&w| draw.chance(w))),
            costs: vec![None; weights.len()],
            heard_of: 0,
            peaks_us: 0.0,
            in_flight: InFlight::new(weights.len()),
        }
    }

    /// The mean of the costs of those that were heard of, none of it forgotten.
    fn mean_peak_us(&self) -> f64 {
        self.peaks_us / self.heard_of.max(1) as f64
    }

    fn observe(&mut self, backend: usize, sample_us: f64, now: Nanos) {
        let us = match self.costs[backend] {
            Some(old) if sample_us < old.us => {
                let d = old.decay(self.decay_us, now);
                sample_us.max(old.us * d + sample_us * (1.0 - d))
            }
            _ => sample_us,
        };
        match self.costs[backend] {
            Some(old) => self.peaks_us += us - old.us,
            None => (self.heard_of, self.peaks_us) = (self.heard_of + 1, self.peaks_us + us),
        }
        self.costs[backend] = Some(Cost { us, at: now });
    }
}

impl Policy for PeakEwma {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.sampler.set(weights.iter().map(|&w| self.draw.chance(w)));
        self.in_flight.grow(weights.len());
        if weights.len() > self.costs.len() {
            self.costs.resize(weights.len(), None);
        }
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let PeakEwma { weights, costs, in_flight, decay_us, .. } = self;
        let pool_us = in_flight.successes().mean_us();
        let mut taken = Taken::new(request);
        self.sampler.least_of(self.choices, &mut taken, rng, |i| {
            let known_us = costs[i].map(|c| c.us * c.decay(*decay_us, now));
            let cost_us = known_us.unwrap_or(pool_us).max(FLOOR * pool_us);
            cost_us * (in_flight.load(i, now) + 1.0) / f64::from(weights[i])
        })
    }

    fn on_start(&mut self, backend: usize, _now: Nanos) {
        self.in_flight.start(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight.finish(backend, finish, now);
        let latency_us = finish.latency_us();
        let penalty_us = self.in_flight.successes().penalty_us(finish.ending);
        match (finish.ending, penalty_us) {
            (Ending::Success, _) => self.observe(backend, latency_us, now),
            (Ending::Rejected | Ending::TooLate, Some(penalty_us)) => {
                // Peaks are far above the mean: it keeps the one it has, if that is no less than the
                // others', and does not forget it.
                let known_us = self.costs[backend].map_or(0.0, |c| c.us).max(self.mean_peak_us());
                self.observe(backend, penalty_us.max(known_us), now);
            }
            (Ending::Abandoned, _) => {
                let successes = self.in_flight.successes();
                let known_us = self.costs[backend].map(|c| c.us * c.decay(self.decay_us, now));
                let expected_us = known_us.unwrap_or(successes.mean_us());
                if let Some(waited_us) = successes.given_up_us(finish, expected_us) {
                    self.observe(backend, waited_us, now);
                }
            }
            (_, Some(penalty_us)) => self.observe(backend, latency_us.max(penalty_us), now),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::time::Duration;

    fn success(ms: u64) -> Finish {
        Finish::success(Duration::from_millis(ms))
    }

    #[test]
    fn one_peak_turns_away_and_time_forgives() {
        let mut policy = PeakEwma::new(&[1, 1], &Settings::default());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut now = Nanos::from_secs_f64(1.0);
        for _ in 0..100 {
            policy.on_finish(0, &success(10), now);
            policy.on_finish(1, &success(11), now);
        }
        assert_eq!(policy.pick(&Request::default(), now, &mut rng), Some(0));
        policy.on_finish(0, &success(100), now);
        assert_eq!(policy.pick(&Request::default(), now, &mut rng), Some(1));
        // exp(-t/10 s) takes 100 ms below 11 ms after 22 s.
        for (seconds, expected) in [(20, 1), (5, 0)] {
            now = now + Duration::from_secs(seconds);
            policy.on_finish(1, &success(11), now);
            assert_eq!(policy.pick(&Request::default(), now, &mut rng), Some(expected));
        }
    }

    #[test]
    fn what_was_given_up_is_a_peak_where_it_is_one() {
        let mut policy = PeakEwma::new(&[1, 1], &Settings::default());
        let now = Nanos::from_secs_f64(1.0);
        policy.on_finish(0, &success(10), now);
        let given_up = |ms| Finish::abandoned(Duration::from_millis(ms));
        policy.on_finish(1, &given_up(9), now);
        assert!(policy.costs[1].is_none(), "less than the pool's mean");
        policy.on_finish(1, &given_up(70), now);
        policy.on_finish(1, &given_up(60), now);
        assert_eq!(policy.costs[1].map(|c| c.us), Some(70_000.0));
        policy.on_finish(1, &given_up(60_000), now);
        assert_eq!(policy.costs[1].map(|c| c.us), Some(100_000.0), "as a failure, no more");
    }

    #[test]
    fn an_average_weighs_by_time_below_a_peak() {
        let mut policy = PeakEwma::new(&[1], &Settings::default());
        policy.observe(0, 1_000.0, Nanos::ZERO);
        policy.observe(0, 500.0, Nanos::from_secs_f64(10.0));
        let expected = 1_000.0 * (-1f64).exp() + 500.0 * (1.0 - (-1f64).exp());
        assert!((policy.costs[0].unwrap().us - expected).abs() < 1e-9);
    }

    #[test]
    fn the_newcomer_is_average_and_the_rested_is_not_free() {
        let mut policy = PeakEwma::new(&[1, 1], &Settings::default());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        policy.on_finish(0, &success(10), Nanos::ZERO);
        let now = Nanos::from_secs_f64(600.0);
        policy.on_finish(0, &success(10), now);
        policy.set_weights(&[1, 1, 1]);
        // 1 and 2 are unknown: each costs 10 ms, as 0 does, and gets its part.
        let mut count = [0u32; 3];
        for _ in 0..30 {
            let i = policy.pick(&Request::default(), now, &mut rng).unwrap();
            policy.on_start(i, now);
            count[i] += 1;
        }
        assert!(count.iter().all(|c| c.abs_diff(10) <= 3), "{count:?}");
    }
}
