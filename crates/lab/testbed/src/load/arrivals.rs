//! The intended start times of an open loop. Pure: the time is an argument.

use plimsoll_model::Nanos;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How the gaps between arrivals are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Exponential gaps: many independent clients.
    Poisson,
    /// Equal gaps.
    Constant,
}

/// Gives the intended start times one by one. They do not depend on when anybody asks, so lateness
/// does not add up, and the same seed gives the same times.
pub(super) struct ArrivalTimes {
    pattern: Pattern,
    rate_rps: f64,
    rng: Xoshiro256PlusPlus,
    /// Nanoseconds, fractions included: they add up.
    next: f64,
}

impl ArrivalTimes {
    pub(super) fn new(pattern: Pattern, rate_rps: f64, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut times = ArrivalTimes { pattern, rate_rps, rng, next: 0.0 };
        times.next = times.gap();
        times
    }

    fn gap(&mut self) -> f64 {
        let mean = 1e9 / self.rate_rps;
        match self.pattern {
            Pattern::Constant => mean,
            // 1 − U lies in (0, 1]: the logarithm is finite.
            Pattern::Poisson => -(1.0 - self.rng.random::<f64>()).ln() * mean,
        }
    }

    /// The next start; none while the rate is zero.
    pub(super) fn peek(&self) -> Option<Nanos> {
        (self.rate_rps > 0.0).then_some(Nanos(self.next as u64))
    }

    /// The next start, if it is due.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<Nanos> {
        let at = self.peek().filter(|at| *at <= now)?;
        self.next += self.gap();
        Some(at)
    }

    pub(super) fn rate_rps(&self) -> f64 {
        self.rate_rps
    }

    /// From `now` on, gaps have this rate: the one under way is drawn anew, as memory has no meaning for
    /// Poisson arrivals and the old gap may be hours.
    pub(super) fn set_rate(&mut self, now: Nanos, rate_rps: f64) {
        if rate_rps != self.rate_rps {
            self.rate_rps = rate_rps;
            self.next = now.0 as f64 + if rate_rps > 0.0 { self.gap() } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(times: &mut ArrivalTimes, end: Nanos) -> Vec<Nanos> {
        std::iter::from_fn(|| times.pop(end)).collect()
    }

    #[test]
    fn poisson_has_its_rate_and_its_spread() {
        let mut times = ArrivalTimes::new(Pattern::Poisson, 1000.0, 3);
        let starts = until(&mut times, Nanos::from_secs_f64(200.0));
        let n = starts.len() as f64;
        assert!((n / 200_000.0 - 1.0).abs() < 0.01, "{n}");
        let gaps: Vec<f64> = starts.windows(2).map(|w| (w[1].0 - w[0].0) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / n;
        let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
        assert!((var.sqrt() / mean - 1.0).abs() < 0.02, "{mean} {var}");
    }

    #[test]
    fn constant_is_even_and_does_not_drift() {
        let mut times = ArrivalTimes::new(Pattern::Constant, 3.0, 3);
        let starts = until(&mut times, Nanos::from_secs_f64(1000.0));
        assert_eq!(starts.len(), 3000);
        assert_eq!(starts[2].0, 1_000_000_000);
    }

    #[test]
    fn asking_late_changes_nothing() {
        let mut prompt = ArrivalTimes::new(Pattern::Poisson, 100.0, 5);
        let mut late = ArrivalTimes::new(Pattern::Poisson, 100.0, 5);
        let mut seen = Vec::new();
        for ms in 0..1000 {
            seen.extend(until(&mut prompt, Nanos(ms * 1_000_000)));
        }
        assert_eq!(until(&mut late, Nanos(999_000_000)), seen);
    }

    #[test]
    fn a_new_rate_holds_from_now() {
        let mut times = ArrivalTimes::new(Pattern::Constant, 0.0, 5);
        assert_eq!(times.peek(), None);
        times.set_rate(Nanos(1_000), 1e6);
        assert_eq!(until(&mut times, Nanos(3_000)), [Nanos(2_000), Nanos(3_000)]);
        times.set_rate(Nanos(3_000), 0.0);
        assert_eq!(times.pop(Nanos(u64::MAX)), None);
    }
}
