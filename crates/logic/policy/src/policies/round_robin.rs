//! Smooth weighted round robin: each turn every backend gains its weight in credit, the richest is
//! picked and pays the sum of all. Shares are exact over a cycle of Σw turns, and a backend's turns are
//! spread as evenly as integers allow (NGINX, `ngx_http_upstream_round_robin.c`). O(n), in
//! vectors while no backend is avoided: credits are whole numbers in 64-bit floats, exact as long as the
//! sum of weights is below 2^53.
//!
//! Credit outlives a change of weights, scaled to their new sum. A scheduler that begins a new cycle
//! starves light backends when weights change more often than a cycle lasts: on HAProxy 2.6, weights
//! 5/100/100 changed every 20 requests, the light server got 18 requests where 108 were its part.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::{Policy, Request};

/// Credits are compared so many at a time.
const LANES: usize = 8;

/// Smooth weighted round robin.
pub struct RoundRobin {
    weight: Vec<f64>,
    credit: Vec<f64>,
    total: f64,
}

impl RoundRobin {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        let mut policy = RoundRobin { weight: Vec::new(), credit: Vec::new(), total: 0.0 };
        policy.set_weights(weights);
        policy
    }

    /// Everyone gains, the first of the richest pays; a backend without weight is infinitely poor.
    fn pick_of_all(&mut self) -> Option<usize> {
        if self.total == 0.0 {
            return None;
        }
        let mut lanes = [f64::NEG_INFINITY; LANES];
        let (credits, rest) = self.credit.as_chunks_mut::<LANES>();
        let (weights, rest_weights) = self.weight.as_chunks::<LANES>();
        for (credits, weights) in credits.iter_mut().zip(weights) {
            for ((lane, credit), &w) in lanes.iter_mut().zip(credits).zip(weights) {
                *credit += w;
                *lane = if *credit > *lane { *credit } else { *lane };
            }
        }
        let mut richest = lanes.into_iter().fold(f64::NEG_INFINITY, f64::max);
        for (credit, &w) in rest.iter_mut().zip(rest_weights) {
            *credit += w;
            richest = richest.max(*credit);
        }
        let has = |chunk: &[f64]| chunk.iter().fold(false, |any, &c| any | (c == richest));
        let chunk = self.credit.chunks(LANES).position(has)? * LANES;
        let i = chunk + self.credit[chunk..].iter().position(|&c| c == richest)?;
        self.credit[i] -= self.total;
        Some(i)
    }

    /// A backend that the request avoids skips the turn: it neither gains nor pays.
    fn pick_of_allowed(&mut self, request: &Request<'_>) -> Option<usize> {
        let mut best = None;
        let (mut richest, mut paid) = (f64::NEG_INFINITY, 0.0);
        for (i, (credit, &w)) in self.credit.iter_mut().zip(&self.weight).enumerate() {
            if w > 0.0 && request.allows(i) {
                *credit += w;
                paid += w;
                if *credit > richest {
                    (best, richest) = (Some(i), *credit);
                }
            }
        }
        self.credit[best?] -= paid;
        best
    }
}

impl Policy for RoundRobin {
    fn set_weights(&mut self, weights: &[u32]) {
        let before = self.total.max(1.0);
        self.weight.clear();
        self.weight.extend(weights.iter().map(|&w| f64::from(w)));
        self.total = self.weight.iter().sum();
        self.credit.resize(weights.len(), 0.0);
        for (credit, &w) in self.credit.iter_mut().zip(&self.weight) {
            // Whoever is out owes and is owed nothing when it returns.
            *credit = match (w > 0.0, credit.is_finite()) {
                (true, true) => (*credit * self.total / before).trunc(),
                (true, false) => 0.0,
                (false, _) => f64::NEG_INFINITY,
            };
        }
    }

    fn pick(
        &mut self,
        request: &Request<'_>,
        _now: Nanos,
        _rng: &mut dyn RngCore,
    ) -> Option<usize> {
        if request.allows_all() { self.pick_of_all() } else { self.pick_of_allowed(request) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn turns(rr: &mut RoundRobin, n: usize) -> Vec<usize> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        (0..n).map(|_| rr.pick(&Request::default(), Nanos::ZERO, &mut rng).unwrap()).collect()
    }

    #[test]
    fn the_order_is_that_of_nginx() {
        // The example of NGINX's commit 52327e0627f4: a a b a c a a.
        assert_eq!(turns(&mut RoundRobin::new(&[5, 1, 1]), 7), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn weights_changed_within_a_cycle_starve_no_backend() {
        let mut rr = RoundRobin::new(&[5, 100, 100]);
        let mut light = 0;
        for round in 0..2_000 {
            light += turns(&mut rr, 20).iter().filter(|&&i| i == 0).count();
            rr.set_weights(&[5, 100, 100 + round % 2]);
        }
        assert!(light.abs_diff(40_000 * 5 / 205) < 20, "{light} turns of 975");
    }

    #[test]
    fn a_backend_that_returns_has_no_debt_and_no_claim() {
        let mut rr = RoundRobin::new(&[1, 1, 1]);
        turns(&mut rr, 1);
        rr.set_weights(&[0, 1, 1]);
        turns(&mut rr, 1_000);
        rr.set_weights(&[1, 1, 1]);
        let mut next = turns(&mut rr, 30);
        next.sort_unstable();
        assert!((0..3).all(|i| next.iter().filter(|&&p| p == i).count().abs_diff(10) <= 1));
    }
}
