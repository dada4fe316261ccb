//! How failures and refusals count, so that a backend which answers nothing fast does not look fast.
//!
//! Let `S` be the mean latency of recent successes of the whole pool. A failure counts as a request
//! that takes [`FAILURE_FACTOR`]·`S`, a refusal by the backend's admission as one of [`REFUSAL_FACTOR`]·`S`:
//! * estimates of latency are given `max(observed, factor·S)` as its sample ([`super::LatencyTable`],
//!   peak EWMA); of a refusal only as far as that is more than they expect, for a backend that is
//!   known to be slow is no faster because it refuses;
//! * counts of requests in flight keep it, as one, for what is left of `factor·S` ([`super::InFlight`]).
//!
//! By Little's law both say the same; a policy that looks at both counts both. The penalty has no unit of
//! its own to set, it is proportional to the failures (1 % of them make a backend look 9 % slower), and
//! it ends by itself when they do. A backend that fails always gets a tenth of its part or less, which
//! is what finds out that it is well again.
//!
//! A refusal is weaker because it says *busy*, not *broken*: a backend that refuses works at its limit, and has
//! room again when one of its requests ends, which takes about `S`. It says so of this moment alone. A
//! request let in would have waited about another `S`: hence 2. Ejection does not count refusals at all
//! (`guard/ejection.rs`); BLOC has its own answer (no chips, left alone for an interval).
//!
//! A request that its client **gave up** after `t` would have taken longer: `t` bounds its latency from below. A
//! backend that hangs has no other endings. Where `t` is more than is expected of the backend, estimates take
//! it for a sample, up to a failure's `10·S`; otherwise it says nothing, so no backend looks faster for it. Where
//! failures are counted it is the part `t / 10·S` of one, a whole one from ten means on: a timeout. In flight
//! it was all that time, and needs no penalty.
//!
//! What is refused because it would be answered **too late** says how little time it had, and not that the backend
//! is busy or broken. But a backend too slow for its clients would look idle and fast for refusing them all, and get all
//! the others', too. So it counts as what it would have been where all backends are alike: a request of `S`.
//!
//! Policies that look neither at latency nor at what is in flight need no such rule: an ending changes
//! nothing for them. Health checks and ejection are other layers' work.

use plimsoll_model::Nanos;

use crate::{Ending, Finish};

/// How many mean successes long a failure counts.
const FAILURE_FACTOR: f64 = 10.0;
/// How many mean successes long a refusal counts.
const REFUSAL_FACTOR: f64 = 2.0;
/// The part of a request in the share of failures: one failure alone shows, eight make most of it.
const SHARE_PART: f64 = 1.0 / 8.0;
/// The mean remembers about so many successes: enough to be steady, few enough to follow a day's load.
const MEMORY: f64 = 256.0;
/// Less is no unit to measure anything by.
const LEAST_US: f64 = 1.0;
/// Before the first success nothing is known; a second is linkerd's default round trip.
const UNKNOWN_US: f64 = 1e6;

/// Mean latency of the pool's recent successes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuccessLatency {
    mean_us: f64,
    seen: f64,
}

impl SuccessLatency {
    pub(crate) fn new() -> Self {
        SuccessLatency { mean_us: UNKNOWN_US, seen: 0.0 }
    }

    pub(crate) fn record(&mut self, latency_us: f64) {
        self.seen = (self.seen + 1.0).min(MEMORY);
        self.mean_us += (latency_us - self.mean_us) / self.seen;
    }

    /// Not less than 1 microsecond.
    pub(crate) fn mean_us(&self) -> f64 {
        self.mean_us.max(LEAST_US)
    }

    /// How long a failure counts.
    pub(crate) fn failure_us(&self) -> f64 {
        FAILURE_FACTOR * self.mean_us()
    }

    /// How long a refusal counts.
    pub(crate) fn refusal_us(&self) -> f64 {
        REFUSAL_FACTOR * self.mean_us()
    }

    /// The part of a failure that a request counts for which ended so; `None` where that tells nothing.
    pub(crate) fn failed_part(&self, finish: &Finish) -> Option<f64> {
        match finish.ending {
            Ending::Success => Some(0.0),
            Ending::Failure => Some(1.0),
            Ending::Rejected => Some(REFUSAL_FACTOR / FAILURE_FACTOR),
            Ending::Abandoned => Some((finish.latency_us() / self.failure_us()).min(1.0)),
            Ending::TooLate => Some(1.0 / FAILURE_FACTOR),
        }
    }

    /// How long a request that its client gave up takes, as far as that is more than was expected.
    pub(crate) fn given_up_us(&self, finish: &Finish, expected_us: f64) -> Option<f64> {
        let waited_us = finish.latency_us().min(self.failure_us());
        (waited_us > expected_us).then_some(waited_us)
    }

