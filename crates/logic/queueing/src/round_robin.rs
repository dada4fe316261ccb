//! Smooth weighted round robin: each turn every server gains its weight, the richest is picked and
//! pays the sum of all. It spreads a server's turns as evenly as integers allow; HAProxy's roundrobin
//! spreads them by a tree of due positions, to the same shares. A pick costs O(n).

use crate::des::Pick;

/// Smooth weighted round robin over one pool.
pub struct SmoothRoundRobin {
    weight: Vec<f64>,
    credit: Vec<f64>,
    total: f64,
}

impl SmoothRoundRobin {
    /// A pool with these weights, of any scale; those of 0 are never picked.
    pub fn new(weights: &[f64]) -> Self {
        SmoothRoundRobin {
            weight: weights.to_vec(),
            credit: vec![0.0; weights.len()],
            total: weights.iter().sum(),
        }
    }

    /// Replaces all weights and begins a new cycle.
    pub fn set_weights(&mut self, weights: &[f64]) {
        self.weight.clear();
        self.weight.extend_from_slice(weights);
        self.total = weights.iter().sum();
        self.credit.iter_mut().for_each(|c| *c = 0.0);
    }
}

impl Pick for SmoothRoundRobin {
    fn pick(&mut self) -> Option<usize> {
        let mut best = None;
        let mut richest = f64::NEG_INFINITY;
        for (i, (credit, &w)) in self.credit.iter_mut().zip(&self.weight).enumerate() {
            if w > 0.0 {
                *credit += w;
                if *credit > richest {
                    (best, richest) = (Some(i), *credit);
                }
            }
        }
        if let Some(i) = best {
            self.credit[i] -= self.total;
        }
        best
    }

    fn changed(&mut self, _: usize, _: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_weights_and_turns_are_spread() {
        let mut rr = SmoothRoundRobin::new(&[5.0, 1.0, 0.0, 2.0]);
        let picks: Vec<usize> = (0..800).map(|_| rr.pick().unwrap()).collect();
        let count = |i| picks.iter().filter(|&&p| p == i).count();
        assert_eq!((count(0), count(1), count(2), count(3)), (500, 100, 0, 200));
        // Never more than three of the heavy one in a row.
        assert!(picks.windows(4).all(|w| w.iter().any(|&p| p != 0)));
        assert_eq!(SmoothRoundRobin::new(&[0.0]).pick(), None);
    }
}
