//! Whether a request is tried elsewhere (B6): after a refusal and after a failure, which are budgeted apart.
//!
//! **Refused**: the request was never begun, so it may be tried again whatever its method; that costs a
//! round trip and no work, and two to four refusals are the usual way to a free core when load is high. A
//! request is retried [`RefusalRetries::most`] times, and all of them share a bucket: every request that is
//! let in somewhere brings `per_admitted` retries, each retry takes one, `burst` are kept at most. So there
//! are at most `per_admitted` retries per request let in over any longer time. Below overload that binds
//! nobody; when all backends refuse, retries find nothing, and a request whose retry would not be granted
//! says so to the ingress ([`Retries::tries_left`]), where the whole limit then holds for it. First tries
//! are never held back, so the first that is let in ends a drought.
//!
//! **Failed**: the backend has worked for nothing, and a pool that fails for too much load is buried by
//! retries. A request is retried [`FailureRetries::most`] times, and a first such retry is granted while
//! `retrying + 1 ≤ max(least, share · live)`, where `live` requests have not ended and `retrying` of them
//! have been retried after a failure. Whether the request may be sent twice at all (its method, its body)
//! the caller knows.
//!
//! Source: BLOC's algorithm 2 for the limit; gRPC's retry throttling for a bucket filled by successes;
//! Envoy's retry budget for the share and its least, and their defaults. Cost: O(1).

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How often requests are tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOptions {
    /// After a refusal.
    pub refusals: RefusalRetries,
    /// After a failure.
    pub failures: FailureRetries,
}

/// Retries of what was refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefusalRetries {
    /// Most of one request, 0 for none; the last refusal is what the client gets.
    pub most: u32,
    /// What all requests share; absent for no budget.
    pub budget: Option<RefusalBudget>,
}

/// A bucket of retries, filled by requests that are let in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefusalBudget {
    /// Retries that each brings, 0 or more.
    pub per_admitted: f64,
    /// Most retries that are kept, at least 1; so many there are to begin with.
    pub burst: u32,
}

/// Retries of what failed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FailureRetries {
    /// Most of one request, 0 for none.
    pub most: u32,
    /// Part of the live requests that may be retried at once, 0…1; 1 for no budget.
    pub share: f64,
    /// So many may be in any case.
    pub least: u32,
}

impl Default for RefusalRetries {
    fn default() -> Self {
        RefusalRetries { most: 3, budget: Some(RefusalBudget::default()) }
    }
}

impl Default for RefusalBudget {
    fn default() -> Self {
        RefusalBudget { per_admitted: 2.5, burst: 100 }
    }
}

impl Default for FailureRetries {
    fn default() -> Self {
        FailureRetries { most: 1, share: 0.2, least: 3 }
    }
}

/// An option outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum RetryOptionsError {
    /// Not a number of retries.
    #[error("per_admitted is {0}, expected 0 or more")]
    PerAdmitted(f64),
    /// There would be no retries.
    #[error("burst is 0, expected at least 1; for no retries set most to 0")]
    Burst,
    /// Not a part.
    #[error("share is {0}, expected 0 to 1")]
    Share(f64),
}

impl RetryOptions {
    /// So many retries after refusals and none after failures, without budgets.
    pub fn of_refusals(most: u32) -> Self {
        RetryOptions {
            refusals: RefusalRetries { most, budget: None },
            failures: FailureRetries { most: 0, ..FailureRetries::default() },
        }
    }

    /// Says what is out of range, if anything is.
    pub fn check(&self) -> Result<(), RetryOptionsError> {
        if let Some(RefusalBudget { per_admitted, burst }) = self.refusals.budget {
            if !(0.0..f64::INFINITY).contains(&per_admitted) {
                return Err(RetryOptionsError::PerAdmitted(per_admitted));
            }
            if burst == 0 {
                return Err(RetryOptionsError::Burst);
            }
        }
        match self.failures.share {
            share if (0.0..=1.0).contains(&share) => Ok(()),
            share => Err(RetryOptionsError::Share(share)),
        }
    }
}

/// What to do with a request that was refused or has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It is sent to another backend.
    Again,
    /// It had all its tries.
    Limit,
    /// Too many others are being retried.
    Budget,
}

/// What became of requests that were refused, or failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// Were sent again.
    pub retries: u64,
    /// Had all their tries.
    pub limit: u64,
    /// Were given no retry by the budget.
    pub budget: u64,
}

