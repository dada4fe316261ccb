//! The request's key modulo the length of a map that holds each backend as often as its weight says.
//! O(1), and at most O(n log Σw) where most are avoided or closed (`state/round.rs`); requests without a key go
//! round the map.
//!
//! Source: HAProxy's `hash-type map-based` (`map_get_server_hash`, `src/lb_map.c`), its default: shares
//! are exact, and almost every key moves when a weight changes or a backend comes or goes. Where that
//! hurts, [`crate::HashRing`] or [`crate::HashMaglev`].

use plimsoll_model::Nanos;
use rand::RngCore;

use super::StaticRoundRobin;
use crate::{Policy, Request};

/// The key modulo a weighted map.
pub struct MapHash {
    /// Without a key, a turn of it.
    map: StaticRoundRobin,
}

impl MapHash {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        MapHash { map: StaticRoundRobin::new(weights) }
    }
}

impl Policy for MapHash {
    fn set_weights(&mut self, weights: &[u32]) {
        self.map.set_weights(weights);
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        match request.key {
            Some(key) => self.map.at(key, request),
            None => self.map.pick(request, now, rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn a_key_has_its_place_and_a_way_out() {
        let mut policy = MapHash::new(&[2, 1, 1]);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut pick = |request: Request<'_>| policy.pick(&request, Nanos::ZERO, &mut rng);
        let places: Vec<_> = (0..8).map(|key| pick(Request::with_key(key)).unwrap()).collect();
        assert_eq!(places, [0, 0, 1, 2, 0, 0, 1, 2]);
        assert_eq!(pick(Request::with_key(u64::MAX)), Some(2), "all bits of a key count");
        assert_eq!(pick(Request::with_key(2).avoiding(&[1])), Some(2));
        assert_eq!(pick(Request::with_key(1).avoiding(&[2, 1, 0])), None);
    }
}
