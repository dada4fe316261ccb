//! The power of N choices by latency: of N different backends drawn at random by weight, the one with
//! the lowest recent latency (an EWMA, see `state/latency.rs`). O(N log n).
//!
//! Source: the KnapsackLB paper's "P2 on latency" (Figure 15). It fails by what it looks at: the answer
//! to a choice is seen only after the request has waited, so all run to the backend that was fast until
//! its queue is long. [`crate::PeakEwma`] and [`crate::LeastTime`] add what is in flight, which is seen
//! at once.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{LatencyTable, Sampler, Taken};
use crate::{Draw, Finish, Policy, Request, Settings};

/// Of a few drawn at random, the lowest recent latency.
pub struct PowerOfNLatency {
    choices: u32,
    draw: Draw,
    sampler: Sampler,
    latency: LatencyTable,
}

impl PowerOfNLatency {
    /// Over backends of these weights; heeds `choices`, `draw` and `decay_ms`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let draw = settings.draw;
        PowerOfNLatency {
            choices: settings.choices,
            draw,
            sampler: Sampler::new(weights.iter().map(|&w| draw.chance(w))),
            latency: LatencyTable::new(weights.len(), settings.decay_us()),
        }
    }
}

impl Policy for PowerOfNLatency {
    fn set_weights(&mut self, weights: &[u32]) {
        self.sampler.set(weights.iter().map(|&w| self.draw.chance(w)));
        self.latency.grow(weights.len());
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let mut taken = Taken::new(request);
        self.sampler.least_of(self.choices, &mut taken, rng, |i| self.latency.estimate_us(i, now))
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.latency.finish(backend, finish, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::time::Duration;

    #[test]
    fn the_slowest_of_all_is_not_picked_until_it_is_forgotten() {
        let mut policy = PowerOfNLatency::new(&[1, 1, 1], &Settings::default());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let now = Nanos::from_secs_f64(1.0);
        for (i, ms) in [(0, 10), (1, 20), (2, 30)] {
            policy.on_finish(i, &Finish::success(Duration::from_millis(ms)), now);
        }
        let mut count = [0u32; 3];
        for _ in 0..30_000 {
            count[policy.pick(&Request::default(), now, &mut rng).unwrap()] += 1;
        }
        // The fastest wins its two pairs of three, the middle one the third.
        assert!(count[0].abs_diff(20_000) < 400 && count[2] == 0, "{count:?}");
        // An hour later it is an average backend, here the middle one, and wins its pair.
        let later = now + Duration::from_secs(3_600);
        for (i, ms) in [(0, 40), (1, 50)] {
            policy.on_finish(i, &Finish::success(Duration::from_millis(ms)), later);
        }
        let mut picked = |_: &usize| policy.pick(&Request::default(), later, &mut rng) == Some(2);
        assert!((0..30_000).filter(|k| picked(k)).count().abs_diff(10_000) < 400);
    }
}
