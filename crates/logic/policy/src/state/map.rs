//! HAProxy's server map: `Σw / gcd` entries, each backend as often as its weight says, spread as evenly
//! as whole turns allow (`recalc_server_map`, `src/lb_map.c`).
//!
//! There, turn `t` gives every backend its weight in credit and takes the first of the greatest
//! `⌊credit / Σw⌋`, which pays Σw: O(n) per entry. Here the same order comes from queues: the k-th turn
//! of a backend is due from `⌈kΣw / w⌉` on and late from `⌈(k+1)Σw / w⌉` on; the first of those late goes,
//! else the first of those due. O(log n) per entry. [`MAX_ENTRIES`] bounds them: greater sums are scaled
//! down, which HAProxy, whose weights end at 256, does not need.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// As many as 1,024 backends of HAProxy's greatest weight need.
pub(crate) const MAX_ENTRIES: u64 = 1 << 18;

/// Backends in the order of their turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct WeightedMap {
    entries: Vec<u32>,
}

impl WeightedMap {
    pub(crate) fn new(weights: &[u32]) -> Self {
        let mut map = WeightedMap::default();
        map.set(weights);
        map
    }

    pub(crate) fn set(&mut self, weights: &[u32]) {
        self.entries.clear();
        let weights = reduced(weights);
        let total: u64 = weights.iter().sum();
        let mut turns = Turns::new(&weights, total);
        self.entries.extend((1..=total).map_while(|t| turns.next(t)));
    }

    pub(crate) fn entries(&self) -> &[u32] {
        &self.entries
    }
}

/// The weights over their greatest common divisor, their sum within [`MAX_ENTRIES`]; what is above 0
/// stays so.
fn reduced(weights: &[u32]) -> Vec<u64> {
    let divisor = weights.iter().fold(0, |a, &b| gcd(a, b)).max(1);
    let mut reduced: Vec<u64> = weights.iter().map(|&w| u64::from(w / divisor)).collect();
    let total: u64 = reduced.iter().sum();
    if total > MAX_ENTRIES {
        let scaled = |w: u64| (u128::from(w) * u128::from(MAX_ENTRIES) / u128::from(total)) as u64;
        reduced.iter_mut().filter(|w| **w > 0).for_each(|w| *w = scaled(*w).max(1));
    }
    reduced
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

struct Turns<'a> {
    weights: &'a [u64],
    total: u64,
    taken: Vec<u64>,
    /// (time, backend): when its next turn falls due.
    becoming_due: BinaryHeap<Reverse<(u64, usize)>>,
    /// (time, backend, which turn): when that turn is late.
    becoming_late: BinaryHeap<Reverse<(u64, usize, u64)>>,
    due: BTreeSet<usize>,
    late: BTreeSet<usize>,
}

impl<'a> Turns<'a> {
    fn new(weights: &'a [u64], total: u64) -> Self {
        let first = |(i, _)| Reverse((0, i));
        Turns {
            weights,
            total,
            taken: vec![0; weights.len()],
            becoming_due: weights.iter().enumerate().filter(|(_, w)| **w > 0).map(first).collect(),
            becoming_late: BinaryHeap::new(),
            due: BTreeSet::new(),
            late: BTreeSet::new(),
        }
    }

    fn next(&mut self, now: u64) -> Option<u32> {
        while let Some(&Reverse((at, i))) = self.becoming_due.peek().filter(|e| e.0.0 <= now) {
            self.becoming_due.pop();
            self.due.insert(i);
            debug_assert!(at <= now);
            let turn = self.taken[i];
            self.becoming_late.push(Reverse((self.time_of(i, turn + 1), i, turn)));
        }
        while let Some(&Reverse((_, i, turn))) = self.becoming_late.peek().filter(|e| e.0.0 <= now)
        {
            self.becoming_late.pop();
            if self.taken[i] == turn && self.due.remove(&i) {
                self.late.insert(i);
            }
        }
        let i = self.late.pop_first().or_else(|| self.due.pop_first())?;
        self.taken[i] += 1;
        self.becoming_due.push(Reverse((self.time_of(i, self.taken[i]), i)));
        Some(i as u32)
    }

    /// The first moment at which this turn's credit is there.
    fn time_of(&self, backend: usize, turn: u64) -> u64 {
        (turn * self.total).div_ceil(self.weights[backend])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngCore, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// HAProxy's own loop.
    fn literal(weights: &[u32]) -> Vec<u32> {
        let weights: Vec<i64> = reduced(weights).iter().map(|&w| w as i64).collect();
        let total: i64 = weights.iter().sum();
        let mut credit = vec![0; weights.len()];
        let turn = |_| {
            let (mut best, mut most) = (None, 0);
            for (i, &w) in weights.iter().enumerate().filter(|(_, w)| **w > 0) {
                credit[i] += w;
                let v = (credit[i] + total) / total;
                if best.is_none() || v > most {
                    (best, most) = (Some(i), v);
                }
            }
            credit[best.unwrap()] -= total;
            best.unwrap() as u32
        };
        (0..total).map(turn).collect()
    }

    #[test]
    fn the_order_is_that_of_haproxys_loop() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        for round in 0..300 {
            let n = 1 + rng.next_u64() % 12;
            let most = [2, 6, 40, 257][round % 4];
            let weights: Vec<u32> = (0..n).map(|_| (rng.next_u64() % most) as u32).collect();
            assert_eq!(WeightedMap::new(&weights).entries, literal(&weights), "{weights:?}");
        }
    }

    #[test]
    fn sums_beyond_the_bound_are_scaled_and_nobody_is_lost() {
        let map = WeightedMap::new(&[u32::MAX, u32::MAX - 1, 1, 0]);
        let count = |i| map.entries().iter().filter(|&&e| e == i).count();
        assert!(map.entries().len() as u64 <= MAX_ENTRIES + 1);
        assert!(count(0) > 131_000 && count(1) > 131_000);
        assert_eq!((count(2), count(3)), (1, 0));
    }
}
