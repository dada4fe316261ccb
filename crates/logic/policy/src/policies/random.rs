//! A draw in proportion to weight; knows nothing of load. O(log n).
//!
//! Each backend sees its part of a Poisson stream as a Poisson stream, so queues are longer than under
//! round robin, which spaces arrivals evenly. It needs no state at all: any number of balancers do as
//! well as one.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{Sampler, Taken};
use crate::{Policy, Request};

/// A draw in proportion to weight.
pub struct Random {
    sampler: Sampler,
}

impl Random {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        Random { sampler: Sampler::new(weights.iter().copied()) }
    }
}

impl Policy for Random {
    fn set_weights(&mut self, weights: &[u32]) {
        self.sampler.set(weights.iter().copied());
    }

    fn pick(&mut self, request: &Request<'_>, _now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        self.sampler.draw(&mut Taken::new(request), rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn draws_are_in_proportion_independent_and_heed_what_is_avoided() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut policy = Random::new(&[1, 0, 3]);
        let mut draws = |policy: &mut Random, avoid: &[usize]| {
            let request = Request::default().avoiding(avoid);
            let mut draw = || policy.pick(&request, Nanos::ZERO, &mut rng);
            (0..40_000).map(|_| draw()).collect::<Vec<_>>()
        };
        let part = |picks: &[Option<usize>], i| {
            picks.iter().filter(|p| **p == Some(i)).count() as f64 / picks.len() as f64
        };
        let picks = draws(&mut policy, &[]);
        assert!((part(&picks, 0) - 0.25).abs() < 0.01 && part(&picks, 1) == 0.0);
        assert!((part(&picks, 2) - 0.75).abs() < 0.01);
        // After backend 0 as often as at any time: turns are not taken.
        let again = picks.windows(2).filter(|w| w[0] == Some(0) && w[1] == Some(0)).count();
        assert!((again as f64 / 40_000.0 - 0.0625).abs() < 0.006, "{again}");
        assert_eq!(part(&draws(&mut policy, &[2]), 0), 1.0);
        assert!(draws(&mut policy, &[0, 2]).iter().all(Option::is_none));
        policy.set_weights(&[0, 5, 5]);
        assert!((part(&draws(&mut policy, &[]), 1) - 0.5).abs() < 0.01);
    }
}
