//! KnapsackLB's own exploration (§4.3, §4.6), as an option: the weight of every backend is raised in rounds until its
//! latency ends that, requests for weights are scheduled so that weights sum to one, and only then the pool is packed.
//! For balancers that split the traffic.
//!
//! The paper's pool is undisturbed while it is explored. Otherwise a round in which weights were changed for another
//! reason (a failure, a reload, another party) measures nothing and is repeated without the backends that do not serve;
//! a backend that failed has lost requests at the weight it was given. During slow start the pool is packed with what
//! is known, and rounds wait.

pub(crate) mod climbers;

use plimsoll_learn::{Assignment, ExploreMode, ExploreOptions, Measurement, schedule};
use plimsoll_model::{BackendId, Nanos, PlanKind};
use plimsoll_pack::round_to_range;

use crate::commit::plan::{Decision, Why, Wish};
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::gate::decide::IDLE_RPS;
use crate::paper::climbers::{PaperRun, Round, SETTLING};
use crate::show::view::Phase;
use crate::spec::Exploration;

/// The part of the capacity that may be measured at a time (§4.5).
const REFRESH_SHARE: f64 = 0.05;
/// An exploration takes at most as long as this many rounds, interrupted ones included. (The paper's take less than
/// 20.)
const MOST_ROUNDS: u32 = 60;

impl Controller {
    /// Adds a window's measurements to the round.
    pub(crate) fn paper_window(&mut self, now: Nanos) {
        let Some(run) = &mut self.paper else { return };
        let Some(round) = &mut run.round else { return };
        if self.calm_since > round.since {
            // Only from here on are the weights those of the round.
            (round.since, round.windows, round.started) = (self.calm_since, 0, 0.0);
            run.climbers.iter_mut().for_each(|c| (c.area, c.started) = (0.0, 0.0));
        }
        if now.since(round.since) < self.spec.round.mul_f64(SETTLING) {
            return;
        }
        round.windows += 1;
        round.started += self.backends.iter().map(|b| b.recent.rate_rps).sum::<f64>();
        for c in &mut run.climbers {
            if let Some(b) = self.backends.iter().find(|b| b.id == c.id) {
                c.area += b.recent.in_flight;
                c.started += b.recent.rate_rps;
            }
        }
    }

    /// Time counts against the limit only while rounds are possible.
    pub(crate) fn paper_time(&mut self, now: Nanos) {
        if self.paper.is_none() {
            return;
        }
        let possible = self.is_fresh(now) && self.has_traffic_to_measure();
        self.paper.iter_mut().for_each(|run| run.pass(now, possible));
    }

    /// Advances the exploration; true while it decides the weights.
    pub(crate) fn paper_act(&mut self, now: Nanos, out: &mut Vec<Action>) -> bool {
        if !self.explores_by_paper() {
            self.paper = None;
            return false;
        }
        let run = self.paper.get_or_insert_with(|| PaperRun::new(now));
        if run.taken > MOST_ROUNDS * self.spec.round {
            self.end_paper(now, "exploration time limit reached: packing", out);
            return false;
        }
        if run.round.as_ref().is_some_and(|round| round.epoch != self.epoch) {
            run.interrupt();
        }
        let ramps = self.is_ramping(now);
        if ramps || !self.has_traffic_to_measure() {
            self.paper.iter_mut().for_each(PaperRun::interrupt);
            return !ramps;
        }
        if self.paper.as_ref().is_some_and(|run| now < run.next_look) {
            return false;
        }
        if self.may_begin_round(now) {
            self.measure_round();
            self.next_round(now, out);
        }
        self.phase == Phase::Exploring
    }

    fn may_begin_round(&self, now: Nanos) -> bool {
        match self.paper.as_ref().and_then(|run| run.round.as_ref()) {
            // A round lasts long enough for the lightest server to get a turn. An overloaded one does not wait for
            // another round.
            Some(round) => {
                let least = self.spec.min_interval.max(self.spec.sink.min_interval);
                round.is_over(now, self.spec.round)
                    && self.last_program.is_none_or(|last| now.since(last) >= least)
            }
            None => self.is_paced(now),
        }
    }

    fn has_traffic_to_measure(&self) -> bool {
        !self.conflict && self.rate() >= IDLE_RPS && self.backends.iter().any(|b| b.is_usable())
    }

    /// A backend that failed has lost requests at the weight it requested, if it had it.
    pub(crate) fn paper_lost(&mut self, id: BackendId) {
        let is_answered = self.pending.is_none() && self.reassert.is_none();
        let Some(run) = self.paper.as_mut().filter(|_| is_answered) else { return };
        let is_in_force = run.round.as_ref().is_some_and(|round| round.epoch == self.epoch);
        let fell = self
            .backends
            .iter()
            .any(|b| b.id == id && !b.is_usable() && b.programmed == Some(b.wanted.weight));
        let climber = run.climbers.iter_mut().find(|c| c.id == id);
        let Some(c) = climber.filter(|_| is_in_force && fell) else { return };
        if let Some(weight) = c.granted.take() {
            c.take(&Measurement { weight, l0_us: 1.0, latency_us: f64::NAN, dropped: true });
        }
    }

