//! How likely a poll is: the exact law of completions between two polls of an M/M/c backend, given what was
//! in flight at the first and how many requests arrived meanwhile.
//!
//! With `a` arrived and `d` gone there are `n = n₀ + a − d` in flight, and one more goes at the rate
//! `v·min(n, c)`: Kolmogorov's forward equation for d, by uniformisation, with the arrivals anywhere
//! in between when they are few, evenly spaced when they are many. It uses what a trapezoid over the polls throws away: of one core that is polled every three service times
//! that is a third of the evidence. Cost O(events² ) flops, a microsecond or two a poll; polls with more events than
//! [`MOST_EVENTS`] are left to the trapezoid, which then loses little.

/// Beyond so many expected events, or completions, a poll is not computed exactly.
pub(super) const MOST_EVENTS: f64 = 64.0;
const STATES: usize = 128;
/// What is less likely than this is beyond the precision of the integration.
const LEAST: f64 = 1e-12;
/// Events less likely than this all together are left out, and more than so many.
const NEGLIGIBLE: f64 = 1e-10;
const MOST_STEPS: f64 = 200.0;
/// Up to so many arrivals are anywhere in the interval, to within one of so many slots.
const FEW: u32 = 6;
const SLOTS: u32 = 6;
/// More come in so many groups.
const GROUPS: u32 = 8;

/// One poll as the law takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    pub seconds: f64,
    /// In flight at the first poll.
    pub before: u32,
    pub arrivals: u32,
    pub completions: u32,
    pub cores: f64,
}

impl Poll {
    /// Whether the law can be computed at this rate of a core.
    pub fn is_exact(&self, rate: f64) -> bool {
        let all = self.before + self.arrivals;
        self.completions <= all
            && (all as usize) < STATES
            && rate * self.seconds * f64::from(all).min(self.cores) <= MOST_EVENTS
    }

    /// Probability of these completions at this rate of a core.
    pub fn likelihood(&self, rate: f64) -> f64 {
        let last = self.completions as usize;
        let p = match last {
            0..8 => self.law::<8>(rate, last)[last],
            8..24 => self.law::<24>(rate, last)[last],
            _ => self.law::<STATES>(rate, last)[last],
        };
        p.max(LEAST)
    }

    /// Mean and variance of the completions at this rate of a core.
    pub fn moments(&self, rate: f64) -> (f64, f64) {
        let all = (self.before + self.arrivals) as usize;
        match all {
            0..8 => moments(&self.law::<8>(rate, all)[..=all]),
            8..24 => moments(&self.law::<24>(rate, all)[..=all]),
            _ => moments(&self.law::<STATES>(rate, all)[..=all]),
        }
    }

    /// The law of completions up to `last`, which is below N.
    fn law<const N: usize>(&self, rate: f64, last: usize) -> [f64; N] {
        if self.arrivals == 0 {
            let mut p = certain(0);
            self.go_on::<N>(&mut p[..=last], self.before, rate, self.seconds);
            return p;
        }
        if self.arrivals <= FEW {
            self.law_of_few(rate, last)
        } else {
            self.law_of_many(rate, last)
        }
    }

    /// Arrivals are anywhere: every one in any slot, so `p[a][d]` after a have come and d gone.
    fn law_of_few<const N: usize>(&self, rate: f64, last: usize) -> [f64; N] {
        let all = self.arrivals as usize;
        let mut p = [[0.0; N]; FEW as usize + 1];
        p[0] = certain(0);
        let half = 0.5 * self.seconds / f64::from(SLOTS);
        for slot in 0..SLOTS {
            let mut gap = half;
            if slot > 0 {
                gap += half;
            }
            self.go_on_all(&mut p[..=all], last, rate, gap);
            let chance = 1.0 / f64::from(SLOTS - slot);
            arrive(&mut p[..=all], last, chance);
        }
        self.go_on_all(&mut p[..=all], last, rate, half);
        p[all]
    }

    /// Arrivals are evenly spaced, in groups: of many, chance makes little difference.
    fn law_of_many<const N: usize>(&self, rate: f64, last: usize) -> [f64; N] {
        let mut p = certain(0);
        for group in 0..=GROUPS {
            let gap = if group == 0 || group == GROUPS { 0.5 } else { 1.0 } / f64::from(GROUPS);
            let come = self.arrivals * group / GROUPS;
            self.go_on::<N>(&mut p[..=last], self.before + come, rate, gap * self.seconds);
        }
        p
    }

    fn go_on_all<const N: usize>(&self, p: &mut [[f64; N]], last: usize, rate: f64, seconds: f64) {
        for (a, p) in (0..).zip(p) {
            self.go_on::<N>(&mut p[..=last], self.before + a, rate, seconds);
        }
    }

    /// Lets time pass with so many come by now: uniformisation. At the greatest speed there is, every event
    /// is a completion with the chance of the present speed over that; Poisson's law says how many events
    /// there are.
    fn go_on<const N: usize>(&self, p: &mut [f64], come: u32, rate: f64, seconds: f64) {
        let busy = |d: u32| f64::from(come.saturating_sub(d)).min(self.cores);
        let most = busy(0);
        let events = rate * most * seconds;
        if events <= 0.0 {
            return;
        }
        let mut chance = [0.0; N];
        for (d, chance) in (0..).zip(&mut chance[..p.len()]) {
            *chance = busy(d) / most;
        }
        let mut chain = [0.0; N];
        chain[..p.len()].copy_from_slice(p);
        let mut weight = (-events).exp();
        let mut left = 1.0 - weight;
        p.iter_mut().for_each(|p| *p *= weight);
        let mut k = 0.0;
        while left > NEGLIGIBLE && k < MOST_STEPS {
            k += 1.0;
            weight *= events / k;
            left -= weight;
            let mut flow = 0.0;
            for ((q, chance), p) in chain.iter_mut().zip(&chance).zip(p.iter_mut()) {
                let out = *q * chance;
                *q += flow - out;
                flow = out;
                *p += weight * *q;
            }
        }
    }
}

