//! The first backend, in order of index, that is not full: its limit is `max_in_flight`, and without one
//! the first gets everything. O(1) while the first is open, O(n) at most. Weights only say who is in.
//!
//! Source: HAProxy's `first` (`src/lb_fas.c`): as few servers as the load needs, so that the rest can
//! sleep. A server that fails fast is never full, and in HAProxy gets everything. Here a backend with
//! more failures and refusals not yet forgiven (see `state/failure.rs`) than requests in flight is passed
//! over while another is open: after one failure on an idle pool for 30 mean latencies, after one refusal
//! for six.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::InFlight;
use crate::{Finish, Policy, Request};

/// Less of a failure or a refusal than this is no reason.
const FORGIVEN: f64 = 0.05;

/// The first that is not full.
pub struct First {
    weights: Vec<u32>,
    in_flight: InFlight,
}

impl First {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        First { weights: weights.to_vec(), in_flight: InFlight::new(weights.len()) }
    }
}

impl Policy for First {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.in_flight.grow(weights.len());
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, _rng: &mut dyn RngCore) -> Option<usize> {
        let First { weights, in_flight } = self;
        let open = || (0..weights.len()).filter(|&i| weights[i] > 0 && request.allows(i));
        let mut sound = |i: &usize| {
            let count = f64::from(in_flight.count(*i));
            in_flight.held(*i, now) <= count.max(FORGIVEN)
        };
        open().find(&mut sound).or_else(|| open().next())
    }

    fn on_start(&mut self, backend: usize, _now: Nanos) {
        self.in_flight.start(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight.finish(backend, finish, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn failures_pass_it_over_until_they_are_forgiven() {
        let mut first = First::new(&[0, 1, 9]);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut now = Nanos::ZERO;
        let mut pick = |first: &mut First, now| first.pick(&Request::default(), now, &mut rng);
        first.on_start(1, now);
        first.on_finish(1, &Finish::success(10 * MS), now);
        assert_eq!(pick(&mut first, now), Some(1));
        first.on_start(1, now);
        first.on_finish(1, &Finish::failure(MS), now);
        assert_eq!(pick(&mut first, now), Some(2));
        first.set_weights(&[0, 1, 0]);
        assert_eq!(pick(&mut first, now), Some(1), "nobody else");
        first.set_weights(&[0, 1, 1]);
        assert_eq!(pick(&mut first, now + 290 * MS), Some(2), "exp(-290/100) is above a twentieth");
        now = now + 301 * MS;
        assert_eq!(pick(&mut first, now), Some(1), "exp(-301/100) is below it");
        first.on_start(1, now);
        first.on_finish(1, &Finish::rejected(MS), now);
        assert_eq!(pick(&mut first, now), Some(2), "who refuses is full");
        assert_eq!(pick(&mut first, now + 80 * MS), Some(1), "and has room again");
    }
}
