//! Checks the state after a step.

use std::time::Duration;

use plimsoll_control::{Belief, Controller, ServiceView};
use plimsoll_model::Nanos;

use super::{Invariants, Rule};
use crate::pool_model::{Condition, PoolModel};

/// Once the controller knows, a failed backend has no weight within this, while the balancer can be steered: one
/// reading (a second at sample level) and one exchange.
const FAILED_OUT_WITHIN: Duration = Duration::from_secs(2);
/// A dead backend has no weight after this time in which the controller could act: checks of idle backends are a second
/// apart and may be lost, readings of its traffic as well, and a plan may be refused.
const DEAD_OUT_WITHIN: Duration = Duration::from_secs(10);
/// A refused plan is retried within this (the controller backs off up to 5 s).
const TRIED_AGAIN_WITHIN: Duration = Duration::from_millis(5_500);
/// The balancer holds the controller's weights within this: a steady controller decides every 10 s at the latest.
const AGREE_WITHIN: Duration = Duration::from_secs(15);
/// The controller knows the weights in force within this: two readings and a plan.
const BELIEVED_WITHIN: Duration = Duration::from_secs(3);
/// With a newest reading older than this, readings fail.
const FRESH: Duration = Duration::from_millis(1_600);
/// A plan without an answer for this long counts as lost.
const UNANSWERED: Duration = Duration::from_secs(5);
/// Between steps further apart than this something happened that is not accounted for.
const LONGEST_STEP_S: f64 = 1.0;
/// The whole view is checked after every plan and record, and at this interval: it costs more than a step.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The controller with its environment.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The controller's time.
    pub clock: Nanos,
    /// The pool.
    pub pool_model: &'a dyn PoolModel,
    /// The controller.
    pub controller: &'a Controller,
    /// Its beliefs about every backend.
    pub beliefs: &'a [Belief],
}

/// The state at one instant.
pub struct Snapshot<'a> {
    /// The world's time.
    pub now: Nanos,
    /// The process has CPU time, the balancer can be read and steered, and no plan is under way.
    pub able: bool,
    /// The controller with its environment.
    pub seen: Seen<'a>,
    /// Makes its view: on demand, because that costs more than a step.
    pub view: &'a dyn Fn() -> ServiceView,
}

impl Invariants {
    /// Checks the state.
    pub fn check(&mut self, snapshot: &Snapshot<'_>) {
        self.world = snapshot.now;
        self.checks += 1;
        let fresh = self.newest_at.is_some_and(|at| snapshot.seen.clock.since(at) <= FRESH);
        let backs_off =
            self.refused_at.is_some_and(|at| snapshot.seen.clock.since(at) <= TRIED_AGAIN_WITHIN);
        let waits = self.outstanding.is_some_and(|o| snapshot.seen.clock.since(o.at) <= UNANSWERED);
        let able = snapshot.able && fresh && !waits && !backs_off && !self.conflict;
        let passed_s = snapshot.now.since(self.last_check).as_secs_f64();
        self.last_check = snapshot.now;
        let able_s = if able { passed_s.min(LONGEST_STEP_S) } else { 0.0 };
        self.let_excuses_expire(able_s);
        self.check_rescaled(snapshot);
        self.check_measured(snapshot, able_s);
        // Time limits do not run while the process or its machine is stopped.
        if !able || passed_s > LONGEST_STEP_S {
            self.accounts.iter_mut().for_each(|a| (a.overdue, a.dead_since) = (None, None));
            (self.disagreeing, self.deserted, self.misread) = (None, None, None);
        } else {
            self.check_failed(snapshot);
            self.check_dead(snapshot);
            self.check_any_serves(snapshot);
            self.check_agreement(snapshot);
            self.check_belief(snapshot);
        }
        self.phase = Some(snapshot.seen.controller.phase());
        let has_acted = std::mem::take(&mut self.has_acted);
        if has_acted || snapshot.now.since(self.last_look) >= LOOK_EVERY {
            self.last_look = snapshot.now;
            self.check_view(&(snapshot.view)());
        }
    }

    fn check_failed(&mut self, snapshot: &Snapshot<'_>) {
        // If no usable backend is left, weights stay unchanged.
        let any_usable = self.accounts.iter().any(|a| a.is_usable());
        for i in 0..self.accounts.len() {
            let a = &mut self.accounts[i];
            let held = snapshot.seen.pool_model.weight(i);
            if !(any_usable && a.steered && a.is_to_get_nothing() && held > 0) {
                a.overdue = None;
                continue;
            }
            let since = *a.overdue.get_or_insert(snapshot.now);
            if snapshot.now.since(since) > FAILED_OUT_WITHIN {
                let (down, out, aside) = (a.balancer_down, a.out, a.aside);
                let what = format!(
                    "weight {held} for more than {FAILED_OUT_WITHIN:?} after it failed, by the balancer: \
                     {down}, by the controller: {out}, set aside: {aside}"
                );
                self.violate(Rule::FailedGetNothing, Some(i), what);
            }
        }
    }

    /// Records which backends are not healthy in truth, whether or not the controller runs.
    pub fn note_unwell(&mut self, pool_model: &dyn PoolModel) {
        let (now, clock) = (pool_model.now(), self.last_clock);
        for (i, a) in self.accounts.iter_mut().enumerate() {
            if pool_model.condition(i) != Condition::Well {
                a.unwell_at = Some((now, clock));
            }
        }
    }