fn moments(law: &[f64]) -> (f64, f64) {
    let (mut mean, mut square) = (0.0, 0.0);
    for (d, p) in law.iter().enumerate() {
        mean += d as f64 * p;
        square += (d * d) as f64 * p;
    }
    (mean, (square - mean * mean).max(0.0))
}

/// So many are gone, for certain.
fn certain<const N: usize>(gone: usize) -> [f64; N] {
    let mut p = [0.0; N];
    p[gone] = 1.0;
    p
}

/// Each of those still to come does so now with this chance: binomial steps, from the most arrived down.
fn arrive<const N: usize>(p: &mut [[f64; N]], last: usize, chance: f64) {
    let all = p.len() - 1;
    for a in (0..all).rev() {
        let waiting = (all - a) as i32;
        let from = p[a];
        let mut binomial = (1.0 - chance).powi(waiting);
        for (came, to) in p[a..].iter_mut().enumerate() {
            let keep = if came == 0 { 0.0 } else { 1.0 };
            to.iter_mut().zip(&from).take(last + 1).for_each(|(to, from)| {
                *to = keep * *to + binomial * from;
            });
            let k = came as f64;
            binomial = if chance < 1.0 {
                binomial * (f64::from(waiting) - k) / (k + 1.0) * chance / (1.0 - chance)
            } else if came as i32 == waiting - 1 {
                1.0
            } else {
                0.0
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{RngCore, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn without_arrivals_each_request_goes_on_its_own() {
        let poll = Poll { seconds: 0.05, before: 5, arrivals: 0, completions: 2, cores: 8.0 };
        let gone: f64 = 1.0 - (-20.0f64 * 0.05).exp();
        let binomial = 10.0 * gone.powi(2) * (1.0 - gone).powi(3);
        assert!((poll.likelihood(20.0) / binomial - 1.0).abs() < 0.01);
        let (mean, variance) = poll.moments(20.0);
        assert!((mean - 5.0 * gone).abs() < 0.01, "{mean}");
        assert!((variance - 5.0 * gone * (1.0 - gone)).abs() < 0.02, "{variance}");
    }

    #[test]
    fn while_all_cores_are_busy_it_is_poissons_law() {
        let poll = Poll { seconds: 0.1, before: 40, arrivals: 3, completions: 5, cores: 1.0 };
        let poisson = (-3.0f64).exp() * 3.0f64.powi(5) / 120.0;
        assert!((poll.likelihood(30.0) / poisson - 1.0).abs() < 0.01);
        let total: f64 = poll.law::<STATES>(30.0, 43).iter().sum();
        assert!((total - 1.0).abs() < 1e-6);
    }

    #[test]
    fn polls_that_cannot_be_are_not_exact() {
        let poll = Poll { seconds: 0.1, before: 1, arrivals: 0, completions: 2, cores: 1.0 };
        assert!(!poll.is_exact(30.0));
        assert!(!Poll { before: 2, seconds: 1e3, ..poll }.is_exact(30.0));
        assert!(Poll { before: 2, ..poll }.is_exact(30.0));
    }

    /// A walk through M/M/1, poll by poll.
    #[test]
    fn the_law_is_that_of_a_simulated_queue_and_loses_when_nothing_changed() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut uniform = || ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let (arrival_rate, rate, seconds) = (7.0, 10.0, 0.1);
        let (mut n, mut gain, polls) = (0, 0.0, 200_000);
        let mut seen = BTreeMap::<(u32, u32), (f64, f64)>::new();
        for _ in 0..polls {
            let mut poll = Poll { seconds, before: n, arrivals: 0, completions: 0, cores: 1.0 };
            let mut left = seconds;
            loop {
                let all = arrival_rate + if n > 0 { rate } else { 0.0 };
                left += uniform().ln() / all;
                if left < 0.0 {
                    break;
                }
                if uniform() * all < arrival_rate {
                    (n, poll.arrivals) = (n + 1, poll.arrivals + 1);
                } else {
                    (n, poll.completions) = (n - 1, poll.completions + 1);
                }
            }
            gain += poll.likelihood(0.85 * rate).ln() - poll.likelihood(rate).ln();
            let of = seen.entry((poll.before, poll.arrivals)).or_default();
            *of = (of.0 + 1.0, of.1 + f64::from(poll.completions));
        }
        for (&(before, arrivals), &(count, sum)) in seen.iter().filter(|(_, of)| of.0 > 1_000.0) {
            let poll = Poll { seconds, before, arrivals, completions: 0, cores: 1.0 };
            let (mean, variance) = poll.moments(rate);
            let error = (variance / count).sqrt() + 1e-9;
            // Arrivals in slots cost a little exactness.
            let off = (sum / count - mean).abs();
            assert!(off < 4.5 * error + 0.02, "{before} {arrivals}: {} {mean}", sum / count);
        }
        let gain = gain / f64::from(polls);
        assert!((-0.012..-0.005).contains(&gain), "{gain} nats a poll");
    }
}
