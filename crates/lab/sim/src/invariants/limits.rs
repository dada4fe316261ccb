//! Checks of the configured limits: the spread of the shares, the growth of a share per step, and the least change
//! worth a plan.

use std::time::Duration;

use plimsoll_control::Phase;
use plimsoll_model::{MethodKind, Nanos, Plan, PlanEntry};

use super::{Invariants, Rule, Seen};

/// Rounding of sums of 64-bit numbers.
const ROUNDING: f64 = 1e-6;
/// The controller sees a backend's traffic in windows of a second that are not known here: they may differ from
/// readings by this factor and this many standard deviations of a Poisson count.
const WINDOWS_DIFFER: f64 = 1.3;
const SIGMA: f64 = 4.0;
/// A backend with next to no traffic may be given this part of one core's capacity.
const FIRST_LOAD: f64 = 0.5;
/// Limits apply where the pool could carry this multiple of its traffic within them, with each backend at this part of
/// its believed capacity (known; lower bound): errors take up to 30 % of it.
const ROOM: f64 = 1.1;
const BEARABLE: (f64, f64) = (0.75, 0.66);
/// Within theta the pool must be able to carry this multiple of its traffic.
const WITHIN: f64 = 1.02;
/// A backend with an error below the first may be given all of its capacity; another one may grow by at least the
/// second.
const KNOWN: f64 = 0.15;
const LEAST_STEP: f64 = 1.0;
/// A backend with more than `a·cores + b` in flight may count as overloaded.
const OVERRUN: (f64, f64) = (3.0, 5.0);
/// The least change is judged by shares, which weights equal up to rounding.
const ROUNDED: f64 = 0.004;
/// Time within which the loads of a measurement are removed.
pub(super) const PUT_BACK_WITHIN: Duration = Duration::from_secs(75);

impl Invariants {
    /// Checks a regular plan against the configured limits. They do not apply to plans for a changed pool or to
    /// restored weights.
    pub(super) fn check_limits(&mut self, plan: &Plan, seen: &Seen<'_>) {
        self.check_changes_something(plan);
        let Some(spec) = self.spec.clone() else { return };
        let phase = seen.controller.phase();
        // Regular decisions, in the phase that they were made in.
        let on_trial = seen.controller.under_way() == Some((plan.epoch, true));
        let ordinary = on_trial && self.phase == Some(phase);
        let packed = ordinary && phase == Phase::Steady;
        let learning = ordinary && phase == Phase::Exploring;
        let ramps = |since: Option<Nanos>| {
            since.is_some_and(|at| seen.clock.since(at) <= spec.slow_start + Duration::from_secs(1))
        };
        let is_ramping = self.accounts.iter().any(|a| ramps(a.ramps_since));
        // Under an in-flight method shares come from a simulation, or from weights: they cannot be compared.
        if is_ramping || self.kind != MethodKind::Split || self.method_changed {
            return;
        }
        if packed {
            self.check_worth(plan, spec.min_change);
        }
        if self.is_measured_lately(seen) {
            return;
        }
        if let Some(theta) = spec.theta.filter(|_| packed) {
            self.check_theta(plan, seen, theta);
        }
        if learning {
            self.check_step(plan, seen, spec.max_step);
        }
    }

    /// A backend is being measured, or was, and the load may still be there.
    pub(super) fn is_measured_lately(&self, seen: &Seen<'_>) -> bool {
        seen.beliefs.iter().any(|b| b.is_measured)
            || self.measured_at.is_some_and(|at| self.world.since(at) < PUT_BACK_WITHIN)
    }

    pub(super) fn check_changes_something(&mut self, plan: &Plan) {
        let same = plan.entries.iter().all(|e| {
            let account = self.accounts.get(e.backend.0 as usize);
            account.is_some_and(|a| a.believed == Some(e.weight))
        });
        if same {
            let what = format!("every weight is held already: {plan:?}");
            self.violate(Rule::WorthIt, None, what);
        }
    }

    /// By the shares since the last plan or by the shares that the weights give, whichever is more. The controller may
    /// have made other decisions since that gave the same weights; and weights differ from shares where that is better.
    fn check_worth(&mut self, plan: &Plan, min_change: f64) {
        let by_weights = self.moved_by_weights(plan).unwrap_or(f64::INFINITY);
        let by_shares = self.moved_by_shares(plan).unwrap_or(f64::INFINITY);
        if by_weights.max(by_shares) < min_change - ROUNDED {
            let what = format!(
                "moves {by_shares:.4} of the traffic, {by_weights:.4} by weights: less than \
                 {min_change} is not worth it ({})",
                plan.reason
            );
            self.violate(Rule::WorthIt, None, what);
        }
    }

    fn moved_by_weights(&self, plan: &Plan) -> Option<f64> {
        let held =
            |e: &PlanEntry| self.accounts[e.backend.0 as usize].believed.map_or(0.0, f64::from);
        let before: f64 = plan.entries.iter().map(held).sum();
        let after: f64 = plan.entries.iter().map(|e| f64::from(e.weight)).sum();
        let change = |e: &PlanEntry| (f64::from(e.weight) / after - held(e) / before).abs();
        (before > 0.0 && after > 0.0).then(|| 0.5 * plan.entries.iter().map(change).sum::<f64>())
    }

