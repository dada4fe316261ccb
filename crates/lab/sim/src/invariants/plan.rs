//! Checks of plans.

use std::time::Duration;

use plimsoll_control::{Action, Record, RecordKind};
use plimsoll_model::{GREATEST_WEIGHT, MethodKind, Nanos, Plan, PlanKind};

use super::{Invariants, Outstanding, Rule};

/// Tolerance of the sum of the shares: rounding of sums of 64-bit numbers.
const WHOLE: f64 = 1e-6;
/// Under a split a weight deviates from its share by at most this part of the whole and this many units of weight:
/// rounding by marginal cost moves weights by a unit or two.
const ROUNDING: (f64, f64) = (0.02, 2.0);
/// No plan on a reading older than this (ARCHITECTURE.md, "Failure, by design").
const STALE: Duration = Duration::from_secs(2);
/// A plan without an answer for this long counts as lost, and another one may be made.
const UNANSWERED: Duration = Duration::from_secs(5);
/// Evidence within this time justifies a failure: checks and probes hang for seconds, and the error share is a moving
/// mean.
const NEWS: Duration = Duration::from_secs(60);

impl Invariants {
    /// Accounts for an action of the controller and checks it.
    pub fn note_action(&mut self, clock: Nanos, action: &Action) {
        match action {
            Action::Program(plan) | Action::Correct(plan) => self.check_plan(clock, plan),
            Action::Record(record) => self.note_record(clock, record),
            Action::ProbeRate { .. } | Action::CheckRate { .. } | Action::SaveMemory => return,
        }
        self.has_acted = true;
    }

    fn check_plan(&mut self, clock: Nanos, plan: &Plan) {
        self.checks += 1;
        self.check_form(plan);
        self.check_members(plan);
        self.check_timing(clock, plan);
        self.check_pace(clock, plan);
        self.check_resumption(plan);
        self.epoch = plan.epoch;
        self.outstanding = Some(Outstanding { epoch: plan.epoch, at: clock });
        self.last_plan = Some(plan.entries.iter().map(|e| (e.backend, e.weight)).collect());
        self.disagreeing = None;
    }

    fn check_form(&mut self, plan: &Plan) {
        let entries = &plan.entries;
        let sum: f64 = entries.iter().map(|e| e.share).sum();
        let weights: f64 = entries.iter().map(|e| f64::from(e.weight)).sum();
        let in_order = entries.windows(2).all(|p| p[0].backend < p[1].backend);
        let in_range = entries.iter().all(|e| {
            e.share.is_finite()
                && (0.0..=1.0 + WHOLE).contains(&e.share)
                && e.weight <= GREATEST_WEIGHT
        });
        let steered = entries
            .iter()
            .all(|e| self.accounts.get(e.backend.0 as usize).is_some_and(|a| a.steered));
        if !in_order || !in_range || !steered || (sum - 1.0).abs() > WHOLE {
            let what = format!("shares sum to {sum}: {plan:?}");
            self.violate(Rule::WholePlan, None, what);
        }
        // A failed backend has an entry with weight 0: only reserved ones are left out.
        let is_named = |i: usize| entries.iter().any(|e| e.backend.0 as usize == i);
        let forgotten = (0..self.accounts.len()).find(|&i| {
            let a = &self.accounts[i];
            a.steered && !a.reserved && !is_named(i)
        });
        if let Some(i) = forgotten {
            self.violate(Rule::WholePlan, Some(i), format!("it has no entry: {plan:?}"));
        }
        if weights == 0.0 {
            let what = format!("every weight is 0: {plan:?}");
            self.violate(Rule::SomeBackendServes, None, what);
        }
        if self.kind != Some(MethodKind::Split) {
            return;
        }
        let bound = ROUNDING.0 + ROUNDING.1 / weights.max(1.0);
        let off = entries
            .iter()
            .find(|e| (f64::from(e.weight) / weights.max(1.0) - e.share).abs() > bound);
        if let Some(e) = off {
            let what =
                format!("weight {} of {weights} for share {:.3} in {plan:?}", e.weight, e.share);
            self.violate(Rule::WeightsFollowShares, Some(e.backend.0 as usize), what);
        }
    }

    fn check_members(&mut self, plan: &Plan) {
        let any_usable = self.accounts.iter().any(|a| a.is_usable());
        let mut serves = false;
        for e in &plan.entries {
            let i = e.backend.0 as usize;
            let Some(a) = self.accounts.get(i) else { continue };
            serves |= e.weight > 0 && a.is_usable();
            if a.reserved {
                let what = format!("weight {} though an administrator has it", e.weight);
                self.violate(Rule::ReservedIsLeftAlone, Some(i), what);
            } else if e.weight > 0 && a.is_to_get_nothing() && any_usable {
                let what = format!(
                    "weight {} after it failed, by the balancer: {}, by the controller: {}, set aside: {} ({})",
                    e.weight, a.balancer_down, a.out, a.aside, plan.reason
                );
                self.violate(Rule::FailedGetNothing, Some(i), what);
            }
        }
        if any_usable && !serves {
            let what = format!("only failed backends have weights: {plan:?}");
            self.violate(Rule::SomeBackendServes, None, what);
        }
        let others = self.accounts.iter().filter(|a| a.is_usable()).count();
        let holders = plan.entries.iter().filter(|e| e.weight > 0).count();
        if others >= 2 && holders < 2 {
            let what = format!("one of {others} has all the traffic ({}): {plan:?}", plan.reason);
            self.violate(Rule::SurvivesALoss, None, what);
        }
    }

