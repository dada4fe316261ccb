//! HAProxy's roundrobin, with the keys it really uses: see [`plimsoll_queueing::HaproxyRoundRobin`]. O(n).
//!
//! It is here to be compared with HAProxy itself, turn by turn, so it repeats HAProxy's weakness: **a light
//! backend whose own weight changes more often than a round lasts starves**, for each change begins its part of
//! the round anew. [`crate::RoundRobin`] does not. Weights above 256 are beyond what HAProxy takes: then all
//! are scaled so that the greatest is 256.

use plimsoll_model::Nanos;
use plimsoll_queueing::HaproxyRoundRobin;
use rand::RngCore;

use super::leastconn_haproxy::put_in_range;
use crate::{Policy, Request};

/// HAProxy's roundrobin.
pub struct HaproxyRoundRobinPolicy {
    inner: HaproxyRoundRobin,
    /// The next weights, as HAProxy takes them.
    next: Vec<u32>,
}

impl HaproxyRoundRobinPolicy {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        let mut next = Vec::with_capacity(weights.len());
        put_in_range(weights, &mut next);
        HaproxyRoundRobinPolicy { inner: HaproxyRoundRobin::new(&next), next }
    }
}

impl Policy for HaproxyRoundRobinPolicy {
    fn set_weights(&mut self, weights: &[u32]) {
        put_in_range(weights, &mut self.next);
        let known = self.inner.servers();
        for i in 0..known {
            // One of the same weight stays where it is.
            self.inner.set_weight(i, self.next.get(i).copied().unwrap_or(0));
        }
        self.next.iter().skip(known).for_each(|&weight| self.inner.add(weight));
    }

    fn pick(
        &mut self,
        request: &Request<'_>,
        _now: Nanos,
        _rng: &mut dyn RngCore,
    ) -> Option<usize> {
        self.inner.pick_where(|i| request.allows(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn turns_are_those_of_a_real_haproxy_and_great_weights_are_scaled() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut turns = |weights: &[u32], n: usize| -> Vec<usize> {
            let mut policy = HaproxyRoundRobinPolicy::new(weights);
            (0..n)
                .map(|_| policy.pick(&Request::default(), Nanos::ZERO, &mut rng).unwrap())
                .collect()
        };
        // As `scripts/record-haproxy-picks` prints them.
        assert_eq!(
            turns(&[3, 1, 5, 2, 4], 15),
            [2, 4, 0, 2, 4, 3, 2, 0, 4, 2, 1, 2, 0, 4, 3].to_vec(),
        );
        assert_eq!(turns(&[2_560, 0, 1_280], 30), turns(&[256, 0, 128], 30));
    }

    #[test]
    fn backends_join_leave_and_are_avoided() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut policy = HaproxyRoundRobinPolicy::new(&[1, 1]);
        policy.set_weights(&[1, 1, 2]);
        policy.set_weights(&[1, 0, 2]);
        let avoid = [2];
        let request = Request::default().avoiding(&avoid);
        for _ in 0..10 {
            assert_eq!(policy.pick(&request, Nanos::ZERO, &mut rng), Some(0));
        }
        policy.set_weights(&[0, 1]);
        assert_eq!(policy.pick(&Request::default(), Nanos::ZERO, &mut rng), Some(1));
    }
}