    fn moved_by_shares(&self, plan: &Plan) -> Option<f64> {
        let last = self.last_shares.as_ref()?;
        let had = |id| last.iter().find(|(b, _)| *b == id).map_or(0.0, |(_, share)| *share);
        Some(0.5 * plan.entries.iter().map(|e| (e.share - had(e.backend)).abs()).sum::<f64>())
    }

    /// A backend's traffic by the last readings, requests per second: the least between two readings, the mean, and the
    /// greatest between two. (Weights may have changed in between.)
    fn traffic_seen(&self, i: usize) -> Option<(f64, f64, f64)> {
        let readings = &self.accounts[i].readings;
        let rate = |from: &(Nanos, u64), to: &(Nanos, u64)| {
            to.1.saturating_sub(from.1) as f64 / to.0.since(from.0).as_secs_f64().max(0.1)
        };
        let pairs = readings.iter().zip(readings.iter().skip(1));
        let (least, most) = pairs
            .map(|(from, to)| rate(from, to))
            .fold((f64::INFINITY, 0.0f64), |(least, most), rate| (least.min(rate), most.max(rate)));
        (readings.len() > 2)
            .then(|| (least, rate(&readings[0], &readings[readings.len() - 1]), most))
    }

    /// A lower bound of the load that each backend could be given, if a share grows by at most this factor unless its
    /// capacity is known and `freely` is set.
    fn bearable(&self, plan: &Plan, seen: &Seen<'_>, step: f64, freely: bool) -> Option<Vec<f64>> {
        plan.entries
            .iter()
            .filter(|e| self.accounts[e.backend.0 as usize].is_usable())
            .map(|e| {
                let belief = seen.beliefs.iter().find(|b| b.backend == e.backend)?;
                // Loads are packed by curves, and the end of a curve that was rescaled repeatedly differs from the
                // estimate.
                let capacity = belief.capacity_rps?.min(belief.curve_rps.unwrap_or(f64::INFINITY));
                if freely && !belief.is_lower_bound && belief.capacity_error < KNOWN {
                    return Some(BEARABLE.0 * capacity);
                }
                // The controller grows shares from its last window: in steady state that may be the least of them.
                let (least, mean, _) = self.traffic_seen(e.backend.0 as usize)?;
                let has = if freely { least } else { mean };
                Some((step * has).min(BEARABLE.1 * capacity))
            })
            .collect()
    }

    /// A backend may count as overloaded: then shares are bounded by their growth, and queues are drained.
    fn is_distressed(&self, seen: &Seen<'_>) -> bool {
        seen.beliefs.iter().any(|b| {
            let cores = b.capacity_rps.zip(b.service_us).map_or(1.0, |(rps, us)| rps * us / 1e6);
            let in_flight = self.accounts[b.backend.0 as usize].in_flight;
            f64::from(in_flight) > OVERRUN.0 * cores + OVERRUN.1
        })
    }

    fn check_theta(&mut self, plan: &Plan, seen: &Seen<'_>, theta: f64) {
        let rate = seen.controller.view(seen.clock).plan.rate_rps;
        let Some(bearable) = self.bearable(plan, seen, LEAST_STEP, true) else { return };
        // The bound is widened where the traffic cannot be carried within it, and no further.
        let least = bearable.iter().copied().fold(f64::INFINITY, f64::min);
        let is_enough = |theta: f64| {
            bearable.iter().map(|most| most.min(least + theta * rate)).sum::<f64>() > WITHIN * rate
        };
        let steps = (0..=100).map(|step| f64::from(step) / 100.0);
        let Some(needed) = steps.into_iter().find(|theta| is_enough(*theta)) else { return };
        let theta = theta.max(needed);
        if self.is_distressed(seen) {
            return;
        }
        let shares = || {
            let serves =
                |e: &&plimsoll_model::PlanEntry| self.accounts[e.backend.0 as usize].is_usable();
            plan.entries.iter().filter(serves).map(|e| e.share)
        };
        let spread = shares().fold(0.0, f64::max) - shares().fold(1.0, f64::min);
        if spread > theta + ROUNDING {
            let what = format!("shares spread by {spread:.3}, {theta:.3} is the bound: {plan:?}");
            self.violate(Rule::Theta, None, what);
        }
    }

    fn check_step(&mut self, plan: &Plan, seen: &Seen<'_>, max_step: f64) {
        let rate = seen.controller.view(seen.clock).plan.rate_rps;
        let Some(bearable) = self.bearable(plan, seen, max_step, false) else { return };
        // Where limits leave the pool too small for its traffic, some share has to grow faster.
        if bearable.iter().sum::<f64>() < ROOM * rate {
            return;
        }
        let quickest =
            seen.beliefs.iter().filter_map(|b| b.service_us).fold(f64::INFINITY, f64::min);
        let first_load = FIRST_LOAD * 1e6 / quickest;
        let leap = plan.entries.iter().find_map(|e| {
            let i = e.backend.0 as usize;
            let (.., most) = self.traffic_seen(i)?;
            let most = most.max(self.accounts[i].granted_share * rate);
            let bound = max_step * WINDOWS_DIFFER * (most + SIGMA * most.sqrt());
            let load = e.share * rate;
            (load > bound && load > first_load * WINDOWS_DIFFER).then_some((i, load, most))
        });
        if let Some((i, load, most)) = leap {
            let what = format!(
                "given {load:.1} req/s after {most:.1}, {max_step} times is the bound: {plan:?}"
            );
            self.violate(Rule::MaxStep, Some(i), what);
        }
    }
}
