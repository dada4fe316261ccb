//! The bound of consistent hashing with bounded loads: no backend has more than `factor` percent of the
//! average number of requests in flight, by weight.
//!
//! Source: Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads" (2016); HAProxy's
//! `hash-balance-factor` (`chash_server_is_eligible`, `src/lb_chash.c`), whose integers these are: of
//! `⌈(in flight + 1)·factor/100⌉` slots each backend has its part by weight, at least one. Failures and
//! refusals stay in flight for their penalty (see `failure.rs`), at their backend and in the sum, so one that ends
//! requests fast with them does not draw the overflow of others, and where all fail, all have the slots for that.

use plimsoll_model::Nanos;

use super::{InFlight, Round};
use crate::{Finish, Request};

/// Requests in flight, against their bound.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// Percent of the average; `None` for no bound.
    factor: Option<u32>,
    in_flight: InFlight,
    all: u64,
    slots: Slots,
}

impl Bound {
    pub(crate) fn new(weights: &[u32], factor: Option<u32>) -> Self {
        let in_flight = InFlight::new(weights.len());
        let mut bound = Bound { factor, in_flight, all: 0, slots: Slots::default() };
        bound.set_weights(weights);
        bound
    }

    pub(crate) fn set_weights(&mut self, weights: &[u32]) {
        self.in_flight.grow(weights.len());
        self.slots.set_weights(weights);
    }

    pub(crate) fn start(&mut self, backend: usize) {
        if self.factor.is_some() {
            self.all += 1;
            self.in_flight.start(backend);
        }
    }

    pub(crate) fn finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        if self.factor.is_some() {
            self.all = self.all.saturating_sub(1);
            self.in_flight.finish(backend, finish, now);
        }
    }

    /// The next place, from `at` on, whose backend the request allows and the bound leaves room for one more;
    /// where all that it allows have their bound, this yields before the request does.
    pub(crate) fn next(
        &mut self,
        round: &Round,
        at: usize,
        request: &Request<'_>,
        now: Nanos,
    ) -> Option<usize> {
        let allowed = |i: usize| request.allows(i);
        let Some(factor) = self.factor else { return round.next(at, allowed) };
        let Bound { in_flight, slots, .. } = self;
        let all = self.all + in_flight.held_by_all(now).round() as u64;
        let within = |i: usize| {
            // Of what is held, half a request and more takes a slot.
            allowed(i) && in_flight.load(i, now).round() < slots.of(i, all, factor) as f64
        };
        round.next(at, within).or_else(|| round.next(at, allowed))
    }
}

/// How the slots that there are fall to backends.
#[derive(Clone, Debug, Default)]
struct Slots {
    weights: Vec<u32>,
    /// Of all backends before.
    cumulative: Vec<u64>,
    total: u64,
}

impl Slots {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.cumulative.clear();
        self.total = 0;
        for &w in weights {
            self.cumulative.push(self.total);
            self.total += u64::from(w);
        }
    }

    /// Those of one backend, when so many are in flight in all.
    fn of(&self, backend: usize, all: u64, factor: u32) -> u64 {
        let slots = ((all + 1) * u64::from(factor)).div_ceil(100);
        let (each, rest) = (slots / self.total, slots % self.total);
        let weight = u64::from(self.weights[backend]);
        let before = self.cumulative[backend];
        // The rest is spread over the line of all weights: each has what falls on its part of it.
        let of_rest = part(before + weight, rest, self.total) - part(before, rest, self.total);
        (weight * each + of_rest).max(1)
    }
}

/// `end · rest / total`; divisions of 128 bits cost several times as much, and are seldom needed.
fn part(end: u64, rest: u64, total: u64) -> u64 {
    match end.checked_mul(rest) {
        Some(product) => product / total,
        None => (u128::from(end) * u128::from(rest) / u128::from(total)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn slots_are_shared_by_weight_and_none_is_lost() {
        let mut slots = Slots::default();
        slots.set_weights(&[1, 3, 0, 4]);
        // 32 · 1.25 = 40 slots over a weight of 8.
        assert_eq!([0, 1, 2, 3].map(|i| slots.of(i, 31, 125)), [5, 15, 1, 20]);
        // 33 · 1.25 = 41.25, so 42: 40 whole ones and a rest of 2.
        assert_eq!([0, 1, 3].map(|i| slots.of(i, 32, 125)).iter().sum::<u64>(), 42);
    }

    #[test]
    fn a_backend_at_its_bound_is_passed_over_until_all_are() {
        let mut round = Round::default();
        round.set(2, |entries| entries.extend([0, 1]));
        let mut bound = Bound::new(&[1, 1], Some(125));
        let now = Nanos::from_secs_f64(1.0);
        let next = |bound: &mut Bound, avoid: &[usize]| {
            bound.next(&round, 0, &Request::default().avoiding(avoid), now)
        };
        (0..31).for_each(|_| bound.start(0));
        assert_eq!(next(&mut bound, &[]), Some(1));
        assert_eq!(next(&mut bound, &[1]), Some(0), "the bound yields");
        (0..31).for_each(|_| bound.start(1));
        assert_eq!(next(&mut bound, &[]), Some(0), "31 of 40");
    }

    /// What a pool that fails holds is part of the average, so that it is not a pool full of requests.
    #[test]
    fn when_all_fail_alike_no_backend_is_at_its_bound() {
        let mut round = Round::default();
        round.set(4, |entries| entries.extend(0..4));
        let mut bound = Bound::new(&[1; 4], Some(125));
        let now = Nanos::from_secs_f64(1.0);
        for i in 0..4 {
            bound.start(i);
            bound.finish(i, &Finish::success(100 * MS), now);
        }
        for i in (0..4).cycle().take(400) {
            bound.start(i);
            bound.finish(i, &Finish::failure(MS), now);
        }
        let at = |bound: &mut Bound, at| bound.next(&round, at, &Request::default(), now);
        assert_eq!([0, 1, 2, 3].map(|k| at(&mut bound, k)), [0, 1, 2, 3].map(Some));
        for _ in 0..80 {
            bound.start(2);
            bound.finish(2, &Finish::failure(MS), now);
        }
        assert_eq!(at(&mut bound, 2), Some(3), "who fails more than the others has its bound");
    }
}
