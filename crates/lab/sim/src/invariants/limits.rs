//! What an administrator has set bounds for: the spread of the shares, how far a share grows at a step,
//! and what is worth a change at all.

use std::time::Duration;

use plimsoll_control::Phase;
use plimsoll_model::{MethodKind, Nanos, Plan, PlanEntry};

use super::{Invariants, Rule, Seen};

/// Rounding of sums of 64-bit numbers.
const ROUNDING: f64 = 1e-6;
/// What the controller sees of a backend's traffic is a window of a second that this account does not
/// have: so much may lie between the two, and so many standard deviations of a Poisson count.
const WINDOWS_DIFFER: f64 = 1.3;
const SIGMA: f64 = 4.0;
/// Who has next to nothing may be given this part of what a core does.
const FIRST_LOAD: f64 = 0.5;
/// Bounds are demanded where the pool could carry this much more than its traffic within them, each at
/// this part of what it is believed to bear, known and not: doubts take up to 30 % of it.
const ROOM: f64 = 1.1;
const BEARABLE: (f64, f64) = (0.75, 0.66);
/// Within theta the pool is to carry this multiple of its traffic.
const WITHIN: f64 = 1.02;
/// Who is known as well as that may be given all that it bears; another grows by this at the
/// least.
const KNOWN: f64 = 0.15;
const LEAST_STEP: f64 = 1.0;
/// In flight beyond `a·cores + b` a backend may count as overrun.
const OVERRUN: (f64, f64) = (3.0, 5.0);
/// What is worth a change is judged by shares, and weights are these but for their rounding.
const ROUNDED: f64 = 0.004;
/// What was measured on purpose is put back within this.
pub(super) const PUT_BACK_WITHIN: Duration = Duration::from_secs(75);

impl Invariants {
    /// Compares a plan of the ordinary round with what was set. Plans for a pool that has changed or was
    /// put right have other worries.
    pub(super) fn check_limits(&mut self, plan: &Plan, seen: &Seen<'_>) {
        self.check_changes_something(plan);
        let Some(spec) = self.spec.clone() else { return };
        let phase = seen.controller.phase();
        // What the ordinary round has found, in the phase that it was found for.
        let on_trial = seen.controller.under_way() == Some((plan.epoch, true));
        let ordinary = on_trial && self.phase == Some(phase);
        let packed = ordinary && phase == Phase::Steady;
        let learning = ordinary && phase == Phase::Exploring;
        let ramps = |since: Option<Nanos>| {
            since.is_some_and(|at| seen.clock.since(at) <= spec.slow_start + Duration::from_secs(1))
        };
        let is_ramping = self.accounts.iter().any(|a| ramps(a.ramps_since));
        // Where the balancer counts, shares come from a simulation, or from weights: not to be compared.
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

    /// Somebody is given a load on purpose, or was, and it may not be taken back yet.
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

    /// By the shares of the last plan or by what the weights make of the traffic, whichever says more. The
    /// controller may have decided for others since that came to the same weights; and weights stray from
    /// shares where that is better.
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

    /// What the last readings say of somebody's traffic, requests per second: from one to the next at the
    /// least, on average, and from one to the next at the most. (Weights may have changed between two.)
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

    /// How much everybody could be given at the least, where a share grows by this factor at the most
    /// unless its backend is known and `grown_freely`.
    fn bearable(&self, plan: &Plan, seen: &Seen<'_>, step: f64, freely: bool) -> Option<Vec<f64>> {
        plan.entries
            .iter()
            .filter(|e| self.accounts[e.backend.0 as usize].is_usable())
            .map(|e| {
                let belief = seen.beliefs.iter().find(|b| b.backend == e.backend)?;
                // Loads are packed by curves, and rescaled again and again one ends elsewhere than the estimate.
                let capacity = belief.capacity_rps?.min(belief.curve_rps.unwrap_or(f64::INFINITY));
                if freely && !belief.is_lower_bound && belief.capacity_error < KNOWN {
                    return Some(BEARABLE.0 * capacity);
                }
                // The controller grows shares from its last window: steady, it may be the least of them.
                let (least, mean, _) = self.traffic_seen(e.backend.0 as usize)?;
                let has = if freely { least } else { mean };
                Some((step * has).min(BEARABLE.1 * capacity))
            })
            .collect()
    }

    /// Somebody may count as overrun: then shares are bounded by their growth, and queues worked off.
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
        // The bound gives way where the traffic cannot be carried within it, and no further.
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
        // Where bounds leave the pool too small for its traffic, somebody has to grow faster.
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
