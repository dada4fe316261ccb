//! Turns in a fixed order that a map holds, each backend as often as its weight says. O(1), and at most
//! O(n log Σw) where most are avoided or closed (`state/round.rs`).
//!
//! Source: HAProxy's `static-rr` (`map_get_server_rr`, `src/lb_map.c`): the order is the same, see
//! `tests/haproxy.rs`. There a weight that changes while it runs has no effect; here the map is made
//! again, O(Σw), and the round goes on at the same turn. Light backends starve when weights
//! change more often than a round lasts, Σw / gcd picks: [`crate::RoundRobin`] is made for that.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{Round, turns_by_weight};
use crate::{Policy, Request};

/// Turns in a fixed order.
pub struct StaticRoundRobin {
    map: Round,
    turn: usize,
}

impl StaticRoundRobin {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        let mut policy = StaticRoundRobin { map: Round::default(), turn: 0 };
        policy.set_weights(weights);
        policy
    }
}

impl Policy for StaticRoundRobin {
    fn set_weights(&mut self, weights: &[u32]) {
        self.map.set(weights.len(), |entries| turns_by_weight(weights, entries));
    }

    fn pick(
        &mut self,
        request: &Request<'_>,
        _now: Nanos,
        _rng: &mut dyn RngCore,
    ) -> Option<usize> {
        next_turn(&self.map, &mut self.turn, request)
    }
}

/// The next entry that the request allows; the round goes on behind it.
pub(super) fn next_turn(map: &Round, turn: &mut usize, request: &Request<'_>) -> Option<usize> {
    let at = map.next(*turn, |i| request.allows(i))?;
    *turn = at + 1;
    Some(map.backend(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn a_round_has_as_many_turns_as_the_weights_say() {
        let mut policy = StaticRoundRobin::new(&[6, 0, 2, 2]);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut turns = |policy: &mut StaticRoundRobin, request: Request<'_>| -> Vec<usize> {
            (0..5).map(|_| policy.pick(&request, Nanos::ZERO, &mut rng).unwrap()).collect()
        };
        assert_eq!(turns(&mut policy, Request::default()), [0, 0, 2, 0, 3]);
        assert_eq!(turns(&mut policy, Request::default().avoiding(&[0])), [2, 3, 2, 3, 2]);
        policy.set_weights(&[0, 1]);
        assert_eq!(turns(&mut policy, Request::default()), [1; 5]);
    }
}
