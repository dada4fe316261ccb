//! Weights for in-flight methods (leastconn): in proportion to capacity, with the slowest backends parked where that
//! serves better.
//!
//! Capacity is learned without overload by a closed loop. A backend that is slower than the others, each relative to
//! its own unloaded service time, is weighted for less load: `w ← w·clamp((gm(W/l0) / (W/l0))^0.7, 1/2, 2)`. One
//! without any delay is weighted for more, every other one in turn, because weights only count relative to one another.
//! The loop ends for a backend when a queue was observed, which shows its capacity, or when it was offered several
//! times what it takes: then the capacity does not matter.

use plimsoll_model::Nanos;

use crate::backend::{Backend, Pin};
use crate::commit::plan::{AsIs, Decision, Wish};
use crate::propose::reserve::unpark;
use crate::propose::search::{Found, Member, parking_order, proportional};
use crate::propose::split::middle_service_us;
use crate::tuning::belief::knowledge::KNOWN;
use crate::tuning::propose::in_flight::{CALM, GAIN, GROWN, OFFERED, RAISE, STEP};

/// Updates the load that every backend is weighted for; true while some are still being learned. `round` counts the
/// calls. A backend in slow start has too little load for a queue and is weighted for its observed throughput.
pub(crate) fn learn(now: Nanos, backends: &mut [Backend], round: u64) -> bool {
    let usable: Vec<&Backend> = backends.iter().filter(|b| b.is_usable()).collect();
    let middle_us = middle_service_us(&usable);
    // What few requests show is older than what the others do: it is held against that, and not counted.
    let many = usable.iter().filter(|b| b.has_many_requests());
    let slowdowns: Vec<f64> = many.filter_map(|b| b.smoothed_slowdown()).collect();
    let mean = if slowdowns.is_empty() {
        1.0
    } else {
        (slowdowns.iter().map(|s| s.max(0.2).ln()).sum::<f64>() / slowdowns.len() as f64).exp()
    };
    let mut learning = false;
    for (place, b) in (0u64..).zip(backends.iter_mut()).filter(|(_, b)| b.is_usable()) {
        let seen = b.knowledge.capacity_rps().unwrap_or(1e6 / middle_us);
        // Known, or offered so much that more would show nothing, and not grown since.
        let offered = b.offered_rps.is_some_and(|then| seen <= GROWN * then);
        if b.knowledge.is_known() || offered {
            b.ask_rps = seen;
            continue;
        }
        if b.ask_rps <= 0.0 || b.ramp(now) < 1.0 {
            b.ask_rps = seen;
            learning = true;
            continue;
        }
        b.ask_rps = b.ask_rps.min(OFFERED * seen).max(seen);
        let Some(slowdown) = b.smoothed_slowdown() else { continue };
        if slowdown > CALM && b.ask_rps > GROWN * seen {
            // Weighted for more than observed it gets slower: that is its capacity.
            b.offered_rps = Some(seen);
            b.ask_rps = seen;
            continue;
        }
        if slowdown > CALM {
            let factor = (mean / slowdown).powf(GAIN).clamp(STEP.0, STEP.1);
            b.ask_rps = (b.ask_rps * factor).max(seen);
            continue;
        }
        let most = OFFERED * seen;
        if b.ask_rps < 0.95 * most {
            learning = true;
            if (round + place).is_multiple_of(2) {
                b.ask_rps = (b.ask_rps * RAISE).min(most);
            }
        } else {
            b.offered_rps = Some(seen);
            b.ask_rps = seen;
        }
    }
    learning
}

/// The usable backends as the balancer's model takes them, with their positions.
pub(crate) fn members(now: Nanos, backends: &[Backend]) -> (Vec<usize>, Vec<Member>) {
    let usable: Vec<&Backend> = backends.iter().filter(|b| b.is_usable()).collect();
    let middle_us = middle_service_us(&usable);
    backends
        .iter()
        .enumerate()
        .filter(|(_, b)| b.is_usable())
        .map(|(i, b)| {
            let service_us = b.knowledge.service_us().unwrap_or(middle_us);
            let capacity_rps = b.knowledge.capacity_rps().unwrap_or(1e6 / service_us);
            let ramp = b.ramp(now);
            let pinned = match b.pin {
                Some(Pin::Times(factor)) => factor,
                _ => 1.0,
            };
            let weight_rps = ramp * pinned * if b.ask_rps > 0.0 { b.ask_rps } else { capacity_rps };
            let may_park = ramp >= 1.0 && b.knowledge.error() < KNOWN;
            (i, Member { capacity_rps, service_us, weight_rps, may_park })
        })
        .unzip()
}

