//! Checks of the view: numbers are finite and within their range.

use plimsoll_control::{BackendView, CurveView, PlanView, ServiceView};
use plimsoll_model::GREATEST_WEIGHT;

use super::{Invariants, Rule};

/// Rounding of sums of 64-bit numbers.
const ROUNDING: f64 = 1e-9;

fn is_size(x: f64) -> bool {
    x.is_finite() && x >= 0.0
}

fn is_size_if_any(x: Option<f64>) -> bool {
    x.is_none_or(is_size)
}

fn is_part(x: f64) -> bool {
    (0.0..=1.0 + ROUNDING).contains(&x)
}

fn is_sane_backend(b: &BackendView) -> bool {
    let times = is_size_if_any(b.latency_ms) && is_size_if_any(b.expected_ms);
    times && is_part(b.share) && b.weight <= GREATEST_WEIGHT
}

fn is_sane_curve(c: &CurveView) -> bool {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    let drawn = c.line.iter().all(|&(rps, ms)| is_size(rps) && is_size(ms));
    let seen = c.points.iter().all(|&(rps, ms, n)| is_size(rps) && is_size(ms) && is_size(n));
    let errors = is_size(c.capacity_error) && is_size_if_any(c.cv_error);
    positive(c.capacity_rps) && positive(c.l0_ms) && positive(c.cores) && errors && drawn && seen
}

fn is_sane_plan(p: &PlanView) -> bool {
    let times = is_size_if_any(p.expected_ms) && is_size_if_any(p.bound_ms);
    times && p.gap.is_none_or(is_part) && is_size(p.rate_rps) && is_size(p.capacity_rps)
}

impl Invariants {
    pub(super) fn check_view(&mut self, view: &ServiceView) {
        let steered = self.accounts.iter().filter(|a| a.steered).count();
        let mut insane = Vec::new();
        insane
            .extend(view.backends.iter().filter(|b| !is_sane_backend(b)).map(|b| format!("{b:?}")));
        insane.extend(view.curves.iter().filter(|c| !is_sane_curve(c)).map(|c| format!("{c:?}")));
        insane.extend((!is_sane_plan(&view.plan)).then(|| format!("{:?}", view.plan)));
        let times = [view.latency_ms, view.drain_s];
        let pool = is_size(view.rate_rps) && times.into_iter().all(is_size_if_any);
        insane.extend((!pool).then(|| {
            let (rate, latency, drain) = (view.rate_rps, view.latency_ms, view.drain_s);
            format!("{rate} req/s, {latency:?} ms, drains in {drain:?} s")
        }));
        if view.backends.len() != steered {
            insane.push(format!("{} backends of {steered}", view.backends.len()));
        }
        if let Some(what) = insane.into_iter().next() {
            self.violate(Rule::SaneView, None, what);
        }
    }
}
