//! Checks of slow start.

use std::time::Duration;

use plimsoll_control::Belief;
use plimsoll_model::{MethodKind, Nanos, Plan, PlanEntry};

use super::{Account, Invariants, Rule, Seen};

/// For this long after a return slow start is at its beginning: 10 % and less than as much again.
const FOOT_OF_THE_RAMP: Duration = Duration::from_secs(1);
/// Where slow start begins; a capacity with a large error may be overestimated by this factor.
const RAMP_START: f64 = 0.1;
const UNSURE: f64 = 3.2;
/// Weights are relative to one another: slow start can be judged where the controller knows every capacity within this
/// factor …
const KNOWN_WITHIN: f64 = 1.7;
/// … and with an error below this.
const SURE: f64 = 0.5;
/// The others can carry this multiple of the traffic: then the returned backend is not needed.
const OTHERS_SUFFICE: f64 = 1.5;

/// Later in slow start a backend gets at most its part of its believed capacity times this, because the model is
/// updated between two decisions …
const ALONG: f64 = 1.1;
/// … (under a split, weights deviate from shares by this) …
const ROUNDING: f64 = 0.02;
/// … where its capacity was observed and has an error below this,
const KNOWN: f64 = 0.15;
/// and the others, each at this part of its believed capacity, can carry this multiple of the traffic.
const BEARABLE: f64 = 0.66;
const ROOM: f64 = 1.1;

/// Whether the controller knows every capacity within [`KNOWN_WITHIN`] and with an error below [`SURE`].
fn is_known(seen: &Seen<'_>, kind: MethodKind) -> bool {
    seen.beliefs.iter().all(|b| {
        let is_asked_for_more = kind == MethodKind::InFlight && b.is_lower_bound;
        let right = b.capacity_rps.is_some_and(|rps| {
            let ratio = rps / seen.pool_model.capacity_rps(b.backend.0 as usize);
            (1.0 / KNOWN_WITHIN..KNOWN_WITHIN).contains(&ratio)
        });
        right && b.capacity_error < SURE && !is_asked_for_more
    })
}

impl Invariants {
    /// A returned backend begins with a small part of its share.
    pub(super) fn check_ramp(&mut self, plan: &Plan, seen: &Seen<'_>) {
        let Seen { clock, pool_model, .. } = *seen;
        let ramp = self.spec.as_ref().map_or(Duration::ZERO, |spec| spec.slow_start);
        let foot = RAMP_START + (1.0 - RAMP_START) / ramp.as_secs_f64().max(1.0);
        let most_at_foot = UNSURE * foot;
        let back = |a: &Account| a.returned_at.is_some_and(|at| clock.since(at) < ramp);
        if most_at_foot >= 1.0 || !self.accounts.iter().any(|a| a.is_usable() && back(a)) {
            return;
        }
        // Backends that the controller has not returned yet cannot take load.
        let usable = || self.accounts.iter().enumerate().filter(|(_, a)| a.is_usable());
        let all: f64 = usable().map(|(j, _)| pool_model.capacity_rps(j)).sum();
        let settled = |back: Option<Nanos>| back.is_none_or(|at| clock.since(at) > ramp);
        let others = || {
            usable()
                .filter(|(_, a)| settled(a.ramps_since))
                .map(|(j, _)| (j, pool_model.capacity_rps(j)))
        };
        let capacity_rps: f64 = others().map(|(_, rps)| rps).sum();
        // Where returned backends are needed, or all have returned, slow start gives way to the traffic.
        if capacity_rps <= OTHERS_SUFFICE * pool_model.rate_rps() {
            return;
        }
        // Under a split the weight gives a part of the whole. Under an in-flight method weights give the part of the
        // capacity in use, so they are compared with backends that are past slow start: a tenth of each is much of the
        // whole where others ramp too.
        let weight = |j: usize| {
            plan.entries
                .iter()
                .find(|e| e.backend.0 as usize == j)
                .map_or(0.0, |e| f64::from(e.weight))
        };
        let beside = || others().filter(|(j, _)| weight(*j) > 0.0);
        let counts = self.kind == MethodKind::InFlight && beside().next().is_some();
        let (sum, all) = if counts {
            beside().fold((0.0, 0.0), |(sum, all), (j, rps)| (sum + weight(j), all + rps))
        } else {
            (plan.entries.iter().map(|e| f64::from(e.weight)).sum(), all)
        };
        let rate = seen.controller.view(clock).plan.rate_rps.max(pool_model.rate_rps());
        let steep = plan.entries.iter().filter(|e| e.weight > 1).find_map(|e| {
            let i = e.backend.0 as usize;
            let back = self.accounts[i].returned_at?;
            // Small weights, which a round robin follows sooner, are rounded up by as much as one.
            let part = f64::from(e.weight - 1) / sum;
            let fair = pool_model.capacity_rps(i) / all;
            let at_foot = clock.since(back) < FOOT_OF_THE_RAMP;
            // A split gives that part of the capacity, which is a larger part of the traffic where there is little.
            let is_light = self.kind == MethodKind::Split
                && part * rate <= foot * KNOWN_WITHIN * pool_model.capacity_rps(i);
            (at_foot && part > most_at_foot * fair && !is_light).then_some((i, part, fair))
        });
        if let Some((i, part, fair)) = steep.filter(|_| is_known(seen, self.kind)) {
            let what = format!(
                "back for less than a second and given {part:.3}, fair is {fair:.3}: {plan:?}"
            );
            self.violate(Rule::Ramp, Some(i), what);
        }
    }

