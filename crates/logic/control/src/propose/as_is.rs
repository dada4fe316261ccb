//! Weights that are packed by no curve: those in force, those from before a plan or a restart, and those left at a clean
//! exit.

use plimsoll_model::{BackendId, Nanos};

use crate::backend::Backend;
use crate::commit::plan::{Decision, Wish};
use crate::members::health::Cause;
use crate::propose::reserve::Reserve;
use crate::tuning::propose::search::LEASTCONN_SCALE;

/// Its capacity over the mean capacity of the backends with a weight, at most 1; 1 while it is unknown.
fn size_beside_others(backends: &[Backend], b: &Backend) -> f64 {
    let known = |b: &Backend| b.knowledge.capacity_rps();
    let serving = backends.iter().filter(|b| b.programmed.is_some_and(|w| w > 0));
    let all: Vec<f64> = serving.filter_map(known).collect();
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    known(b).filter(|_| mean > 0.0).map_or(1.0, |capacity| (capacity / mean).min(1.0))
}

/// The mean weight of the backends that hold one and are not in slow start; 1 where there is none.
fn typical_weight(backends: &[Backend]) -> f64 {
    let settled = |b: &&Backend| b.is_usable() && b.ramping_since.is_none();
    let held = backends.iter().filter(settled).filter_map(Backend::planned_weight);
    let held: Vec<f64> = held.filter(|&w| w > 0).map(f64::from).collect();
    (held.iter().sum::<f64>() / held.len().max(1) as f64).max(1.0)
}

/// The weight that a backend keeps; one that joins, returns or had none gets the typical weight, scaled down by its
/// capacity where that is known.
fn weight_as_is(backends: &[Backend], b: &Backend, ramp: f64) -> u32 {
    let w = match b.planned_weight().filter(|&w| w > 0 && b.ramping_since.is_none()) {
        Some(held) => f64::from(held),
        None => typical_weight(backends) * size_beside_others(backends, b),
    };
    ((w * ramp).round() as u32).max(1)
}

/// The weights in force without the backends that may not serve; one that joins begins with a small one.
pub(crate) fn keep(now: Nanos, backends: &[Backend], rate_rps: f64) -> Decision {
    let usable = || backends.iter().filter(|b| b.is_usable());
    let wanted = |b: &Backend| weight_as_is(backends, b, b.ramp(now));
    let total: f64 = usable().map(|b| f64::from(wanted(b))).sum();
    let wishes = usable()
        .map(|b| Wish {
            id: b.id,
            share: f64::from(wanted(b)) / total,
            weight: wanted(b),
            expected_us: None,
            reason: "unchanged: not enough is known to change it".to_owned(),
        })
        .collect();
    Decision { wishes, rate_rps, still_learning: true, ..Decision::default() }
}

/// The weights from before a plan that made clients wait longer, for the backends that serve.
pub(crate) fn take_back(
    backends: &[Backend],
    weights: &[(BackendId, u32)],
    rate_rps: f64,
) -> Decision {
    let usable = |id| backends.iter().any(|b| b.id == id && b.is_usable());
    let total: f64 = weights.iter().filter(|(id, _)| usable(*id)).map(|(_, w)| f64::from(*w)).sum();
    let wishes = weights
        .iter()
        .filter(|(id, _)| usable(*id))
        .map(|&(id, weight)| Wish {
            id,
            share: f64::from(weight) / total.max(1.0),
            weight,
            expected_us: None,
            reason: "rolled back: response times rose".to_owned(),
        })
        .collect();
    Decision { wishes, rate_rps, ..Decision::default() }
}

/// The weights from before a restart; `None` if no backend that serves held one.
pub(crate) fn resume(
    now: Nanos,
    backends: &[Backend],
    weights: &[(BackendId, u32)],
) -> Option<Decision> {
    let usable = |id| backends.iter().any(|b| b.id == id && b.is_usable());
    let serve = || weights.iter().filter(|(id, _)| usable(*id));
    let total: f64 = serve().map(|(_, w)| f64::from(*w)).sum();
    if total <= 0.0 {
        return None;
    }
    // A backend that joined since the memory was saved gets the typical weight: without an entry it would keep the
    // balancer's.
    let typical = total / serve().filter(|(_, w)| *w > 0).count() as f64;
    let known = |id| weights.iter().any(|(known, _)| *known == id);
    let joined = backends.iter().filter(|b| b.is_usable() && !known(b.id)).map(|b| {
        let weight = ((typical * b.ramp(now)).round() as u32).max(1);
        (b.id, weight, "joined since the last save: the mean weight of the others")
    });
    let resumed = serve().map(|&(id, weight)| (id, weight, "the weight from before the restart"));
    let all: Vec<(BackendId, u32, &str)> = resumed.chain(joined).collect();
    let total: f64 = all.iter().map(|(_, w, _)| f64::from(*w)).sum();
    let wish = |(id, weight, reason): (BackendId, u32, &str)| Wish {
        id,
        share: f64::from(weight) / total,
        weight,
        expected_us: None,
        reason: reason.to_owned(),
    };
    Some(Decision { wishes: all.into_iter().map(wish).collect(), ..Decision::default() })
}

/// The weights that the balancer keeps after a clean exit, in the order of the pool: every healthy backend holds one,
/// because a parked backend would not get its weight back when the load rises, and slow start would not end.
/// Where a server is lost they must bear the greater of the present rate and `peak_rps`.
pub(crate) fn leave(reserve: &Reserve<'_>, peak_rps: f64) -> Vec<(BackendId, u32)> {
    // What the balancer's own check holds down, or finds up, is left to that check.
    let may_serve = |b: &Backend| {
        b.is_usable() || b.checked_by_balancer || b.health.cause() == Some(Cause::Balancer)
    };
    let members = || reserve.backends.iter().filter(|b| !b.is_reserved());
    let weight =
        |b: &Backend| if may_serve(b) { weight_as_is(reserve.backends, b, 1.0) } else { 0 };
    let mut weights: Vec<_> = members().map(|b| (b.id, weight(b))).collect();
    // Weights for little traffic may overload a backend when the traffic is back and a server is lost.
    let healthy: Vec<u32> = members()
        .zip(&weights)
        .filter(|(b, _)| b.is_usable())
        .map(|(_, (_, weight))| *weight)
        .collect();
    if !reserve.survives(&healthy, reserve.rate_rps.max(peak_rps)) {
        let capacity = |b: &Backend| b.knowledge.capacity_rps().unwrap_or(0.0);
        let most = members().map(capacity).fold(0.0, f64::max).max(1e-9);
        for ((_, weight), b) in weights.iter_mut().zip(members()).filter(|((_, w), _)| *w > 0) {
            *weight = ((LEASTCONN_SCALE * capacity(b) / most).round() as u32).max(1);
        }
    }
    weights
}
