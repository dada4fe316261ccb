//! Whether a refused request is tried elsewhere (B6).
//!
//! A request that was refused was never begun, so it may be tried again whatever its method. Two bounds
//! hold it: `total_retries` for each request, and for all of them a budget: a first retry is granted
//! while `retrying + 1 ≤ max(least, share · live)`, where `live` requests have not ended and `retrying`
//! of them are beyond their first try. When every backend refuses, each request would otherwise be sent
//! `1 + total_retries` times, just when there is the most to do.
//!
//! Source: BLOC's algorithm 2 for the limit; Envoy's retry budget for the share and its least, which
//! linkerd has as a share of the requests per second. Refusals cost a round trip and no work, so the
//! share is greater here than Envoy's 20 %, which is meant for failures. Cost: O(1).

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How often refused requests are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOptions {
    /// Most retries of one request, 0 for none; the last refusal is what the client gets.
    pub total_retries: u32,
    /// Part of the live requests that may be beyond their first try, 0…1; 1 for no budget.
    pub share: f64,
    /// So many may be in any case.
    pub least: u32,
}

impl Default for RetryOptions {
    fn default() -> Self {
        RetryOptions { total_retries: 3, share: 0.5, least: 3 }
    }
}

/// An option outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("share is {0}, expected 0 to 1")]
pub struct RetryOptionsError(pub f64);

impl RetryOptions {
    /// Says what is out of range, if anything is.
    pub fn check(&self) -> Result<(), RetryOptionsError> {
        if (0.0..=1.0).contains(&self.share) { Ok(()) } else { Err(RetryOptionsError(self.share)) }
    }
}

/// What to do with a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It is sent to another backend.
    Again,
    /// It had all its tries.
    Limit,
    /// Too many others are being retried.
    Budget,
}

/// What became of refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// Tries beyond the first.
    pub retries: u64,
    /// Requests that had all their tries.
    pub limit: u64,
    /// Requests that the budget gave no retry.
    pub budget: u64,
}

/// Live requests of one egress, and those of them beyond their first try.
#[derive(Clone, Debug)]
pub struct Retries {
    options: RetryOptions,
    live: u32,
    retrying: u32,
    counts: RetryCounts,
}

impl Retries {
    /// None are live.
    ///
    /// # Errors
    /// [`RetryOptionsError`] when an option is out of range.
    pub fn new(options: RetryOptions) -> Result<Self, RetryOptionsError> {
        options.check()?;
        Ok(Retries { options, live: 0, retrying: 0, counts: RetryCounts::default() })
    }

    /// A request has come, and is going to be sent for the first time.
    pub fn begin(&mut self) {
        self.live += 1;
    }

    /// A request was refused after so many tries, at least 1. After [`Retry::Again`] it has one more.
    pub fn refused(&mut self, tries: u32) -> Retry {
        let verdict = self.judge(tries);
        match verdict {
            Retry::Again => {
                self.counts.retries += 1;
                self.retrying += u32::from(tries == 1);
            }
            Retry::Limit => self.counts.limit += 1,
            Retry::Budget => self.counts.budget += 1,
        }
        verdict
    }

    /// A request has ended after so many tries, however it did.
    pub fn end(&mut self, tries: u32) {
        self.live = self.live.saturating_sub(1);
        self.retrying = self.retrying.saturating_sub(u32::from(tries > 1));
    }

    /// Whether a request that is sent for the `tries`-th time would be tried again if refused: what an
    /// ingress is told, as [`Arrival::will_retry`](crate::Arrival::will_retry).
    pub fn will_retry(&self, tries: u32) -> bool {
        self.judge(tries) == Retry::Again
    }

    /// What became of refused requests so far.
    pub fn counts(&self) -> RetryCounts {
        self.counts
    }

    fn judge(&self, tries: u32) -> Retry {
        if tries > self.options.total_retries {
            return Retry::Limit;
        }
        let most = (self.options.share * f64::from(self.live)).max(f64::from(self.options.least));
        // Who has been granted one retry is counted, and keeps on.
        if tries == 1 && f64::from(self.retrying) + 1.0 > most {
            return Retry::Budget;
        }
        Retry::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(total_retries: u32, share: f64, least: u32) -> Retries {
        Retries::new(RetryOptions { total_retries, share, least }).expect("valid options")
    }

    #[test]
    fn one_request_has_so_many_tries() {
        let mut retries = retries(3, 1.0, 1);
        retries.begin();
        assert!(retries.will_retry(1) && retries.will_retry(3) && !retries.will_retry(4));
        let verdicts: Vec<Retry> = (1..=4).map(|tries| retries.refused(tries)).collect();
        assert_eq!(verdicts, [Retry::Again, Retry::Again, Retry::Again, Retry::Limit]);
        let counts = retries.counts();
        assert_eq!(counts, RetryCounts { retries: 3, limit: 1, budget: 0 });
    }

    #[test]
    fn a_share_of_the_live_may_retry_and_a_few_in_any_case() {
        let mut retries = retries(3, 0.2, 3);
        (0..100).for_each(|_| retries.begin());
        let granted = (0..100).filter(|_| retries.refused(1) == Retry::Again).count();
        assert_eq!(granted, 20);
        assert_eq!(retries.counts().budget, 80);
        assert_eq!(retries.refused(2), Retry::Again, "who retries keeps on");
        // The eighty end, then seventeen of those that were retried: three are left of three.
        (0..80).for_each(|_| retries.end(1));
        (0..17).for_each(|_| retries.end(2));
        assert_eq!(retries.refused(1), Retry::Budget);
        retries.end(2);
        assert_eq!(retries.refused(1), Retry::Again);
    }

    #[test]
    fn nothing_is_left_when_all_have_ended() {
        let mut retries = retries(2, 0.5, 1);
        let mut tries = [1u32; 40];
        tries.iter().for_each(|_| retries.begin());
        for (k, tries) in tries.iter_mut().enumerate() {
            for _ in 0..k % 4 {
                if retries.refused(*tries) == Retry::Again {
                    *tries += 1;
                }
            }
        }
        assert!(tries.contains(&3), "some had all their tries");
        tries.iter().for_each(|&tries| retries.end(tries));
        assert_eq!((retries.live, retries.retrying), (0, 0));
    }

    #[test]
    fn a_share_is_a_part() {
        let options = RetryOptions { share: 1.5, ..RetryOptions::default() };
        assert_eq!(Retries::new(options).err(), Some(RetryOptionsError(1.5)));
        assert!(RetryOptions { share: f64::NAN, ..options }.check().is_err());
    }
}
