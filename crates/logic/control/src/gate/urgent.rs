//! Plans that cannot wait for the next round: a backend fails, returns or changes its service rate, the balancer does
//! not hold the weights it was given, or the controller begins or stops.

use plimsoll_model::{BackendId, MethodKind, Nanos, Plan, PlanEntry, PlanKind};

use crate::backend::Backend;
use crate::commit::plan::{Decision, Why};
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::gate::pace::Urgent;
use crate::propose::{as_is, in_flight, split};
use crate::tuning::gate::decide::{EXPLORE_EVERY, IDLE_RPS, RESCUE_EVERY};

impl Controller {
    /// Whether an urgent plan may be made now. Its reason is kept until then, also while the balancer cannot be
    /// steered.
    pub(crate) fn may_act_urgently(&self, now: Nanos) -> bool {
        match self.gate.urgent() {
            None => false,
            Some(_) if self.balancer.is_in_conflict() => false,
            Some(Urgent::Pool(_) | Urgent::Silence(_)) => true,
            Some(Urgent::Refilled(_)) => self.is_bearable_to_sink(now),
            Some(Urgent::Drift(_)) => self.is_paced(now),
        }
    }

    /// Whether the minimum interval since the last change has passed, and the pause after a failed plan.
    pub(crate) fn is_paced(&self, now: Nanos) -> bool {
        self.commitment.may_retry(now)
            && self.commitment.is_unchanged_for(self.bearable_interval(), now)
    }

    /// Whether wanted weights may be programmed again now. If no healthy backend holds a weight, only the sink's
    /// own limits delay that.
    pub(crate) fn may_reassert(&self, now: Nanos) -> bool {
        let paced = self.commitment.may_answer_foreign(now) || self.is_deserted();
        !self.balancer.is_in_conflict()
            && self.commitment.may_retry(now)
            && paced
            && self.is_bearable_to_sink(now)
    }

    /// No healthy backend holds a weight although there is one: clients get no answers.
    pub(crate) fn is_deserted(&self) -> bool {
        let usable = || self.backends.iter().filter(|b| b.is_usable());
        let holds = |b: &Backend| b.programmed.is_none_or(|weight| weight > 0);
        self.may_steer() && !usable().any(holds) && usable().next().is_some()
    }

    fn is_bearable_to_sink(&self, now: Nanos) -> bool {
        self.commitment.is_unchanged_for(self.spec.sink.min_interval, now)
    }

    /// The last decision without the backends that can no longer serve; a new one if no backend with weight is left, or
    /// if there is none yet and clients get no answers.
    pub(crate) fn decision_to_reassert(&mut self, now: Nanos) -> Option<Decision> {
        let Some(mut decision) = self.commitment.decision().cloned() else {
            return self.is_deserted().then(|| self.keep_as_is(now));
        };
        let usable = |id| self.backends.iter().any(|b| b.id == id && b.is_usable());
        decision.wishes.retain(|w| usable(w.id));
        let sum: f64 = decision.wishes.iter().map(|w| f64::from(w.weight)).sum();
        if sum <= 0.0 {
            let any_usable = self.backends.iter().any(|b| b.is_usable());
            return any_usable.then(|| self.decide_for_changed_pool(now));
        }
        // The shares that the weights give among the remaining backends.
        decision.wishes.iter_mut().for_each(|w| w.share = f64::from(w.weight) / sum);
        Some(decision)
    }

    pub(crate) fn act_urgently(&mut self, now: Nanos, urgent: Urgent, out: &mut Vec<Action>) {
        match urgent {
            Urgent::Drift(reason) => {
                if self.traffic.rate() < IDLE_RPS || !self.backends.iter().any(|b| b.is_usable()) {
                    return;
                }
                let decision = self.decide_for_drift(now);
                self.settle(now, &decision, out);
                self.program(now, decision, Why::new(PlanKind::Drift, reason), false, out);
                self.gate.decide_at(now + RESCUE_EVERY);
            }
            Urgent::Silence(reason) => {
                // Setting aside is an overlay on the last decision: no new one is made.
                let decision = self.decision_to_reassert(now);
                let decision = decision.unwrap_or_else(|| self.keep_as_is(now));
                self.program(now, decision, Why::new(PlanKind::Silence, reason), false, out);
            }
            Urgent::Pool(reason) | Urgent::Refilled(reason) => {
                self.call_back_ejected(now, out);
                if !self.backends.iter().any(|b| b.is_usable()) {
                    if self.process.may_warn_that_none_serves() {
                        let line = "no backend serves: weights are left unchanged".to_owned();
                        record(out, RecordKind::Warning, None, line);
                    }
                    return;
                }
                let decision = self.decide_for_changed_pool(now);
                self.program(now, decision, Why::new(PlanKind::Pool, reason), false, out);
                self.gate.decide_at(now + RESCUE_EVERY);
            }
        }
    }

