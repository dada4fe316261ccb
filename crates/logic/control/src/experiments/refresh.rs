//! Curves measured anew on purpose (KnapsackLB §4.5), at most 5 % of the pool's capacity at a time.
//!
//! Most of a curve is refreshed by the traffic of every day, for nothing. What that does not tell: how a
//! backend would do that gets nothing, because it is parked; and how much one would bear that gets
//! little, because little is thought of it. These are given more for some seconds, the worst known
//! first; whoever shows nothing new waits twice as long for the next time.

use std::time::Duration;

use plimsoll_model::{BackendId, MethodKind, Nanos};

use crate::backend::{Backend, Pin};
use crate::belief::knowledge::OPTIMISM;
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::show::view::Phase;

/// The part of all capacity that is refreshed at a time (KnapsackLB §4.5); one backend always may be.
const SHARE: f64 = 0.05;
/// The pool must be this idle, and no more: without traffic there is nothing to learn from.
const LOAD: (f64, f64) = (0.1, 0.9);
/// A refresh goes on for so many requests, and so long at the least and at the most.
const REQUESTS: f64 = 300.0;
const LEAST: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_secs(30);
/// Times between two of one backend.
const FIRST_WAIT: Duration = Duration::from_secs(3 * 60);
const LONGEST_WAIT: Duration = Duration::from_secs(4 * 3600);
/// A capacity that moved by less than this was known.
const NEWS: f64 = 0.03;
/// Known to within this, a capacity is not measured on purpose.
const WELL_KNOWN: f64 = 0.06;
/// Load is raised by this factor, but never beyond this part of what the backend is thought to bear.
const RAISE: f64 = 1.3;
const CLOSEST: f64 = 0.92;
/// Who got nothing for so long is no longer known: its probes tell of its time at rest alone.
const FORGOTTEN: Duration = Duration::from_secs(20 * 60);
/// A backend that has changed is left alone for so long.
const SETTLES: Duration = Duration::from_secs(120);
/// Who is parked gets this part of its capacity.
const SIP: f64 = 0.3;

/// A refresh in progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Refresh {
    id: BackendId,
    since: Nanos,
    served: f64,
    capacity_rps: f64,
}

/// When a backend may be refreshed again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Due {
    at: Nanos,
    wait: Duration,
}

impl Default for Due {
    fn default() -> Self {
        Due { at: Nanos::ZERO, wait: FIRST_WAIT }
    }
}

impl Controller {
    /// Once a window: ends what has shown enough, and begins what is worth it.
    pub(crate) fn refresh(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.end_refreshes(now);
        let idle = self.pending.is_none()
            && self.trial.is_none()
            && self.urgent.is_none()
            && self.reassert.is_none();
        let calm = self.spec.refresh
            && idle
            && self.phase == Phase::Steady
            && self.search.is_none()
            && self.drain_run.is_none()
            && !self.is_ramping(now)
            && !self.is_in_distress()
            && self.is_calm(now);
        if !calm || !self.refreshes.is_empty() || self.kind() == MethodKind::NoLiveWeights {
            return;
        }
        let capacity = |b: &Backend| b.knowledge.capacity_rps().unwrap_or(0.0);
        let usable = || self.backends.iter().filter(|b| b.is_usable());
        let all: f64 = usable().map(capacity).sum();
        if usable().count() < 2 {
            // Nobody else takes what it does not get.
            return;
        }
        let load = self.history.rate_rps().unwrap_or(0.0) / all.max(1e-9);
        if !(LOAD.0..=LOAD.1).contains(&load) {
            return;
        }
        let mut wanted: Vec<(f64, usize)> = self
            .backends
            .iter()
            .enumerate()
            // Under quotas work that lasts tells, and measuring on purpose would make it.
            .filter(|(_, b)| !b.knowledge.may_be_held())
            .filter(|(_, b)| b.is_usable() && now >= b.refresh_due.at)
            .filter_map(|(i, b)| Some((ignorance(now, b)?, i)))
            .collect();
        wanted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut room = SHARE * all;
        for (_, i) in wanted {
            let needs = capacity(&self.backends[i]);
            if !self.refreshes.is_empty() && needs > room {
                continue;
            }
            room -= needs;
            self.begin_refresh(now, i, out);
        }
        if !self.refreshes.is_empty() {
            self.pins_moved(now);
        }
    }

    fn begin_refresh(&mut self, now: Nanos, i: usize, out: &mut Vec<Action>) {
        let split = self.kind() == MethodKind::Split;
        let b = &mut self.backends[i];
        let capacity_rps = b.knowledge.capacity_rps().unwrap_or(0.0);
        let parked = b.programmed == Some(0);
        let bears = capacity_rps * if b.knowledge.is_lower_bound() { OPTIMISM } else { 1.0 };
        b.pin = Some(match (split, parked) {
            (true, true) => Pin::Exactly(SIP * capacity_rps),
            (true, false) => {
                let load = b.recent.rate_rps;
                Pin::Exactly((RAISE * load).min(CLOSEST * bears).max(load))
            }
            (false, true) => Pin::Times(1.0),
            (false, false) => Pin::Times(RAISE),
        });
        self.refreshes.push(Refresh { id: b.id, since: now, served: 0.0, capacity_rps });
        let why =
            if parked { "it gets no traffic" } else { "its traffic is too low to infer them" };
        let line = format!("capacity and curve are measured for some seconds: {why}");
        record(out, RecordKind::Refresh, Some(&b.name), line);
    }

