//! Weights for a balancer that counts what is in flight: in proportion to capacity, and the slowest
//! taken out where that serves better.
//!
//! Capacity is learned without any overload by a closed loop. A backend that answers with more delay
//! than the others, each relative to its own time at rest, is asked to bear less:
//! `w ← w·clamp((gm(W/l0) / (W/l0))^0.7, 1/2, 2)`. One that shows no delay at all is asked to bear more,
//! every other of them in turn, for weights only count relative to one another. It ends for a backend
//! when a queue was seen, which tells its capacity, or when it was offered several times what it takes:
//! then it does not matter.

use plimsoll_model::Nanos;

use crate::backend::{Backend, Pin};
use crate::belief::knowledge::KNOWN;
use crate::commit::plan::{AsIs, Decision, Wish};
use crate::propose::reserve::unpark;
use crate::propose::search::{Found, Member, proportional};
use crate::propose::split::middle_service_us;

/// Exponent of the closed loop: below 1, so that it settles.
const GAIN: f64 = 0.7;
/// A step of the loop changes a weight by no more than this factor.
const STEP: (f64, f64) = (0.5, 2.0);
/// Below this multiple of its time at rest a backend shows no queue.
const CALM: f64 = 1.25;
/// Who shows no queue is asked for this much more …
const RAISE: f64 = 1.5;
/// … up to this multiple of what was seen of it.
const OFFERED: f64 = 4.0;
/// More than this multiple of what was seen when it was offered plenty is news.
const GROWN: f64 = 1.2;

/// Updates what every backend is asked to bear; true while some are still being learned. `round` counts
/// the calls. Who ramps up has too little to show a queue, and is asked for no more than was seen of it.
pub(crate) fn learn(now: Nanos, backends: &mut [Backend], round: u64) -> bool {
    let usable: Vec<&Backend> = backends.iter().filter(|b| b.is_usable()).collect();
    let middle_us = middle_service_us(&usable);
    let stretches: Vec<f64> = usable.iter().filter_map(|b| b.calm_stretch()).collect();
    let mean = if stretches.is_empty() {
        1.0
    } else {
        (stretches.iter().map(|s| s.max(0.2).ln()).sum::<f64>() / stretches.len() as f64).exp()
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
        b.ask_rps = b.ask_rps.max(seen);
        let Some(stretch) = b.calm_stretch() else { continue };
        if stretch > CALM && b.ask_rps > GROWN * seen {
            // Asked for more than was seen it answers with delay: that was its end.
            b.offered_rps = Some(seen);
            b.ask_rps = seen;
            continue;
        }
        if stretch > CALM {
            let factor = (mean / stretch).powf(GAIN).clamp(STEP.0, STEP.1);
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

/// Weights in proportion to capacity, nobody taken out but `parked` (positions among the usable), as far as the
/// reserve allows.
pub(crate) fn decide_proportional(
    now: Nanos,
    backends: &[Backend],
    rate_rps: f64,
    parked: &[usize],
) -> Decision {
    let (positions, members) = members(now, backends);
    let mut parked = parked.to_vec();
    parked.sort_by(|&a, &b| members[b].service_us.total_cmp(&members[a].service_us));
    let capacity: Vec<f64> = members.iter().map(|m| m.capacity_rps).collect();
    unpark(&capacity, &mut parked, rate_rps);
    let weights = proportional(&members, &parked);
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let shares: Vec<f64> = weights.iter().map(|&w| f64::from(w) / total.max(1.0)).collect();
    decision(backends, &positions, &members, &weights, &shares, rate_rps, None)
}

/// The decision behind weights that a search has found, beside those in force.
pub(crate) fn decide_found(
    now: Nanos,
    backends: &[Backend],
    found: &Found,
    in_force: Option<&Found>,
) -> Option<Decision> {
    let (positions, members) = members(now, backends);
    // The pool may have changed while the search went on.
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
        Some(found.mean_us),
    );
    Some(Decision { as_is, ..found })
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
            reason: explain(&backends[i], m, weight),
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

fn explain(backend: &Backend, member: &Member, weight: u32) -> String {
    let k = &backend.knowledge;
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