impl RetryCounts {
    fn note(&mut self, verdict: Retry) -> Retry {
        match verdict {
            Retry::Again => self.retries += 1,
            Retry::Limit => self.limit += 1,
            Retry::Budget => self.budget += 1,
        }
        verdict
    }
}

/// Requests of one egress, and what they may still try.
#[derive(Clone, Debug)]
pub struct Retries {
    options: RetryOptions,
    /// Retries that the refused may have.
    bucket: f64,
    live: u32,
    /// Of these, retried after a failure.
    retrying: u32,
    refusals: RetryCounts,
    failures: RetryCounts,
}

impl Retries {
    /// None are live, the bucket is full.
    ///
    /// # Errors
    /// [`RetryOptionsError`] when an option is out of range.
    pub fn new(options: RetryOptions) -> Result<Self, RetryOptionsError> {
        options.check()?;
        let burst = options.refusals.budget.map_or(0, |budget| budget.burst);
        Ok(Retries {
            options,
            bucket: f64::from(burst),
            live: 0,
            retrying: 0,
            refusals: RetryCounts::default(),
            failures: RetryCounts::default(),
        })
    }

    /// A request has come, and is going to be sent for the first time.
    pub fn begin(&mut self) {
        self.live += 1;
    }

    /// How often a request that was refused so many times would be tried again if it always were: what an
    /// ingress gets, as [`Arrival::tries_left`](crate::Arrival::tries_left).
    pub fn tries_left(&self, refusals: u32) -> u32 {
        let left = self.options.refusals.most.saturating_sub(refusals);
        match self.options.refusals.budget {
            Some(_) => left.min(self.bucket as u32),
            None => left,
        }
    }

    /// A request was refused for this time, at least the first. After [`Retry::Again`] it is sent again.
    pub fn refused(&mut self, refusals: u32) -> Retry {
        let refusals = refusals.max(1);
        let verdict = if refusals > self.options.refusals.most {
            Retry::Limit
        } else if self.tries_left(refusals - 1) == 0 {
            Retry::Budget
        } else {
            self.bucket = (self.bucket - 1.0).max(0.0);
            Retry::Again
        };
        self.refusals.note(verdict)
    }

    /// A backend has answered a request that it had let in, well or not.
    pub fn admitted(&mut self) {
        if let Some(RefusalBudget { per_admitted, burst }) = self.options.refusals.budget {
            self.bucket = (self.bucket + per_admitted).min(f64::from(burst));
        }
    }

    /// A request has failed for this time, at least the first. After [`Retry::Again`] it is sent again.
    pub fn failed(&mut self, failures: u32) -> Retry {
        let failures = failures.max(1);
        let FailureRetries { most, share, least } = self.options.failures;
        let at_once = (share * f64::from(self.live)).max(f64::from(least));
        let verdict = if failures > most {
            Retry::Limit
        } else if failures == 1 && f64::from(self.retrying) + 1.0 > at_once {
            // A request that has been granted one is counted, and keeps on.
            Retry::Budget
        } else {
            self.retrying += u32::from(failures == 1);
            Retry::Again
        };
        self.failures.note(verdict)
    }

    /// A request has ended, however it did; `retried` says whether it was sent again after a failure.
    pub fn end(&mut self, retried: bool) {
        self.live = self.live.saturating_sub(1);
        self.retrying = self.retrying.saturating_sub(u32::from(retried));
    }

    /// What became of requests that were refused so far.
    pub fn refusals(&self) -> RetryCounts {
        self.refusals
    }

