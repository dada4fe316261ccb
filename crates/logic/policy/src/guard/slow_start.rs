//! Slow start: the weight of a backend that joins or returns grows over a window,
//!
//! `w(t) = w · max(least, t / window)`,
//!
//! so that cold caches and empty connection pools are not met by a full share. Source: HAProxy's
//! `slowstart` (`src/server.c`, linear, in steps), Envoy's slow start mode (`min_weight_percent`). One that comes
//! where none had weight, with the first list or later, does not ramp: there is no other.
//!
//! Policies that compare load get the scaled weight, in [`STEPS`] steps; for them an idle newcomer would
//! otherwise be the best at every pick. Policies whose picks are fixed turns or places of keys keep their
//! tables: a pick of a backend at part `p` of its ramp stands with probability
//! `p / q`, `q` being the greatest part of those open, by the key where there is one, so that keys come to the
//! newcomer one by one and stay. Policies whose draw is uniform do the same, for a weight does not reach it. What is
//! turned away is picked for again without the newcomer; where that is not the one that had the key before, as in
//! Maglev's table, by a second table of those that are settled.

use std::time::Duration;

use plimsoll_model::Nanos;
use serde::{Deserialize, Serialize};

/// Weights change so often within a window.
const STEPS: u32 = 20;
/// Scaled weights have this much finer units, where they fit.
const FINER: u32 = 100;

/// How backends come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlowStartSettings {
    /// How long the ramp is, milliseconds, above 0.
    pub window_ms: u64,
    /// The part of its weight at which it begins, percent, 1…100.
    pub least_percent: u32,
}

impl Default for SlowStartSettings {
    fn default() -> Self {
        SlowStartSettings { window_ms: 30_000, least_percent: 10 }
    }
}

impl SlowStartSettings {
    pub(crate) fn is_valid(&self) -> bool {
        self.window_ms > 0 && (1..=100).contains(&self.least_percent)
    }
}

/// The furthest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ramp {
    Over,
    Since(Nanos),
    /// It joined; the next event tells when.
    Pending,
}

/// The backends on their ramp.
#[derive(Clone, Debug)]
pub(super) struct SlowStart {
    window: Duration,
    least: f64,
    ramps: Vec<Ramp>,
    active: usize,
    next_step: Nanos,
}

impl SlowStart {
    pub(super) fn new(settings: SlowStartSettings, backends: usize) -> Self {
        SlowStart {
            window: Duration::from_millis(settings.window_ms),
            least: f64::from(settings.least_percent) / 100.0,
            ramps: vec![Ramp::Over; backends],
            active: 0,
            next_step: Nanos::ZERO,
        }
    }

    /// Whoever had no weight and has one now begins, if anybody had any; whoever has none is done.
    pub(super) fn set_weights(&mut self, old: &[u32], new: &[u32]) {
        let joins = if old.iter().any(|w| *w > 0) { Ramp::Pending } else { Ramp::Over };
        self.ramps.resize(self.ramps.len().max(new.len()), Ramp::Over);
        for (i, ramp) in self.ramps.iter_mut().enumerate() {
            let had = old.get(i).is_some_and(|w| *w > 0);
            match (had, new.get(i).is_some_and(|w| *w > 0)) {
                (false, true) => *ramp = joins,
                (_, false) => *ramp = Ramp::Over,
                (true, true) => {}
            }
        }
        self.recount();
    }

    /// A backend comes back after an ejection.
    pub(super) fn returned(&mut self, backend: usize, now: Nanos) {
        if let Some(ramp) = self.ramps.get_mut(backend) {
            *ramp = Ramp::Since(now);
            self.recount();
        }
    }

