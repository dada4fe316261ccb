//! Plans that cannot wait for the next round: a backend fails, returns or changes its service rate, or the balancer
//! does not hold the weights it was given. Also the weights for a pool of which little is known.

use plimsoll_model::{BackendId, MethodKind, Nanos, PlanKind};

use crate::backend::Backend;
use crate::commit::plan::{Decision, Why, Wish};
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::gate::pace::Urgent;
use crate::propose::in_flight;
use crate::propose::split;
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

    /// Its capacity over the mean capacity of the backends with a weight, at most 1; 1 while it is unknown.
    fn size_beside_others(&self, b: &Backend) -> f64 {
        let known = |b: &Backend| b.knowledge.capacity_rps();
        let serving = self.backends.iter().filter(|b| b.programmed.is_some_and(|w| w > 0));
        let all: Vec<f64> = serving.filter_map(known).collect();
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        known(b).filter(|_| mean > 0.0).map_or(1.0, |capacity| (capacity / mean).min(1.0))
    }

    /// The mean weight of the backends that hold one and are not in slow start; 1 where there is none.
    fn typical_weight(&self) -> f64 {
        let settled = |b: &&Backend| b.is_usable() && b.ramping_since.is_none();
        let held = self.backends.iter().filter(settled).filter_map(Backend::planned_weight);
        let held: Vec<f64> = held.filter(|&w| w > 0).map(f64::from).collect();
        (held.iter().sum::<f64>() / held.len().max(1) as f64).max(1.0)
    }

    /// The weight that a backend keeps; one that joins, returns or had none gets the typical weight, scaled down by its
    /// capacity where that is known.
    pub(crate) fn weight_as_is(&self, b: &Backend, ramp: f64) -> u32 {
        let w = match b.planned_weight().filter(|&w| w > 0 && b.ramping_since.is_none()) {
            Some(held) => f64::from(held),
            None => self.typical_weight() * self.size_beside_others(b),
        };
        ((w * ramp).round() as u32).max(1)
    }

    /// The weights in force without the backends that may not serve; one that joins begins with a small one.
    fn keep_as_is(&self, now: Nanos) -> Decision {
        let usable = || self.backends.iter().filter(|b| b.is_usable());
        let wanted = |b: &Backend| self.weight_as_is(b, b.ramp(now));
        let total: f64 = usable().map(|b| f64::from(wanted(b))).sum();
        let wishes = usable()
            .map(|b| Wish {
                id: b.id,
                share: f64::from(wanted(b)) / total,
                weight: wanted(b),
                expected_us: None,
                reason: "unchanged: not enough is known to change it".to_owned(),
            })
            .collect();
        Decision {
            wishes,
            rate_rps: self.traffic.rate(),
            still_learning: true,
            ..Decision::default()
        }
    }

    pub(crate) fn resume_with(
        &mut self,
        now: Nanos,
        weights: &[(BackendId, u32)],
        out: &mut Vec<Action>,
    ) {
        let usable = |id| self.backends.iter().any(|b| b.id == id && b.is_usable());
        let serve = || weights.iter().filter(|(id, _)| usable(*id));
        let total: f64 = serve().map(|(_, w)| f64::from(*w)).sum();
        if total <= 0.0 {
            return;
        }
        // A backend that joined since the memory was saved gets the typical weight: without an entry it would keep the
        // balancer's.
        let typical = total / serve().filter(|(_, w)| *w > 0).count() as f64;
        let known = |id| weights.iter().any(|(known, _)| *known == id);
        let joined = self.backends.iter().filter(|b| b.is_usable() && !known(b.id)).map(|b| {
            let weight = ((typical * b.ramp(now)).round() as u32).max(1);
            (b.id, weight, "joined since the last save: the mean weight of the others")
        });
        let resumed =
            serve().map(|&(id, weight)| (id, weight, "the weight from before the restart"));
        let all: Vec<(BackendId, u32, &str)> = resumed.chain(joined).collect();
        let total: f64 = all.iter().map(|(_, w, _)| f64::from(*w)).sum();
        let wish = |(id, weight, reason): (BackendId, u32, &str)| Wish {
            id,
            share: f64::from(weight) / total,
            weight,
            expected_us: None,
            reason: reason.to_owned(),
        };
        let wishes = all.into_iter().map(wish).collect();
        let decision = Decision { wishes, ..Decision::default() };
        let words = "resumed with the weights from before the restart";
        self.program(now, decision, Why::new(PlanKind::Resumed, words), false, out);
        self.gate.decide_at(now + EXPLORE_EVERY);
    }
}
