//! Requests in flight by backend. A failure stays for what is left of its penalty (see `failure.rs`):
//! not by a timer, but as an amount that decays with the penalty as its time constant, so that its sum
//! over time is the same. Reading costs an exponential, only for backends that failed lately.

use plimsoll_model::Nanos;

use super::SuccessLatency;
use crate::{Ending, Finish};

/// Less than this of a failure is forgotten.
const FORGOTTEN: f64 = 0.01;

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    amount: f64,
    at: Nanos,
}

impl Held {
    fn decayed(self, over_us: f64, now: Nanos) -> f64 {
        let age_us = now.since(self.at).as_nanos() as f64 / 1e3;
        self.amount * (-age_us / over_us).exp()
    }
}

/// Requests in flight, and failures not yet forgiven.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    count: Vec<u32>,
    held: Vec<Held>,
    successes: SuccessLatency,
}

impl InFlight {
    pub(crate) fn new(backends: usize) -> Self {
        InFlight {
            count: vec![0; backends],
            held: vec![Held::default(); backends],
            successes: SuccessLatency::new(),
        }
    }

    /// Makes room for so many backends; never forgets one.
    pub(crate) fn grow(&mut self, backends: usize) {
        if backends > self.count.len() {
            self.count.resize(backends, 0);
            self.held.resize(backends, Held::default());
        }
    }

    pub(crate) fn successes(&self) -> &SuccessLatency {
        &self.successes
    }

    pub(crate) fn start(&mut self, backend: usize) {
        self.count[backend] += 1;
    }

    pub(crate) fn finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.count[backend] = self.count[backend].saturating_sub(1);
        match finish.ending {
            Ending::Success => self.successes.record(finish.latency_us()),
            Ending::Failure | Ending::Rejected => {
                let penalty_us = self.successes.failure_us();
                let left = (1.0 - finish.latency_us() / penalty_us).max(0.0);
                let amount = self.held[backend].decayed(penalty_us, now) + left;
                self.held[backend] = Held { amount, at: now };
            }
            Ending::Abandoned => {}
        }
    }

    /// Requests in flight, failures held included.
    pub(crate) fn load(&mut self, backend: usize, now: Nanos) -> f64 {
        let count = f64::from(self.count[backend]);
        let held = self.held[backend];
        if held.amount == 0.0 {
            return count;
        }
        let amount = held.decayed(self.successes.failure_us(), now);
        if amount < FORGOTTEN {
            self.held[backend].amount = 0.0;
        }
        count + amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_failure_stays_until_its_penalty_is_over() {
        let mut pool = InFlight::new(2);
        let mut now = Nanos::ZERO;
        pool.start(0);
        now = now + 10 * MS;
        pool.finish(0, &Finish::success(10 * MS), now);
        assert_eq!(pool.load(0, now), 0.0);
        // Ten means of 10 ms: the failure took 1 ms of its 100.
        pool.start(0);
        pool.finish(0, &Finish::failure(MS), now);
        assert!((pool.load(0, now) - 0.99).abs() < 1e-12);
        assert!((pool.load(0, now + 100 * MS) - 0.99 * (-1f64).exp()).abs() < 1e-9);
        let area: f64 = (0..2_000).map(|k| pool.clone().load(0, now + k * MS)).sum();
        assert!((area - 99.0).abs() < 2.0, "99 ms of one request in flight, not {area}");
        pool.load(0, now + 1_000 * MS);
        assert_eq!(pool.load(0, now), 0.0, "forgotten for good");
    }

    #[test]
    fn a_timeout_was_its_own_penalty_and_an_abandoned_request_has_none() {
        let mut pool = InFlight::new(1);
        let now = Nanos::from_secs_f64(5.0);
        pool.start(0);
        pool.finish(0, &Finish::success(10 * MS), now);
        pool.start(0);
        pool.finish(0, &Finish::failure(200 * MS), now);
        pool.start(0);
        pool.finish(0, &Finish::abandoned(MS), now);
        assert_eq!(pool.load(0, now), 0.0);
    }
}
