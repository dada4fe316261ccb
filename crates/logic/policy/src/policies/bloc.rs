//! BLOC's balancer: of two different backends drawn from those that have a chip, or have been left alone
//! for `reset_interval_ms`, the one with fewer requests of this balancer in flight, per weight. The ledger
//! of chips and what happens when no backend is eligible are `plimsoll_admission`'s [`ChipLedger`]. O(1), but
//! O(n) when none is eligible.
//!
//! Source: Bhattacharya, Gao, Wood, "Dynamically Balancing Load with Overload Control for Microservices"
//! (TAAS 2024), algorithm 3. A success without a chip, from a backend without BLOC's admission, counts
//! as one with a chip: what admits all has room for all. A failure without a chip brings none back, so
//! a backend that fails gets a request per interval until it is well. A refusal of what would be late is one
//! of the request, not of the backend: it takes no chips, and the one it carries counts.

use plimsoll_admission::{ChipLedger, LedgerOptionsError};
use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::InFlight;
use crate::{Draw, Ending, Finish, Policy, Request, Settings};

/// Of two that have a chip, the fewest requests in flight per weight.
pub struct Bloc {
    draw: Draw,
    weights: Vec<u32>,
    ledger: ChipLedger,
    in_flight: InFlight,
}

impl Bloc {
    /// Over backends of these weights; heeds `draw` and `bloc`.
    ///
    /// # Errors
    /// When one of `bloc`'s options is out of range.
    pub fn new(weights: &[u32], settings: &Settings) -> Result<Self, LedgerOptionsError> {
        let draw = settings.draw;
        let mut policy = Bloc {
            draw,
            weights: Vec::new(),
            ledger: ChipLedger::new(&[], settings.bloc)?,
            in_flight: InFlight::new(weights.len()),
        };
        policy.set_weights(weights);
        Ok(policy)
    }
}

impl Policy for Bloc {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.ledger.set_weights(weights.iter().map(|&w| self.draw.chance(w)));
        self.in_flight.grow(weights.len());
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let Bloc { weights, ledger, in_flight, .. } = self;
        let allowed = |i: usize| request.allows(i);
        ledger.pick(now, rng, allowed, |i| in_flight.load(i, now) / f64::from(weights[i]))
    }

    fn on_start(&mut self, backend: usize, now: Nanos) {
        self.ledger.on_dispatch(backend, now);
        self.in_flight.start(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight.finish(backend, finish, now);
        let chip = finish.chip.or((finish.ending == Ending::Success).then_some(true));
        match (finish.ending, chip) {
            (Ending::Rejected, _) => self.ledger.on_rejection(backend, now),
            (_, Some(chip)) => self.ledger.on_chip(backend, chip, now),
            (_, None) => {}
        }
    }

    fn takes(&mut self, backend: usize, now: Nanos) -> bool {
        self.ledger.is_eligible(backend, now)
    }

    fn ineligible_picks(&self) -> u64 {
        self.ledger.counts().forced
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
    fn a_backend_that_refuses_is_left_alone_for_the_interval() {
        let mut bloc = Bloc::new(&[1, 1, 1], &Settings::default()).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut now = Nanos::ZERO;
        bloc.on_start(0, now);
        bloc.on_finish(0, &Finish::rejected(MS), now);
        for _ in 0..900 {
            now = now + MS;
            let i = bloc.pick(&Request::default(), now, &mut rng).unwrap();
            assert_ne!(i, 0);
            bloc.on_start(i, now);
            bloc.on_finish(i, &Finish::success(MS), now);
        }
        now = now + 100 * MS;
        let tried = (0..12).filter(|_| {
            let i = bloc.pick(&Request::default(), now, &mut rng).unwrap();
            bloc.on_start(i, now);
            bloc.on_finish(i, &Finish { chip: Some(false), ..Finish::success(MS) }, now);
            i == 0
        });
        assert!(tried.count() > 0, "it is tried again");
    }

    #[test]
    fn a_request_without_time_left_costs_a_backend_no_chips() {
        let mut bloc = Bloc::new(&[1, 1], &Settings::default()).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut now, mut asked) = (Nanos::ZERO, [0; 2]);
        for _ in 0..200 {
            now = now + MS;
            let i = bloc.pick(&Request::default(), now, &mut rng).unwrap();
            asked[i] += 1;
            bloc.on_start(i, now);
            let finish = match i {
                0 => Finish { chip: Some(true), ..Finish::too_late(Duration::ZERO) },
                _ => Finish::success(Duration::ZERO),
            };
            bloc.on_finish(i, &finish, now);
        }
        assert!(asked[0] > 70, "{asked:?}");
    }

    #[test]
    fn idle_backends_are_picked_in_proportion_to_their_weights() {
        const PICKS: usize = 4_000;
        let mut bloc = Bloc::new(&[1, 3], &Settings::default()).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut now, mut heavy) = (Nanos::ZERO, 0);
        for _ in 0..PICKS {
            now = now + MS;
            let i = bloc.pick(&Request::default(), now, &mut rng).unwrap();
            heavy += i;
            bloc.on_start(i, now);
            bloc.on_finish(i, &Finish::success(Duration::ZERO), now);
        }
        let share = heavy as f64 / PICKS as f64;
        assert!((share - 0.75).abs() < 0.03, "{share}");
    }

    #[test]
    fn fewer_in_flight_wins() {
        let mut bloc = Bloc::new(&[1, 1], &Settings::default()).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let now = Nanos::from_secs_f64(5.0);
        bloc.on_start(0, now);
        for _ in 0..100 {
            assert_eq!(bloc.pick(&Request::default(), now, &mut rng), Some(1));
        }
    }

    #[test]
    fn picks_of_one_without_a_chip_are_counted() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut bloc = Bloc::new(&[1], &Settings::default()).unwrap();
        let now = Nanos(5_000_000_000);
        assert!(bloc.takes(0, now));
        bloc.on_start(0, now);
        bloc.on_finish(0, &Finish::rejected(MS), now);
        assert!(!bloc.takes(0, now));
        assert_eq!(bloc.ineligible_picks(), 0);
        assert_eq!(bloc.pick(&Request::default(), now, &mut rng), Some(0));
        assert_eq!(bloc.ineligible_picks(), 1);
        let later = now + Duration::from_millis(1_001);
        assert!(bloc.takes(0, later), "its interval has passed");
        assert_eq!(bloc.pick(&Request::default(), later, &mut rng), Some(0));
        assert_eq!(bloc.ineligible_picks(), 1);
    }
}
