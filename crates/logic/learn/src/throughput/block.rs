//! Sufficient statistics of a time span.

use serde::{Deserialize, Serialize};

use super::InFlightWindow;

/// Numbers in flight up to this are kept exactly, greater ones to within 1/32.
const EXACT: u32 = 64;
/// Settings within this factor are the same.
const SETTING_STEP: f64 = 1.25;
/// Greater numbers in flight count as this.
const MOST: u32 = 65_535;

/// Joined windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    pub(super) seconds: f64,
    pub(super) completions: f64,
    pub(super) polls: f64,
    /// `(in flight, polls)`, ascending.
    pub(super) levels: Vec<(f64, f64)>,
    /// The setting's step on a logarithmic scale.
    pub(super) setting: Option<i32>,
}

impl Block {
    pub(super) fn of(window: &InFlightWindow) -> Block {
        let mut block = Block {
            seconds: window.seconds,
            completions: window.completions,
            polls: 0.0,
            levels: Vec::with_capacity(window.levels.len()),
            setting: window
                .setting
                .filter(|s| *s > 0.0 && s.is_finite())
                .map(|s| (s.ln() / SETTING_STEP.ln()).round() as i32),
        };
        for &(in_flight, polls) in window.levels.iter().filter(|&&(_, polls)| polls > 0) {
            block.add(f64::from(bucket(in_flight)), f64::from(polls));
        }
        block
    }

    pub(super) fn join(&mut self, other: &Block) {
        self.seconds += other.seconds;
        self.completions += other.completions;
        for &(in_flight, polls) in &other.levels {
            self.add(in_flight, polls);
        }
    }

    pub(super) fn discount(&mut self, kept: f64) {
        self.seconds *= kept;
        self.completions *= kept;
        self.polls *= kept;
        self.levels.iter_mut().for_each(|(_, polls)| *polls *= kept);
    }

    /// Mean and variance of the busy cores out of c, over the polls.
    pub(super) fn busy(&self, c: f64) -> (f64, f64) {
        let (mut first, mut second) = (0.0, 0.0);
        for &(in_flight, polls) in &self.levels {
            let cores = in_flight.min(c);
            first += polls * cores;
            second += polls * cores * cores;
        }
        let mean = first / self.polls;
        (mean, (second / self.polls - mean * mean).max(0.0))
    }

    /// The loss by joining, after Ward: the squared difference of the rates, times the harmonic weight. No loss between
    /// blocks of one setting.
    pub(super) fn distance(&self, other: &Block) -> f64 {
        if self.setting.is_some() && self.setting == other.setting {
            return 0.0;
        }
        let apart = self.completions / self.seconds - other.completions / other.seconds;
        apart * apart * self.seconds * other.seconds / (self.seconds + other.seconds)
    }

    /// Squared difference of the rates in units of its variance, with Poisson completions; where settings are known
    /// they decide.
    pub(super) fn apart(&self, other: &Block) -> f64 {
        if let (Some(mine), Some(theirs)) = (self.setting, other.setting) {
            return if mine == theirs { 0.0 } else { f64::INFINITY };
        }
        let apart = self.completions / self.seconds - other.completions / other.seconds;
        // At least one completion: two idle blocks are alike, not infinitely precise.
        let variance = self.completions.max(1.0) / (self.seconds * self.seconds)
            + other.completions.max(1.0) / (other.seconds * other.seconds);
        apart * apart / variance
    }

    fn add(&mut self, in_flight: f64, polls: f64) {
        self.polls += polls;
        let at = self.levels.partition_point(|&(level, _)| level < in_flight);
        match self.levels.get_mut(at) {
            Some(level) if level.0 == in_flight => level.1 += polls,
            _ => self.levels.insert(at, (in_flight, polls)),
        }
    }
}

/// The level for this number in flight: itself, or the middle of its 1/32 octave.
pub(super) fn bucket(in_flight: u32) -> u32 {
    let n = in_flight.min(MOST);
    if n < EXACT {
        return n;
    }
    let width = 1 << (n.ilog2() - 5);
    n / width * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_exact_below_64_and_within_2_percent_above() {
        for n in 0..64 {
            assert_eq!(bucket(n), n);
        }
        for n in (64..65_535).step_by(7) {
            let off = (f64::from(bucket(n)) / f64::from(n) - 1.0).abs();
            assert!(off <= 1.0 / 63.0, "{n} became {}", bucket(n));
        }
        assert!(bucket(u32::MAX) <= MOST);
    }

    #[test]
    fn joined_blocks_add_up() {
        let window = |completions, levels| InFlightWindow {
            seconds: 1.0,
            completions,
            levels,
            ..InFlightWindow::default()
        };
        let mut block = Block::of(&window(5.0, vec![(3, 2), (1, 1), (9, 0)]));
        block.join(&Block::of(&window(7.0, vec![(1, 4), (2, 1)])));
        assert_eq!(block.levels, vec![(1.0, 5.0), (2.0, 1.0), (3.0, 2.0)]);
        assert_eq!((block.seconds, block.completions, block.polls), (2.0, 12.0, 8.0));
        block.discount(0.5);
        assert_eq!((block.completions, block.polls, block.levels[0].1), (6.0, 4.0, 2.5));
    }
}
