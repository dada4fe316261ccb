//! The least `latency · (requests in flight + 1) / weight`, over all backends, latency being a recent
//! average (see `state/latency.rs`). O(n).
//!
//! Source: NGINX Plus, `least_time last_byte`; its code is not public, the formula is that of its
//! documentation (average response time and active connections, weights considered). As latency already
//! holds the wait, a load that grows counts twice: it avoids queues sooner than the fewest connections,
//! and holds slow backends idle at low load.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{InFlight, LatencyTable, Least};
use crate::{Finish, Policy, Request, Settings};

/// The lowest recent latency times load per weight.
pub struct LeastTime {
    weights: Vec<u32>,
    latency: LatencyTable,
    in_flight: InFlight,
}

impl LeastTime {
    /// Over backends of these weights; heeds `decay_ms`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        LeastTime {
            weights: weights.to_vec(),
            latency: LatencyTable::new(weights.len(), settings.decay_us()),
            in_flight: InFlight::new(weights.len()),
        }
    }
}

impl Policy for LeastTime {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.latency.grow(weights.len());
        self.in_flight.grow(weights.len());
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let mut least = Least::new();
        for (i, &w) in self.weights.iter().enumerate() {
            if w > 0 && request.allows(i) {
                let load = self.in_flight.load(i, now) + 1.0;
                least.offer(i, self.latency.estimate_us(i, now) * load / f64::from(w), rng);
            }
        }
        least.backend()
    }

    fn on_start(&mut self, backend: usize, _now: Nanos) {
        self.in_flight.start(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.latency.finish(backend, finish, now);
        self.in_flight.finish(backend, finish, now);
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
