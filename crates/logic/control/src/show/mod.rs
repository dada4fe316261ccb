//! The controller's state, as an operator sees it.

pub(crate) mod advice;
pub(crate) mod view;

use plimsoll_model::{Curve, MethodKind, Nanos};

use crate::backend::Backend;
use crate::controller::Controller;
use crate::propose::backlog::Corrected;
use crate::show::view::{BackendState, BackendView, CurveView, Phase, PlanView, ServiceView};
use crate::tuning::show::view::{DRAWN, MOST};

/// The whole state for display.
pub(crate) fn service_view(c: &Controller, now: Nanos) -> ServiceView {
    let rate: f64 = c.backends.iter().map(|b| b.recent.rate_rps).sum();
    let method = c.balancer.method();
    let checks = c.spec.checks.requests;
    let shown = |b| BackendView {
        state: state_of(b, c.phase.is_packed(), now),
        ..backend_view(b, now, rate, checks)
    };
    ServiceView {
        service: c.spec.name.clone(),
        method: method.map_or(MethodKind::Split, |m| m.kind),
        method_name: method.map_or_else(String::new, |m| m.name.clone()),
        phase: phase_of(c, now),
        epoch: c.commitment.epoch(),
        rate_rps: c.traffic.rate(),
        // Readings that never met a request in flight show no time.
        latency_ms: c.traffic.history().mean_us().filter(|us| *us > 0.0).map(|us| us / 1e3),
        drain_s: c.experiments.longest_drain().map(|took| took.as_secs_f64()),
        trouble: c.balancer.trouble().cloned(),
        backends: c.backends.iter().map(shown).collect(),
        plan: plan_view(c),
        curves: c.backends.iter().filter_map(curve_view).collect(),
    }
}

/// A phase that agrees with the backends' states: a pool in which no backend serves is short of capacity, and a
/// pool is not steady while most of its traffic goes to backends that are being learned or join.
fn phase_of(c: &Controller, now: Nanos) -> Phase {
    let serving = || c.backends.iter().filter(|b| b.is_usable() && !b.aside);
    let is_deserted = serving().all(|b| b.programmed.unwrap_or(b.wanted.weight) == 0);
    let unsettled = |b: &&Backend| {
        let state = state_of(b, c.phase.is_packed(), now);
        matches!(state, BackendState::Exploring | BackendState::Joining)
    };
    let share = |b: &Backend| b.wanted.share;
    match c.phase.get() {
        Phase::Observing => Phase::Observing,
        _ if is_deserted && c.balancer.seen_at().is_some() => Phase::ShortOfCapacity,
        Phase::Steady
            if serving().filter(unsettled).map(share).sum::<f64>()
                > MOST * serving().map(share).sum::<f64>() =>
        {
            Phase::Exploring
        }
        phase => phase,
    }
}

/// In a packed pool weights no longer move in order to learn, except for backends that are being measured: the
/// others are known well enough for their load.
fn state_of(b: &Backend, is_packed: bool, now: Nanos) -> BackendState {
    match b.state(now) {
        BackendState::Exploring
            if is_packed && b.pin.is_none() && b.knowledge.capacity_rps().is_some() =>
        {
            BackendState::Ready
        }
        state => state,
    }
}

fn plan_view(c: &Controller) -> PlanView {
    // Where nothing is known of a backend that gets traffic, what the plan expects is a guess.
    let is_guess = |b: &Backend| b.wanted.share > 0.0 && b.knowledge.service_us().is_none();
    let d = c.commitment.decision().filter(|_| !c.backends.iter().any(is_guess));
    let expected = d.and_then(|d| d.expected_us);
    let bound = d.and_then(|d| d.bound_us);
    PlanView {
        epoch: c.commitment.epoch(),
        reason: c.commitment.reason().to_owned(),
        objective: c.spec.objective,
        expected_ms: expected.map(|us| us / 1e3),
        bound_ms: bound.map(|us| us / 1e3),
        gap: expected.zip(bound).map(|(e, b)| ((e - b) / e).max(0.0)),
        proven: d.is_some_and(|d| d.proven),
        rate_rps: c.commitment.decision().map_or(0.0, |d| d.rate_rps),
        capacity_rps: d.map_or(0.0, |d| d.capacity_rps),
        probed: c.spec.probe.is_some(),
        told_by: None,
        advice: c.advisor.advice().cloned(),
        several_cost: c.advisor.several_cost().map(|cost| cost.whole),
        subsets_cost: c.advisor.several_cost().map(|cost| cost.subsets),
    }
}

fn backend_view(b: &Backend, now: Nanos, total_rps: f64, checks: u32) -> BackendView {
    let is_in_force = |c: &Corrected| b.programmed == Some(c.held) && c.planned == b.wanted.weight;
    let corrected = b.corrected.filter(is_in_force);
    BackendView {
        backend: b.name.clone(),
        weight: corrected.map_or(b.wanted.weight, |c| c.held),
        share: if total_rps > 0.0 { b.recent.rate_rps / total_rps } else { b.wanted.share },
        programmed: b.programmed,
        state: b.state(now),
        latency_ms: b.recent.latency_us.filter(|us| *us > 0.0).map(|us| us / 1e3),
        expected_ms: b
            .wanted
            .expected_us
            .filter(|_| b.knowledge.service_us().is_some())
            .map(|us| us / 1e3),
        asked_rps: b.asked_rps(checks),
        asked_part: b.asked_part(checks),
        error_share: b.health.error_share(),
        check_interval_s: b.checked.map(|interval| interval.as_secs_f64()),
        cause: b.health.cause().map(|cause| cause.describe()),
        reason: match corrected {
            Some(c) if c.held != c.planned => {
                format!("{}; {} by plan, corrected for the backlogs", b.wanted.reason, c.planned)
            }
            _ => b.wanted.reason.clone(),
        },
    }
}

