//! Smooth weighted round robin: each turn every backend gains its weight in credit, the richest is
//! picked and pays the sum of all. Shares are exact over a cycle of Σw turns, and a backend's turns are
//! spread as evenly as integers allow (NGINX, `ngx_http_upstream_round_robin.c`). O(n).
//!
//! Credit outlives a change of weights, scaled to their new sum. A scheduler that begins a new cycle
//! starves light backends when weights change more often than a cycle lasts: on HAProxy 2.6, weights
//! 5/100/100 changed every 20 requests, the light server got 18 requests where 108 were its part.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::{Policy, Request};

/// Smooth weighted round robin.
pub struct RoundRobin {
    weight: Vec<i64>,
    credit: Vec<i64>,
    total: i64,
}

impl RoundRobin {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        let mut policy = RoundRobin { weight: Vec::new(), credit: Vec::new(), total: 0 };
        policy.set_weights(weights);
        policy
    }
}

impl Policy for RoundRobin {
    fn set_weights(&mut self, weights: &[u32]) {
        let before = self.total.max(1);
        self.weight.clear();
        self.weight.extend(weights.iter().map(|&w| i64::from(w)));
        self.total = self.weight.iter().sum();
        self.credit.resize(weights.len(), 0);
        for (credit, &w) in self.credit.iter_mut().zip(&self.weight) {
            let scaled = i128::from(*credit) * i128::from(self.total) / i128::from(before);
            // Whoever is out owes and is owed nothing when it returns.
            *credit = if w > 0 { scaled as i64 } else { 0 };
        }
    }

    fn pick(
        &mut self,
        request: &Request<'_>,
        _now: Nanos,
        _rng: &mut dyn RngCore,
    ) -> Option<usize> {
        let mut best = None;
        let mut richest = i64::MIN;
        let mut paid = 0;
        for (i, (credit, &w)) in self.credit.iter_mut().zip(&self.weight).enumerate() {
            // A backend that this request avoids skips the turn: it neither gains nor pays.
            if w == 0 || !request.allows(i) {
                continue;
            }
            *credit += w;
            paid += w;
            if *credit > richest {
                (best, richest) = (Some(i), *credit);
            }
        }
        if let Some(i) = best {
            self.credit[i] -= paid;
        }
        best
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
    fn weights_changed_within_a_cycle_starve_nobody() {
        let mut rr = RoundRobin::new(&[5, 100, 100]);
        let mut light = 0;
        for round in 0..2_000 {
            light += turns(&mut rr, 20).iter().filter(|&&i| i == 0).count();
            rr.set_weights(&[5, 100, 100 + round % 2]);
        }
        assert!(light.abs_diff(40_000 * 5 / 205) < 20, "{light} turns of 975");
    }

    #[test]
    fn who_returns_has_no_debt_and_no_claim() {
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
