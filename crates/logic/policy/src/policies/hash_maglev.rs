//! Maglev: the request's key modulo a table of [`ENTRIES`] entries, which backends fill in turn, each in
//! an order of its own. O(1); who is not allowed, or has its bound in flight, leaves the key to the next
//! entry, which is anybody's. Requests without a key go round the table.
//!
//! Source: Eisenbud and others, "Maglev: A Fast and Reliable Software Network Load Balancer" (NSDI 2016),
//! §3.4; weights as in Envoy and Katran: in each round a backend fills as many entries as its weight
//! over the greatest. Shares are exact to 1 part in `ENTRIES / n`; when a backend leaves, its keys move and
//! a few percent of the others'. Making the table costs O(`ENTRIES` · log), about a millisecond.

use plimsoll_model::Nanos;
use rand::RngCore;

use super::static_round_robin::{from_here_on, next_turn};
use crate::key::full_hash;
use crate::state::Bound;
use crate::{Finish, Policy, Request, Settings};

/// A prime, so that every stride reaches all entries; the paper's smaller one, for up to 655 backends
/// at 1 % of error.
const ENTRIES: u32 = 65_537;
const NOBODY: u32 = u32::MAX;

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

    fn fill(&mut self, table: &mut [u32]) {
        while table[self.next as usize] != NOBODY {
            self.next = (self.next + self.stride) % ENTRIES;
        }
        table[self.next as usize] = self.backend;
    }
}

/// Maglev's table.
pub struct HashMaglev {
    /// Empty when nobody has weight.
    table: Vec<u32>,
    orders: Vec<Order>,
    bound: Bound,
    turn: usize,
}

impl HashMaglev {
    /// Over backends of these weights; heeds `hash_balance_factor`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let bound = Bound::new(weights, settings.hash_balance_factor);
        let mut policy = HashMaglev { table: Vec::new(), orders: Vec::new(), bound, turn: 0 };
        policy.fill(weights);
        policy
    }

    fn fill(&mut self, weights: &[u32]) {
        let greatest = f64::from(weights.iter().copied().max().unwrap_or(0));
        self.orders.clear();
        let in_use = (0..).zip(weights).filter(|(_, w)| **w > 0);
        self.orders.extend(in_use.map(|(i, &w)| Order::new(i, f64::from(w) / greatest)));
        self.table.clear();
        if self.orders.is_empty() {
            return;
        }
        self.table.resize(ENTRIES as usize, NOBODY);
        let mut left = ENTRIES;
        // Everyone has an entry, however light; then in proportion.
        for order in self.orders.iter_mut().take(ENTRIES as usize) {
            order.fill(&mut self.table);
            order.credit = -1.0;
            left -= 1;
        }
        while left > 0 {
            for order in &mut self.orders {
                order.credit += order.gain;
                if order.credit >= 0.0 && left > 0 {
                    order.credit -= 1.0;
                    order.fill(&mut self.table);
                    left -= 1;
                }
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
        let HashMaglev { table, bound, turn, .. } = self;
        if table.is_empty() {
            return None;
        }
        let Some(key) = request.key else { return next_turn(table, turn, request) };
        let from = (key % u64::from(ENTRIES)) as usize;
        let mut around = (from..table.len()).chain(0..from);
        let free = around.find(|&at| {
            let backend = table[at] as usize;
            request.allows(backend) && bound.allows(backend, now)
        });
        // All that are left have their bound: it yields before the request does.
        let at = free.or_else(|| from_here_on(table, from, request))?;
        Some(table[at] as usize)
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

    fn share(policy: &HashMaglev, backend: u32) -> f64 {
        let count = policy.table.iter().filter(|&&b| b == backend).count();
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
        let before = HashMaglev::new(&weights, &Settings::default()).table;
        weights[9] = 0;
        let after = HashMaglev::new(&weights, &Settings::default()).table;
        let moved = before.iter().zip(&after).filter(|(b, a)| b != a).count();
        let own = before.iter().filter(|&&b| b == 9).count();
        let others = (moved - own) as f64 / f64::from(ENTRIES);
        assert!(others < 0.03, "{others:.3} of all keys moved that need not");
    }
}
