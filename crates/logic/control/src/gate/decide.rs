//! When decisions are made and whether they are programmed: limits on how often and how far weights change,
//! hysteresis, trial and rollback; corrections for backlogs between them.

use std::time::Duration;

use plimsoll_model::{Method, MethodKind, Nanos, Plan, PlanEntry, PlanKind, Traffic};

use crate::backend::Backend;
use crate::commit::commitment::Sent;
use crate::commit::plan::{Decision, Why};
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::gate::worth::InForce;
use crate::propose::backlog::Corrected;
use crate::propose::reserve::{Reserve, have_two_hold_weight};
use crate::propose::search::{Question, Searched};
use crate::propose::{as_is, backlog, in_flight, split};
use crate::show::view::Phase;
use crate::tuning::gate::decide::{
    AHEAD, EXPLORE_EVERY, FIRST_LOOK, FIRST_RATES, IDLE_RPS, LATE_WINDOW, LONGEST_TURN_S,
    MOST_RETURNING, RATE_CHANGED, READY, RESCUE_EVERY, RETURNING, STEADY_EVERY,
};
use crate::tuning::observe::pool::{LOOKED_AT, SETTLED};

impl Controller {
    /// The traffic to plan for: the longer mean, unless the rate has just changed. After a fall a good part of the
    /// former rate is planned for, because traffic that stops for a moment comes back at once.
    pub(crate) fn rate_to_plan(&self) -> f64 {
        let (quick, calm) =
            (self.traffic.rate(), self.traffic.history().calm_rate_rps().unwrap_or(0.0));
        let noise = RATE_CHANGED.max(3.0 / (3.0 * quick).max(1.0).sqrt());
        let rate = if (quick / calm.max(1e-9) - 1.0).abs() > noise { quick } else { calm };
        let capacity = self.commitment.decision().map_or(f64::INFINITY, |d| d.capacity_rps);
        // Parked backends cannot help at once, so under an in-flight method more is held ready.
        let part = if self.balancer.kind() == MethodKind::InFlight { READY } else { RETURNING };
        rate.max((part * self.traffic.peak_rps()).min(MOST_RETURNING * capacity))
    }

    /// A regular decision.
    pub(crate) fn decide(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let rate = self.rate_to_plan();
        if self.process.age(now) < FIRST_LOOK || self.traffic.history().rate_rps().is_none() {
            return;
        }
        let is_blind = self.balancer.traffic() == Traffic::Unknown;
        if is_blind
            || self.traffic.rate() < IDLE_RPS
            || !self.backends.iter().any(|b| b.is_usable())
        {
            self.gate.decide_at(now + RESCUE_EVERY);
            self.decide_without_traffic(now, out);
            return;
        }
        match self.balancer.kind() {
            MethodKind::NoLiveWeights => self.gate.decide_at(now + STEADY_EVERY),
            MethodKind::Split => self.decide_split(now, rate, out),
            MethodKind::InFlight => self.decide_in_flight(now, rate, out),
        }
    }

    /// Without traffic, or without news of it, there is nothing to learn, but slow start still goes on, and loads that
    /// were given to be measured are taken back.
    fn decide_without_traffic(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.is_paced(now) {
            return;
        }
        let ramps = |b: &Backend| b.is_usable() && b.ramping_since.is_some();
        let why = if self.backends.iter().any(ramps) {
            Why::new(PlanKind::SlowStart, "no traffic: shares ramp up")
        } else if self.experiments.has_new_pins() && self.traffic.rate() > IDLE_RPS {
            Why::new(PlanKind::Packed, "measurements have ended: no requests are counted")
        } else {
            return;
        };
        let decision = self.decide_for_changed_pool(now);
        self.experiments.take_new_pins();
        self.program(now, decision, why, false, out);
    }

    fn decide_split(&mut self, now: Nanos, rate: f64, out: &mut Vec<Action>) {
        let exploring = self.phase.is(Phase::Exploring) || self.is_ramping(now);
        let careful = exploring || self.is_in_distress();
        // Shares grow from the rates observed under the weights in force. Where reports are late, no window may have
        // closed since the last plan.
        let seen =
            self.traffic.history().last_at().is_some_and(|at| at > self.traffic.calm_since());
        if careful && !seen && now.since(self.traffic.calm_since()) < LATE_WINDOW {
            return;
        }
        match split::decide(now, &self.spec, &self.backends, rate, careful) {
            Ok(decision) => {
                let why = self.why(rate);
                self.settle(now, &decision, out);
                self.offer(now, decision, why, out);
            }
            Err(error) => record(
                out,
                RecordKind::Warning,
                None,
                format!("no weights could be computed: {error}"),
            ),
        }
        self.schedule_next(now);
    }