    /// A dead backend holds a weight for no longer than its detection takes.
    fn check_dead(&mut self, snapshot: &Snapshot<'_>) {
        let pool_model = snapshot.seen.pool_model;
        let lives =
            |i: usize| self.accounts[i].is_usable() && pool_model.condition(i) != Condition::Dead;
        let any_usable = (0..self.accounts.len()).any(lives);
        for i in 0..self.accounts.len() {
            let a = &mut self.accounts[i];
            let dead = pool_model.condition(i) == Condition::Dead && pool_model.weight(i) > 0;
            if !(dead && any_usable && a.steered && !a.reserved) {
                a.dead_since = None;
                continue;
            }
            let since = *a.dead_since.get_or_insert(snapshot.now);
            if snapshot.now.since(since) > DEAD_OUT_WITHIN {
                let what =
                    format!("weight {} though it is dead since {since:?}", pool_model.weight(i));
                self.violate(Rule::DeadGetNothing, Some(i), what);
            }
        }
    }

    fn check_any_serves(&mut self, snapshot: &Snapshot<'_>) {
        let may = |i: &usize| self.accounts[*i].is_usable();
        let any_usable = self.accounts.iter().any(|a| a.is_usable());
        let all_zero = || {
            (0..self.accounts.len()).filter(may).all(|i| snapshot.seen.pool_model.weight(i) == 0)
        };
        let deserted = any_usable && all_zero();
        if !deserted {
            self.deserted = None;
            return;
        }
        let since = *self.deserted.get_or_insert(snapshot.now);
        if snapshot.now.since(since) > FAILED_OUT_WITHIN {
            let what =
                format!("no usable backend has had a weight since {:.3} s", since.as_secs_f64());
            self.violate(Rule::SomeBackendServes, None, what);
        }
    }

    fn check_agreement(&mut self, snapshot: &Snapshot<'_>) {
        let Some(plan) = &self.last_plan else { return };
        let wrong = plan.iter().find_map(|&(id, weight)| {
            let i = id.0 as usize;
            let a = &self.accounts[i];
            let held = snapshot.seen.pool_model.weight(i);
            (a.steered && !a.reserved && held != weight).then_some((i, weight, held))
        });
        // After a lost plan the weights in force may have been accepted; and while no backend serves, weights stay
        // unchanged.
        let any_usable = self.accounts.iter().any(|a| a.is_usable());
        let wants_another = || {
            let differs = |b: &Belief| {
                let i = b.backend.0 as usize;
                b.wanted != snapshot.seen.pool_model.weight(i) && !self.accounts[i].reserved
            };
            snapshot.seen.beliefs.iter().any(differs)
        };
        let wrong = wrong.filter(|_| any_usable && wants_another());
        let Some((i, weight, held)) = wrong else {
            self.disagreeing = None;
            return;
        };
        let since = *self.disagreeing.get_or_insert(snapshot.now);
        if snapshot.now.since(since) > AGREE_WITHIN {
            let what = format!("planned {weight}, held {held} for more than {AGREE_WITHIN:?}");
            self.violate(Rule::Agreement, Some(i), what);
        }
    }

    fn check_belief(&mut self, snapshot: &Snapshot<'_>) {
        let misread = snapshot.seen.beliefs.iter().find_map(|b| {
            let i = b.backend.0 as usize;
            let held = snapshot.seen.pool_model.weight(i);
            let believed = b.programmed.filter(|believed| *believed != held)?;
            Some((i, believed, held))
        });
        let Some((i, believed, held)) = misread else {
            self.misread = None;
            return;
        };
        let since = *self.misread.get_or_insert(snapshot.now);
        if snapshot.now.since(since) > BELIEVED_WITHIN {
            let what = format!("believed {believed}, held {held}");
            self.violate(Rule::BeliefIsTrue, Some(i), what);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_control::{BackendSpec, ServiceSpec};
    use plimsoll_model::BackendId;

    use super::*;
    use crate::pool::{BackendModel, Method};
    use crate::sample::SampledPool;

    /// The violation where all weights are 1 instead of 5 and the steps are at these seconds.
    fn violated(steps: impl Iterator<Item = f64>) -> Option<Rule> {
        let backend = |i: u32| BackendSpec { id: BackendId(i), name: format!("s{i}") };
        let spec = ServiceSpec::new("sim", (0..2).map(backend).collect());
        let mut invariants = Invariants::new(2);
        invariants.controller_started(Nanos::ZERO, &spec, None);
        invariants.last_plan = Some((0..2).map(|i| (BackendId(i), 5)).collect());
        let pool = [BackendModel { cores: 1, speed: 1.0 }; 2];
        let pool_model = SampledPool::new(&pool, 10_000.0, Method::RoundRobin, 1);
        let controller = Controller::new(spec, None, Nanos::ZERO, 1);
        let beliefs: Vec<Belief> =
            controller.beliefs().map(|b| Belief { wanted: 5, ..b }).collect();
        for seconds in steps {
            let now = Nanos((seconds * 1e9) as u64);
            invariants.newest_at = Some(now);
            let seen = Seen {
                clock: now,
                pool_model: &pool_model,
                controller: &controller,
                beliefs: &beliefs,
            };
            invariants.check(&Snapshot { now, able: true, seen, view: &|| controller.view(now) });
        }
        invariants.take_violation().map(|violation| violation.rule)
    }

    #[test]
    fn time_limit_of_agreement_runs_only_while_the_controller_can_act() {
        let ticks = |from: u32, to: u32| (2 * from..2 * to).map(|half| f64::from(half) / 2.0);
        assert_eq!(violated(ticks(0, 14)), None);
        assert_eq!(violated(ticks(0, 17)), Some(Rule::Agreement));
        assert_eq!(violated(ticks(0, 3).chain(ticks(40, 50))), None, "its machine slept");
        assert_eq!(violated(ticks(0, 3).chain(ticks(40, 57))), Some(Rule::Agreement));
    }
}
