//! Weights for a balancer that counts what is in flight: in proportion to capacity, and the slowest
//! taken out where that serves better.
//!
//! Capacity is learned without any overload by a closed loop: a backend that answers with less delay
//! than the others, each relative to its own time at rest, is asked to bear more:
//! `w ← w·clamp((gm(W/l0) / (W/l0))^0.7, 1/2, 2)`, until a queue was seen and its capacity is known.

use plimsoll_model::Nanos;

use crate::backend::Backend;
use crate::plan::{Decision, Wish};
use crate::search::{Found, Member, proportional};
use crate::split::middle_service_us;

/// Exponent of the closed loop: below 1, so that it settles.
const GAIN: f64 = 0.7;
/// A step of the loop changes a weight by no more than this factor.
const STEP: (f64, f64) = (0.5, 2.0);
/// A loop that asks for changes smaller than this has settled.
const SETTLED: f64 = 0.12;

/// Updates what every backend is asked to bear; true while some are still being learned.
pub(crate) fn learn(backends: &mut [Backend]) -> bool {
    let usable: Vec<&Backend> = backends.iter().filter(|b| b.is_usable()).collect();
    let middle_us = middle_service_us(&usable);
    let stretches: Vec<f64> = usable.iter().filter_map(|b| b.stretch()).collect();
    let mean = if stretches.is_empty() {
        1.0
    } else {
        (stretches.iter().map(|s| s.max(0.2).ln()).sum::<f64>() / stretches.len() as f64).exp()
    };
    let mut learning = false;
    for b in backends.iter_mut().filter(|b| b.is_usable()) {
        let lower = b.knowledge.capacity_rps().unwrap_or(1e6 / middle_us);
        if b.knowledge.is_known() {
            b.ask_rps = lower;
            continue;
        }
        if b.ask_rps <= 0.0 {
            b.ask_rps = lower;
            learning = true;
            continue;
        }
        let factor = b
            .stretch()
            .map_or(1.0, |s| (mean / s.max(0.2)).powf(GAIN).clamp(STEP.0, STEP.1));
        b.ask_rps = (b.ask_rps * factor).max(lower);
        learning |= (factor - 1.0).abs() > SETTLED;
    }
    learning
}

/// The pool as the model of the balancer sees it: usable backends only, and their positions.
pub(crate) fn members(now: Nanos, backends: &[Backend]) -> (Vec<usize>, Vec<Member>) {
    let usable: Vec<&Backend> = backends.iter().filter(|b| b.is_usable()).collect();
    let middle_us = middle_service_us(&usable);
    backends
        .iter()
        .enumerate()
        .filter(|(_, b)| b.is_usable())
        .map(|(i, b)| {
            let service_us = b.knowledge.service_us().unwrap_or(middle_us);
            let capacity_rps = if b.ask_rps > 0.0 { b.ask_rps } else { 1e6 / service_us };
            let ramp = b.ramp(now);
            let may_park = b.knowledge.is_known() && ramp >= 1.0;
            (i, Member { capacity_rps, service_us, ramp, may_park })
        })
        .unzip()
}

/// Weights in proportion to capacity, nobody taken out but `parked` (positions among the usable).
pub(crate) fn decide_proportional(
    now: Nanos,
    backends: &[Backend],
    rate_rps: f64,
    parked: &[usize],
) -> Decision {
    let (positions, members) = members(now, backends);
    let weights = proportional(&members, parked);
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let shares: Vec<f64> = weights.iter().map(|&w| f64::from(w) / total.max(1.0)).collect();
    decision(backends, &positions, &members, &weights, &shares, rate_rps, None)
}

/// The decision behind weights that a search has found.
pub(crate) fn decide_found(now: Nanos, backends: &[Backend], found: &Found) -> Option<Decision> {
    let (positions, members) = members(now, backends);
    // The pool may have changed while the search went on.
    if members.len() != found.weights.len() {
        return None;
    }
    Some(decision(
        backends,
        &positions,
        &members,
        &found.weights,
        &found.shares,
        found.rate_rps,
        Some(found.mean_us),
    ))
}

fn decision(
    backends: &[Backend],
    positions: &[usize],
    members: &[Member],
    weights: &[u32],
    shares: &[f64],
    rate_rps: f64,
    expected_us: Option<f64>,
) -> Decision {
    let capacity_rps: f64 = members.iter().map(|m| m.capacity_rps).sum();
    let known = positions.iter().all(|&i| backends[i].knowledge.is_known());
    let short_by = rate_rps - plimsoll_learn::USABLE_CAPACITY * capacity_rps;
    let wishes = positions
        .iter()
        .zip(members)
        .zip(weights.iter().zip(shares))
        .map(|((&i, m), (&weight, &share))| Wish {
            id: backends[i].id,
            share,
            weight,
            expected_us: None,
            reason: explain(&backends[i], m, weight),
        })
        .collect();
    Decision {
        wishes,
        rate_rps,
        capacity_rps,
        expected_us,
        bound_us: None,
        proven: false,
        short_by_rps: (known && short_by > 0.0).then_some(short_by),
        still_learning: false,
    }
}

fn explain(backend: &Backend, member: &Member, weight: u32) -> String {
    let k = &backend.knowledge;
    if weight == 0 {
        return format!(
            "parked: at this load its {:.1} ms at rest would only be slower",
            member.service_us / 1e3
        );
    }
    if member.ramp < 1.0 {
        return format!("ramping up: {:.0} % of its weight", member.ramp * 100.0);
    }
    match (k.service_us(), k.is_known()) {
        (None, _) => "nothing is known of it yet".to_owned(),
        (_, true) => format!("in proportion to its {:.1} req/s", member.capacity_rps),
        (_, false) => format!(
            "asked to bear {:.1} req/s; {:.1} seen without a queue",
            member.capacity_rps,
            k.capacity_rps().unwrap_or(0.0)
        ),
    }
}