    /// How long a request that ended so counts at least, if it counts against its backend.
    pub(crate) fn penalty_us(&self, ending: Ending) -> Option<f64> {
        match ending {
            Ending::Success | Ending::Abandoned => None,
            Ending::Failure => Some(self.failure_us()),
            Ending::Rejected => Some(self.refusal_us()),
            Ending::TooLate => Some(self.mean_us()),
        }
    }
}

/// The share of its requests that failed lately, by backend, a refusal or a request given up being a part of
/// a failure: an average over about eight requests that time forgets, too.
#[derive(Clone, Debug)]
pub(crate) struct FailureShares {
    decay_us: f64,
    shares: Vec<(f64, Nanos)>,
}

impl FailureShares {
    pub(crate) fn new(backends: usize, decay_us: f64) -> Self {
        FailureShares { decay_us, shares: vec![(0.0, Nanos::ZERO); backends] }
    }

    /// Makes room for so many backends; never forgets one.
    pub(crate) fn grow(&mut self, backends: usize) {
        if backends > self.shares.len() {
            self.shares.resize(backends, (0.0, Nanos::ZERO));
        }
    }

    pub(crate) fn finish(
        &mut self,
        backend: usize,
        finish: &Finish,
        successes: &SuccessLatency,
        now: Nanos,
    ) {
        let Some(part) = successes.failed_part(finish) else { return };
        let before = self.share(backend, now);
        // Only a success makes it less broken than it was.
        let failed = if finish.ending == Ending::Success { part } else { before.max(part) };
        self.shares[backend] = (before + SHARE_PART * (failed - before), now);
    }

    pub(crate) fn share(&self, backend: usize, now: Nanos) -> f64 {
        let (share, at) = self.shares[backend];
        if share == 0.0 {
            return 0.0;
        }
        share * (-(now.since(at).as_nanos() as f64 / 1e3) / self.decay_us).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_mean_follows() {
        let mut mean = SuccessLatency::new();
        assert_eq!(mean.failure_us(), 1e7);
        mean.record(100.0);
        mean.record(300.0);
        assert_eq!(mean.mean_us(), 200.0);
        (0..2_000).for_each(|_| mean.record(50.0));
        assert!((mean.mean_us() - 50.0).abs() < 1.0, "{}", mean.mean_us());
    }

    #[test]
    fn busy_weighs_less_than_broken() {
        let mut mean = SuccessLatency::new();
        mean.record(100.0);
        let none = [Ending::Success, Ending::Abandoned];
        assert_eq!(none.map(|e| mean.penalty_us(e)), [None; 2]);
        let penalties = [Ending::TooLate, Ending::Rejected, Ending::Failure];
        let expected = [Some(100.0), Some(200.0), Some(1_000.0)];
        assert_eq!(penalties.map(|e| mean.penalty_us(e)), expected);
    }

    #[test]
    fn a_share_of_failures_follows_and_fades() {
        let mut mean = SuccessLatency::new();
        mean.record(10_000.0);
        let after = |ms, ending| Finish::new(Duration::from_millis(ms), ending);
        let now = Nanos::from_secs_f64(1.0);
        let finish = |shares: &mut FailureShares, times: u32, ending| {
            (0..times).for_each(|_| shares.finish(0, &after(1, ending), &mean, now));
        };
        let mut shares = FailureShares::new(1, 1e6);
        finish(&mut shares, 100, Ending::Failure);
        for ending in [Ending::Rejected, Ending::Abandoned, Ending::TooLate] {
            finish(&mut shares, 9, ending);
        }
        assert!((shares.share(0, now) - 1.0).abs() < 1e-5);
        assert!((shares.share(0, now + Duration::from_secs(1)) - (-1f64).exp()).abs() < 1e-5);
        finish(&mut shares, 8, Ending::Success);
        assert!((shares.share(0, now) - 0.875f64.powi(8)).abs() < 1e-5);
        let mut busy = FailureShares::new(1, 1e6);
        finish(&mut busy, 100, Ending::Rejected);
        assert!((busy.share(0, now) - 0.2).abs() < 1e-5, "two means of ten");
        for (ms, part) in [(30, 0.3), (100, 1.0), (900, 1.0)] {
            let mut left = FailureShares::new(1, 1e6);
            let given_up = after(ms, Ending::Abandoned);
            (0..100).for_each(|_| left.finish(0, &given_up, &mean, now));
            assert!((left.share(0, now) - part).abs() < 1e-5, "after {ms} ms of ten times 10");
        }
    }
}
