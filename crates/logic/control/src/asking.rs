//! How often backends are asked anything. What costs them (checks that are requests, probes of the work URL) comes out
//! of one budget: 1 % of what a backend bears. Its traffic tells more than any of them, and they stop while it does;
//! a number that an administrator gave is obeyed.

use std::time::Duration;

use plimsoll_model::Nanos;

use crate::backend::Backend;
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};

/// The part of a backend's capacity that asking may cost.
const BUDGET: f64 = 0.01;
/// Between checks of a backend that has failed, or may have.
const SUSPECT: Duration = Duration::from_millis(250);
/// Between bare connections to one without traffic: they cost it next to nothing.
const IDLE: Duration = Duration::from_secs(1);
/// Between requests to a backend of which nothing is known.
const UNKNOWN: Duration = Duration::from_secs(5);
/// What costs is never further apart, so that a wrong answer is seen.
const RAREST: Duration = Duration::from_secs(60);
/// Traffic within this time tells all.
const TELLS: Duration = Duration::from_secs(2);
/// A request that waits so long without any answer is looked into by a bare connection, …
const LOOKED_INTO: Duration = Duration::from_millis(100);
/// … and by one that costs from this part of the time on after which the backend is set aside.
const LOOKED_INTO_AT_COST: f64 = 0.5;
/// A new interval must differ by this factor to be worth changing.
const WORTH_CHANGING: f64 = 1.25;

/// The time between two of what costs so many requests, within this part of the budget.
fn within_budget(b: &Backend, requests: u32, part: f64) -> Duration {
    let capacity = b.knowledge.capacity_rps().filter(|_| b.knowledge.error() < 0.5);
    let apart = |capacity: f64| {
        let seconds = f64::from(requests) / (part * BUDGET * capacity);
        Duration::from_secs_f64(seconds.clamp(0.0, 3_600.0)).clamp(SUSPECT, RAREST)
    };
    capacity.map_or(UNKNOWN, apart)
}

fn differ(was: Duration, is: Duration) -> bool {
    let ratio = is.as_secs_f64() / was.as_secs_f64().max(1e-9);
    !(1.0 / WORTH_CHANGING..=WORTH_CHANGING).contains(&ratio)
}

impl Backend {
    /// Something speaks against it, or nothing for it any longer.
    fn is_suspect(&self, now: Nanos, costs: bool) -> bool {
        let waits = self.life.silent();
        let looked_into = match costs {
            true => self.life.aside_after(now).mul_f64(LOOKED_INTO_AT_COST),
            false => LOOKED_INTO,
        };
        self.health.is_down()
            || self.health.is_doubted()
            || self.aside
            || self.life.has_lost()
            || waits.is_some_and(|silent| silent >= looked_into)
    }

    /// Requests per second that it is sent by us.
    pub(crate) fn asked_rps(&self, requests_per_check: u32) -> f64 {
        let per_second = |interval: Duration| 1.0 / interval.as_secs_f64().max(1e-9);
        let checks = self.checked.map_or(0.0, |t| f64::from(requests_per_check) * per_second(t));
        let probes = self.probing.map_or(0.0, |(t, n)| f64::from(n) * per_second(t));
        checks + probes
    }

    /// The part of its capacity that this costs, where that is known.
    pub(crate) fn asked_part(&self, requests_per_check: u32) -> Option<f64> {
        let capacity = self.knowledge.capacity_rps().filter(|_| self.knowledge.error() < 0.5)?;
        Some(self.asked_rps(requests_per_check) / capacity)
    }
}

impl Controller {
    /// Adjusts how every backend is checked and probed.
    pub(crate) fn ask(&mut self, out: &mut Vec<Action>, now: Nanos) {
        self.adapt_checks(now, out);
        self.adapt_probes(out);
        self.warn_of_cost(out);
    }

    fn adapt_checks(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let checks = self.spec.checks;
        let probes = self.spec.probe.is_some();
        for b in &mut self.backends {
            let suspect = b.is_suspect(now, checks.requests > 0);
            // One look may follow another no sooner than checks do.
            if suspect && b.checked.is_none() && now.since(b.looked_at) < SUSPECT {
                continue;
            }
            let wanted = match checks.interval {
                Some(interval) => Some(interval),
                None if !suspect && b.life.is_told() && b.life.answered_within(now, TELLS) => None,
                None => {
                    let untold = !b.life.is_told() && now.since(b.served_at) < TELLS;
                    let due = if suspect || untold { SUSPECT } else { IDLE };
                    let part = if probes { 0.5 } else { 1.0 };
                    let afforded = if checks.requests > 0 {
                        within_budget(b, checks.requests, part)
                    } else {
                        SUSPECT
                    };
                    Some(due.max(afforded))
                }
            };
            let changes = match (b.checked, wanted) {
                (None, None) => false,
                (Some(was), Some(is)) => differ(was, is),
                _ => true,
            };
            if changes {
                b.checked = wanted;
                if suspect {
                    b.looked_at = now;
                }
                out.push(Action::CheckRate { backend: b.id, interval: wanted, at_once: suspect });
            }
        }
    }

    fn adapt_probes(&mut self, out: &mut Vec<Action>) {
        let Some(asked) = self.spec.probe else {
            for b in self.backends.iter_mut().filter(|b| b.probing.is_some()) {
                b.probing = None;
                out.push(Action::ProbeRate {
                    backend: b.id,
                    interval: Duration::ZERO,
                    requests: 0,
                });
            }
            return;
        };
        let part = if self.spec.checks.requests > 0 { 0.5 } else { 1.0 };
        for b in &mut self.backends {
            let requests = asked.requests.unwrap_or(1).max(1);
            let interval = asked.interval.unwrap_or_else(|| within_budget(b, requests, part));
            if b.probing.is_none_or(|(was, n)| n != requests || differ(was, interval)) {
                b.probing = Some((interval, requests));
                out.push(Action::ProbeRate { backend: b.id, interval, requests });
            }
        }
    }

    /// What an administrator asked for is obeyed, and said where it costs more than the budget.
    fn warn_of_cost(&mut self, out: &mut Vec<Action>) {
        let requests = self.spec.checks.requests;
        let fixed_probes =
            self.spec.probe.is_some_and(|p| p.interval.is_some() || p.requests.is_some());
        if !fixed_probes && (requests == 0 || self.spec.checks.interval.is_none()) {
            return;
        }
        for b in &mut self.backends {
            let Some(part) = b.asked_part(requests).filter(|part| *part > 1.5 * BUDGET) else {
                continue;
            };
            if !std::mem::replace(&mut b.warned_cost, true) {
                let line = format!(
                    "the checks and probes asked for cost {:.1} % of its capacity (probe.interval, \
                     probe.requests, liveness.interval, liveness.requests)",
                    part * 100.0
                );
                record(out, RecordKind::Warning, Some(&b.name), line);
            }
        }
    }
}
