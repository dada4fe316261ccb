//! Ejection of outliers: a backend that fails in a row, or much more often than the others, gets nothing
//! for a while.
//!
//! * *consecutive*: `consecutive_failures` without a success between them, at once.
//! * *success rate*: each `interval_ms`, among at least `success_rate_hosts` backends that had at least
//!   `success_rate_requests` requests in it, those whose rate is below `mean − factor·σ` of all rates.
//! * at most `max_percent` of the backends of weight above 0 are out at a time: one at least, and never
//!   the last.
//! * for `base_ms` times the number of ejections, at most `max_ms`; the number falls by one with each interval
//!   that a backend passes without being out.
//!
//! Source: Envoy's outlier detection and its defaults; every detected outlier is ejected (Envoy's
//! `enforcing_*` at 100 %). **A refusal** by a backend's admission **counts neither as a failure nor as a
//! success**: it says busy, and a backend ejected for being busy sends its load to those that are next. A
//! request that its client gave up is a failure if that was ten mean latencies of the pool's successes or more
//! after its start, as of a backend that hangs, and otherwise counts for nothing. (Envoy never sees these, but it
//! counts its own timeouts.)

use std::time::Duration;

use plimsoll_model::Nanos;
use serde::{Deserialize, Serialize};

use crate::state::{Closed, SuccessLatency};
use crate::{Ending, Finish};

/// When backends are ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EjectionSettings {
    /// Failures in a row; 0 for no such ejection.
    pub consecutive_failures: u32,
    /// How often success rates are compared, milliseconds, above 0.
    pub interval_ms: u64,
    /// The first ejection, milliseconds, above 0.
    pub base_ms: u64,
    /// The longest, milliseconds, not below `base_ms`.
    pub max_ms: u64,
    /// Most backends that are out at a time, percent, at most 100.
    pub max_percent: u32,
    /// Success rates are compared among at least so many; 0 for no such ejection.
    pub success_rate_hosts: u32,
    /// Requests in an interval that make a rate.
    pub success_rate_requests: u32,
    /// Standard deviations below the mean, times 1,000.
    pub success_rate_stdev_factor: u32,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        EjectionSettings {
            consecutive_failures: 5,
            interval_ms: 10_000,
            base_ms: 30_000,
            max_ms: 300_000,
            max_percent: 10,
            success_rate_hosts: 5,
            success_rate_requests: 100,
            success_rate_stdev_factor: 1_900,
        }
    }
}

