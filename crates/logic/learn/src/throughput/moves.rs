//! What follows a poll: how many requests come and how many complete until the next, by how many were in
//! flight.
//!
//! With cores to spare completions rise with what is in flight, in saturation they do not, so even one
//! load tells cores. Chance in arrivals is most of the scatter; it is known, and taken out by
//! regression on them (a control variate).

use serde::{Deserialize, Serialize};

use super::block::bucket;

/// Levels with fewer polls are not judged alone: their variance is not known.
const LEAST_PAIRS: f64 = 8.0;
/// Pairs' worth of belief that a level scatters, and follows arrivals, as all do.
const POOLED: f64 = 4.0;

/// All polls that showed one number in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Level {
    in_flight: f64,
    pairs: f64,
    arrivals: f64,
    completions: f64,
    /// Sums of squares and products.
    aa: f64,
    ac: f64,
    cc: f64,
}

impl Level {
    fn add(&mut self, other: &Level, part: f64) {
        self.pairs += part * other.pairs;
        self.arrivals += part * other.arrivals;
        self.completions += part * other.completions;
        self.aa += part * other.aa;
        self.ac += part * other.ac;
        self.cc += part * other.cc;
    }

    /// Sums of squares and products around the means.
    fn central(&self) -> (f64, f64, f64) {
        let (a, c) = (self.arrivals / self.pairs, self.completions / self.pairs);
        (
            (self.aa - a * self.arrivals).max(0.0),
            self.ac - a * self.completions,
            (self.cc - c * self.completions).max(0.0),
        )
    }
}

/// Pairs of polls of one backend, by what the first showed; where arrivals do not depend on what is in
/// flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moves {
    seconds: f64,
    pairs: f64,
    arrivals: f64,
    /// Ascending.
    levels: Vec<Level>,
}

/// What one level shows: completions to the next poll, had as many requests come as usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Followed {
    pub in_flight: f64,
    pub completions: f64,
    /// Variance of that mean.
    pub variance: f64,
}

impl Moves {
    /// Notes one pair of polls: what was in flight at the first, and what came and went until the second.
    pub fn note(&mut self, in_flight: u32, arrivals: f64, completions: f64, seconds: f64) {
        let level = Level {
            in_flight: f64::from(bucket(in_flight)),
            pairs: 1.0,
            arrivals,
            completions,
            aa: arrivals * arrivals,
            ac: arrivals * completions,
            cc: completions * completions,
        };
        self.seconds += seconds;
        self.pairs += 1.0;
        self.arrivals += arrivals;
        self.add(&level);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Moves { levels: std::mem::take(&mut self.levels), ..Moves::default() };
        self.levels.clear();
    }

    pub(super) fn join(&mut self, other: &Moves) {
        self.seconds += other.seconds;
        self.pairs += other.pairs;
        self.arrivals += other.arrivals;
        other.levels.iter().for_each(|level| self.add(level));
    }

    pub(super) fn discount(&mut self, kept: f64) {
        self.seconds *= kept;
        self.pairs *= kept;
        self.arrivals *= kept;
        for level in &mut self.levels {
            *level = Level { in_flight: level.in_flight, ..scaled(level, kept) };
        }
    }

    fn add(&mut self, fresh: &Level) {
        let at = self.levels.partition_point(|level| level.in_flight < fresh.in_flight);
        match self.levels.get_mut(at) {
            Some(level) if level.in_flight == fresh.in_flight => level.add(fresh, 1.0),
            _ => self.levels.insert(at, *fresh),
        }
    }

    pub(super) fn pairs(&self) -> f64 {
        self.pairs
    }

    /// Time from poll to poll, seconds.
    pub(super) fn interval(&self) -> f64 {
        self.seconds / self.pairs
    }

    /// Requests per second.
    pub(super) fn arrival_rate(&self) -> f64 {
        self.arrivals / self.seconds
    }

    /// Variance of the arrivals between two polls over their mean: 1 when they are Poisson, less behind a
    /// balancer that deals them out in turn.
    pub(super) fn dispersion(&self) -> f64 {
        let scatter: f64 = self.judged().map(|level| level.central().0).sum();
        let pairs: f64 = self.judged().map(|level| level.pairs).sum();
        scatter / pairs.max(1.0) / (self.arrivals / self.pairs).max(1e-9)
    }

    /// The most in flight that is judged.
    pub(super) fn top(&self) -> f64 {
        self.judged().last().map_or(0.0, |level| level.in_flight)
    }

    fn judged(&self) -> impl Iterator<Item = &Level> {
        self.levels.iter().filter(|level| level.pairs >= LEAST_PAIRS)
    }

    /// Level by level.
    pub(super) fn followed(&self) -> Vec<Followed> {
        let usual = self.arrivals / self.pairs;
        let (mut aa, mut ac, mut cc, mut pairs) = (0.0, 0.0, 0.0, 0.0);
        for level in self.judged() {
            let (a, b, c) = level.central();
            (aa, ac, cc, pairs) = (aa + a, ac + b, cc + c, pairs + level.pairs);
        }
        if pairs <= 0.0 {
            return Vec::new();
        }
        let (aa, ac, cc) = (POOLED * aa / pairs, POOLED * ac / pairs, POOLED * cc / pairs);
        self.judged()
            .map(|level| {
                let (a, b, c) = level.central();
                let (a, b, c) = (a + aa, b + ac, c + cc);
                let slope = if a > 0.0 { b / a } else { 0.0 };
                let scatter = (c - slope * b).max(0.02 * c) / (level.pairs + POOLED);
                let off = level.arrivals / level.pairs - usual;
                Followed {
                    in_flight: level.in_flight,
                    completions: level.completions / level.pairs - slope * off,
                    variance: scatter.max(1e-3) / level.pairs,
                }
            })
            .collect()
    }
}

fn scaled(level: &Level, part: f64) -> Level {
    let mut out = Level::default();
    out.add(level, part);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_arrivals_than_usual_are_taken_out() {
        let mut moves = Moves::default();
        for k in 0..100 {
            let arrivals = f64::from(k % 5);
            moves.note(2, arrivals, 1.0 + 0.5 * arrivals, 0.1);
            moves.note(7, arrivals + 1.0, 4.0 + 0.5 * (arrivals + 1.0), 0.1);
        }
        let followed = moves.followed();
        // 2.5 come on average, both levels together.
        assert!((followed[0].completions - 2.25).abs() < 0.02, "{followed:?}");
        assert!((followed[1].completions - 5.25).abs() < 0.02, "{followed:?}");
        assert!(
            (moves.arrival_rate() - 25.0).abs() < 1e-9 && (moves.interval() - 0.1).abs() < 1e-9
        );
        moves.discount(0.25);
        assert_eq!(moves.pairs(), 50.0);
        assert!((moves.followed()[0].completions - followed[0].completions).abs() < 0.02);
        moves.clear();
        assert!(moves.followed().is_empty());
    }
}
