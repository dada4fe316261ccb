//! Requests in flight by backend. A failure or a refusal stays for what is left of its penalty (see
//! `failure.rs`): not by a timer, but as an amount of about one that decays with its penalty as time
//! constant, so that its sum over time is the same. Reading costs an exponential for either, only for
//! backends that had one lately. Policies that keep a key per backend learn which have changed by time
//! alone ([`InFlight::faded`]).

use std::time::Duration;

use plimsoll_model::Nanos;

use super::SuccessLatency;
use crate::{Ending, Finish};

/// Less than this of a request is forgotten.
const FORGOTTEN: f64 = 0.01;
/// Keys are behind by at most this part of a failure's penalty: what is held is wrong by 0.8 % of failures
/// and 4 % of refusals at most.
const FADING_STEP: f64 = 1.0 / 128.0;

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    failures: f64,
    refusals: f64,
    at: Nanos,
    /// Whether it stands in [`InFlight::holding`].
    listed: bool,
}

impl Held {
    /// What is left of it now.
    fn decayed(self, successes: &SuccessLatency, now: Nanos) -> Held {
        let age_us = now.since(self.at).as_nanos() as f64 / 1e3;
        let left = |amount: f64, over_us: f64| match amount {
            0.0 => 0.0,
            _ => amount * (-age_us / over_us).exp(),
        };
        let failures = left(self.failures, successes.failure_us());
        let refusals = left(self.refusals, successes.refusal_us());
        Held { failures, refusals, at: now, ..self }
    }

    fn amount(self) -> f64 {
        self.failures + self.refusals
    }
}

/// Requests in flight, and failures not yet forgiven.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    count: Vec<u32>,
    held: Vec<Held>,
    /// The backends of which something is held, and maybe some of which nothing is any more.
    holding: Vec<usize>,
    next_fading: Nanos,
    /// Of all backends together.
    held_by_all: Held,
    successes: SuccessLatency,
}

impl InFlight {
    pub(crate) fn new(backends: usize) -> Self {
        InFlight {
            count: vec![0; backends],
            held: vec![Held::default(); backends],
            holding: Vec::with_capacity(backends),
            next_fading: Nanos::ZERO,
            held_by_all: Held::default(),
            successes: SuccessLatency::new(),
        }
    }

