//! Weights for split methods (roundrobin): packs the latency curves.

use std::ops::RangeInclusive;

use plimsoll_model::{Curve, Nanos, Objective};
use plimsoll_pack::{
    CurveBackend, CurveProblem, PackError, Packing, Rounded, pack_curves, round_to_range,
};
use plimsoll_queueing::QueueCurve;

use crate::backend::{Backend, Pin};
use crate::belief::shape::Shape;
use crate::commit::plan::{Decision, Wish};
use crate::propose::reserve::{blend, in_flight_survives, split_survives};
use crate::spec::ServiceSpec;
use crate::tuning::propose::reserve::BLENDS;
use crate::tuning::propose::split::{
    AT_BOUND, CALM_QUEUE, CALM_STEP, COSTLY, DRAIN_S, FIRST_LOAD, HEADROOM, MOST_PINNED,
    MOST_STRETCH, NEAR_BOUND, OVERLOADED, PRECISE, ROUND_S, ROUNDING, SPARE_FOR_QUEUES,
    UNKNOWN_SERVICE_US, WITH_ROOM,
};

/// One backend in the packing.
struct Candidate<'a> {
    backend: &'a Backend,
    shape: Shape,
    max_load: f64,
    limited: Option<&'static str>,
    /// Its bound may be raised beyond what was observed.
    may_stretch: bool,
    /// Requests in flight beyond what it should have.
    backlog: f64,
    /// The load that it is pinned to.
    pinned_rps: Option<f64>,
}

/// Packs the usable backends for this traffic. `careful` bounds how fast a share may grow.
///
/// # Errors
/// The packing's, when no backend is there to take load.
pub(crate) fn decide(
    now: Nanos,
    spec: &ServiceSpec,
    backends: &[Backend],
    rate_rps: f64,
    careful: bool,
) -> Result<Decision, PackError> {
    let usable: Vec<&Backend> = backends.iter().filter(|b| b.is_usable()).collect();
    let middle_us = middle_service_us(&usable);
    let mut candidates: Vec<Candidate<'_>> =
        usable.iter().map(|b| candidate(now, spec, b, middle_us, rate_rps, careful)).collect();
    stretch_unknown(&mut candidates, rate_rps);
    drain_queues(&mut candidates, rate_rps);
    let capacity_rps: f64 = candidates
        .iter()
        .map(|c| c.backend.knowledge.capacity_rps().unwrap_or(c.shape.capacity()))
        .sum();
    let seen = usable.iter().all(|b| !b.knowledge.is_lower_bound());
    // While learning, bounds on growth make a pool look small: that is no lack of capacity.
    let usable_rps = plimsoll_learn::USABLE_CAPACITY * capacity_rps;
    let short_by_rps = (seen && rate_rps > usable_rps).then_some(rate_rps - usable_rps);
    let packed = pack(now, spec, &candidates, rate_rps, short_by_rps)?;
    let (packing, rounded) = keep_reserve(now, spec, &candidates, rate_rps, careful, packed)?;
    let wishes = wishes(&candidates, &packing, &rounded, rate_rps);
    let expected: f64 = candidates
        .iter()
        .zip(&wishes)
        .filter(|(_, w)| w.share > 0.0)
        .map(|(c, w)| w.share * c.shape.latency_at(w.share * rate_rps))
        .sum();
    // A backend that the packing would use and whose capacity is unknown is still being learned.
    let still_learning = candidates.iter().zip(&wishes).any(|(c, w)| {
        let load = w.share * rate_rps;
        !c.backend.knowledge.is_known() && load > 1.05 * c.backend.recent.rate_rps.max(0.5)
    });
    Ok(Decision {
        wishes,
        rate_rps,
        capacity_rps,
        expected_us: Some(expected).filter(|e| e.is_finite()),
        as_is: None,
        bound_us: packing.short_of_capacity.is_none().then_some(packing.bound),
        proven: packing.proven() && packing.short_of_capacity.is_none(),
        short_by_rps,
        still_learning,
    })
}

