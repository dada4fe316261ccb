//! How many completions follow a poll that shows n in flight: the M/M/c queue in motion.
//!
//! The mean number in flight a time t after n obeys Kolmogorov's backward equation,
//! `u' = λ·(u(n+1) − u(n)) + v·min(n, c)·(u(n−1) − u(n))`, `u(0) = n`; what completed meanwhile is
//! `λt + n − u`. Arrivals of dispersion I instead of 1 have the second difference, which is what their
//! chance does, I times as large. With cores to spare completions rise with n, in saturation they do not, so what
//! follows each level tells cores even where one load only was ever seen. Solved by uniformisation, cost
//! O(events × levels); it says nothing (and is not asked) where a request takes much less than the time
//! between polls.

use super::moves::{Followed, Moves};

/// Numbers in flight up to this are followed one by one.
const LEVELS: f64 = 96.0;
/// Cores that could do so many times what there is to do never keep anybody waiting.
const ALL_GO: f64 = 4.0;
/// Polls with more arrivals in between tell little beyond their mean, at a cost that grows with its square.
const MOST_ARRIVALS: f64 = 32.0;
/// Pairs of polls without which they say nothing.
const LEAST_PAIRS: f64 = 20.0;
/// How irregular arrivals are, at the least and the most.
const DISPERSION: (f64, f64) = (0.1, 3.0);
/// Events of one step of the series.
const STEP_EVENTS: f64 = 32.0;
/// Events less likely than this all together are left out.
const NEGLIGIBLE: f64 = 1e-7;

/// What followed the polls at one setting, ready to be compared with any v and c.
pub(super) struct Observed {
    arrivals: f64,
    dispersion: f64,
    interval: f64,
    levels: Vec<Followed>,
    top: f64,
}

impl Observed {
    /// `None` where they say too little: few polls, or requests far shorter than the time between two.
    pub(super) fn of(moves: &Moves) -> Option<Observed> {
        let came = moves.arrival_rate() * moves.interval();
        if moves.pairs() < LEAST_PAIRS || came > MOST_ARRIVALS {
            return None;
        }
        Some(Observed {
            arrivals: moves.arrival_rate(),
            dispersion: moves.dispersion().clamp(DISPERSION.0, DISPERSION.1),
            interval: moves.interval(),
            levels: moves.followed(),
            top: moves.top().min(LEVELS),
        })
    }

    /// How many levels are judged.
    pub(super) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// By how much what followed contradicts v and c: squared, in units of its variance.
    pub(super) fn contradiction(&self, v: f64, c: f64) -> f64 {
        if v <= 0.0 {
            return 0.0;
        }
        let off = |level: &Followed, expected: f64| {
            (level.completions - expected).powi(2) / level.variance
        };
        let came = self.arrivals * self.interval;
        let bearable = c * v * self.interval;
        // Further than what was seen, by what may come before the next poll: nearer, the bound shows.
        let top = self.top + 8.0 + 2.0 * came.sqrt();
        if c >= top || bearable > ALL_GO * (self.top + came) {
            // Nobody waits: each goes on its own, whoever came meanwhile too.
            let (rest, stays) = (self.arrivals / v, (-v * self.interval).exp());
            let expected = |n: f64| came + (n - rest) * (1.0 - stays);
            return self.levels.iter().map(|l| off(l, expected(l.in_flight))).sum();
        }
        // Where all cores stay busy until the next poll nothing need be solved.
        let busy = c + bearable + 3.0 * bearable.sqrt() + 2.0;
        let room = top.min(busy);
        let queue = Queue { arrivals: self.arrivals, dispersion: self.dispersion, v, c };
        let later = queue.later(self.interval, room as usize);
        let expected = |n: f64| later.get(n as usize).map_or(bearable, |later| came + n - later);
        self.levels.iter().map(|l| off(l, expected(l.in_flight))).sum()
    }
}

struct Queue {
    arrivals: f64,
    dispersion: f64,
    v: f64,
    c: f64,
}

impl Queue {
    /// Mean number in flight after this time, by the number at the beginning.
    fn later(&self, seconds: f64, top: usize) -> Vec<f64> {
        let fastest = self.arrivals * self.dispersion.max(1.0) + self.v * self.c.min(top as f64);
        // Steps of few events each, so that the weights do not underflow.
        let parts = (seconds * fastest / STEP_EVENTS).ceil().max(1.0);
        let events = seconds * fastest / parts;
        let up = 0.5 * (1.0 + self.dispersion) * self.arrivals / fastest;
        let back = 0.5 * (1.0 - self.dispersion) * self.arrivals / fastest;
        let down: Vec<f64> =
            (0..=top).map(|n| self.v * (n as f64).min(self.c) / fastest - back).collect();
        let mut u: Vec<f64> = (0..=top).map(|n| n as f64).collect();
        let (mut chain, mut next) = (u.clone(), u.clone());
        for _ in 0..parts as usize {
            let mut weight = (-events).exp();
            let mut left = 1.0 - weight;
            chain.copy_from_slice(&u);
            u.iter_mut().for_each(|u| *u *= weight);
            let mut k = 0.0;
            while left > NEGLIGIBLE {
                k += 1.0;
                weight *= events / k;
                left -= weight;
                // Nobody leaves an empty backend; beyond the top a further arrival is one more in flight.
                next[0] = chain[0] + (up + back) * (chain[1] - chain[0]);
                for n in 1..top {
                    next[n] = chain[n]
                        + up * (chain[n + 1] - chain[n])
                        + down[n] * (chain[n - 1] - chain[n]);
                }
                next[top] = chain[top] + up + down[top] * (chain[top - 1] - chain[top]);
                u.iter_mut().zip(&next).for_each(|(u, next)| *u += weight * next);
                std::mem::swap(&mut chain, &mut next);
            }
        }
        u
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_cores_forget_exponentially_and_saturated_ones_do_not() {
        let (arrivals, v, t) = (50.0, 30.0, 0.1);
        let queue = Queue { arrivals, dispersion: 1.0, v, c: 1e9 };
        let free = queue.later(t, 40);
        // Of independent requests only the mean number of arrivals counts.
        let even = Queue { dispersion: 0.1, ..queue }.later(t, 40);
        let rest = arrivals / v;
        for n in [0.0, 5.0, 20.0] {
            let exact = rest + (n - rest) * (-v * t).exp();
            assert!((free[n as usize] - exact).abs() < 1e-3, "{n}: {} {exact}", free[n as usize]);
            assert!((even[n as usize] - exact).abs() < 1e-2, "{n}: {} {exact}", even[n as usize]);
        }
        let busy = Queue { arrivals, dispersion: 1.0, v, c: 1.0 }.later(t, 40);
        assert!((busy[30] - (30.0 + (arrivals - v) * t)).abs() < 1e-5);
    }
}
