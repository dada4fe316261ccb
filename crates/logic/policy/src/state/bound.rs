//! The bound of consistent hashing with bounded loads: no backend has more than `factor` percent of the
//! average number of requests in flight, by weight.
//!
//! Source: Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads" (2016); HAProxy's
//! `hash-balance-factor` (`chash_server_is_eligible`, `src/lb_chash.c`), whose integers these are: of
//! `⌈(in flight + 1)·factor/100⌉` slots each backend has its part by weight, at least one. Failures and
//! refusals stay in flight for their penalty (see `failure.rs`), so who ends requests fast with them does not draw
//! the overflow of others.

use plimsoll_model::Nanos;

use super::InFlight;
use crate::Finish;

/// Requests in flight, against their bound.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// Percent of the average; `None` for no bound.
    factor: Option<u32>,
    in_flight: InFlight,
    all: u64,
    weights: Vec<u32>,
    /// Of all backends before.
    cumulative: Vec<u64>,
    total: u64,
}

impl Bound {
    pub(crate) fn new(weights: &[u32], factor: Option<u32>) -> Self {
        let mut bound = Bound {
            factor,
            in_flight: InFlight::new(weights.len()),
            all: 0,
            weights: Vec::new(),
            cumulative: Vec::new(),
            total: 0,
        };
        bound.set_weights(weights);
        bound
    }

    pub(crate) fn set_weights(&mut self, weights: &[u32]) {
        self.in_flight.grow(weights.len());
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.cumulative.clear();
        self.total = 0;
        for &w in weights {
            self.cumulative.push(self.total);
            self.total += u64::from(w);
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.factor.is_some()
    }

    pub(crate) fn start(&mut self, backend: usize) {
        if self.is_set() {
            self.all += 1;
            self.in_flight.start(backend);
        }
    }

    pub(crate) fn finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        if self.is_set() {
            self.all = self.all.saturating_sub(1);
            self.in_flight.finish(backend, finish, now);
        }
    }

    /// Whether the bound leaves room for one more.
    pub(crate) fn allows(&mut self, backend: usize, now: Nanos) -> bool {
        let Some(factor) = self.factor else { return true };
        // Of what is held, half a request and more takes a slot.
        self.in_flight.load(backend, now).round() < self.slots(backend, factor) as f64
    }

    fn slots(&self, backend: usize, factor: u32) -> u64 {
        let all = ((self.all + 1) * u64::from(factor)).div_ceil(100);
        let (each, rest) = (all / self.total, all % self.total);
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

    #[test]
    fn slots_are_shared_by_weight_and_none_is_lost() {
        let mut bound = Bound::new(&[1, 3, 0, 4], Some(125));
        for _ in 0..31 {
            bound.start(3);
        }
        // 32 · 1.25 = 40 slots over a weight of 8.
        let slots = [0, 1, 2, 3].map(|i| bound.slots(i, 125));
        assert_eq!(slots, [5, 15, 1, 20]);
        bound.start(0);
        // 33 · 1.25 = 41.25, so 42: 40 whole ones and a rest of 2.
        assert_eq!([0, 1, 3].map(|i| bound.slots(i, 125)).iter().sum::<u64>(), 42);
        assert!(!bound.allows(3, Nanos::ZERO) && bound.allows(0, Nanos::ZERO));
    }
}
