//! Measures curves again (KnapsackLB §4.5), with at most 5 % of the pool's capacity at a time.
//!
//! Ordinary traffic refreshes most of a curve at no cost. It does not show how fast a parked backend would be, nor the
//! capacity of a backend that gets little load because its capacity is underestimated. These get more load for some
//! seconds, the least known first; after a measurement without news the next one waits twice as long.

use std::time::Duration;

use plimsoll_model::{BackendId, MethodKind, Nanos};

use crate::backend::{Backend, Pin};
use crate::controller::record;
use crate::event::{Action, RecordKind};
use crate::experiments::Experiments;
use crate::tuning::belief::knowledge::OPTIMISM;
use crate::tuning::experiments::refresh::{
    CLOSEST, FIRST_WAIT, FORGOTTEN, LEAST, LOAD, LONGEST_WAIT, MOST, NEWS, PARKED_LOAD, RAISE,
    REQUESTS, SETTLES, SHARE, WELL_KNOWN,
};

/// A measurement in progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Refresh {
    id: BackendId,
    since: Nanos,
    served: f64,
    capacity_rps: f64,
}

/// When a backend may be measured again.
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

/// What a measurement depends on beside the backends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// The pool is steady: nothing is being learned.
    pub is_steady: bool,
    /// Measurements are wanted, requests are counted, nothing else changes weights, and queues have followed the last
    /// change.
    pub may_begin: bool,
    pub kind: MethodKind,
    pub rate_rps: f64,
}

impl Experiments {
    /// Once per window: ends measurements that have shown enough, and begins those that are worth it. Returns whether
    /// pins have changed.
    #[must_use]
    pub fn refresh(
        &mut self,
        now: Nanos,
        backends: &mut [Backend],
        setting: Setting,
        out: &mut Vec<Action>,
    ) -> bool {
        let ended = self.end_due(now, backends, setting.is_steady);
        self.begin_due(now, backends, setting, out) | ended
    }

    fn begin_due(
        &mut self,
        now: Nanos,
        backends: &mut [Backend],
        setting: Setting,
        out: &mut Vec<Action>,
    ) -> bool {
        if !setting.may_begin
            || !self.refreshes.is_empty()
            || setting.kind == MethodKind::NoLiveWeights
        {
            return false;
        }
        let capacity = |b: &Backend| b.knowledge.capacity_rps().unwrap_or(0.0);
        let usable = || backends.iter().filter(|b| b.is_usable());
        let all: f64 = usable().map(capacity).sum();
        if usable().count() < 2 {
            // There is no other backend to take the difference.
            return false;
        }
        let load = setting.rate_rps / all.max(1e-9);
        if !(LOAD.0..=LOAD.1).contains(&load) {
            return false;
        }
        let mut wanted: Vec<(f64, usize)> = backends
            .iter()
            .enumerate()
            // Under CPU quotas, and of slow backends, only lasting work shows the capacity, and measuring would cause it.
            .filter(|(_, b)| !b.knowledge.may_be_held() && !b.knowledge.is_slow())
            .filter(|(_, b)| b.is_usable() && now >= b.refresh_due.at)
            .filter_map(|(i, b)| Some((uncertainty(now, b)?, i)))
            .collect();
        wanted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut room = SHARE * all;
        for (_, i) in wanted {
            let needs = capacity(&backends[i]);
            if !self.refreshes.is_empty() && needs > room {
                continue;
            }
            room -= needs;
            self.begin(now, &mut backends[i], setting.kind, out);
        }
        !self.refreshes.is_empty()
    }

    fn begin(&mut self, now: Nanos, b: &mut Backend, kind: MethodKind, out: &mut Vec<Action>) {
        let capacity_rps = b.knowledge.capacity_rps().unwrap_or(0.0);
        let parked = b.programmed == Some(0);
        let bound_rps = capacity_rps * if b.knowledge.is_lower_bound() { OPTIMISM } else { 1.0 };
        b.pin = Some(match (kind == MethodKind::Split, parked) {
            (true, true) => Pin::Exactly(PARKED_LOAD * capacity_rps),
            (true, false) => {
                let load = b.recent.rate_rps;
                Pin::Exactly((RAISE * load).min(CLOSEST * bound_rps).max(load))
            }
            (false, true) => Pin::Times(1.0),
            (false, false) => Pin::Times(RAISE),
        });
        self.pins_changed = true;
        self.refreshes.push(Refresh { id: b.id, since: now, served: 0.0, capacity_rps });
        let why =
            if parked { "it gets no traffic" } else { "its traffic is too low to infer them" };
        let line = format!("capacity and curve are measured for some seconds: {why}");
        record(out, RecordKind::Refresh, Some(&b.name), line);
    }