/// Weights in proportion to capacity with only `parked` parked (positions among the usable), as far as the reserve
/// allows.
pub(crate) fn decide_proportional(
    now: Nanos,
    backends: &[Backend],
    rate_rps: f64,
    parked: &[usize],
    balancers: u32,
) -> Decision {
    let (positions, members) = members(now, backends);
    let mut parked = parking_order(&members, parked.to_vec(), balancers);
    let capacity: Vec<f64> = members.iter().map(|m| m.capacity_rps).collect();
    unpark(&capacity, &mut parked, rate_rps);
    let weights = proportional(&members, &parked);
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let shares: Vec<f64> = weights.iter().map(|&w| f64::from(w) / total.max(1.0)).collect();
    let why = Explanation { balancers, expected_us: None };
    decision(backends, &positions, &members, &weights, &shares, rate_rps, why)
}

/// The decision for weights that a search has found, with the expectation for those in force.
pub(crate) fn decide_found(
    now: Nanos,
    backends: &[Backend],
    found: &Found,
    in_force: Option<&Found>,
    balancers: u32,
) -> Option<Decision> {
    let (positions, members) = members(now, backends);
    // The pool may have changed during the search.
    if members.len() != found.weights.len() {
        return None;
    }
    let ids = || positions.iter().map(|&i| backends[i].id);
    let as_is = in_force.map(|held| AsIs {
        shares: ids().zip(held.shares.iter().copied()).collect(),
        mean_us: held.mean_us,
    });
    let found = decision(
        backends,
        &positions,
        &members,
        &found.weights,
        &found.shares,
        found.rate_rps,
        Explanation { balancers, expected_us: Some(found.mean_us) },
    );
    Some(Decision { as_is, ..found })
}

/// What a decision is explained by.
struct Explanation {
    balancers: u32,
    expected_us: Option<f64>,
}

fn decision(
    backends: &[Backend],
    positions: &[usize],
    members: &[Member],
    weights: &[u32],
    shares: &[f64],
    rate_rps: f64,
    Explanation { balancers, expected_us }: Explanation,
) -> Decision {
    let capacity_rps: f64 = members.iter().map(|m| m.capacity_rps).sum();
    let seen = positions.iter().all(|&i| !backends[i].knowledge.is_lower_bound());
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
            reason: explain(&backends[i], m, weight, balancers),
        })
        .collect();
    Decision {
        wishes,
        rate_rps,
        capacity_rps,
        expected_us,
        as_is: None,
        bound_us: None,
        proven: false,
        short_by_rps: (seen && short_by > 0.0).then_some(short_by),
        still_learning: false,
    }
}

fn explain(backend: &Backend, member: &Member, weight: u32, balancers: u32) -> String {
    let k = &backend.knowledge;
    if weight == 0 && balancers > 1 {
        return format!(
            "parked: {balancers} balancers, each of which counts only its own requests, would give it more than \
             its part of {:.1} req/s",
            member.capacity_rps
        );
    }
    if weight == 0 {
        return format!(
            "parked: at this load the other backends are faster than its unloaded {:.1} ms",
            member.service_us / 1e3
        );
    }
    match (k.service_us(), k.is_known()) {
        (None, _) => "nothing is known about it yet".to_owned(),
        (_, true) => format!("in proportion to its capacity of {:.1} req/s", member.capacity_rps),
        (_, false) => format!(
            "weighted for {:.1} req/s; {:.1} req/s observed without a queue",
            member.weight_rps, member.capacity_rps
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_model::BackendId;

    use super::*;
    use crate::belief::typical::Typical;
    use crate::spec::{BackendSpec, CurveChoice};

    #[test]
    fn first_guess_gives_way_to_what_a_slow_backend_seems_to_do() {
        let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let backends = &mut [Backend::new(&spec, Duration::ZERO)];
        learn(Nanos::ZERO, backends, 0);
        assert_eq!(backends[0].ask_rps, 10.0, "a guess");
        // It takes a second, and has too few requests for a response time to be judged by.
        (0..10).for_each(|_| backends[0].knowledge.observe_unloaded(1e6));
        backends[0].knowledge.refit(CurveChoice::Auto, Typical::default());
        assert!(!backends[0].knowledge.is_known() && backends[0].smoothed_slowdown().is_none());
        learn(Nanos::ZERO, backends, 1);
        assert_eq!(
            Some(backends[0].ask_rps),
            backends[0].knowledge.capacity_rps().map(|seen| OFFERED * seen)
        );
    }
}