    /// Later in slow start it gets at most the same part of its believed capacity.
    pub(super) fn check_along_ramp(&mut self, plan: &Plan, seen: &Seen<'_>) {
        let Some(spec) = &self.spec else { return };
        let (slow_start, max_step) = (spec.slow_start, spec.max_step);
        let climbs = |a: &Account| {
            a.is_usable() && a.returned_at.is_some_and(|at| seen.clock.since(at) < slow_start)
        };
        // Restored weights may be as old as the decision that they repeat.
        let repeats = self.reason_to_reassert || self.foreign || self.method_changed;
        if repeats || self.is_measured_lately(seen) || !self.accounts.iter().any(climbs) {
            return;
        }
        let packing = seen.controller.view(seen.clock).plan;
        let rate = packing.rate_rps.max(seen.pool_model.rate_rps());
        let believed = |e: &PlanEntry| -> Option<&Belief> {
            seen.beliefs.iter().find(|b| b.backend == e.backend)
        };
        let capacity = |e: &PlanEntry| believed(e).and_then(|b| b.capacity_rps);
        let is_settled = |e: &&PlanEntry| {
            let a = &self.accounts[e.backend.0 as usize];
            let ramps = a.ramps_since.is_some_and(|at| seen.clock.since(at) <= slow_start);
            a.is_usable() && !ramps
        };
        let settled = || plan.entries.iter().filter(is_settled);
        let had = |e: &PlanEntry| {
            let last = self.last_shares.iter().flatten().find(|(id, _)| *id == e.backend);
            last.map_or(0.0, |(_, share)| share * packing.rate_rps)
        };
        let carry: f64 =
            settled().map(|e| (BEARABLE * capacity(e).unwrap_or(0.0)).min(max_step * had(e))).sum();
        // Weights that are kept unchanged come from no packing.
        if packing.capacity_rps <= 0.0 || carry < ROOM * rate {
            return;
        }
        let counts = self.kind == MethodKind::InFlight;
        let (sum, all) = if counts {
            let beside = || settled().filter(|e| e.weight > 0);
            if beside().any(|e| capacity(e).is_none()) {
                return;
            }
            let sum: f64 = beside().map(|e| f64::from(e.weight)).sum();
            (sum, beside().filter_map(capacity).sum())
        } else {
            (plan.entries.iter().map(|e| f64::from(e.weight)).sum(), packing.rate_rps)
        };
        let steep = plan.entries.iter().filter(|e| e.weight > 1).find_map(|e| {
            let a = &self.accounts[e.backend.0 as usize];
            let back = a.returned_at.filter(|_| climbs(a))?;
            let b = believed(e).filter(|b| !b.is_lower_bound && b.capacity_error < KNOWN)?;
            let passed = seen.clock.since(back).as_secs_f64() / slow_start.as_secs_f64();
            let ramp = RAMP_START + (1.0 - RAMP_START) * passed;
            let rounding = if counts { 0.0 } else { ROUNDING };
            let bound = ALONG * ramp * b.capacity_rps? / all + rounding;
            let part = f64::from(e.weight - 1) / sum;
            (part > bound).then_some((e.backend.0 as usize, part, bound, passed))
        });
        if let Some((i, part, bound, passed)) = steep {
            let what = format!(
                "{:.0} % of its ramp and given {part:.3} of {bound:.3}: {plan:?}",
                passed * 100.0
            );
            self.violate(Rule::Ramp, Some(i), what);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_control::{BackendSpec, Controller, ServiceSpec};
    use plimsoll_model::{BackendId, PlanEntry};

    use super::*;
    use crate::pool::{BackendModel, Method};
    use crate::pool_model::PoolModel;
    use crate::sample::SampledPool;

    /// Whether a plan with these weights is too steep for the second backend, which has just returned, as the third
    /// has. The first is past slow start. A core has a capacity of 100 requests per second.
    fn is_steep(kind: MethodKind, cores: [u32; 3], rate_rps: f64, weights: [u32; 3]) -> bool {
        let clock = Nanos(100_000_000_000);
        let model = |cores| BackendModel { cores, speed: 1.0 };
        let pool = cores.map(model);
        let mut pool_model = SampledPool::new(&pool, 10_000.0, Method::LeastConn, 1);
        pool_model.set_rate(rate_rps);
        let backend = |i: u32| BackendSpec { id: BackendId(i), name: format!("s{i}") };
        let mut invariants = Invariants::new(pool.len());
        let spec = ServiceSpec::new("sim", (0..3).map(backend).collect());
        invariants.controller_started(clock, &spec, None);
        invariants.kind = kind;
        for a in &mut invariants.accounts[1..] {
            (a.returned_at, a.ramps_since) = (Some(clock), Some(clock));
        }
        let sum: u32 = weights.iter().sum();
        let entry = |(i, weight)| PlanEntry {
            backend: BackendId(i),
            share: f64::from(weight) / f64::from(sum),
            weight,
        };
        let entries = (0..3).zip(weights).map(entry).collect();
        let plan = Plan {
            epoch: 1,
            at: clock,
            kind: plimsoll_model::PlanKind::Packed,
            reason: String::new(),
            entries,
        };
        let controller = Controller::new(spec, None, clock, 1);
        let seen = Seen { clock, pool_model: &pool_model, controller: &controller, beliefs: &[] };
        invariants.check_ramp(&plan, &seen);
        invariants.take_violation().is_some()
    }

    #[test]
    fn slow_start_is_judged_by_share_under_a_split_and_by_weight_under_an_in_flight_method() {
        let counts = |weights| is_steep(MethodKind::InFlight, [1, 8, 8], 60.0, weights);
        assert!(!counts([100, 80, 80]), "a tenth of its capacity each");
        assert!(counts([100, 800, 80]), "as if past slow start");
        assert!(counts([0, 80, 80]), "no settled backend is beside them");
        let split = |rate_rps, weights| is_steep(MethodKind::Split, [8, 1, 1], rate_rps, weights);
        assert!(split(400.0, [80, 10, 10]), "as if past slow start");
        assert!(!split(400.0, [100, 2, 2]));
        assert!(!split(150.0, [80, 10, 10]), "a seventh of its capacity, for little traffic");
    }
}
