//! Maglev: the request's key modulo a table of [`ENTRIES`] entries, which backends fill in turn, each in
//! an order of its own. O(1); a backend that is not allowed, or has its bound in flight, leaves the key to the next
//! entry, which is anybody's, at most O(n log) (`state/round.rs`). Requests without a key go round the table.
//!
//! Source: Eisenbud and others, "Maglev: A Fast and Reliable Software Network Load Balancer" (NSDI 2016),
//! §3.4; weights as in Envoy and Katran: in each round a backend fills as many entries as its weight
//! over the greatest. Shares are exact to 1 part in `ENTRIES / n`; when a backend leaves, its keys move and
//! a few percent of the others'. Making the table costs O(`ENTRIES` · log), a millisecond or two.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::key::full_hash;
use crate::state::{Bound, Round};
use crate::{Finish, Policy, Request, Settings};

/// A prime, so that every stride reaches all entries; the paper's smaller one, for up to 655 backends
/// at 1 % of error.
const ENTRIES: u32 = 65_537;

/// A backend's way through the table.
#[derive(Clone, Copy, Debug)]
struct Order {
    next: u32,
    stride: u32,
    credit: f64,
    gain: f64,
    backend: u32,
}

impl Order {
    fn new(backend: u32, gain: f64) -> Self {
        let (offset, stride) = (full_hash(backend), full_hash(!backend));
        let (next, stride) = (offset % ENTRIES, stride % (ENTRIES - 1) + 1);
        Order { next, stride, credit: 0.0, gain, backend }
    }

    /// Takes the next entry of its order that is free.
    fn fill(&mut self, table: &mut [u32], free: &mut Free) {
        while !free.take(self.next) {
            self.next += self.stride;
            if self.next >= ENTRIES {
                self.next -= ENTRIES;
            }
        }
        table[self.next as usize] = self.backend;
    }
}

/// Which entries are free: in eight kilobytes, for they are looked at a dozen times each.
struct Free([u64; ENTRIES as usize / 64 + 1]);

impl Free {
    /// Whether this one was; now it is not.
    fn take(&mut self, entry: u32) -> bool {
        let (word, bit) = (&mut self.0[entry as usize / 64], 1 << (entry % 64));
        let free = *word & bit != 0;
        *word &= !bit;
        free
    }
}

/// Maglev's table.
pub struct HashMaglev {
    /// Empty when no backend has weight.
    table: Round,
    orders: Vec<Order>,
    bound: Bound,
    turn: usize,
}

impl HashMaglev {
    /// Over backends of these weights; heeds `hash_balance_factor`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let bound = Bound::new(weights, settings.hash_balance_factor);
        let mut policy = HashMaglev { table: Round::default(), orders: Vec::new(), bound, turn: 0 };
        policy.fill(weights);
        policy
    }

    fn fill(&mut self, weights: &[u32]) {
        let greatest = f64::from(weights.iter().copied().max().unwrap_or(0));
        self.orders.clear();
        let in_use = (0..).zip(weights).filter(|(_, w)| **w > 0);
        self.orders.extend(in_use.map(|(i, &w)| Order::new(i, f64::from(w) / greatest)));
        let orders = &mut self.orders;
        self.table.set(weights.len(), |table| take_turns(orders, table));
    }
}

fn take_turns(orders: &mut [Order], table: &mut Vec<u32>) {
    table.resize(if orders.is_empty() { 0 } else { ENTRIES as usize }, 0);
    let mut free = Free([u64::MAX; _]);
    let mut left = table.len();
    // Everyone has an entry, however light; then in proportion.
    for order in orders.iter_mut().take(left) {
        order.fill(table, &mut free);
        order.credit = -1.0;
        left -= 1;
    }
    while left > 0 {
        for order in &mut *orders {
            order.credit += order.gain;
            if order.credit >= 0.0 && left > 0 {
                order.credit -= 1.0;
                order.fill(table, &mut free);
                left -= 1;
            }
        }
    }
}

impl Policy for HashMaglev {
    fn set_weights(&mut self, weights: &[u32]) {
        self.fill(weights);
        self.bound.set_weights(weights);
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, _rng: &mut dyn RngCore) -> Option<usize> {
        let from = request.key.map(|key| (key % u64::from(ENTRIES)) as usize);
        let at = self.bound.next(&self.table, from.unwrap_or(self.turn), request, now)?;
        if from.is_none() {
            self.turn = at + 1;
        }
        Some(self.table.backend(at))
    }

    fn on_start(&mut self, backend: usize, _now: Nanos) {
        self.bound.start(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.bound.finish(backend, finish, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn a_backend_at_its_bound_gets_no_requests_without_a_key_either() {
        let settings = Settings { hash_balance_factor: Some(110), ..Settings::default() };
        let mut policy = HashMaglev::new(&[100; 4], &settings);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        (0..400).for_each(|_| policy.on_start(0, Nanos::ZERO));
        let mut count = [0; 4];
        for k in 0..400 {
            let keyed = if k % 2 > 0 { Request::with_key(k) } else { Request::default() };
            count[policy.pick(&keyed, Nanos::ZERO, &mut rng).unwrap()] += 1;
        }
        assert!(count[0] == 0 && count[1..].iter().all(|c| *c > 90), "{count:?}");
    }

    fn share(policy: &HashMaglev, backend: u32) -> f64 {
        let count = policy.table.entries().iter().filter(|&&b| b == backend).count();
        count as f64 / f64::from(ENTRIES)
    }

    #[test]
    fn shares_are_those_of_the_weights() {
        let policy = HashMaglev::new(&[1, 2, 0, 5], &Settings::default());
        for (backend, due) in [(0, 0.125), (1, 0.25), (2, 0.0), (3, 0.625)] {
            assert!((share(&policy, backend) - due).abs() < 1e-4, "{backend}");
        }
        let policy = HashMaglev::new(&[1, u32::MAX], &Settings::default());
        assert!(share(&policy, 0) > 0.0, "the lightest has its entry");
    }

    #[test]
    fn few_keys_move_when_one_leaves() {
        let mut weights = [1; 50];
        let before = HashMaglev::new(&weights, &Settings::default()).table.entries().to_vec();
        weights[9] = 0;
        let after = HashMaglev::new(&weights, &Settings::default()).table.entries().to_vec();
        let moved = before.iter().zip(&after).filter(|(b, a)| b != a).count();
        let own = before.iter().filter(|&&b| b == 9).count();
        let others = (moved - own) as f64 / f64::from(ENTRIES);
        assert!(others < 0.03, "{others:.3} of all keys moved that need not");
    }
}