impl EjectionSettings {
    pub(crate) fn is_valid(&self) -> bool {
        self.interval_ms > 0
            && self.base_ms > 0
            && self.max_ms >= self.base_ms
            && self.max_percent <= 100
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Host {
    failures_in_a_row: u32,
    successes: u32,
    requests: u32,
    ejections: u32,
    until: Nanos,
}

/// The backends that are out.
#[derive(Clone, Debug)]
pub(super) struct Ejection {
    settings: EjectionSettings,
    hosts: Vec<Host>,
    ejected: Closed,
    /// Whether its weight is above 0.
    in_use: Vec<bool>,
    successes: SuccessLatency,
    next_interval: Option<Nanos>,
    next_return: Nanos,
}

impl Ejection {
    pub(super) fn new(settings: EjectionSettings, weights: &[u32]) -> Self {
        let mut ejection = Ejection {
            settings,
            hosts: Vec::new(),
            ejected: Closed::default(),
            in_use: Vec::new(),
            successes: SuccessLatency::new(),
            next_interval: None,
            next_return: Nanos(u64::MAX),
        };
        ejection.set_weights(weights);
        ejection
    }

    pub(super) fn set_weights(&mut self, weights: &[u32]) {
        self.hosts.resize(self.hosts.len().max(weights.len()), Host::default());
        self.ejected.grow(weights.len());
        self.in_use.clear();
        self.in_use.extend(weights.iter().map(|w| *w > 0));
    }

    pub(super) fn ejected(&self) -> &Closed {
        &self.ejected
    }

    /// Counts how a request ended; whether its backend is ejected by that.
    pub(super) fn finish(&mut self, backend: usize, finish: &Finish, now: Nanos) -> bool {
        let host = &mut self.hosts[backend];
        let is_failure = self.successes.failed_part(finish).is_some_and(|part| part >= 1.0);
        match finish.ending {
            Ending::Success => {
                self.successes.record(finish.latency_us());
                host.failures_in_a_row = 0;
                host.successes += 1;
                host.requests += 1;
                false
            }
            _ if is_failure => {
                host.failures_in_a_row += 1;
                host.requests += 1;
                let enough = self.settings.consecutive_failures;
                enough > 0 && host.failures_in_a_row >= enough && self.eject(backend, now)
            }
            _ => false,
        }
    }

    /// Ends what is over, and compares when an interval is; true when the ejected may have changed.
    pub(super) fn tick(&mut self, now: Nanos, mut returned: impl FnMut(usize)) -> bool {
        let mut changed = false;
        if now >= self.next_return {
            self.next_return = Nanos(u64::MAX);
            for i in 0..self.hosts.len() {
                if self.ejected.contains(i) {
                    if self.hosts[i].until <= now {
                        self.ejected.set(i, false);
                        self.hosts[i].failures_in_a_row = 0;
                        returned(i);
                        changed = true;
                    } else {
                        self.next_return = self.next_return.min(self.hosts[i].until);
                    }
                }
            }
        }
        let interval = Duration::from_millis(self.settings.interval_ms);
        let due = *self.next_interval.get_or_insert(now + interval);
        if now >= due {
            self.next_interval = Some(now + interval);
            changed |= self.compare(now);
        }
        changed
    }

    /// The success-rate rule, at the end of an interval.
    fn compare(&mut self, now: Nanos) -> bool {
        let enough = self.settings.success_rate_requests.max(1);
        let rate = |host: &Host| {
            (host.requests >= enough).then(|| f64::from(host.successes) / f64::from(host.requests))
        };
        let (mut n, mut sum, mut squares) = (0u32, 0.0, 0.0);
        for r in self.hosts.iter().filter_map(rate) {
            (n, sum, squares) = (n + 1, sum + r, squares + r * r);
        }
        let mut changed = false;
        if self.settings.success_rate_hosts > 0 && n >= self.settings.success_rate_hosts {
            let mean = sum / f64::from(n);
            let deviation = (squares / f64::from(n) - mean * mean).max(0.0).sqrt();
            let factor = f64::from(self.settings.success_rate_stdev_factor) / 1e3;
            let least = mean - factor * deviation;
            for i in 0..self.hosts.len() {
                if rate(&self.hosts[i]).is_some_and(|r| r < least) {
                    changed |= self.eject(i, now);
                }
            }
        }
        for (i, host) in self.hosts.iter_mut().enumerate() {
            (host.successes, host.requests) = (0, 0);
            if !self.ejected.contains(i) {
                host.ejections = host.ejections.saturating_sub(1);
            }
        }
        changed
    }

    fn eject(&mut self, backend: usize, now: Nanos) -> bool {
        if self.ejected.contains(backend) {
            return false;
        }
        let in_use = self.in_use.iter().filter(|used| **used).count();
        let by_share = in_use * self.settings.max_percent as usize / 100;
        let most = by_share.max(1).min(in_use.saturating_sub(1));
        // A backend ejected and then removed takes no other's place.
        let is_used = |i: &usize| self.in_use.get(*i).is_some_and(|used| *used);
        let out = self.ejected.iter().filter(is_used).count();
        if out >= most {
            return false;
        }
        let host = &mut self.hosts[backend];
        host.ejections += 1;
        let out_ms = self.settings.base_ms.saturating_mul(u64::from(host.ejections));
        host.until = now + Duration::from_millis(out_ms.min(self.settings.max_ms));
        self.next_return = self.next_return.min(host.until);
        self.ejected.set(backend, true);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn out(ejection: &Ejection) -> Vec<usize> {
        ejection.ejected().iter().collect()
    }

    fn fail(ejection: &mut Ejection, backend: usize, n: u32, now: Nanos) {
        (0..n).for_each(|_| {
            ejection.finish(backend, &end(Ending::Failure), now);
        });
    }

    fn end(ending: Ending) -> Finish {
        Finish::new(Duration::from_millis(10), ending)
    }

    #[test]
    fn failures_in_a_row_and_nothing_else() {
        let mut ejection = Ejection::new(EjectionSettings::default(), &[1; 4]);
        for ending in [Ending::Rejected, Ending::TooLate, Ending::Abandoned] {
            (0..1_000).for_each(|_| assert!(!ejection.finish(0, &end(ending), at(1))));
        }
        fail(&mut ejection, 1, 4, at(1));
        ejection.finish(1, &end(Ending::Success), at(1));
        fail(&mut ejection, 1, 4, at(1));
        assert!(out(&ejection).is_empty());
        ejection.finish(1, &end(Ending::Rejected), at(1));
        ejection.finish(1, &end(Ending::Abandoned), at(1));
        assert!(ejection.finish(1, &end(Ending::Failure), at(1)), "a refusal breaks no row");
        assert_eq!(out(&ejection), [1]);
    }

    #[test]
    fn what_is_given_up_after_ten_means_is_a_failure() {
        let mut ejection = Ejection::new(EjectionSettings::default(), &[1; 4]);
        ejection.finish(0, &end(Ending::Success), at(1));
        let given_up = |ms| Finish::abandoned(Duration::from_millis(ms));
        (0..1_000).for_each(|_| assert!(!ejection.finish(1, &given_up(99), at(1))));
        (0..4).for_each(|_| assert!(!ejection.finish(1, &given_up(100), at(1))));
        assert!(ejection.finish(1, &given_up(900), at(1)));
        assert_eq!(out(&ejection), [1]);
    }

    #[test]
    fn each_ejection_is_longer_until_it_is_forgiven() {
        let mut ejection = Ejection::new(EjectionSettings::default(), &[1; 4]);
        ejection.tick(at(0), |_| {});
        let mut now = 1;
        for seconds in [30, 60, 90] {
            fail(&mut ejection, 0, 5, at(now));
            assert!(!ejection.tick(at(now + seconds - 1), |_| {}));
            let mut back = Vec::new();
            assert!(ejection.tick(at(now + seconds), |i| back.push(i)));
            assert_eq!(back, [0]);
            now += seconds + 1;
        }
        (0..100).for_each(|k| {
            ejection.tick(at(now + 11 * k), |_| {});
        });
        now += 2_000;
        fail(&mut ejection, 0, 5, at(now));
        assert!(ejection.tick(at(now + 30), |_| {}), "as the first time");
    }

    #[test]
    fn few_are_out_at_a_time_and_never_the_last() {
        let all_fail = |n: usize, max_percent| {
            let settings = EjectionSettings { max_percent, ..EjectionSettings::default() };
            let mut ejection = Ejection::new(settings, &vec![1; n]);
            (0..n).for_each(|i| fail(&mut ejection, i, 9, at(1)));
            out(&ejection).len()
        };
        assert_eq!([all_fail(30, 10), all_fail(4, 10), all_fail(4, 100)], [3, 1, 3]);
        assert_eq!([all_fail(1, 100), all_fail(2, 0)], [0, 1]);
    }

    #[test]
    fn a_removed_backend_does_not_count_among_the_ejected() {
        let mut ejection = Ejection::new(EjectionSettings::default(), &[1; 4]);
        fail(&mut ejection, 0, 5, at(1));
        fail(&mut ejection, 1, 5, at(1));
        assert_eq!(out(&ejection), [0], "one of four");
        ejection.set_weights(&[0, 1, 1, 1]);
        fail(&mut ejection, 1, 5, at(2));
        assert_eq!(out(&ejection), [0, 1], "0 is gone");
        ejection.set_weights(&[0, 1, 1]);
        fail(&mut ejection, 2, 5, at(3));
        assert_eq!(out(&ejection), [0, 1], "one of those there are");
    }

    #[test]
    fn a_low_success_rate_stands_out_among_enough() {
        let ejected = |hosts: usize, requests: u32, rate_of_0: f64| {
            let mut ejection = Ejection::new(EjectionSettings::default(), &vec![1; hosts]);
            ejection.tick(at(0), |_| {});
            for i in 0..hosts {
                let rate = if i == 0 { rate_of_0 } else { 0.99 };
                for k in 0..requests {
                    // Spread evenly, so that no row of failures gets long.
                    let before = (f64::from(k) * rate).floor();
                    let ok = (f64::from(k + 1) * rate).floor() > before;
                    let ending = if ok { Ending::Success } else { Ending::Failure };
                    ejection.finish(i, &end(ending), at(1));
                }
            }
            ejection.tick(at(10), |_| {});
            out(&ejection)
        };
        assert_eq!(ejected(10, 200, 0.8), [0]);
        assert!(ejected(10, 200, 0.99).is_empty());
        assert!(ejected(4, 200, 0.8).is_empty(), "too few to compare");
        assert!(ejected(10, 99, 0.8).is_empty(), "too few requests");
    }
}