    fn decide_in_flight(&mut self, now: Nanos, rate: f64, out: &mut Vec<Action>) {
        let round = self.proposals.next_round();
        let learning = in_flight::learn(now, &mut self.backends, round);
        // Once steady, learning of single backends need not keep slow ones from being parked.
        let unsettled = learning && self.phase.is(Phase::Exploring);
        if unsettled || self.is_in_distress() || self.is_ramping(now) || self.is_pinned() {
            let parked = if self.is_pinned() { self.parked() } else { Vec::new() };
            let mut decision = in_flight::decide_proportional(
                now,
                &self.backends,
                rate,
                &parked,
                self.balancers(),
            );
            decision.still_learning = learning;
            self.settle(now, &decision, out);
            self.offer(now, decision, self.why(rate), out);
        } else {
            let (places, members) = in_flight::members(now, &self.backends);
            let present: Option<Vec<u32>> =
                places.iter().map(|&i| self.backends[i].programmed).collect();
            let rate = AHEAD * rate;
            let asked = Question::new(&members, rate);
            match self.proposals.answer_to(&asked).cloned() {
                // The weights found are in force; the phase may change all the same.
                Some(mut searched) if present.as_ref() == Some(&searched.found.weights) => {
                    if !self.phase.is(Phase::Steady) {
                        searched.found.rate_rps = asked.rate_rps();
                        self.offer_found(now, &searched, out);
                    }
                }
                // It was proposed before and not worth programming: it may be now.
                Some(s) if present.as_ref() == s.in_force.as_ref().map(|held| &held.weights) => {
                    self.offer_found(now, &s, out);
                }
                _ => {
                    let balancers = self.balancers();
                    self.proposals.begin(members, rate, present, balancers);
                }
            }
        }
        self.schedule_next(now);
    }

