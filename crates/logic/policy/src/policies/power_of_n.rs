//! The power of N choices: of N different backends drawn at random, the one with the least
//! `(requests in flight + 1) / weight`; ties to the first drawn. O(N log n).
//!
//! Source: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (1996); HAProxy's
//! `random(N)` and NGINX's `random two least_conn` draw by weight, which unequal backends need. Of
//! stale or partial counts it makes better use than a full scan: not everyone runs to the same backend.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{InFlight, Sampler, Taken};
use crate::{Draw, Finish, Policy, Request, Settings};

/// Of a few drawn at random, the fewest requests in flight per weight.
pub struct PowerOfN {
    choices: u32,
    draw: Draw,
    weights: Vec<u32>,
    sampler: Sampler,
    in_flight: InFlight,
}

impl PowerOfN {
    /// Over backends of these weights; heeds `choices` and `draw`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let draw = settings.draw;
        PowerOfN {
            choices: settings.choices,
            draw,
            weights: weights.to_vec(),
            sampler: Sampler::new(weights.iter().map(|&w| draw.chance(w))),
            in_flight: InFlight::new(weights.len()),
        }
    }

    /// Of those that are not taken.
    pub(crate) fn pick_of(
        &mut self,
        mut those: Taken<'_>,
        now: Nanos,
        rng: &mut dyn RngCore,
    ) -> Option<usize> {
        let PowerOfN { weights, in_flight, .. } = self;
        self.sampler.least_of(self.choices, &mut those, rng, |i| {
            (in_flight.load(i, now) + 1.0) / f64::from(weights[i])
        })
    }
}

impl Policy for PowerOfN {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.sampler.set(weights.iter().map(|&w| self.draw.chance(w)));
        self.in_flight.grow(weights.len());
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        self.pick_of(Taken::new(request), now, rng)
    }

    fn on_start(&mut self, backend: usize, _now: Nanos) {
        self.in_flight.start(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight.finish(backend, finish, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn of_two_the_less_loaded_and_of_all_the_least() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut share_of_idle = |choices| {
            let settings = Settings { choices, ..Settings::default() };
            let mut policy = PowerOfN::new(&[1, 1, 1, 1], &settings);
            (0..3).for_each(|i| policy.on_start(i, Nanos::ZERO));
            let idle = (0..100_000)
                .filter(|_| policy.pick(&Request::default(), Nanos::ZERO, &mut rng) == Some(3));
            idle.count() as f64 / 100_000.0
        };
        assert!((share_of_idle(1) - 0.25).abs() < 0.006);
        assert!((share_of_idle(2) - 0.5).abs() < 0.006, "in half of all pairs of four");
        assert_eq!(share_of_idle(4), 1.0);
        assert_eq!(share_of_idle(16), 1.0, "more choices than backends");
    }

    #[test]
    fn a_uniform_draw_ignores_weight_until_it_compares() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let settings = Settings { choices: 1, draw: Draw::Uniform, ..Settings::default() };
        let mut policy = PowerOfN::new(&[9, 1, 0], &settings);
        let light = (0..100_000)
            .filter(|_| policy.pick(&Request::default(), Nanos::ZERO, &mut rng) == Some(1))
            .count();
        assert!(light.abs_diff(50_000) < 700, "{light}");
    }
}