    fn explore_options(&self) -> ExploreOptions {
        ExploreOptions {
            mode: match self.spec.exploration {
                Exploration::Literal => ExploreMode::Literal,
                _ => ExploreMode::Bisect,
            },
            latency_factor: self.spec.latency_factor,
            max_step: self.spec.max_step,
            // A weight of 1 is all of the traffic.
            useful_max: Some(1.0),
            ..ExploreOptions::default()
        }
    }

    fn measure_round(&mut self) {
        let Some(run) = &mut self.paper else { return };
        let Some(round) = run.round.as_ref().filter(|round| round.started > 0.0) else { return };
        for c in run.climbers.iter_mut().filter(|c| c.granted.is_some()) {
            let Some(b) = self.backends.iter().find(|b| b.id == c.id && b.is_usable()) else {
                continue;
            };
            let Some(l0_us) = b.knowledge.service_us() else { continue };
            let latency_us = if c.started > 0.0 { c.area / c.started * 1e6 } else { l0_us };
            let weight = c.started / round.started;
            let dropped = b.health.error_share() > c.errors_before + 0.01;
            c.over_utilised = latency_us > self.spec.latency_factor * l0_us;
            run.tickets += 1;
            c.ticket = run.tickets;
            c.take(&Measurement { weight, l0_us, latency_us, dropped });
        }
    }

    fn next_round(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let options = self.explore_options();
        let Some(run) = &mut self.paper else { return };
        run.interrupt();
        if let Err(error) = run.join(&self.backends, options) {
            self.give_up_exploring(now, &error, out);
            return;
        }
        let (members, wishes) = run.open_round(&self.backends);
        if wishes.is_empty() {
            if run.misses_unfinished(&self.backends) {
                run.next_look = now + self.spec.round;
                return;
            }
            self.end_paper(now, "the curve of every backend is known: packing", out);
            return;
        }
        let assignment = match schedule(&members, &wishes, REFRESH_SHARE) {
            Ok(assignment) => assignment,
            Err(error) => {
                self.give_up_exploring(now, &error, out);
                return;
            }
        };
        if assignment.granted.is_empty() {
            // The requested weights leave more than the other backends can carry …
            if self.backends.iter().any(|b| !b.is_usable()) {
                // … but there will be more of them when a failed one is back.
                run.next_look = now + self.spec.round;
                return;
            }
            // … and that will not change.
            self.end_paper(now, "no further requested weight fits: packing", out);
            return;
        }
        for c in run.climbers.iter_mut().filter(|c| assignment.granted.contains(&c.id)) {
            c.granted = c.wanted;
        }
        self.program_round(now, &assignment, out);
    }

    fn give_up_exploring(
        &mut self,
        now: Nanos,
        error: &dyn std::error::Error,
        out: &mut Vec<Action>,
    ) {
        record(out, RecordKind::Warning, None, format!("no exploration schedule: {error}"));
        self.end_paper(now, "exploration is not possible: packing", out);
    }

    fn end_paper(&mut self, now: Nanos, why: &str, out: &mut Vec<Action>) {
        self.paper = None;
        self.set_phase(Phase::Steady, why, out);
        self.next_decision = now;
    }