    fn recount(&mut self) {
        self.active = self.ramps.iter().filter(|r| **r != Ramp::Over).count();
        self.next_step = Nanos::ZERO;
    }

    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }

    /// Whether weights are to be scaled anew; once per step, and once when the last ramp is over.
    pub(super) fn step(&mut self, now: Nanos) -> bool {
        if self.active == 0 || now < self.next_step {
            return false;
        }
        self.next_step = now + self.window / STEPS;
        let window = self.window;
        for ramp in &mut self.ramps {
            match *ramp {
                Ramp::Pending => *ramp = Ramp::Since(now),
                Ramp::Since(at) if now.since(at) >= window => {
                    *ramp = Ramp::Over;
                    self.active -= 1;
                }
                Ramp::Over | Ramp::Since(_) => {}
            }
        }
        true
    }

    /// The part of its weight that a backend has.
    pub(super) fn part(&self, backend: usize, now: Nanos) -> f64 {
        self.part_of(self.ramp(backend), now)
    }

    /// That of whoever of these is furthest.
    pub(super) fn greatest_part(&self, backends: impl Iterator<Item = usize>, now: Nanos) -> f64 {
        let mut furthest: Option<Ramp> = None;
        for ramp in backends.map(|i| self.ramp(i)) {
            furthest = Some(furthest.map_or(ramp, |other| other.min(ramp)));
            // Mostly the very first: none is further.
            if ramp == Ramp::Over {
                break;
            }
        }
        self.part_of(furthest.unwrap_or(Ramp::Over), now)
    }

    fn ramp(&self, backend: usize) -> Ramp {
        self.ramps.get(backend).copied().unwrap_or(Ramp::Over)
    }

    fn part_of(&self, ramp: Ramp, now: Nanos) -> f64 {
        match ramp {
            Ramp::Over => 1.0,
            Ramp::Pending => self.least,
            Ramp::Since(at) => {
                let part = now.since(at).as_secs_f64() / self.window.as_secs_f64();
                part.clamp(self.least, 1.0)
            }
        }
    }

    /// Writes the weights without those of backends on a ramp.
    pub(super) fn settled(&self, weights: &[u32], settled: &mut Vec<u32>) {
        let is_over = |i: usize| self.ramp(i) == Ramp::Over;
        settled.clear();
        settled.extend(weights.iter().enumerate().map(|(i, &w)| if is_over(i) { w } else { 0 }));
    }

    /// Writes the weights of this moment: as they are when no backend is on a ramp, else in finer units.
    pub(super) fn scale(&self, weights: &[u32], now: Nanos, scaled: &mut Vec<u32>) {
        let greatest = weights.iter().copied().max().unwrap_or(0);
        let finer = if self.active > 0 && greatest <= u32::MAX / FINER { FINER } else { 1 };
        let at = |(i, &w): (usize, &u32)| {
            let scaled = (f64::from(w) * f64::from(finer) * self.part(i, now)).round() as u32;
            scaled.max(w.min(1))
        };
        scaled.clear();
        scaled.extend(weights.iter().enumerate().map(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_backend_ramps_up_and_an_old_one_does_not() {
        let settings = SlowStartSettings { window_ms: 1_000, least_percent: 20 };
        let mut slow = SlowStart::new(settings, 2);
        let at = |ms: u64| Nanos(ms * 1_000_000);
        let weights = |slow: &SlowStart, weights: &[u32], now| {
            let mut scaled = Vec::new();
            slow.scale(weights, now, &mut scaled);
            scaled
        };
        assert!(!slow.step(at(0)));
        slow.set_weights(&[2, 0], &[2, 2, 4]);
        assert!(slow.step(at(5_000)) && !slow.step(at(5_049)) && slow.step(at(5_050)));
        assert_eq!(weights(&slow, &[2, 2, 4], at(5_050)), [200, 40, 80]);
        assert_eq!(weights(&slow, &[2, 2, 4], at(5_500)), [200, 100, 200]);
        slow.set_weights(&[2, 2, 4], &[2, 0, 4]);
        assert_eq!(weights(&slow, &[2, 0, 4], at(5_600)), [200, 0, 240]);
        assert!(slow.step(at(6_000)) && !slow.is_active());
        assert_eq!(weights(&slow, &[2, 0, 4], at(6_000)), [2, 0, 4]);
        slow.returned(0, at(7_000));
        assert_eq!(slow.part(0, at(7_700)), 0.7);
        slow.set_weights(&[2, 0, 4], &[2, 3, 4]);
        assert_eq!(slow.greatest_part([0, 1].into_iter(), at(7_700)), 0.7);
        assert_eq!(slow.greatest_part([1].into_iter(), at(7_700)), 0.2, "it has only just joined");
        assert_eq!(slow.greatest_part(0..3, at(7_700)), 1.0);
        slow.set_weights(&[2, 3, 4], &[0, 0, 0]);
        slow.set_weights(&[0, 0, 0], &[2, 3, 4]);
        assert!(!slow.is_active(), "there is no one else");
    }
}
