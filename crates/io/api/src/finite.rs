//! Views whose numbers JSON can hold.

use plimsoll_control::{CurveView, PlanView, ServiceView};

/// The view with finite numbers only: JSON has no others, and one `null` too many would hide the
/// whole view from a reader. Optional ones are dropped, points left out, the others bounded.
pub fn finite(mut view: ServiceView) -> ServiceView {
    bound(&mut view.rate_rps);
    keep(&mut view.latency_ms);
    keep(&mut view.drain_s);
    for backend in &mut view.backends {
        bound(&mut backend.share);
        keep(&mut backend.latency_ms);
        keep(&mut backend.expected_ms);
        keep(&mut backend.asked_part);
    }
    finite_plan(&mut view.plan);
    view.curves.iter_mut().for_each(finite_curve);
    view
}

fn finite_plan(plan: &mut PlanView) {
    bound(&mut plan.rate_rps);
    bound(&mut plan.capacity_rps);
    for number in [&mut plan.expected_ms, &mut plan.bound_ms, &mut plan.gap] {
        keep(number);
    }
    let all_finite = |a: &plimsoll_control::Advice| {
        [a.expected_ms, a.present_ms, a.gain].iter().all(|x| x.is_finite())
    };
    plan.advice = plan.advice.take().filter(all_finite);
}

fn finite_curve(curve: &mut CurveView) {
    let CurveView { l0_ms, capacity_rps, cores, capacity_error, .. } = curve;
    for number in [l0_ms, capacity_rps, cores, capacity_error] {
        bound(number);
    }
    keep(&mut curve.cv_error);
    curve.hyperbola = curve.hyperbola.filter(|h| [h.a, h.b, h.c].iter().all(|x| x.is_finite()));
    curve.points.retain(|(rate, ms, n)| [rate, ms, n].iter().all(|x| x.is_finite()));
    curve.line.retain(|(rate, ms)| rate.is_finite() && ms.is_finite());
}

fn bound(number: &mut f64) {
    *number = if number.is_nan() { 0.0 } else { number.clamp(f64::MIN, f64::MAX) };
}

fn keep(number: &mut Option<f64>) {
    *number = number.filter(|x| x.is_finite());
}
