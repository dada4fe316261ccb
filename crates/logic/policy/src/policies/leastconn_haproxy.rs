//! HAProxy's leastconn, with the key it really uses: see [`plimsoll_queueing::HaproxyLeastconn`].
//! An idle server comes first whatever its weight. O(n).
//!
//! It is here to be compared with HAProxy itself, so it repeats HAProxy's weakness: a failure counts
//! like any end, and **a server that fails fast attracts load**. HAProxy's remedy is
//! `observe layer7 … on-error mark-down`; ours is [`crate::LeastConnections`]. Weights above 256 are
//! beyond what HAProxy takes: then all are scaled so that the greatest is 256.

use plimsoll_model::{GREATEST_WEIGHT, Nanos};
use plimsoll_queueing::HaproxyLeastconn;
use rand::RngCore;

use crate::{Finish, Policy, Request};

/// HAProxy's leastconn.
pub struct HaproxyLeastconnPolicy {
    weights: Vec<u32>,
    in_flight: Vec<u32>,
    inner: HaproxyLeastconn,
    /// The next weights, while they are compared with these.
    next: Vec<u32>,
}

impl HaproxyLeastconnPolicy {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        let mut in_use = Vec::new();
        put_in_range(weights, &mut in_use);
        HaproxyLeastconnPolicy {
            in_flight: vec![0; weights.len()],
            inner: HaproxyLeastconn::new(&in_use),
            weights: in_use,
            next: Vec::with_capacity(weights.len()),
        }
    }
}

/// Weights as HAProxy takes them, at most 256; what is in stays in.
pub(super) fn put_in_range(weights: &[u32], in_use: &mut Vec<u32>) {
    let greatest = weights.iter().copied().max().unwrap_or(0);
    let scale = (f64::from(GREATEST_WEIGHT) / f64::from(greatest)).min(1.0);
    // What is in stays in: rounding must not make it 0.
    let scaled = |&w: &u32| ((f64::from(w) * scale).round() as u32).max(w.min(1));
    in_use.clear();
    in_use.extend(weights.iter().map(scaled));
}

impl Policy for HaproxyLeastconnPolicy {
    fn set_weights(&mut self, weights: &[u32]) {
        put_in_range(weights, &mut self.next);
        let new = &mut self.next;
        let known = self.in_flight.len().max(new.len());
        new.resize(known, 0);
        if known > self.in_flight.len() {
            self.in_flight.resize(known, 0);
            self.inner = HaproxyLeastconn::new(new);
            for (i, &n) in self.in_flight.iter().enumerate() {
                self.inner.set_weight(i, new[i], n);
            }
        } else {
            for (i, (&old, &w)) in self.weights.iter().zip(&*new).enumerate() {
                if old != w {
                    self.inner.set_weight(i, w, self.in_flight[i]);
                }
            }
        }
        std::mem::swap(&mut self.weights, &mut self.next);
    }

    fn pick(
        &mut self,
        request: &Request<'_>,
        _now: Nanos,
        _rng: &mut dyn RngCore,
    ) -> Option<usize> {
        self.inner.pick_where(|i| request.allows(i))
    }

    fn on_start(&mut self, backend: usize, _now: Nanos) {
        self.in_flight[backend] += 1;
        self.changed(backend);
    }

    fn on_finish(&mut self, backend: usize, _finish: &Finish, _now: Nanos) {
        self.in_flight[backend] = self.in_flight[backend].saturating_sub(1);
        self.changed(backend);
    }
}

impl HaproxyLeastconnPolicy {
    fn changed(&mut self, backend: usize) {
        use plimsoll_queueing::Pick;
        self.inner.changed(backend, self.in_flight[backend]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn an_idle_server_comes_first_and_great_weights_are_scaled() {
        let mut lc = HaproxyLeastconnPolicy::new(&[1_000, 1, 0]);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut pick = |lc: &mut HaproxyLeastconnPolicy| {
            let i = lc.pick(&Request::default(), Nanos::ZERO, &mut rng).unwrap();
            lc.on_start(i, Nanos::ZERO);
            i
        };
        assert_eq!([pick(&mut lc), pick(&mut lc)], [0, 1]);
        assert!((0..100).all(|_| pick(&mut lc) == 0));
        assert_eq!(lc.weights, [256, 1, 0]);
        // The one that joins is idle: it comes first, and the others keep what they have.
        lc.set_weights(&[1_000, 1, 0, 1]);
        assert_eq!([pick(&mut lc), pick(&mut lc)], [3, 0]);
    }
}