/// Shares of the candidates, and the best integer weights for them.
fn pack(
    now: Nanos,
    spec: &ServiceSpec,
    candidates: &[Candidate<'_>],
    rate_rps: f64,
    short_by_rps: Option<f64>,
) -> Result<(Packing<f64>, Rounded), PackError> {
    let backends: Vec<CurveBackend<'_>> =
        candidates.iter().map(|c| CurveBackend { curve: &c.shape, max_load: c.max_load }).collect();
    let theta = spec.theta.map(|theta| bearable_theta(theta, &backends, rate_rps));
    let problem = CurveProblem { backends: &backends, total: rate_rps, theta };
    // The load that measured backends leave must be taken by another.
    let given: f64 = candidates.iter().filter_map(|c| c.pinned_rps).sum();
    let pinned = candidates.iter().any(|c| c.pinned_rps.is_some())
        && candidates.iter().any(|c| c.pinned_rps.is_none())
        && given < MOST_PINNED * rate_rps;
    let mut packing = if pinned {
        pack_around_pins(spec, candidates, rate_rps)?
    } else {
        pack_curves(&problem, spec.objective)?
    };
    if short_by_rps.is_some() {
        // All are overloaded alike: in proportion to known capacities, without allowance for errors and queues.
        let capacity_rps = |b: &Backend| b.knowledge.capacity_rps().unwrap_or(0.0) * b.ramp(now);
        packing.weights = candidates.iter().map(|c| capacity_rps(c.backend)).collect();
        let sum: f64 = packing.weights.iter().sum();
        packing.weights.iter_mut().for_each(|w| *w /= sum);
        packing.short_of_capacity = short_by_rps;
    }
    // Where a bound applies, the curves do not say which rounding is best.
    let mut loads = candidates.iter().zip(&packing.weights);
    let at_bound = loads.any(|(c, share)| share * rate_rps >= AT_BOUND * c.max_load);
    let by_curves = !pinned && !at_bound && short_by_rps.is_none();
    let curves = by_curves.then_some((&problem, spec.objective, packing.objective));
    let capacity_rps = |c: &Candidate<'_>| plimsoll_learn::USABLE_CAPACITY * c.shape.capacity();
    let bearable_rps = (!pinned).then(|| candidates.iter().map(capacity_rps).collect());
    let rounded = round(spec, &packing.weights, rate_rps, &Judge { curves, bearable_rps })?;
    Ok((packing, rounded))
}

/// The greatest share minus the least.
fn spread(shares: &[f64]) -> f64 {
    let greatest = shares.iter().copied().fold(0.0, f64::max);
    greatest - shares.iter().copied().fold(greatest, f64::min)
}

/// Moves the shares as little as needed towards those in proportion to capacity until the weights survive the loss of
/// any one server. While capacities are being learned only their known sum is considered.
fn keep_reserve(
    now: Nanos,
    spec: &ServiceSpec,
    candidates: &[Candidate<'_>],
    rate_rps: f64,
    careful: bool,
    (mut packing, mut rounded): (Packing<f64>, Rounded),
) -> Result<(Packing<f64>, Rounded), PackError> {
    // Packing is optimistic about unknown capacities and lets shares grow in steps; neither holds after a loss.
    let capacity_rps =
        |c: &Candidate<'_>| c.backend.knowledge.capacity_rps().unwrap_or(c.shape.capacity());
    let capacity_rps: Vec<f64> =
        candidates.iter().map(|c| capacity_rps(c) * c.backend.ramp(now)).collect();
    let allowed: Vec<f64> =
        capacity_rps.iter().zip(candidates).map(|(b, c)| b.min(c.max_load)).collect();
    let measured = |(i, c): (usize, &Candidate<'_>)| c.pinned_rps.is_some().then_some(i);
    let measured: Vec<usize> = candidates.iter().enumerate().filter_map(measured).collect();
    let is_near_bound = |i: &usize| packing.weights[*i] * rate_rps > NEAR_BOUND * capacity_rps[*i];
    let near_bound: Vec<usize> = measured.iter().copied().filter(is_near_bound).collect();
    let survives = |weights: &[u32]| match careful {
        true => in_flight_survives(&capacity_rps, weights, rate_rps),
        false => split_survives(&capacity_rps, weights, &near_bound, rate_rps),
    };
    let packed = packing.weights.clone();
    for part in BLENDS {
        if survives(&rounded.weights) {
            break;
        }
        let shares = blend(&packed, &allowed, &measured, part);
        // A configured bound on the spread of the shares takes precedence.
        if spec.theta.is_some_and(|theta| spread(&shares) > theta.max(spread(&packed))) {
            break;
        }
        packing.weights = shares;
        let by_shares = Judge { curves: None, bearable_rps: None };
        rounded = round(spec, &packing.weights, rate_rps, &by_shares)?;
    }
    Ok((packing, rounded))
}

fn wishes(
    candidates: &[Candidate<'_>],
    packing: &Packing<f64>,
    rounded: &Rounded,
    rate_rps: f64,
) -> Vec<Wish> {
    let wish = |((c, &share), &weight): ((&Candidate<'_>, &f64), &u32)| {
        let load = share * rate_rps;
        Wish {
            id: c.backend.id,
            share,
            weight,
            expected_us: Some(c.shape.latency_at(load)).filter(|l| l.is_finite()),
            reason: explain(c, load, packing.short_of_capacity.is_some()),
        }
    };
    candidates.iter().zip(&packing.weights).zip(&rounded.weights).map(wish).collect()
}

/// How integer weights are judged.
struct Judge<'a> {
    /// The curves, where they say which rounding is best, and the objective at the exact shares.
    curves: Option<(&'a CurveProblem<'a>, Objective, f64)>,
    /// The known capacity of each, where none is pinned.
    bearable_rps: Option<Vec<f64>>,
}

/// Integer weights for these shares, judged on the curves where possible, and close to the shares.
fn round(
    spec: &ServiceSpec,
    shares: &[f64],
    rate_rps: f64,
    judge: &Judge<'_>,
) -> Result<Rounded, PackError> {
    let strays = |rounded: &Rounded| {
        rounded.shares.iter().zip(shares).any(|(made, share)| (made - share).abs() > ROUNDING)
    };
    let overloads = |rounded: &Rounded| {
        let Some(bearable_rps) = &judge.bearable_rps else { return false };
        let mut loads = rounded.shares.iter().zip(shares).zip(bearable_rps);
        loads.any(|((made, share), capacity_rps)| {
            made * rate_rps > OVERLOADED * capacity_rps.max(share * rate_rps)
        })
    };
    let range = range_for(spec, shares, rate_rps);
    let (start, mut end, last) = (*range.start(), *range.end(), *spec.sink.range.end());
    let mut curves = judge.curves;
    loop {
        let problem = curves.map(|(problem, objective, _)| (problem, objective));
        let mut rounded = round_to_range(shares, problem, start..=end)?;
        // With flat curves a rounding far from the shares would cost next to nothing.
        if curves.is_some() && strays(&rounded) {
            curves = None;
            rounded = round_to_range(shares, None, start..=end)?;
        }
        let costs = curves.is_some_and(|(_, _, least)| rounded.cost > COSTLY * least);
        // A weight of 1 is a lot beside a small greatest one, and near capacity a unit is all the room there is: the
        // right share takes precedence over a fast change.
        if end >= last || !(costs || strays(&rounded) || overloads(&rounded)) {
            return Ok(rounded);
        }
        end = end.saturating_mul(2).min(last);
    }
}

/// The range of weights: no greater than precision needs where the balancer follows a change only after a round, whose
/// length is their sum. (Measured on HAProxy 2.6 with 30 servers at 1,000 req/s: with weights up to 250 traffic was 5 %
/// off for more than 20 s after a change, with 31 for one.)
fn range_for(spec: &ServiceSpec, shares: &[f64], rate_rps: f64) -> RangeInclusive<u32> {
    let (start, end) = (*spec.sink.range.start(), *spec.sink.range.end());
    let greatest = shares.iter().copied().fold(0.0, f64::max);
    if spec.sink.picks_per_weight == 0 || greatest <= 0.0 {
        return start..=end;
    }
    let per_unit = f64::from(spec.sink.picks_per_weight) * shares.iter().sum::<f64>() / greatest;
    let followed = (rate_rps * ROUND_S / per_unit).max(f64::from(PRECISE));
    start..=end.min(followed as u32).max(start)
}

/// Packs the traffic that pinned loads leave over the other backends.
fn pack_around_pins(
    spec: &ServiceSpec,
    candidates: &[Candidate<'_>],
    rate_rps: f64,
) -> Result<Packing<f64>, PackError> {
    let given: f64 = candidates.iter().filter_map(|c| c.pinned_rps).sum();
    let free: Vec<CurveBackend<'_>> = candidates
        .iter()
        .filter(|c| c.pinned_rps.is_none())
        .map(|c| CurveBackend { curve: &c.shape, max_load: c.max_load })
        .collect();
    let rest = (rate_rps - given).max(0.0);
    let theta = spec.theta.map(|theta| bearable_theta(theta, &free, rest));
    let problem = CurveProblem { backends: &free, total: rest, theta };
    let mut packing = pack_curves(&problem, spec.objective)?;
    let mut packed = std::mem::take(&mut packing.weights).into_iter();
    let loads = candidates.iter().map(|c| match c.pinned_rps {
        Some(rps) => rps,
        None => packed.next().unwrap_or(0.0) * rest,
    });
    let loads: Vec<f64> = loads.collect();
    // The sum exceeds the traffic where the pinned loads alone do: shares are of the sum.
    let all: f64 = loads.iter().sum();
    packing.weights = loads.into_iter().map(|load| load / all).collect();
    Ok(packing)
}

/// The bound on the spread of the shares, or the least wider one within which the traffic can be carried: answers take
/// precedence over evenness.
fn bearable_theta(theta: f64, backends: &[CurveBackend<'_>], total: f64) -> f64 {
    let most = || backends.iter().map(|b| b.max_load);
    let least = most().fold(f64::INFINITY, f64::min);
    let reachable =
        |theta: f64| -> f64 { most().map(|load| load.min(least + theta * total)).sum() };
    let needed = (WITH_ROOM * total).min(reachable(f64::INFINITY));
    if reachable(theta) >= needed || needed < total {
        return theta;
    }
    let (mut low, mut high) = (theta, 1.0f64.max(theta));
    for _ in 0..20 {
        let middle = 0.5 * (low + high);
        if reachable(middle) >= needed { high = middle } else { low = middle }
    }
    high
}

fn candidate<'a>(
    now: Nanos,
    spec: &ServiceSpec,
    backend: &'a Backend,
    middle_us: f64,
    rate_rps: f64,
    careful: bool,
) -> Candidate<'a> {
    let knowledge = &backend.knowledge;
    let first_load = FIRST_LOAD * 1e6 / middle_us;
    let shape = knowledge.shape_to_pack().unwrap_or(Shape::Queue(QueueCurve {
        service_us: middle_us,
        cores: 1.0,
        variability: 1.0,
    }));
    let mut max_load = plimsoll_learn::USABLE_CAPACITY * shape.capacity();
    let mut limited = None;
    if careful || !knowledge.is_known() {
        let most = if careful { spec.max_step } else { spec.max_step.min(CALM_STEP) };
        // Shares grow from those in force: a pause of the traffic takes none away, and a plan that was not programmed
        // gave none.
        let has = backend.recent.rate_rps.max(backend.granted_share * rate_rps);
        let step = (has * most).max(first_load);
        if step < max_load {
            (max_load, limited) = (step, Some("its share is raised in steps"));
        }
    }
    let calm = CALM_QUEUE * knowledge.cores() + CALM_QUEUE;
    let backlog = if careful { (f64::from(backend.in_flight) - calm).max(0.0) } else { 0.0 };
    let may_stretch = backlog == 0.0 && backend.ramp(now) >= 1.0;
    let ramp = backend.ramp(now);
    if ramp < 1.0 {
        (max_load, limited) = (max_load * ramp, Some("it is in slow start"));
    }
    let pinned_rps = match backend.pin {
        Some(Pin::Exactly(rps)) => Some(rps),
        _ => None,
    };
    if pinned_rps.is_some() {
        limited = Some("it is being measured");
    }
    Candidate { backend, shape, max_load, limited, may_stretch, backlog, pinned_rps }
}

/// Gives backends with a backlog less load until their queue is gone, as far as the others have room for it.
fn drain_queues(candidates: &mut [Candidate<'_>], rate_rps: f64) {
    let wanted = |c: &Candidate<'_>| (c.backlog / DRAIN_S).min(c.max_load);
    let all: f64 = candidates.iter().map(|c| c.max_load).sum();
    let relief: f64 = candidates.iter().map(wanted).sum();
    let room = SPARE_FOR_QUEUES * (all - rate_rps);
    if relief <= 0.0 || room <= 0.0 {
        return;
    }
    let part = (room / relief).min(1.0);
    for c in candidates.iter_mut().filter(|c| c.backlog > 0.0) {
        c.max_load -= part * wanted(c);
        c.limited = Some("given less load until its queue is gone");
    }
}

/// Where bounds on growth leave the pool too small for its traffic, backends whose capacity is only a lower bound take
/// the rest: the capacity of the others is known.
fn stretch_unknown(candidates: &mut [Candidate<'_>], rate_rps: f64) {
    let unseen = |c: &Candidate<'_>| c.backend.knowledge.is_lower_bound() && c.may_stretch;
    let all: f64 = candidates.iter().map(|c| c.max_load).sum();
    let elastic: f64 = candidates.iter().filter(|c| unseen(c)).map(|c| c.max_load).sum();
    let missing = rate_rps * HEADROOM - all;
    if missing <= 0.0 || elastic <= 0.0 {
        return;
    }
    let factor = (1.0 + missing / elastic).min(MOST_STRETCH);
    for c in candidates.iter_mut().filter(|c| unseen(c)) {
        c.max_load *= factor;
        if let Shape::Queue(q) = &mut c.shape {
            let needed = c.max_load / plimsoll_learn::USABLE_CAPACITY / q.capacity();
            q.cores *= needed.max(1.0);
        }
        c.limited = Some("it takes the load beyond the known capacity of the others");
    }
}

fn explain(c: &Candidate<'_>, load: f64, short: bool) -> String {
    let knowledge = &c.backend.knowledge;
    let capacity = c.shape.capacity();
    let what = match knowledge.service_us() {
        None => return "nothing is known about it yet".to_owned(),
        Some(_) if knowledge.is_lower_bound() => {
            format!("capacity {:.1} req/s or more", knowledge.capacity_rps().unwrap_or(capacity))
        }
        Some(_) => format!("capacity {capacity:.1} req/s"),
    };
    let part = load / capacity * 100.0;
    match c.limited {
        _ if load == 0.0 && c.max_load > 0.0 => {
            format!("{what}; parked: at this load the other backends are faster")
        }
        Some(limit) if c.pinned_rps.is_some() => format!("{what}; {limit} at {load:.1} req/s"),
        Some(limit) if load >= 0.999 * c.max_load => format!("{what}; {limit}"),
        _ if short => {
            format!("{what}; the pool is short of capacity: share in proportion to capacity")
        }
        _ => format!("{what}; planned {load:.1} req/s ({part:.0} %)"),
    }
}

/// Median of the known unloaded service times, microseconds.
pub(crate) fn middle_service_us(usable: &[&Backend]) -> f64 {
    let mut known: Vec<f64> = usable.iter().filter_map(|b| b.knowledge.service_us()).collect();
    known.sort_by(f64::total_cmp);
    known.get(known.len() / 2).copied().unwrap_or(UNKNOWN_SERVICE_US)
}

#[cfg(test)]
mod tests;