    fn end_due(&mut self, now: Nanos, backends: &mut [Backend], is_steady: bool) -> bool {
        let mut done = Vec::new();
        for r in &mut self.refreshes {
            let Some(b) = backends.iter().find(|b| b.id == r.id) else {
                done.push(r.id);
                continue;
            };
            r.served += b.recent.rate_rps;
            let took = now.since(r.since);
            let enough = (r.served >= REQUESTS && took >= LEAST) || took >= MOST;
            if enough || !b.is_usable() || !is_steady {
                done.push(r.id);
            }
        }
        for id in &done {
            self.end(*id, backends);
            self.pins_changed = true;
            if let Some(b) = backends.iter_mut().find(|b| b.id == *id) {
                b.refresh_due.at = now + b.refresh_due.wait;
            }
        }
        !done.is_empty()
    }

    /// Ends all measurements: pins were meant for the pool as it was, and a backend that returns would have to take the
    /// rest of the traffic. Returns whether there was one.
    #[must_use]
    pub fn stop(&mut self, backends: &mut [Backend]) -> bool {
        let had_any = !self.refreshes.is_empty();
        for id in self.refreshes.iter().map(|r| r.id).collect::<Vec<_>>() {
            self.end(id, backends);
            self.pins_changed = true;
        }
        had_any
    }

    /// Ends the backend's measurement, if there is one, and schedules the next.
    pub fn end(&mut self, id: BackendId, backends: &mut [Backend]) {
        let Some(at) = self.refreshes.iter().position(|r| r.id == id) else { return };
        let r = self.refreshes.remove(at);
        let Some(b) = backends.iter_mut().find(|b| b.id == id) else { return };
        b.pin = None;
        let capacity = b.knowledge.capacity_rps().unwrap_or(r.capacity_rps);
        let news = (capacity / r.capacity_rps.max(1e-9) - 1.0).abs() > NEWS;
        let wait = if news { FIRST_WAIT } else { (2 * b.refresh_due.wait).min(LONGEST_WAIT) };
        b.refresh_due.wait = wait;
    }
}