    /// Weights after one backend's service rate has changed: parked ones stay parked.
    pub(crate) fn decide_for_drift(&mut self, now: Nanos) -> Decision {
        // Pins are part of this decision and need no plan of their own.
        self.experiments.take_new_pins();
        if self.balancer.kind() == MethodKind::InFlight {
            in_flight::learn(now, &mut self.backends, self.commitment.epoch());
            let parked = self.parked();
            return in_flight::decide_proportional(
                now,
                &self.backends,
                self.traffic.rate(),
                &parked,
                self.balancers(),
            );
        }
        let rate = self.rate_to_plan();
        split::decide(now, &self.spec, &self.backends, rate, true)
            .unwrap_or_else(|_| self.decide_for_changed_pool(now))
    }

    /// Weights for a pool that just gained or lost a backend: at once, from current estimates.
    pub(crate) fn decide_for_changed_pool(&mut self, now: Nanos) -> Decision {
        if self.traffic.rate() <= IDLE_RPS || self.commitment.decision().is_none() {
            return self.keep_as_is(now);
        }
        let rate = self.rate_to_plan();
        match self.balancer.kind() {
            MethodKind::Split => {
                if let Ok(decision) = split::decide(now, &self.spec, &self.backends, rate, true) {
                    self.experiments.take_new_pins();
                    return decision;
                }
            }
            MethodKind::InFlight => {
                self.experiments.take_new_pins();
                in_flight::learn(now, &mut self.backends, self.commitment.epoch());
                return in_flight::decide_proportional(
                    now,
                    &self.backends,
                    rate,
                    &[],
                    self.balancers(),
                );
            }
            MethodKind::NoLiveWeights => {}
        }
        self.keep_as_is(now)
    }

    /// The weights in force, for the backends that may serve.
    fn keep_as_is(&self, now: Nanos) -> Decision {
        as_is::keep(now, &self.backends, self.traffic.rate())
    }

    /// Programs the weights from before a restart.
    pub(crate) fn resume_with(
        &mut self,
        now: Nanos,
        weights: &[(BackendId, u32)],
        out: &mut Vec<Action>,
    ) {
        let Some(decision) = as_is::resume(now, &self.backends, weights) else { return };
        let words = "resumed with the weights from before the restart";
        self.program(now, decision, Why::new(PlanKind::Resumed, words), false, out);
        self.gate.decide_at(now + EXPLORE_EVERY);
    }

    /// Programs the weights that the balancer keeps after a clean exit, if the present ones need correcting. A
    /// controller that has decided nothing leaves the weights as it found them.
    pub(crate) fn leave(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.may_steer() || !self.balancer.is_fresh(now) || self.commitment.decision().is_none()
        {
            return;
        }
        // Pins end with the controller.
        for b in &mut self.backends {
            if b.pin.take().is_some() {
                b.programmed = None;
            }
        }
        let weights = as_is::leave(&self.reserve(), self.traffic.peak_rps());
        let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let held = |id| self.backends.iter().find(|b| b.id == id).and_then(|b| b.programmed);
        let unchanged =
            !self.spec.subsets && weights.iter().all(|(id, weight)| held(*id) == Some(*weight));
        // A plan under way may lead to other weights than the present ones.
        if sum == 0.0 || (unchanged && !self.commitment.is_pending()) {
            return;
        }
        let entry =
            |&(backend, weight)| PlanEntry { backend, share: f64::from(weight) / sum, weight };
        let mut entries: Vec<PlanEntry> = weights.iter().map(entry).collect();
        entries.sort_by_key(|e| e.backend);
        let epoch = self.commitment.next_epoch();
        let reason = "Plimsoll stops: every healthy backend gets a weight".to_owned();
        record(out, RecordKind::Plan, None, format!("plan {epoch}: {reason}"));
        let kind = PlanKind::Leaving;
        out.push(Action::Program(Plan { epoch, at: now, kind, reason, entries }));
    }
}
