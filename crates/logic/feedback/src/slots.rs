//! Weights as a table of slots: the n-th new flow takes the n-th slot, around and around.
//!
//! The order is that of smooth weighted round robin (nginx): every core gains its weight as credit in each turn,
//! the one with most credit takes the slot and pays one. A run of m slots holds each core `m · weight` times, give or take one,
//! so bursts are spread as evenly as whole flows allow. Credit is kept from one table to the next: a core with
//! less than a slot per table gets one every few tables.
//!
//! Cost: O(slots · cores) per table; 256 slots over 16 cores take about 5 µs.

/// The table and the credit of each core.
#[derive(Clone, Debug)]
pub struct Slots {
    credit: Vec<f64>,
    table: Vec<u32>,
}

impl Slots {
    /// A table of so many slots, at least one, for so many cores. Until it is filled all slots are core 0.
    pub fn new(slots: usize, cores: usize) -> Self {
        Slots { credit: vec![0.0; cores], table: vec![0; slots.max(1)] }
    }

    /// Fills the table by these shares, which sum to 1. Returns whether there was a core to give slots to: with all
    /// weights 0 the table stays as it was.
    pub fn fill(&mut self, weights: &[f64]) -> bool {
        self.credit.resize(weights.len(), 0.0);
        if !weights.iter().any(|&weight| weight > 0.0) {
            return false;
        }
        for place in 0..self.table.len() {
            self.table[place] = self.next(weights);
        }
        true
    }

    /// The core of the next flow, for callers that ask one by one; 0 when all weights are.
    pub fn next(&mut self, weights: &[f64]) -> u32 {
        self.credit.resize(weights.len(), 0.0);
        let (mut best, mut most) = (0, f64::NEG_INFINITY);
        for (core, (credit, &weight)) in self.credit.iter_mut().zip(weights).enumerate() {
            if weight <= 0.0 {
                // What it was owed or owes from before does not matter when it is back.
                *credit = 0.0;
                continue;
            }
            *credit += weight;
            if *credit > most {
                (best, most) = (core, *credit);
            }
        }
        if let Some(credit) = self.credit.get_mut(best) {
            *credit -= 1.0;
        }
        best as u32
    }

    /// The slots: indices of cores.
    pub fn table(&self) -> &[u32] {
        &self.table
    }
}