    /// What became of requests that failed so far.
    pub fn failures(&self) -> RetryCounts {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(refusals: RefusalRetries, failures: FailureRetries) -> Retries {
        Retries::new(RetryOptions { refusals, failures }).expect("valid options")
    }

    fn after_refusals(most: u32, per_admitted: f64, burst: u32) -> Retries {
        let budget = Some(RefusalBudget { per_admitted, burst });
        retries(RefusalRetries { most, budget }, FailureRetries::default())
    }

    fn after_failures(most: u32, share: f64, least: u32) -> Retries {
        retries(RefusalRetries::default(), FailureRetries { most, share, least })
    }

    #[test]
    fn one_request_has_so_many_tries() {
        let mut retries = Retries::new(RetryOptions::of_refusals(3)).expect("valid options");
        retries.begin();
        assert_eq!([0, 1, 3, 9].map(|refusals| retries.tries_left(refusals)), [3, 2, 0, 0]);
        let verdicts = [1, 2, 3, 4].map(|refusals| retries.refused(refusals));
        assert_eq!(verdicts, [Retry::Again, Retry::Again, Retry::Again, Retry::Limit]);
        assert_eq!(retries.refusals(), RetryCounts { retries: 3, limit: 1, budget: 0 });
        assert_eq!(retries.failed(1), Retry::Limit, "none after failures");
    }

    #[test]
    fn no_time_is_the_first() {
        let mut retries = Retries::new(RetryOptions::default()).expect("valid options");
        assert_eq!((retries.refused(0), retries.failed(0)), (Retry::Again, Retry::Again));
        assert_eq!((retries.refusals().retries, retries.retrying), (1, 1));
    }

    #[test]
    fn the_refused_have_what_the_admitted_bring() {
        let mut retries = after_refusals(8, 2.5, 10);
        let granted = |retries: &mut Retries, requests: u32| {
            (0..requests).filter(|_| retries.refused(1) == Retry::Again).count()
        };
        assert_eq!(granted(&mut retries, 100), 10, "the burst");
        assert_eq!(retries.tries_left(0), 0, "the ingress is told");
        (0..2).for_each(|_| retries.admitted());
        assert_eq!(retries.tries_left(0), 5);
        assert_eq!(granted(&mut retries, 100), 5);
        (0..1_000).for_each(|_| retries.admitted());
        assert_eq!((retries.tries_left(0), retries.tries_left(5)), (8, 3));
        assert_eq!(granted(&mut retries, 100), 10, "no more than the burst is kept");
        assert_eq!(retries.refusals().budget, 90 + 95 + 90);
    }

    #[test]
    fn when_one_in_ten_is_let_in_each_brings_its_retries_and_no_more() {
        let mut retries = after_refusals(8, 6.0, 100);
        let (mut tries, mut admitted) = (0u32, 0u32);
        for _ in 0..20_000 {
            let mut refusals = 0;
            loop {
                tries += 1;
                if tries.is_multiple_of(10) {
                    retries.admitted();
                    admitted += 1;
                    break;
                }
                refusals += 1;
                if retries.refused(refusals) != Retry::Again {
                    break;
                }
            }
        }
        let spent = retries.refusals().retries;
        assert!(spent <= u64::from(6 * admitted + 100), "{spent} for {admitted}");
        // Without a budget a request would have 1 + 8 tries, but for those let in before: 6.1.
        assert!((1.5..3.0).contains(&(f64::from(tries) / 2e4)), "{tries}");
    }

    #[test]
    fn a_share_of_the_live_may_retry_after_failures_and_a_few_in_any_case() {
        let mut retries = after_failures(3, 0.2, 3);
        (0..100).for_each(|_| retries.begin());
        let granted = (0..100).filter(|_| retries.failed(1) == Retry::Again).count();
        assert_eq!(granted, 20);
        assert_eq!(retries.failures().budget, 80);
        assert_eq!(retries.failed(2), Retry::Again, "who retries keeps on");
        assert_eq!(retries.refused(1), Retry::Again, "refusals have a budget of their own");
        // The eighty end, then seventeen of those that were retried: three are left of three.
        (0..80).for_each(|_| retries.end(false));
        (0..17).for_each(|_| retries.end(true));
        assert_eq!(retries.failed(1), Retry::Budget);
        retries.end(true);
        assert_eq!(retries.failed(1), Retry::Again);
    }

    #[test]
    fn nothing_is_left_when_all_have_ended() {
        let mut retries = after_failures(2, 0.5, 1);
        (0..40).for_each(|_| retries.begin());
        let retried = [0, 1, 2, 3].repeat(10).into_iter().map(|failures: u32| {
            (1..=failures).filter(|&k| retries.failed(k) == Retry::Again).count() > 0
        });
        let retried: Vec<bool> = retried.collect();
        assert!(retried.contains(&true));
        retried.iter().for_each(|&retried| retries.end(retried));
        assert_eq!((retries.live, retries.retrying), (0, 0));
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let mut options = RetryOptions::default();
        assert!(options.check().is_ok());
        options.failures.share = 1.5;
        assert_eq!(Retries::new(options).err(), Some(RetryOptionsError::Share(1.5)));
        options.failures.share = 0.2;
        for per_admitted in [-1.0, f64::INFINITY, f64::NAN] {
            options.refusals.budget = Some(RefusalBudget { per_admitted, burst: 1 });
            let error = options.check().expect_err("out of range").to_string();
            assert!(error.contains("expected 0 or more"), "{error}");
        }
        options.refusals.budget = Some(RefusalBudget { per_admitted: 1.0, burst: 0 });
        assert_eq!(Retries::new(options).err(), Some(RetryOptionsError::Burst));
    }
}
