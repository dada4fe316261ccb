//! The first backend, in order of index, that is not full: its limit is `max_in_flight`, and without one
//! the first gets everything. O(1) while the first is open, O(n) at most. Weights only say which backends are in.
//!
//! Source: HAProxy's `first` (`src/lb_fas.c`): as few servers as the load needs, so that the rest can
//! sleep. A server that fails fast is never full, and in HAProxy gets everything. Here a backend with
//! more failures and refusals not yet forgiven (see `state/failure.rs`) than requests in flight is passed
//! over while another is open: after one failure on an idle pool for 30 mean latencies, after one refusal
//! for six. So is one that hangs, for `decay_ms` after clients have given up [`GIVEN_UP`] requests of it in a row.

use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::InFlight;
use crate::{Ending, Finish, Policy, Request, Settings};

/// Less of a failure or a refusal than this is no reason.
const FORGIVEN: f64 = 0.05;
/// Requests given up without a success between them: clients in a hurry leave some, not all.
const GIVEN_UP: u32 = 8;

/// Requests given up since the last success, and when the last was.
#[derive(Clone, Copy, Debug, Default)]
struct GivenUp {
    row: u32,
    at: Nanos,
}

/// The first that is not full.
pub struct First {
    weights: Vec<u32>,
    in_flight: InFlight,
    given_up: Vec<GivenUp>,
    decay: Duration,
}

impl First {
    /// Over backends of these weights; heeds `decay_ms`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        First {
            weights: weights.to_vec(),
            in_flight: InFlight::new(weights.len()),
            given_up: vec![GivenUp::default(); weights.len()],
            decay: Duration::from_millis(settings.decay_ms),
        }
    }
}

impl Policy for First {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.in_flight.grow(weights.len());
        let known = self.given_up.len().max(weights.len());
        self.given_up.resize(known, GivenUp::default());
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, _rng: &mut dyn RngCore) -> Option<usize> {
        let First { weights, in_flight, given_up, decay } = self;
        let open = || (0..weights.len()).filter(|&i| weights[i] > 0 && request.allows(i));
        let mut sound = |i: &usize| {
            let count = f64::from(in_flight.count(*i));
            let GivenUp { row, at } = given_up[*i];
            let hangs = row >= GIVEN_UP && now.since(at) < *decay;
            !hangs && in_flight.held(*i, now) <= count.max(FORGIVEN)
        };
        open().find(&mut sound).or_else(|| open().next())
    }

    fn on_start(&mut self, backend: usize, _now: Nanos) {
        self.in_flight.start(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight.finish(backend, finish, now);
        let given_up = &mut self.given_up[backend];
        match finish.ending {
            Ending::Success => given_up.row = 0,
            Ending::Abandoned => {
                *given_up = GivenUp { row: given_up.row.saturating_add(1), at: now }
            }
            Ending::Failure | Ending::Rejected | Ending::TooLate => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_backend_that_hangs_is_passed_over_and_tried_again() {
        let mut first = First::new(&[1, 1], &Settings::default());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut now = Nanos::from_secs_f64(1.0);
        let mut pick = |first: &mut First, now| first.pick(&Request::default(), now, &mut rng);
        let end = |first: &mut First, finish: Finish, times: u32, now| {
            (0..times).for_each(|_| {
                first.on_start(0, now);
                first.on_finish(0, &finish, now);
            });
        };
        for _ in 0..20 {
            end(&mut first, Finish::abandoned(MS), GIVEN_UP - 1, now);
            end(&mut first, Finish::success(10 * MS), 1, now);
        }
        assert_eq!(pick(&mut first, now), Some(0), "some are in a hurry");
        end(&mut first, Finish::abandoned(MS), GIVEN_UP, now);
        assert_eq!(pick(&mut first, now), Some(1));
        now = now + Duration::from_secs(10);
        assert_eq!(pick(&mut first, now), Some(0));
        end(&mut first, Finish::abandoned(MS), 1, now);
        assert_eq!(pick(&mut first, now), Some(1), "it still hangs");
    }

    #[test]
    fn failures_pass_it_over_until_they_are_forgiven() {
        let mut first = First::new(&[0, 1, 9], &Settings::default());
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
