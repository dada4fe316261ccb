//! The least `latency · (requests in flight + 1) / weight`, over all backends, latency being a recent
//! average (see `state/latency.rs`). O(n): keys are kept, as in
//! `state/keys.rs`. What time and other backends' answers change in them is brought up to date when a
//! [`STEP`] of either has passed.
//!
//! Source: NGINX Plus, `least_time last_byte`; its code is not public, the formula is that of its
//! documentation (average response time and active connections, weights considered). As latency already
//! holds the wait, a load that grows counts twice: it avoids queues sooner than the fewest connections,
//! and holds slow backends idle at low load.

use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{InFlight, Keys, LatencyTable};
use crate::{Finish, Policy, Request, Settings};

/// A part of `decay_ms`, and a relative change of the pool's mean: keys are wrong by less.
const STEP: f64 = 1.0 / 64.0;

/// The lowest recent latency times load per weight.
pub struct LeastTime {
    weights: Vec<u32>,
    latency: LatencyTable,
    in_flight: InFlight,
    keys: Keys,
    step: Duration,
    next_refresh: Nanos,
    /// The pool's mean when the keys were last brought up to date.
    mean_us: f64,
}

impl LeastTime {
    /// Over backends of these weights; heeds `decay_ms`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let mut policy = LeastTime {
            weights: Vec::new(),
            latency: LatencyTable::new(weights.len(), settings.decay_us()),
            in_flight: InFlight::new(weights.len()),
            keys: Keys::default(),
            step: Duration::from_nanos((STEP * settings.decay_us() * 1e3) as u64),
            next_refresh: Nanos::ZERO,
            mean_us: 0.0,
        };
        policy.set_weights(weights);
        policy
    }

    fn refresh(&mut self, now: Nanos) {
        let mean_us = self.latency.mean_us();
        if now < self.next_refresh && (mean_us / self.mean_us - 1.0).abs() < STEP {
            return;
        }
        self.next_refresh = now + self.step;
        self.mean_us = mean_us;
        (0..self.weights.len()).for_each(|i| self.changed(i, now));
    }

    fn changed(&mut self, backend: usize, now: Nanos) {
        let load = self.in_flight.load(backend, now);
        set_key(&mut self.keys, &self.weights, &self.latency, (backend, load), now);
    }
}

fn set_key(
    keys: &mut Keys,
    weights: &[u32],
    latency: &LatencyTable,
    (backend, load): (usize, f64),
    now: Nanos,
) {
    if let Some(&weight) = weights.get(backend).filter(|w| **w > 0) {
        let cost = latency.estimate_us(backend, now) * (load + 1.0) / f64::from(weight);
        keys.set(backend, cost);
    }
}

impl Policy for LeastTime {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.latency.grow(weights.len());
        self.in_flight.grow(weights.len());
        self.keys.reset(weights.len());
        self.next_refresh = Nanos::ZERO;
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        self.refresh(now);
        let LeastTime { weights, latency, in_flight, keys, .. } = self;
        in_flight.faded(now, |i, load| set_key(keys, weights, latency, (i, load), now));
        keys.least(request, rng)
    }

    fn on_start(&mut self, backend: usize, now: Nanos) {
        self.in_flight.start(backend);
        self.changed(backend, now);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.latency.finish(backend, finish, now);
        self.in_flight.finish(backend, finish, now);
        self.changed(backend, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::time::Duration;

    #[test]
    fn in_flight_goes_by_speed_and_weight() {
        let mut policy = LeastTime::new(&[1, 1, 4], &Settings::default());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let now = Nanos::from_secs_f64(1.0);
        for (i, ms) in [(0, 10), (1, 30), (2, 20)] {
            for _ in 0..1_000 {
                policy.on_start(i, now);
                policy.on_finish(i, &Finish::success(Duration::from_millis(ms)), now);
            }
        }
        let mut count = [0u32; 3];
        for _ in 0..1_000 {
            let i = policy.pick(&Request::default(), now, &mut rng).unwrap();
            policy.on_start(i, now);
            count[i] += 1;
        }
        // In proportion to weight over latency: 1/10, 1/30, 4/20, so 3 : 1 : 6.
        for (got, expected) in count.into_iter().zip([300, 100, 600]) {
            assert!(got.abs_diff(expected) <= 3, "{count:?}");
        }
    }
}