    /// Makes room for so many backends; never forgets one.
    pub(crate) fn grow(&mut self, backends: usize) {
        if backends > self.count.len() {
            self.count.resize(backends, 0);
            self.held.resize(backends, Held::default());
            self.holding.reserve(backends - self.holding.len());
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
        if finish.ending == Ending::Success {
            self.successes.record(finish.latency_us());
        }
        let Some(penalty_us) = self.successes.penalty_us(finish.ending) else { return };
        let left = (1.0 - finish.latency_us() / penalty_us).max(0.0);
        // Half as long as a refusal is half of one for as long.
        let refusals = left * penalty_us / self.successes.refusal_us();
        let add = |held: Held| {
            let held = held.decayed(&self.successes, now);
            match finish.ending {
                Ending::Failure => Held { failures: held.failures + left, ..held },
                _ => Held { refusals: held.refusals + refusals, ..held },
            }
        };
        self.held_by_all = add(self.held_by_all);
        let mut held = add(self.held[backend]);
        if !held.listed && held.amount() > 0.0 {
            held.listed = true;
            self.holding.push(backend);
        }
        self.held[backend] = held;
    }

    /// Requests in flight alone.
    pub(crate) fn count(&self, backend: usize) -> u32 {
        self.count[backend]
    }

    /// Has [`InFlight::faded`] tell all at its next call.
    pub(crate) fn fade_next(&mut self) {
        self.next_fading = Nanos::ZERO;
    }

    /// Tells the load of those whose load time alone has changed since they were last reported, when enough of
    /// it has passed. O(1) when no backend failed lately.
    pub(crate) fn faded(&mut self, now: Nanos, mut tell: impl FnMut(usize, f64)) {
        if self.holding.is_empty() || now < self.next_fading {
            return;
        }
        let step_us = FADING_STEP * self.successes.failure_us();
        self.next_fading = now + Duration::from_nanos((step_us * 1e3) as u64);
        let mut k = 0;
        while let Some(&backend) = self.holding.get(k) {
            tell(backend, self.load(backend, now));
            if self.held[backend].amount() > 0.0 {
                k += 1;
            } else {
                self.held[backend].listed = false;
                self.holding.swap_remove(k);
            }
        }
    }

    /// Failures and refusals held of all backends together.
    pub(crate) fn held_by_all(&mut self, now: Nanos) -> f64 {
        if self.held_by_all.amount() == 0.0 {
            return 0.0;
        }
        let amount = self.held_by_all.decayed(&self.successes, now).amount();
        if amount < FORGOTTEN {
            self.held_by_all = Held::default();
        }
        amount
    }

    /// Failures and refusals held.
    pub(crate) fn held(&mut self, backend: usize, now: Nanos) -> f64 {
        if self.holding.is_empty() {
            return 0.0;
        }
        self.load(backend, now) - f64::from(self.count[backend])
    }

    /// Requests in flight, failures and refusals held included.
    pub(crate) fn load(&mut self, backend: usize, now: Nanos) -> f64 {
        let count = f64::from(self.count[backend]);
        let held = self.held[backend];
        if held.amount() == 0.0 {
            return count;
        }
        let amount = held.decayed(&self.successes, now).amount();
        if amount < FORGOTTEN {
            self.held[backend] = Held { listed: held.listed, ..Held::default() };
            return count;
        }
        count + amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!((area - 99.0).abs() < 2.5, "99 ms of one request in flight, not {area}");
        assert_eq!(pool.load(0, now + 1_000 * MS), 0.0);
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

    #[test]
    fn successes_that_take_no_time_make_no_load_that_is_not_a_number() {
        let mut pool = InFlight::new(1);
        let now = Nanos::from_secs_f64(1.0);
        pool.start(0);
        pool.finish(0, &Finish::success(Duration::ZERO), now);
        for finish in [Finish::failure(Duration::ZERO), Finish::rejected(Duration::ZERO)] {
            pool.start(0);
            pool.finish(0, &finish, now);
        }
        assert_eq!(pool.load(0, now), 2.0, "one of each");
        assert_eq!(pool.load(0, now + MS), 0.0);
    }

    #[test]
    fn a_refusal_stays_for_two_means() {
        let mut pool = InFlight::new(1);
        let now = Nanos::from_secs_f64(1.0);
        pool.start(0);
        pool.finish(0, &Finish::success(10 * MS), now);
        pool.start(0);
        pool.finish(0, &Finish::rejected(MS), now);
        assert!((pool.load(0, now) - 0.95).abs() < 1e-12, "19 ms of 20");
        let area: f64 = (0..400).map(|k| pool.clone().load(0, now + k * MS)).sum();
        assert!((area - 19.0).abs() < 1.0, "19 ms of one request in flight, not {area}");
    }

    #[test]
    fn what_is_too_late_stays_for_one_mean() {
        let mut pool = InFlight::new(1);
        let now = Nanos::from_secs_f64(1.0);
        pool.start(0);
        pool.finish(0, &Finish::success(10 * MS), now);
        pool.start(0);
        pool.finish(0, &Finish::too_late(MS), now);
        let area: f64 = (0..400).map(|k| pool.clone().load(0, now + k * MS)).sum();
        assert!((area - 9.0).abs() < 0.5, "9 ms of one request in flight, not {area}");
    }

    #[test]
    fn fading_backends_are_reported_until_they_are_forgotten() {
        let mut pool = InFlight::new(3);
        let mut now = Nanos::from_secs_f64(1.0);
        pool.start(1);
        pool.finish(1, &Finish::success(10 * MS), now);
        pool.start(1);
        pool.finish(1, &Finish::failure(MS), now);
        pool.start(1);
        let mut told = Vec::new();
        for _ in 0..1_000 {
            now = now + MS;
            pool.faded(now, |i, load| told.push((i, load)));
        }
        assert!((400..500).contains(&told.len()), "each of 460 ms: {}", told.len());
        assert!(told.windows(2).all(|w| w[1].0 == 1 && w[1].1 < w[0].1));
        assert_eq!(told.last().unwrap().1, 1.0, "what is left is in flight");
    }
}
