//! HAProxy's server map: `Σw / gcd` entries, each backend as often as its weight says, spread as evenly
//! as whole turns allow (`recalc_server_map`, `src/lb_map.c`).
//!
//! There, turn `t` gives every backend its weight in credit and takes the first of the greatest
//! `⌊credit / Σw⌋`, which pays Σw: O(n) per entry. The same order comes from times: turn k of a backend
//! falls due at `⌈kΣw / w⌉` and is late from `⌈(k+1)Σw / w⌉` on, which is when turn k + 1 falls due; the first
//! of those late goes, else the first of those due. So a backend waits for one time after another, in a list
//! by time, and the due and the late are bits: O(n/64) per entry. [`MAX_ENTRIES`] bounds them: greater sums
//! are scaled down, which HAProxy, whose weights end at 256, does not need.

/// As many as 1,024 backends of HAProxy's greatest weight need.
pub(crate) const MAX_ENTRIES: u64 = 1 << 18;

/// Writes backends in the order of their turns.
pub(crate) fn turns_by_weight(weights: &[u32], entries: &mut Vec<u32>) {
    entries.clear();
    let weights = reduced(weights);
    let total: u64 = weights.iter().sum();
    let mut turns = Turns::new(&weights, total);
    entries.extend((1..=total).map_while(|now| turns.next(now)));
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

/// Backends by number, the least first.
struct Bits(Vec<u64>);

impl Bits {
    fn of(backends: usize) -> Self {
        Bits(vec![0; backends.div_ceil(64)])
    }

    fn insert(&mut self, backend: usize) {
        self.0[backend / 64] |= 1 << (backend % 64);
    }

    /// Takes it out; whether it was there.
    fn remove(&mut self, backend: usize) -> bool {
        let (word, bit) = (&mut self.0[backend / 64], 1 << (backend % 64));
        let there = *word & bit != 0;
        *word &= !bit;
        there
    }

    fn pop_first(&mut self) -> Option<usize> {
        let k = self.0.iter().position(|word| *word != 0)?;
        let bit = self.0[k].trailing_zeros() as usize;
        self.0[k] &= self.0[k] - 1;
        Some(64 * k + bit)
    }
}

const NOBODY: u32 = u32::MAX;

struct Turns<'a> {
    weights: &'a [u64],
    total: u64,
    taken: Vec<u64>,
    /// By time: the backend that waits for it, and after each the next that does.
    waiting: Vec<u32>,
    after: Vec<u32>,
    due: Bits,
    late: Bits,
}

impl<'a> Turns<'a> {
    fn new(weights: &'a [u64], total: u64) -> Self {
        let n = weights.len();
        let mut turns = Turns {
            weights,
            total,
            taken: vec![0; n],
            waiting: vec![NOBODY; total as usize + 1],
            after: vec![NOBODY; n],
            due: Bits::of(n),
            late: Bits::of(n),
        };
        (0..n).filter(|&i| weights[i] > 0).for_each(|i| turns.falls_due(i, 0));
        turns
    }

    fn next(&mut self, now: u64) -> Option<u32> {
        let mut here = std::mem::replace(&mut self.waiting[now as usize], NOBODY);
        while here != NOBODY {
            let i = here as usize;
            here = self.after[i];
            // Its turn was not taken, or the next one falls due.
            if self.due.remove(i) {
                self.late.insert(i);
            } else {
                self.falls_due(i, now);
            }
        }
        let i = self.late.pop_first().map(|i| (i, true));
        let (i, was_late) = i.or_else(|| Some((self.due.pop_first()?, false)))?;
        self.taken[i] += 1;
        if was_late {
            // The time it waited for has come.
            self.falls_due(i, now);
        }
        Some(i as u32)
    }

    /// Its next turn falls due now, or did so before, and is late at once if its time for that has passed.
    fn falls_due(&mut self, backend: usize, now: u64) {
        let late_at = self.time_of(backend, self.taken[backend] + 1);
        if late_at <= now {
            self.late.insert(backend);
            return;
        }
        self.due.insert(backend);
        if let Some(first) = self.waiting.get_mut(late_at as usize) {
            self.after[backend] = std::mem::replace(first, backend as u32);
        }
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

    fn turns(weights: &[u32]) -> Vec<u32> {
        let mut entries = Vec::new();
        turns_by_weight(weights, &mut entries);
        entries
    }

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
            assert_eq!(turns(&weights), literal(&weights), "{weights:?}");
        }
    }

    #[test]
    fn sums_beyond_the_bound_are_scaled_and_no_backend_is_lost() {
        let entries = turns(&[u32::MAX, u32::MAX - 1, 1, 0]);
        let count = |i| entries.iter().filter(|&&e| e == i).count();
        assert!(entries.len() as u64 <= MAX_ENTRIES + 1);
        assert!(count(0) > 131_000 && count(1) > 131_000);
        assert_eq!((count(2), count(3)), (1, 0));
    }
}
