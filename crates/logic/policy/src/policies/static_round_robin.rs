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

    /// The backend at this place, modulo their number, or the next one's that the request allows.
    pub(super) fn at(&self, place: u64, request: &Request<'_>) -> Option<usize> {
        let place = place.checked_rem(self.map.entries().len() as u64)?;
        let at = self.map.next(place as usize, |i| request.allows(i))?;
        Some(self.map.backend(at))
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
        let at = self.map.next(self.turn, |i| request.allows(i))?;
        // The round goes on behind it.
        self.turn = at + 1;
        Some(self.map.backend(at))
    }
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