    fn check_timing(&mut self, clock: Nanos, plan: &Plan) {
        let age = self.newest_at.map(|at| clock.since(at));
        if age.is_none_or(|age| age >= STALE) {
            let what = format!("the newest reading is {age:?} old ({})", plan.reason);
            self.violate(Rule::FreshData, None, what);
        }
        if plan.at != clock {
            self.violate(Rule::FreshData, None, format!("made at {:?}, now {clock:?}", plan.at));
        }
        if plan.epoch <= self.epoch {
            let what = format!("{} after {}", plan.epoch, self.epoch);
            self.violate(Rule::EpochsRise, None, what);
        }
        if let Some(o) = self.outstanding.filter(|o| clock.since(o.at) <= UNANSWERED) {
            let what = format!("plan {} while {} is not answered", plan.epoch, o.epoch);
            self.violate(Rule::OneAtATime, None, what);
        }
    }

    /// A change of the pool cannot wait; weights that the balancer lost wait as long as it needs; all else waits as long
    /// as is configured.
    fn check_pace(&mut self, clock: Nanos, plan: &Plan) {
        let Some(spec) = &self.spec else { return };
        let least = match plan.kind {
            PlanKind::Pool | PlanKind::Silence | PlanKind::Resumed | PlanKind::Leaving => return,
            PlanKind::Reasserted => spec.sink.min_interval,
            _ => spec.min_interval.max(spec.sink.min_interval),
        };
        let gap = self.changed_at.map(|at| clock.since(at));
        if let Some(gap) = gap.filter(|gap| *gap < least) {
            let what = format!("{gap:?} after the last change, limit {least:?} ({})", plan.reason);
            self.violate(Rule::Pace, None, what);
        }
    }

    /// The first plan gives those that may serve the weights in the memory. (A second one may be added to a single one.)
    fn check_resumption(&mut self, plan: &Plan) {
        if !std::mem::take(&mut self.must_resume) {
            return;
        }
        let recalled = self.recalled.take().unwrap_or_default();
        let wrong = plan.entries.iter().find_map(|e| {
            let i = e.backend.0 as usize;
            let (_, held) = recalled.iter().find(|(id, held)| *id == e.backend && *held > 0)?;
            (self.accounts[i].is_usable() && e.weight != *held).then_some((i, e.weight, *held))
        });
        if let Some((i, given, held)) = wrong {
            let what = format!("given {given}, its memory says {held} ({})", plan.reason);
            self.violate(Rule::Resumes, Some(i), what);
        }
    }

    fn note_record(&mut self, clock: Nanos, record: &Record) {
        let place = record.backend.as_ref().and_then(|b| b.strip_prefix('s')?.parse().ok());
        let Some((i, a)) = place.and_then(|i: usize| Some((i, self.accounts.get_mut(i)?))) else {
            return;
        };
        match record.kind {
            RecordKind::SetAside => a.aside = true,
            RecordKind::Restored => a.aside = false,
            RecordKind::Failed | RecordKind::Ejected => {
                (a.out, a.aside) = (true, false);
                let lately = |(world, then): (Nanos, Nanos)| {
                    self.world.since(world).min(clock.since(then)) < NEWS
                };
                let unwell = a.unwell_at.is_some_and(lately);
                let news = a.bad_news_at.is_some_and(|at| clock.since(at) < NEWS);
                if !unwell && !news {
                    let what = format!("said to have failed: {}", record.reason);
                    self.violate(Rule::HealthyNeverFail, Some(i), what);
                }
            }
            RecordKind::Returned => a.out = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_control::{BackendSpec, ServiceSpec};
    use plimsoll_model::{BackendId, PlanEntry};

    use super::super::Account;
    use super::*;

    /// The violation of a plan with these weights, with the account of the second of two backends changed by `of_it`.
    fn violated(weights: &[(u32, u32)], of_it: fn(&mut Account)) -> Option<Rule> {
        let backend = |i: u32| BackendSpec { id: BackendId(i), name: format!("s{i}") };
        let mut invariants = Invariants::new(2);
        invariants.controller_started(
            Nanos::ZERO,
            &ServiceSpec::new("sim", (0..2).map(backend).collect()),
            None,
        );
        of_it(&mut invariants.accounts[1]);
        let sum: u32 = weights.iter().map(|(_, weight)| weight).sum();
        let entry = |&(i, weight): &(u32, u32)| PlanEntry {
            backend: BackendId(i),
            share: f64::from(weight) / f64::from(sum),
            weight,
        };
        let entries = weights.iter().map(entry).collect();
        let plan = Plan {
            epoch: 1,
            at: Nanos::ZERO,
            kind: PlanKind::Packed,
            reason: String::new(),
            entries,
        };
        invariants.check_form(&plan);
        invariants.check_members(&plan);
        invariants.take_violation().map(|violation| violation.rule)
    }

    #[test]
    fn failed_backend_gets_an_entry_with_weight_0_whoever_reports_the_failure() {
        let well = |_: &mut Account| {};
        let held_down = |a: &mut Account| a.balancer_down = true;
        let out = |a: &mut Account| a.out = true;
        let aside = |a: &mut Account| a.aside = true;
        let reserved = |a: &mut Account| a.reserved = true;
        assert_eq!(violated(&[(0, 5), (1, 5)], well), None);
        assert_eq!(violated(&[(0, 5), (1, 5)], held_down), Some(Rule::FailedGetNothing));
        assert_eq!(violated(&[(0, 5), (1, 5)], out), Some(Rule::FailedGetNothing));
        assert_eq!(violated(&[(0, 5), (1, 5)], aside), Some(Rule::FailedGetNothing));
        assert_eq!(violated(&[(0, 5), (1, 0)], out), None);
        assert_eq!(violated(&[(0, 5)], out), Some(Rule::WholePlan));
        assert_eq!(violated(&[(0, 5)], well), Some(Rule::WholePlan));
        assert_eq!(violated(&[(0, 5)], reserved), None);
    }
}