    fn program_round(&mut self, now: Nanos, assignment: &Assignment, out: &mut Vec<Action>) {
        let shares: Vec<f64> = assignment.weights.iter().map(|(_, w)| *w).collect();
        let rounded = match round_to_range(&shares, None, self.spec.sink.range.clone()) {
            Ok(rounded) => rounded,
            Err(error) => {
                self.give_up_exploring(now, &error, out);
                return;
            }
        };
        let wish = |(&(id, share), &weight): (&(BackendId, f64), &u32)| Wish {
            id,
            share,
            weight,
            expected_us: None,
            reason: if assignment.granted.contains(&id) {
                "measured at its requested weight".to_owned()
            } else {
                "takes the traffic that the measured backends leave".to_owned()
            },
        };
        let wishes = assignment.weights.iter().zip(&rounded.weights).map(wish).collect();
        let rate_rps = self.history.rate_rps().unwrap_or(0.0);
        let decision = Decision { wishes, rate_rps, still_learning: true, ..Decision::default() };
        let reason = format!(
            "exploring: {} backends measured, {} waiting",
            assignment.granted.len(),
            assignment.waiting.len()
        );
        // A trial of an earlier plan ends with the round's plan.
        self.trial = None;
        self.program(now, decision, Why::new(PlanKind::Measuring, reason), false, out);
        if let Some(run) = &mut self.paper {
            run.round = Some(Round { epoch: self.epoch, since: now, windows: 0, started: 0.0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_model::{Applied, FailureKind, MethodKind};

    use super::*;
    use crate::gate::trial::PoolWindow;
    use crate::paper::climbers::Climber;
    use crate::spec::{BackendSpec, ServiceSpec};

    const NOW: Nanos = Nanos(10_000_000_000);

    /// A controller in the first round of four.
    fn exploring() -> Controller {
        let backends = (0..4).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec {
            exploration: Exploration::Bisect,
            ..ServiceSpec::new("shop", backends.collect())
        };
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        assert_eq!(controller.kind(), MethodKind::Split);
        controller.paper = Some(PaperRun::new(NOW));
        controller.next_round(NOW, &mut Vec::new());
        controller
    }

    fn climbers(controller: &Controller) -> &[Climber] {
        &controller.paper.as_ref().expect("it explores").climbers
    }

    fn wishes(controller: &Controller) -> Vec<f64> {
        climbers(controller).iter().filter_map(|c| c.wanted).collect()
    }

    fn refuses(controller: &mut Controller, i: u32) {
        let refused = Some(FailureKind::Refused);
        controller.on_liveness(NOW, BackendId(i), 0, refused, NOW, &mut Vec::new());
    }

    /// The balancer holds the plan's weights plus `greater`.
    fn answer(controller: &mut Controller, greater: u32) {
        let plan = controller.pending.as_ref().expect("a round was planned");
        let held = plan.decision.wishes.iter().map(|w| (w.id, w.weight + greater)).collect();
        let applied = Applied { epoch: plan.epoch, weights: held, commands: 4 };
        controller.on_applied(NOW, &applied, &mut Vec::new());
    }

    #[test]
    fn backend_that_fails_without_its_requested_weight_does_not_request_less() {
        let ways: [fn(&mut Controller); 4] = [
            |_| (),
            |controller| {
                let epoch = controller.epoch;
                let why = "no answer".to_owned();
                controller.on_apply_failed(NOW, epoch, why, true, &mut Vec::new());
            },
            |controller| answer(controller, 1),
            |controller| {
                answer(controller, 0);
                controller.epoch += 1;
            },
        ];
        for not_in_force in ways {
            let mut controller = exploring();
            not_in_force(&mut controller);
            refuses(&mut controller, 1);
            assert!(!controller.backends[1].is_usable());
            assert_eq!(wishes(&controller), [0.25; 4]);
        }
    }

    #[test]
    fn time_without_traffic_does_not_count_against_the_limit() {
        let mut controller = exploring();
        let second = |s: u64| NOW + Duration::from_secs(s);
        let window = |at| PoolWindow { at, seconds: 1.0, started: 100.0, in_flight: 1.0 };
        let mut taken = |s: u64, sees: bool, conflict: bool| {
            controller.conflict = conflict;
            if sees {
                controller.seen_at = Some(second(s));
                controller.history.push(window(second(s)));
            }
            controller.paper_time(second(s));
            controller.paper.as_ref().map(|run| run.taken.as_secs())
        };
        assert_eq!(taken(1, false, false), Some(0), "nothing is read");
        (2..700).for_each(|s| assert_eq!(taken(s, true, true), Some(0), "only others can help"));
        (700..707).for_each(|s| assert_eq!(taken(s, true, false), Some(s - 699)));
        assert_eq!(taken(709, false, false), Some(7), "nothing is read any more");
        assert_eq!(taken(1_400, true, false), Some(8), "no round has run meanwhile");
    }

    #[test]
    fn backend_that_fails_at_its_requested_weight_requests_less_but_one_in_maintenance_does_not() {
        let mut controller = exploring();
        assert_eq!(wishes(&controller), [0.25; 4]);
        answer(&mut controller, 0);
        refuses(&mut controller, 1);
        assert_eq!(wishes(&controller), [0.25, 0.125, 0.25, 0.25]);
        controller.backends[2].status = Some(plimsoll_model::ServerStatus::Drain);
        controller.next_round(NOW, &mut Vec::new());
        let granted: Vec<bool> =
            climbers(&controller).iter().map(|c| c.granted.is_some()).collect();
        assert_eq!(granted, [true, false, false, true]);
        // None has been measured yet.
        assert_eq!(wishes(&controller), [0.5, 0.125, 0.25, 0.5]);
    }

    #[test]
    fn weights_that_are_set_again_are_measured_from_then_on() {
        let mut controller = exploring();
        let second = |s: u64| NOW + Duration::from_secs(s);
        let windows = |controller: &Controller| {
            controller.paper.as_ref().and_then(|run| Some(run.round.as_ref()?.windows))
        };
        (1..8).for_each(|s| controller.paper_window(second(s)));
        assert_eq!(windows(&controller), Some(4), "from 4 s on");
        controller.calm_since = second(7);
        (8..12).for_each(|s| controller.paper_window(second(s)));
        assert_eq!(windows(&controller), Some(1), "from 11 s on");
    }

    #[test]
    fn a_plan_for_another_reason_ends_the_round_without_measurement() {
        let mut controller = exploring();
        let steps = |controller: &Controller| -> u32 {
            climbers(controller).iter().map(|c| c.climb.steps()).sum()
        };
        (1..=12).for_each(|s| controller.paper_window(NOW + Duration::from_secs(s)));
        controller.epoch += 1;
        let later = NOW + Duration::from_secs(12);
        controller.paper_act(later, &mut Vec::new());
        let run = controller.paper.as_ref().expect("it explores on");
        assert!(run.round.is_none() && run.climbers.iter().all(|c| c.granted.is_none()));
        controller.measure_round();
        assert_eq!(steps(&controller), 0);
    }
}