    fn end_refreshes(&mut self, now: Nanos) {
        let mut done = Vec::new();
        for r in &mut self.refreshes {
            let Some(b) = self.backends.iter().find(|b| b.id == r.id) else {
                done.push(r.id);
                continue;
            };
            r.served += b.recent.rate_rps;
            let took = now.since(r.since);
            let enough = (r.served >= REQUESTS && took >= LEAST) || took >= MOST;
            if enough || !b.is_usable() || self.phase != Phase::Steady {
                done.push(r.id);
            }
        }
        for id in done {
            self.end_refresh(id);
            self.pins_moved(now);
            if let Some(b) = self.get(id) {
                let Due { wait, .. } = b.refresh_due;
                b.refresh_due.at = now + wait;
            }
        }
    }

    /// Loads given on purpose are others now.
    pub(crate) fn pins_moved(&mut self, now: Nanos) {
        self.pins_changed = true;
        self.next_decision = now;
    }

    /// Loads given on purpose were meant for the pool as it was: who is back would have to take the rest.
    pub(crate) fn stop_refreshing(&mut self, now: Nanos) {
        for id in self.refreshes.iter().map(|r| r.id).collect::<Vec<_>>() {
            self.end_refresh(id);
            self.pins_moved(now);
        }
    }

    /// Ends a refresh, if there is one, and says when the next may be.
    pub(crate) fn end_refresh(&mut self, id: BackendId) {
        let Some(at) = self.refreshes.iter().position(|r| r.id == id) else { return };
        let r = self.refreshes.remove(at);
        let Some(b) = self.get(id) else { return };
        b.pin = None;
        let capacity = b.knowledge.capacity_rps().unwrap_or(r.capacity_rps);
        let news = (capacity / r.capacity_rps.max(1e-9) - 1.0).abs() > NEWS;
        let wait = if news { FIRST_WAIT } else { (2 * b.refresh_due.wait).min(LONGEST_WAIT) };
        b.refresh_due.wait = wait;
    }
}

/// How little is known of it that its traffic will not tell; `None` when nothing.
fn ignorance(now: Nanos, b: &Backend) -> Option<f64> {
    let k = &b.knowledge;
    k.service_us()?;
    // What has just changed is learned from its traffic first.
    if b.changed.is_some_and(|(at, _)| now.since(at) < SETTLES) {
        return None;
    }
    if b.programmed == Some(0) {
        return (now.since(b.served_at) > FORGOTTEN).then_some(2.0);
    }
    if k.is_lower_bound() {
        return Some(1.0);
    }
    (k.error() > WELL_KNOWN).then(|| k.error())
}

#[cfg(test)]
mod tests {
    use plimsoll_model::FailureKind;

    use super::*;
    use crate::spec::{BackendSpec, CurveChoice, ServiceSpec};

    #[test]
    fn a_change_of_the_pool_ends_what_is_measured_on_purpose() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos(10_000_000_000);
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        let mut out = Vec::new();
        controller.begin_refresh(now, 0, &mut out);
        assert!(controller.backends[0].pin.is_some());
        let refused = Some(FailureKind::Refused);
        controller.on_liveness(now, BackendId(1), 0, refused, now, &mut out);
        assert!(controller.backends[0].pin.is_none() && controller.refreshes.is_empty());
        assert!(controller.pins_changed, "what was given is taken back");
        controller.begin_refresh(now, 0, &mut out);
        (0..2).for_each(|_| controller.on_liveness(now, BackendId(1), 3, None, now, &mut out));
        assert!(controller.backends[0].pin.is_some(), "two rounds bring nobody back");
        controller.on_liveness(now, BackendId(1), 3, None, now, &mut out);
        assert!(controller.backends[0].pin.is_none() && controller.refreshes.is_empty());
    }

    #[test]
    fn first_who_gets_nothing_then_who_is_known_to_bear_more_then_who_is_uncertain() {
        let now = Nanos(3_600_000_000_000);
        let serving = || {
            let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
            let mut b = Backend::new(&spec, Duration::ZERO);
            (0..20).for_each(|_| b.knowledge.observe_at_rest(1e4));
            b.knowledge.refit(CurveChoice::Auto, crate::belief::typical::Typical::default());
            (b.programmed, b.served_at) = (Some(5), now);
            b
        };
        let uncertain =
            ignorance(now, &serving()).expect("its probes tell of its time at rest alone");
        assert!(uncertain > WELL_KNOWN && uncertain <= 1.0, "{uncertain}");
        let mut parked = serving();
        (parked.programmed, parked.served_at) = (Some(0), Nanos::ZERO);
        assert!(ignorance(now, &parked).is_some_and(|of| of > 1.0), "its traffic tells nothing");
        let mut lately = parked.clone();
        lately.served_at = now - Duration::from_secs(60);
        assert_eq!(ignorance(now, &lately), None, "it is not forgotten yet");
        let mut changed = serving();
        changed.changed = Some((now - Duration::from_secs(60), 0.6));
        assert_eq!(ignorance(now, &changed), None, "it is learned from its traffic");
        let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let unknown = Backend::new(&spec, Duration::ZERO);
        assert_eq!(ignorance(now, &unknown), None, "it is explored");
    }
}