/// How uncertain it is in ways that its traffic will not resolve; `None` if it is not.
fn uncertainty(now: Nanos, b: &Backend) -> Option<f64> {
    let k = &b.knowledge;
    k.service_us()?;
    // A backend that has just changed is learned from its traffic first.
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
    use plimsoll_model::{BalancerReport, FailureKind, Method, Traffic};

    use super::*;
    use crate::commit::plan::Decision;
    use crate::controller::Controller;
    use crate::event::Event;
    use crate::gate::trial::PoolWindow;
    use crate::show::view::Phase;
    use crate::spec::{BackendSpec, CurveChoice, ServiceSpec};

    #[test]
    fn a_change_of_the_pool_ends_measurements() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos(10_000_000_000);
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        let mut out = Vec::new();
        controller.on_liveness(Nanos::ZERO, BackendId(1), 3, None, Nanos::ZERO, &mut out);
        let begin = |controller: &mut Controller, out: &mut Vec<Action>| {
            let Controller { experiments, backends, .. } = controller;
            experiments.begin(now, &mut backends[0], MethodKind::Split, out);
        };
        begin(&mut controller, &mut out);
        assert!(controller.backends[0].pin.is_some());
        assert!(controller.experiments.take_new_pins());
        let refused = Some(FailureKind::Refused);
        controller.on_liveness(now, BackendId(1), 0, refused, now, &mut out);
        assert!(
            controller.backends[0].pin.is_none() && controller.experiments.refreshes.is_empty()
        );
        assert!(controller.experiments.pins_changed, "what was given is taken back");
        begin(&mut controller, &mut out);
        (0..2).for_each(|_| controller.on_liveness(now, BackendId(1), 3, None, now, &mut out));
        assert!(controller.backends[0].pin.is_some(), "two successful rounds return no backend");
        controller.on_liveness(now, BackendId(1), 3, None, now, &mut out);
        assert!(
            controller.backends[0].pin.is_none() && controller.experiments.refreshes.is_empty()
        );
    }

    #[test]
    fn a_plan_for_a_change_takes_up_pins() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos(10_000_000_000);
        for is_drift in [true, false] {
            let mut controller = Controller::new(spec.clone(), None, Nanos::ZERO, 1);
            let (seconds, started) = (1.0, 100.0);
            controller.traffic.push(PoolWindow { at: now, seconds, started, request_seconds: 1.0 });
            controller.commitment.adopt(Decision::default(), None);
            controller.experiments.pins_changed = true;
            let decision = if is_drift {
                controller.decide_for_drift(now)
            } else {
                controller.decide_for_changed_pool(now)
            };
            assert_eq!(decision.wishes.len(), 3);
            assert!(!controller.experiments.has_new_pins(), "no second plan for it");
        }
    }

    #[test]
    fn measurements_need_counted_requests() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos(300_000_000_000);
        let report = |traffic: Traffic| BalancerReport {
            at: now,
            method: Method { name: "roundrobin".to_owned(), kind: MethodKind::Split },
            generation: 1,
            traffic,
            servers: Vec::new(),
        };
        let begins = |traffic: Traffic| {
            let mut controller = Controller::new(spec.clone(), None, Nanos::ZERO, 1);
            let out = &mut Vec::new();
            controller.on_report(now, &report(traffic), out);
            controller.phase.recall(Phase::Steady);
            for b in &mut controller.backends {
                (0..20).for_each(|_| b.knowledge.observe_unloaded(1e4));
                b.knowledge.refit(CurveChoice::Auto, crate::belief::typical::Typical::default());
                (b.programmed, b.served_at, b.recent.rate_rps) = (Some(5), now, 10.0);
            }
            let (seconds, started) = (1.0, 30.0);
            controller.traffic.push(PoolWindow { at: now, seconds, started, request_seconds: 0.3 });
            controller.refresh(now, out);
            (controller.is_pinned(), controller)
        };
        assert!(!begins(Traffic::Averaged { lag: Duration::from_secs(6) }).0);
        assert!(!begins(Traffic::Unknown).0);
        let (begun, mut controller) = begins(Traffic::Counted);
        assert!(begun);
        controller.on_report(now, &report(Traffic::Unknown), &mut Vec::new());
        assert!(!controller.is_pinned() && controller.experiments.refreshes.is_empty());

        // The load that it was given is taken back, at the rate that was last known.
        let out = &mut Vec::new();
        let decision = controller.decide_for_changed_pool(now);
        controller.commitment.adopt(decision, None);
        controller.backends[0].programmed = Some(99);
        controller.experiments.pins_changed = true;
        controller.step(now, Event::Tick).into_iter().for_each(|action| out.push(action));
        assert!(out.iter().any(|action| matches!(action, Action::Program(_))), "{out:?}");
        assert!(!controller.experiments.pins_changed);
    }

    #[test]
    fn unserved_backends_are_measured_before_grown_ones_and_those_before_uncertain_ones() {
        let now = Nanos(3_600_000_000_000);
        let serving = || {
            let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
            let mut b = Backend::new(&spec, Duration::ZERO);
            (0..20).for_each(|_| b.knowledge.observe_unloaded(1e4));
            b.knowledge.refit(CurveChoice::Auto, crate::belief::typical::Typical::default());
            (b.programmed, b.served_at) = (Some(5), now);
            b
        };
        let uncertain =
            uncertainty(now, &serving()).expect("its probes show its unloaded service time only");
        assert!(uncertain > WELL_KNOWN && uncertain <= 1.0, "{uncertain}");
        let mut parked = serving();
        (parked.programmed, parked.served_at) = (Some(0), Nanos::ZERO);
        assert!(uncertainty(now, &parked).is_some_and(|of| of > 1.0), "its traffic shows nothing");
        let mut lately = parked.clone();
        lately.served_at = now - Duration::from_secs(60);
        assert_eq!(uncertainty(now, &lately), None, "it is not forgotten yet");
        let mut changed = serving();
        changed.changed = Some((now - Duration::from_secs(60), 0.6));
        assert_eq!(uncertainty(now, &changed), None, "it is learned from its traffic");
        let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let unknown = Backend::new(&spec, Duration::ZERO);
        assert_eq!(uncertainty(now, &unknown), None, "it is explored");
    }
}