fn curve_view(b: &Backend) -> Option<CurveView> {
    let k = &b.knowledge;
    let shape = k.shape()?;
    let capacity = shape.capacity();
    let mut line = Vec::with_capacity(DRAWN);
    line.extend(
        (0..DRAWN)
            .map(|i| 0.98 * capacity * i as f64 / (DRAWN - 1) as f64)
            .map(|x| (x, shape.latency_at(x) / 1e3))
            .filter(|(_, ms)| ms.is_finite()),
    );
    Some(CurveView {
        backend: b.name.clone(),
        family: shape.family().to_owned(),
        l0_ms: shape.latency_at(0.0) / 1e3,
        capacity_rps: capacity,
        capacity_is_lower_bound: k.is_lower_bound(),
        cores: k.cores(),
        capacity_error: k.error(),
        cv_error: k.cv_error(),
        hyperbola: shape.as_hyperbola(),
        points: k.points().iter().map(|p| (p.load, p.latency_us / 1e3, p.requests)).collect(),
        line,
    })
}

#[cfg(test)]
mod tests {
    use plimsoll_model::BackendId;

    use super::*;
    use crate::belief::knowledge::Knowledge;
    use crate::gate::trial::PoolWindow;
    use crate::spec::{BackendSpec, ServiceSpec};

    /// Three equal backends.
    fn controller() -> Controller {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        controller.balancer.note_seen(Nanos::ZERO);
        for b in &mut controller.backends {
            (b.programmed, b.wanted.weight, b.wanted.share) = (Some(10), 10, 1.0 / 3.0);
        }
        controller
    }

    fn shown(controller: &Controller) -> (Phase, Vec<BackendState>) {
        let view = controller.view(Nanos::ZERO);
        (view.phase, view.backends.iter().map(|b| b.state).collect())
    }

    #[test]
    fn phase_and_states_do_not_contradict_each_other() {
        use BackendState::{Exploring, Failed, Joining, Ready};
        let mut controller = controller();
        assert_eq!(shown(&controller), (Phase::Exploring, vec![Exploring; 3]));
        controller.phase.recall(Phase::Steady);
        assert_eq!(shown(&controller), (Phase::Exploring, vec![Exploring; 3]), "nothing is known");
        for b in &mut controller.backends {
            // A lower bound, which is all that little load can show.
            (0..10).for_each(|_| b.knowledge.observe_unloaded(1e4));
            assert!(!b.knowledge.is_known());
        }
        assert_eq!(shown(&controller), (Phase::Steady, vec![Ready; 3]));
        controller.phase.recall(Phase::Exploring);
        assert_eq!(shown(&controller), (Phase::Exploring, vec![Exploring; 3]));
        controller.phase.recall(Phase::Steady);
        controller.backends[0].begin_ramp(Nanos::ZERO);
        assert_eq!(shown(&controller), (Phase::Steady, vec![Joining, Ready, Ready]));
        controller.backends[1].begin_ramp(Nanos::ZERO);
        assert_eq!(shown(&controller), (Phase::Exploring, vec![Joining, Joining, Ready]));
        for b in &mut controller.backends {
            b.knowledge = Knowledge::known(1e4);
            b.health.balancer(Nanos::ZERO, true);
        }
        assert_eq!(
            shown(&controller),
            (Phase::ShortOfCapacity, vec![Failed; 3]),
            "no backend serves"
        );
    }

    #[test]
    fn nothing_is_expected_of_backends_that_nothing_is_known_of() {
        let mut controller = controller();
        let decision = crate::commit::plan::Decision {
            expected_us: Some(1e6),
            capacity_rps: 30.0,
            proven: true,
            rate_rps: 20.0,
            ..Default::default()
        };
        controller.commitment.adopt(decision, None);
        let plan = controller.view(Nanos::ZERO).plan;
        assert_eq!((plan.expected_ms, plan.capacity_rps, plan.proven), (None, 0.0, false));
        assert_eq!(plan.rate_rps, 20.0);
        controller.backends.iter_mut().for_each(|b| b.knowledge = Knowledge::known(1e4));
        let plan = controller.view(Nanos::ZERO).plan;
        assert_eq!((plan.expected_ms, plan.capacity_rps, plan.proven), (Some(1e3), 30.0, true));
    }

    #[test]
    fn latency_is_unknown_while_no_reading_met_a_request() {
        let mut controller = controller();
        let window = |request_seconds| PoolWindow {
            at: Nanos(1),
            seconds: 1.0,
            started: 50.0,
            request_seconds,
        };
        controller.traffic.push(window(0.0));
        assert_eq!(controller.view(Nanos(1)).latency_ms, None);
        controller.traffic.push(window(1.0));
        assert_eq!(controller.view(Nanos(1)).latency_ms, Some(10.0));
    }
}