    /// The pool whose weights must survive a loss. Capacities that are being learned are no basis for single shares.
    pub(crate) fn reserve(&self) -> Reserve<'_> {
        let by_shares =
            self.balancer.kind() == MethodKind::Split && !self.phase.is(Phase::Exploring);
        Reserve { backends: &self.backends, rate_rps: self.traffic.rate(), by_shares }
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.backends.iter().any(|b| b.pin.is_some())
    }

    /// Backends with weight 0 that need no load, by position among the usable ones.
    pub(crate) fn parked(&self) -> Vec<usize> {
        let usable = self.backends.iter().filter(|b| b.is_usable());
        let parked = usable.enumerate().filter(|(_, b)| b.programmed == Some(0) && b.pin.is_none());
        parked.map(|(i, _)| i).collect()
    }

    pub(crate) fn continue_search(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let Some(searched) = self.proposals.advance() else { return };
        self.offer_found(now, &searched, out);
        self.schedule_next(now);
    }

    fn offer_found(&mut self, now: Nanos, searched: &Searched, out: &mut Vec<Action>) {
        let Searched { found, in_force, .. } = searched;
        if let Some(decision) =
            in_flight::decide_found(now, &self.backends, found, in_force.as_ref(), self.balancers())
        {
            self.settle(now, &decision, out);
            let which = if self.balancers() > 1 { "smallest" } else { "slowest" };
            let parked = match found.parked {
                0 => "no backend parked".to_owned(),
                1 => format!("the {which} backend parked"),
                n => format!("the {which} {n} backends parked"),
            };
            let why = self.why(found.rate_rps).and(&parked);
            self.offer(now, decision, why, out);
        }
    }

    fn why(&self, rate: f64) -> Why {
        match self.phase.get() {
            Phase::Exploring => {
                Why::new(PlanKind::Learning, format!("learning at {rate:.0} req/s"))
            }
            _ => Why::new(PlanKind::Packed, format!("packed for {rate:.0} req/s")),
        }
    }

    pub(crate) fn is_ramping(&self, now: Nanos) -> bool {
        self.backends.iter().any(|b| b.is_usable() && b.ramp(now) < 1.0)
    }

    pub(crate) fn is_in_distress(&self) -> bool {
        let factor = self.spec.latency_factor;
        self.backends.iter().any(|b| b.is_usable() && b.is_over_utilised(factor))
    }

    fn schedule_next(&mut self, now: Nanos) {
        // In a nearly full pool a backend is given less load for its queue until the next decision only.
        let relieves = self.is_in_distress()
            && self.commitment.decision().is_some_and(|decision| decision.is_nearly_full());
        let every = if !self.phase.is(Phase::Exploring) && !self.is_ramping(now) && !relieves {
            STEADY_EVERY
        } else if self.is_in_distress() || self.is_ramping(now) {
            RESCUE_EVERY
        } else {
            EXPLORE_EVERY
        };
        self.gate.decide_at(now + every);
    }

    /// Whether reports have shown by now what the last plan has done: the next one is not made without that. Slow start
    /// goes on meanwhile.
    pub(crate) fn is_last_plan_seen(&self, now: Nanos) -> bool {
        let lag = self.balancer.traffic().lag();
        let seen = if lag.is_zero() { lag } else { lag + SETTLED + LOOKED_AT };
        self.is_ramping(now) || self.commitment.is_unchanged_for(seen, now)
    }

    /// Brings the next decision forward when traffic has changed or a backend is overloaded.
    pub(crate) fn hurry(&mut self, now: Nanos) {
        let Some(decision) = self.commitment.decision() else { return };
        let planned = decision.rate_rps;
        let rate_changed = planned > 0.0
            && self.process.age(now) > FIRST_RATES
            && (self.rate_to_plan() / planned - 1.0).abs() > RATE_CHANGED;
        if rate_changed || self.is_in_distress() {
            let last = self.commitment.changed_at();
            self.gate.decide_by(last.map_or(now, |last| now.max(last + self.bearable_interval())));
        }
    }

    /// Updates the phase by a decision.
    pub(crate) fn settle(&mut self, now: Nanos, decision: &Decision, out: &mut Vec<Action>) {
        self.phase.settle(now, self.commitment.decision(), decision, out);
    }

    /// Programs the decision if it is worth it.
    fn offer(&mut self, now: Nanos, mut decision: Decision, why: Why, out: &mut Vec<Action>) {
        if !self.is_paced(now) {
            return;
        }
        have_two_hold_weight(now, &self.backends, &mut decision);
        let same = !self.experiments.has_new_pins()
            && decision.wishes.iter().all(|w| {
                self.backends.iter().any(|b| b.id == w.id && b.planned_weight() == Some(w.weight))
            });
        if same {
            self.show_wanted(now, &decision);
            self.commitment.adopt(decision, None);
            for b in &mut self.backends {
                b.granted_share = b.wanted.share;
            }
            return;
        }
        if self.experiments.take_new_pins() {
            self.program(now, decision, why, false, out);
            return;
        }
        // Regardless of the gain: a second backend must hold weight in case Plimsoll is not there when the first fails.
        let reserve = self.reserve();
        if !self.is_pinned() && reserve.is_lacking() && reserve.is_left_by(&decision) {
            let why = why.and("to have a second backend hold weight");
            self.program(now, decision, why, false, out);
            return;
        }
        if self.gate.has_rejected(now, decision.rate_rps, &decision.shares()) {
            return;
        }
        let in_force = InForce {
            backends: &self.backends,
            decision: self.commitment.decision(),
            kind: self.balancer.kind(),
            min_change: self.spec.min_change,
        };
        let is_worth_it = match self.phase.get() {
            Phase::Steady => in_force.is_beaten_by(&decision),
            Phase::ShortOfCapacity => in_force.is_beaten_when_short_by(&decision),
            Phase::Exploring | Phase::Observing => true,
        };
        if !is_worth_it && !self.is_ramping(now) {
            return;
        }
        self.program(now, decision, why, true, out);
    }

    /// The least time between two changes: the configured one, the sink's, and the time in which the lightest server
    /// gets a turn, `(Σw / w_min) / RPS`: a round robin that is changed more often starves it.
    pub(crate) fn bearable_interval(&self) -> Duration {
        let planned = || self.backends.iter().filter_map(Backend::planned_weight);
        let held = || planned().filter(|&w| w > 0);
        let total: f64 = held().map(f64::from).sum();
        let turn = match held().min() {
            Some(least) if self.traffic.rate() > 0.0 => {
                total / f64::from(least) / self.traffic.rate()
            }
            _ => 0.0,
        };
        self.spec
            .min_interval
            .max(self.spec.sink.min_interval)
            .max(Duration::from_secs_f64(turn.min(LONGEST_TURN_S)))
    }

    /// Sends a plan, or records what it would have been.
    pub(crate) fn program(
        &mut self,
        now: Nanos,
        mut decision: Decision,
        why: Why,
        on_trial: bool,
        out: &mut Vec<Action>,
    ) {
        have_two_hold_weight(now, &self.backends, &mut decision);
        let whole = decision;
        let decision = self.without_set_aside(&whole);
        let mut weights: Vec<PlanEntry> = decision
            .wishes
            .iter()
            .map(|w| PlanEntry { backend: w.id, share: w.share, weight: w.weight })
            .collect();
        // Failed backends get an entry with weight 0; those reserved by an administrator get none.
        for b in self.backends.iter().filter(|b| !b.is_usable() && !b.is_reserved()) {
            weights.push(PlanEntry { backend: b.id, share: 0.0, weight: 0 });
        }
        weights.sort_by_key(|e| e.backend);
        self.show_wanted(now, &decision);
        self.commitment.adopt(whole, Some(&why.words));
        let changes = weights.iter().any(|e| {
            self.backends.iter().any(|b| b.id == e.backend && b.programmed != Some(e.weight))
        });
        if !changes || !self.may_steer() || weights.iter().all(|e| e.weight == 0) {
            return;
        }
        let before = self.backends.iter().filter_map(|b| Some((b.id, b.programmed?))).collect();
        let kind = if on_trial { Sent::OnTrial } else { Sent::Plan };
        let epoch = self.commitment.send(now, decision, before, kind);
        self.backends.iter_mut().for_each(|b| b.corrected = None);
        record(out, RecordKind::Plan, None, format!("plan {epoch}: {}", why.words));
        out.push(Action::Program(Plan {
            epoch,
            at: now,
            kind: why.kind,
            reason: why.words,
            entries: weights,
        }));
    }

    /// Shows per backend what a decision wants of it.
    fn show_wanted(&mut self, now: Nanos, decision: &Decision) {
        for b in &mut self.backends {
            if b.ramp(now) >= 1.0 {
                b.ramping_since = None;
            }
            if let Some(w) = decision.wishes.iter().find(|w| w.id == b.id) {
                b.wanted.weight = w.weight;
                b.wanted.share = w.share;
                b.wanted.expected_us = w.expected_us;
                b.wanted.reason.clone_from(&w.reason);
            } else {
                b.wanted.weight = if b.is_reserved() { b.programmed.unwrap_or(0) } else { 0 };
                b.wanted.share = 0.0;
                b.wanted.expected_us = None;
                b.wanted.reason = match b.health.cause() {
                    Some(cause) => format!("failed: {}", cause.describe()),
                    None => "drained or in maintenance by an administrator".to_owned(),
                };
            }
        }
    }

    /// Takes back the last plan if clients waited longer after it.
    pub(crate) fn judge_trial(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.gate.is_on_trial() || !self.is_paced(now) {
            return;
        }
        let rate = self.traffic.rate();
        let Some(worse) = self.gate.judge(self.traffic.history(), rate, now) else { return };
        let reason = format!(
            "mean response time {:.1} ms instead of {:.1} ms: previous weights restored",
            worse.after_us / 1e3,
            worse.before_us / 1e3
        );
        record(out, RecordKind::Rollback, None, reason.clone());
        let decision = as_is::take_back(&self.backends, &worse.weights, rate);
        self.program(now, decision, Why::new(PlanKind::RolledBack, reason), false, out);
        self.gate.decide_at(now + STEADY_EVERY);
    }

    /// Between two decisions: corrects the last one's weights for the present backlogs.
    pub(crate) fn follow_backlogs(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.may_follow_backlogs(now) {
            return;
        }
        let Some(decision) = self.commitment.decision() else { return };
        let rate_rps = self.traffic.rate();
        let arrivals = rate_rps * self.bearable_interval().as_secs_f64();
        let min_change = self.spec.min_change;
        let Some(correction) =
            backlog::correct(&self.backends, decision, rate_rps, arrivals, min_change)
        else {
            return;
        };
        let mut decision = decision.clone();
        for (wish, (_, weight)) in decision.wishes.iter_mut().zip(&correction.weights) {
            if let Some(b) = self.backends.iter_mut().find(|b| b.id == wish.id) {
                b.corrected = Some(Corrected { planned: wish.weight, held: *weight });
            }
            wish.weight = *weight;
        }
        let entries = correction.entries(&self.backends);
        let epoch = self.commitment.send(now, decision, correction.held, Sent::Correction);
        let reason = "corrected for backlogs".to_owned();
        let kind = PlanKind::Backlog;
        out.push(Action::Correct(Plan { epoch, at: now, kind, reason, entries }));
    }

    /// The balancer splits by weights without keys and may be steered, there is traffic, backends are watched, none of them
    /// is being measured or set aside, no weights are owed, and the last change is long enough ago.
    fn may_follow_backlogs(&self, now: Nanos) -> bool {
        self.balancer.method().is_some_and(Method::is_keyless_split)
            && self.watches()
            && self.may_steer()
            && !self.commitment.is_owed()
            && self.commitment.may_answer_foreign(now)
            && self.is_paced(now)
            && self.traffic.rate() >= IDLE_RPS
            && !self.is_pinned()
            && self.aside().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Applied, BackendId};

    use super::*;
    use crate::belief::typical::Typical;
    use crate::gate::trial::PoolWindow;
    use crate::spec::{BackendSpec, ServiceSpec};

    #[test]
    fn shares_grow_only_from_rates_observed_under_the_weights_in_force() {
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let backends = (0..2).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let is_decided = |phase: Phase, changed: u64, seen: u64, now: u64| {
            let mut controller = Controller::new(spec.clone(), None, Nanos::ZERO, 1);
            controller.phase.recall(phase);
            controller.traffic.note_change(at(changed));
            let window =
                PoolWindow { at: at(seen), seconds: 1.0, started: 90.0, request_seconds: 1.0 };
            controller.traffic.push(window);
            controller.decide(at(now), &mut Vec::new());
            !controller.gate.is_due(at(now)) && controller.commitment.is_pending()
        };
        assert!(is_decided(Phase::Exploring, 10, 12, 12));
        assert!(!is_decided(Phase::Exploring, 10, 10, 12), "nothing was seen of the last plan");
        assert!(is_decided(Phase::Exploring, 10, 10, 15), "there is no waiting for ever");
        assert!(is_decided(Phase::Steady, 10, 10, 12), "nothing is bounded by what was seen");
    }

    #[test]
    fn shares_grow_from_applied_plans_only() {
        let backends = (0..9).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let mut controller = Controller::new(spec.clone(), None, Nanos::ZERO, 1);
        // One backend is fast and has had little traffic.
        for (i, b) in controller.backends.iter_mut().enumerate() {
            (0..10).for_each(|_| b.knowledge.observe_unloaded(if i == 0 { 1e3 } else { 1e5 }));
            b.knowledge.refit(spec.curve, Typical::default());
            b.recent.rate_rps = if i == 0 { 6.0 } else { 5.0 };
        }
        let out = &mut Vec::new();
        // The share that it is given by successive plans, each of which fails or is applied.
        let mut given = |applied: bool| {
            let now = Nanos::ZERO;
            let decision = split::decide(now, &spec, &controller.backends, 46.0, true);
            let decision = decision.expect("a decision");
            let share = decision.wishes[0].share;
            let weights = decision.wishes.iter().map(|w| (w.id, w.weight)).collect();
            let why = Why::new(PlanKind::Packed, "a test");
            controller.program(now, decision, why, false, out);
            let epoch = controller.commitment.epoch();
            if applied {
                controller.on_applied(now, &Applied { epoch, weights, commands: 2 }, out);
            } else {
                controller.on_apply_failed(now, epoch, "refused".to_owned(), true, out);
            }
            assert!(!controller.commitment.is_pending());
            share
        };
        let first = given(false);
        assert!((1.5 * 6.0 / 46.0..1.1 * spec.max_step * 6.0 / 46.0).contains(&first), "{first}");
        assert_eq!((given(false), given(true)), (first, first), "nothing was in force");
        assert!(given(false) > 1.5 * first, "it was in force");
    }
}
