//! Checks the state after a step.

use std::time::Duration;

use plimsoll_control::{Belief, ServiceView};
use plimsoll_model::{BackendId, Nanos};

use super::{Invariants, Rule};
use crate::pool_model::{Condition, PoolModel};

/// A backend that has failed has no weight, and one that may serve has one, within this time in which the controller can
/// act: checks of idle backends are a second apart and may be lost, as readings of its traffic may, and a plan may be
/// refused.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// The balancer holds the planned weights within this: a steady controller decides every 10 s at the latest.
const AGREE_WITHIN: Duration = Duration::from_secs(15);
/// The controller knows the weights in force within this: two readings and a plan.
const BELIEVED_WITHIN: Duration = Duration::from_secs(3);
/// With a newest reading older than this, readings fail.
const FRESH: Duration = Duration::from_millis(1_600);
/// Between steps further apart than this the process or its machine was stopped.
const LONGEST_STEP: Duration = Duration::from_secs(1);
/// The whole view is checked after every plan and record, and at this interval: it costs more than a step.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The state at one instant.
pub struct Snapshot<'a> {
    /// The world's time.
    pub now: Nanos,
    /// The controller's time.
    pub clock: Nanos,
    /// The process has CPU time, the balancer can be read and steered, and no plan is under way.
    pub able: bool,
    /// The pool.
    pub pool_model: &'a dyn PoolModel,
    /// The controller's beliefs about every backend.
    pub beliefs: &'a [Belief],
    /// Makes the controller's view: on demand, because that costs more than a step.
    pub view: &'a dyn Fn() -> ServiceView,
}

/// Whether something has been wrong for longer than this; `since` is when that began.
fn lasts(since: &mut Option<Nanos>, wrong: bool, now: Nanos, limit: Duration) -> bool {
    *since = wrong.then(|| since.unwrap_or(now));
    since.is_some_and(|since| now.since(since) > limit)
}

impl Invariants {
    /// Checks the state.
    pub fn check(&mut self, snapshot: &Snapshot<'_>) {
        self.world = snapshot.now;
        self.checks += 1;
        let fresh = self.newest_at.is_some_and(|at| snapshot.clock.since(at) <= FRESH);
        let passed = snapshot.now.since(self.last_check);
        self.last_check = snapshot.now;
        // Time limits run only while the controller is able to act.
        if !snapshot.able || !fresh || passed > LONGEST_STEP {
            self.accounts.iter_mut().for_each(|a| a.overdue = None);
            (self.disagreeing, self.deserted, self.misread) = (None, None, None);
        } else {
            self.check_failed(snapshot);
            self.check_any_serves(snapshot);
            self.check_agreement(snapshot);
            self.check_belief(snapshot);
        }
        let has_acted = std::mem::take(&mut self.has_acted);
        if has_acted || snapshot.now.since(self.last_look) >= LOOK_EVERY {
            self.last_look = snapshot.now;
            self.check_view(&(snapshot.view)());
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

    /// A backend that has failed, as the controller knows, or in truth with requests lost, has no weight, where another
    /// one serves. (Refused checks alone may be those of a wrong address, until one was accepted.)
    fn check_failed(&mut self, snapshot: &Snapshot<'_>) {
        let is_dead = |i: usize| snapshot.pool_model.condition(i) == Condition::Dead;
        let has_traffic = snapshot.pool_model.rate_rps() > 0.0;
        let another = (0..self.accounts.len()).any(|i| self.accounts[i].is_usable() && !is_dead(i));
        for i in 0..self.accounts.len() {
            let a = &mut self.accounts[i];
            let held = snapshot.pool_model.weight(i);
            let serves = a.steered && !a.reserved && held > 0;
            let wrong = another && serves && (a.is_to_get_nothing() || is_dead(i) && has_traffic);
            if lasts(&mut a.overdue, wrong, snapshot.now, SERVED_WITHIN) {
                let (down, out, aside) = (a.balancer_down, a.out, a.aside);
                let what = format!(
                    "weight {held} for more than {SERVED_WITHIN:?} after it failed, by the balancer: \
                     {down}, by the controller: {out}, set aside: {aside}"
                );
                self.violate(Rule::FailedGetNothing, Some(i), what);
            }
        }
    }

    fn check_any_serves(&mut self, snapshot: &Snapshot<'_>) {
        let mut usable = self.accounts.iter().enumerate().filter(|(_, a)| a.is_usable()).peekable();
        let any_usable = usable.peek().is_some();
        let deserted = any_usable && usable.all(|(i, _)| snapshot.pool_model.weight(i) == 0);
        if lasts(&mut self.deserted, deserted, snapshot.now, SERVED_WITHIN) {
            let what = format!("no usable backend has had a weight for {SERVED_WITHIN:?}");
            self.violate(Rule::SomeBackendServes, None, what);
        }
    }

    /// The balancer holds the weights of the last plan, or those that are wanted: after a lost plan the weights in force
    /// may have been accepted. (While no backend serves, weights stay unchanged.)
    fn check_agreement(&mut self, snapshot: &Snapshot<'_>) {
        let differs = |(id, weight): (BackendId, u32)| {
            let i = id.0 as usize;
            let held = snapshot.pool_model.weight(i);
            let steered = self.accounts.get(i).is_some_and(|a| a.steered && !a.reserved);
            (steered && held != weight).then_some((i, weight, held))
        };
        let any_usable = self.accounts.iter().any(|a| a.is_usable());
        let wanted = snapshot.beliefs.iter().map(|b| (b.backend, b.wanted)).find_map(differs);
        let planned = self.last_plan.iter().flatten().copied().find_map(differs);
        let wrong = planned.filter(|_| any_usable && wanted.is_some());
        let lasts = lasts(&mut self.disagreeing, wrong.is_some(), snapshot.now, AGREE_WITHIN);
        if let Some((i, planned, held)) = wrong.filter(|_| lasts) {
            let what = format!("planned {planned}, held {held} for more than {AGREE_WITHIN:?}");
            self.violate(Rule::Agreement, Some(i), what);
        }
    }

    fn check_belief(&mut self, snapshot: &Snapshot<'_>) {
        let misread = snapshot.beliefs.iter().find_map(|b| {
            let i = b.backend.0 as usize;
            let held = snapshot.pool_model.weight(i);
            let believed = b.programmed.filter(|believed| *believed != held)?;
            Some((i, believed, held))
        });
        let lasts = lasts(&mut self.misread, misread.is_some(), snapshot.now, BELIEVED_WITHIN);
        if let Some((i, believed, held)) = misread.filter(|_| lasts) {
            let what = format!("believed {believed}, held {held}");
            self.violate(Rule::BeliefIsTrue, Some(i), what);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_control::{BackendSpec, Controller, ServiceSpec};

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
            invariants.check(&Snapshot {
                now,
                clock: now,
                able: true,
                pool_model: &pool_model,
                beliefs: &beliefs,
                view: &|| controller.view(now),
            });
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
