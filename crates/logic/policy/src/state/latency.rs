//! Recent latency by backend: an average that remembers the shorter of `decay` and 64 requests,
//!
//! `e ← e + α·(x − e)`, `α = 1 − exp(−Δt/τ)` within 1/64…1/8, Δt since the last sample.
//!
//! Read, it relaxes towards the pool's mean `m` while no sample comes: `m + (e − m)·τ/(τ + age)`.
//! Without that, a backend that was once slow is never asked again, and its estimate never mends. The
//! relaxation is hyperbolic because a scan reads every estimate for every pick, and a division costs a
//! fraction of an exponential. What was given up is forgotten by `exp(−age/τ)`: whoever hung for a moment
//! would be left alone for a quarter of an hour otherwise. A sample is added to what was read just before it.
//! A backend without samples is an average one: not zero, which would send it everything, and not infinity,
//! which would send it nothing.

use plimsoll_model::Nanos;

use super::SuccessLatency;
use crate::{Ending, Finish};

/// The least part a sample gets. Without it, samples a millisecond apart would weigh 1/10,000 at the
/// default decay, and a backend that begins to fail would be loved for seconds.
const MIN_PART: f64 = 1.0 / 64.0;
/// The most it gets: one answer after a pause is one draw of a wide distribution, and a backend that it
/// makes look slow is not asked again for a while.
const MAX_PART: f64 = 1.0 / 8.0;

#[derive(Clone, Copy, Debug)]
struct Estimate {
    mean_us: f64,
    at: Nanos,
    /// Whether the last of it was a request given up.
    given_up: bool,
}

/// Recent latency of every backend.
#[derive(Clone, Debug)]
pub(crate) struct LatencyTable {
    decay_us: f64,
    estimates: Vec<Option<Estimate>>,
    successes: SuccessLatency,
}

impl LatencyTable {
    pub(crate) fn new(backends: usize, decay_us: f64) -> Self {
        LatencyTable { decay_us, estimates: vec![None; backends], successes: SuccessLatency::new() }
    }

    /// Makes room for so many backends; never forgets one.
    pub(crate) fn grow(&mut self, backends: usize) {
        if backends > self.estimates.len() {
            self.estimates.resize(backends, None);
        }
    }

    pub(crate) fn finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        if finish.ending == Ending::Success {
            self.successes.record(finish.latency_us());
        }
        let before_us = self.estimate_us(backend, now);
        let penalty_us = self.successes.penalty_us(finish.ending);
        let sample_us = match (finish.ending, penalty_us) {
            (Ending::Success, _) => Some(finish.latency_us()),
            (Ending::Abandoned, _) => self.successes.given_up_us(finish, before_us),
            (Ending::Rejected | Ending::TooLate, Some(penalty_us)) => {
                Some(penalty_us.max(before_us))
            }
            (_, Some(penalty_us)) => Some(finish.latency_us().max(penalty_us)),
            (_, None) => None,
        };
        let Some(sample_us) = sample_us else { return };
        let part = self.estimates[backend].map_or(MAX_PART, |old| {
            let age_us = now.since(old.at).as_nanos() as f64 / 1e3;
            (1.0 - (-age_us / self.decay_us).exp()).clamp(MIN_PART, MAX_PART)
        });
        let given_up = finish.ending == Ending::Abandoned;
        let mean_us = before_us + part * (sample_us - before_us);
        self.estimates[backend] = Some(Estimate { mean_us, at: now, given_up });
    }

    /// The pool's mean, microseconds.
    pub(crate) fn mean_us(&self) -> f64 {
        self.successes.mean_us()
    }

    /// Latency to expect of a backend, microseconds, not less than 1.
    pub(crate) fn estimate_us(&self, backend: usize, now: Nanos) -> f64 {
        let pool_us = self.successes.mean_us();
        let expected_us = match self.estimates[backend] {
            None => pool_us,
            Some(e) => {
                let age_us = now.since(e.at).as_nanos() as f64 / 1e3;
                let left = match e.given_up {
                    true => (-age_us / self.decay_us).exp(),
                    false => self.decay_us / (self.decay_us + age_us),
                };
                pool_us + (e.mean_us - pool_us) * left
            }
        };
        expected_us.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 0.02
    }

    #[test]
    fn an_estimate_follows_and_an_unknown_backend_is_average() {
        let mut table = LatencyTable::new(3, 1e7);
        let mut now = Nanos::ZERO;
        assert_eq!(table.estimate_us(2, now), 1e6, "nothing known at all");
        for _ in 0..600 {
            now = now + MS;
            table.finish(0, &Finish::success(10 * MS), now);
            table.finish(1, &Finish::success(30 * MS), now);
        }
        assert!(close(table.estimate_us(0, now), 10_000.0));
        assert!(close(table.estimate_us(1, now), 30_000.0));
        assert!(close(table.estimate_us(2, now), 20_000.0));
        // Half of the difference after one decay without a sample.
        assert!(close(table.estimate_us(1, now + 10_000 * MS), 25_000.0));
    }

    #[test]
    fn a_share_of_failures_costs_in_proportion() {
        let mut table = LatencyTable::new(2, 1e7);
        let (mut now, mut sum) = (Nanos::ZERO, 0.0);
        for k in 0..20_000 {
            now = now + MS;
            table.finish(0, &Finish::success(10 * MS), now);
            let ok = k % 100 != 0;
            table.finish(1, &if ok { Finish::success(10 * MS) } else { Finish::failure(MS) }, now);
            sum += table.estimate_us(1, now) / 20_000.0;
        }
        assert!(close(sum, 10_900.0), "1 % of failures of ten means: {sum}");
    }

    #[test]
    fn what_was_given_up_took_at_least_so_long() {
        let mut table = LatencyTable::new(2, 1e7);
        let now = Nanos::from_secs_f64(1.0);
        (0..300).for_each(|_| table.finish(0, &Finish::success(10 * MS), now));
        let before_us = table.estimate_us(0, now);
        for early in [Finish::abandoned(MS), Finish::too_late(MS), Finish::too_late(100 * MS)] {
            (0..300).for_each(|_| table.finish(0, &early, now));
            assert_eq!(table.estimate_us(0, now), before_us, "{early:?} says nothing");
        }
        (0..1_000).for_each(|_| table.finish(0, &Finish::abandoned(50 * MS), now));
        assert!(close(table.estimate_us(0, now), 50_000.0));
        (0..1_000).for_each(|_| table.finish(0, &Finish::abandoned(5_000 * MS), now));
        assert!(close(table.estimate_us(0, now), 100_000.0), "as a failure, no more");
        let later = now + Duration::from_secs(70);
        assert!(close(table.estimate_us(0, later), 10_000.0), "and forgotten soon");
        assert!(close(table.estimate_us(1, now), 10_000.0), "it is no success of the pool");
    }

    #[test]
    fn a_refusal_makes_no_backend_look_faster() {
        let mut table = LatencyTable::new(2, 1e7);
        let now = Nanos::from_secs_f64(1.0);
        for _ in 0..300 {
            table.finish(0, &Finish::success(10 * MS), now);
        }
        for _ in 0..300 {
            table.finish(1, &Finish::failure(MS), now);
        }
        let slow_us = table.estimate_us(1, now);
        for _ in 0..300 {
            table.finish(0, &Finish::rejected(MS), now);
            table.finish(1, &Finish::rejected(MS), now);
        }
        assert!(close(table.estimate_us(0, now), 20_000.0), "two means");
        assert_eq!(table.estimate_us(1, now), slow_us);
    }
}
