//! The least `(requests in flight + 1) / weight`, over all backends; ties at random. O(n).
//!
//! With weights in proportion to learned capacity it beats the best static split at every load, for one
//! balancer. It fails where several balancers do not know of each other's requests: each sees a part of
//! the load, and all choose the same backend.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{InFlight, Keys};
use crate::{Finish, Policy, Request};

/// The fewest requests in flight per weight.
pub struct LeastConnections {
    weights: Vec<u32>,
    in_flight: InFlight,
    keys: Keys,
}

impl LeastConnections {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        let in_flight = InFlight::new(weights.len());
        let mut policy = LeastConnections { weights: Vec::new(), in_flight, keys: Keys::default() };
        policy.set(weights);
        policy
    }

    fn set(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.in_flight.grow(weights.len());
        self.keys.reset(weights.len());
        (0..weights.len()).for_each(|i| self.changed(i, Nanos::ZERO));
        // What is held is read again by the next pick, which knows the time.
        self.in_flight.fade_next();
    }

    fn changed(&mut self, backend: usize, now: Nanos) {
        let load = self.in_flight.load(backend, now);
        set_key(&mut self.keys, &self.weights, backend, load);
    }
}

fn set_key(keys: &mut Keys, weights: &[u32], backend: usize, load: f64) {
    if let Some(&weight) = weights.get(backend).filter(|w| **w > 0) {
        keys.set(backend, (load + 1.0) / f64::from(weight));
    }
}

impl Policy for LeastConnections {
    fn set_weights(&mut self, weights: &[u32]) {
        self.set(weights);
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let LeastConnections { weights, in_flight, keys } = self;
        in_flight.faded(now, |i, load| set_key(keys, weights, i, load));
        keys.least(request, rng)
    }

    fn on_start(&mut self, backend: usize, now: Nanos) {
        self.in_flight.start(backend);
        self.changed(backend, now);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight.finish(backend, finish, now);
        self.changed(backend, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn what_is_in_flight_follows_the_weights() {
        let mut lc = LeastConnections::new(&[1, 2, 0, 5]);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut count = [0u32; 4];
        for _ in 0..800 {
            let i = lc.pick(&Request::default(), Nanos::ZERO, &mut rng).unwrap();
            lc.on_start(i, Nanos::ZERO);
            count[i] += 1;
        }
        assert!(count[0].abs_diff(100) <= 1 && count[1].abs_diff(200) <= 1, "{count:?}");
        assert!(count[2] == 0 && count[3].abs_diff(500) <= 1, "{count:?}");
    }
}
