//! Shares for latency curves: separable convex resource allocation, solved by one level for all.
//!
//! - `traffic`: `min Σ x·l(x)`, all used backends with the same marginal cost `(x·l)′`; on a hyperbola
//!   `x = c − √(bc / (λ − a))`.
//! - `sum`: `min Σ l(x)`, the same slope `l′`; `x = c − √(b / λ)`.
//! - `max`: the least latency L at which the pool carries the total; `x = c − b / (L − a)`. A backend that is slower
//!   than L when idle gets nothing.
//!
//! Where a curve has no closed form its level is inverted numerically. Where `x·l(x)` (or, for `sum`,
//! `l`) is not convex, no single level decides, and the exact menu solver packs a fine grid instead.

use plimsoll_model::Objective;

use crate::grid::pack_grid;
use crate::packing::{Packing, Status, relative_gap};
use crate::problem::{CurveProblem, PackError};
use crate::root::RisingRoot;
use crate::terms::{Term, terms};
use crate::waterfill::{Filled, mix, waterfill};

/// Halvings of the level under θ: to rounding.
const MAX_HALVINGS: usize = 100;
/// Steps towards the window's place: more than chords and halvings in turns need to rounding.
const MAX_STEPS: usize = 200;
/// Costs this near to their bound, relatively, are the least there are.
const EXACT: f64 = 1e-13;
/// Capacity may lack this part of the total before it counts as missing: rounding of sums.
const ROUNDING: f64 = 1e-12;

/// Shares out the total load so that the objective is least: what the mean client waits
/// ([`Objective::Traffic`]), the sum of all latencies, idle backends included ([`Objective::Sum`]), or
/// the greatest latency of a backend that gets any load ([`Objective::Max`]).
///
/// A pool that cannot carry the total is shared out in proportion to what each backend may carry, and
/// says so in [`Packing::short_of_capacity`].
///
/// # Errors
/// Malformed input, or a θ under which the total cannot be carried.
pub fn pack_curves(
    problem: &CurveProblem,
    objective: Objective,
) -> Result<Packing<f64>, PackError> {
    let terms = terms(problem, objective)?;
    if let Some(short) = short_of_capacity(&terms, problem, objective)? {
        return Ok(short);
    }
    if !terms.iter().all(|term| term.level_rises()) {
        return pack_grid(problem, &terms, objective);
    }
    let (loads, bound) = match (objective, problem.theta) {
        (Objective::Max, Some(theta)) => {
            least_maximum(&terms, problem.total, theta * problem.total)
        }
        (Objective::Max, None) => {
            let filled = waterfill(&terms, problem.total);
            (filled.loads, filled.level)
        }
        (_, Some(theta)) => best_window(&terms, objective, problem.total, theta * problem.total),
        (_, None) => {
            let filled = waterfill(&terms, problem.total);
            let bound = dual(&terms, problem.total, filled.level);
            (filled.loads, bound)
        }
    };
    Ok(judge(&terms, problem, objective, &loads, bound))
}

/// A packing of these loads, given a bound on the sum of the terms' costs (or on the maximum).
pub(crate) fn judge(
    terms: &[Term],
    problem: &CurveProblem,
    objective: Objective,
    loads: &[f64],
    bound: f64,
) -> Packing<f64> {
    let unit = cost_unit(problem, objective);
    let sum: f64 = loads.iter().sum();
    let shares = loads.iter().map(|load| load / sum).collect();
    Packing::new(value(terms, objective, loads) * unit, bound * unit, shares)
}

/// From sums of `load · latency` to the mean over all requests; 1 for the other objectives.
pub(crate) fn cost_unit(problem: &CurveProblem, objective: Objective) -> f64 {
    if objective == Objective::Traffic { 1.0 / problem.total } else { 1.0 }
}

/// The objective at these loads, in the terms' own unit.
pub(crate) fn value(terms: &[Term], objective: Objective, loads: &[f64]) -> f64 {
    let both = terms.iter().zip(loads);
    match objective {
        Objective::Max => both
            .filter(|(_, load)| **load > 0.0)
            .fold(0.0, |most, (term, &load)| term.latency(load).max(most)),
        _ => both.map(|(term, &load)| term.cost(load)).sum(),
    }
}

/// Shares in proportion to capacity, when the pool cannot carry the total.
///
/// # Errors
/// [`PackError::Infeasible`] when no backend may carry anything, or when θ alone stands in the way.
pub(crate) fn short_of_capacity(
    terms: &[Term],
    problem: &CurveProblem,
    objective: Objective,
) -> Result<Option<Packing<f64>>, PackError> {
    let total = problem.total;
    let enough = |reachable: f64| reachable >= total * (1.0 - ROUNDING);
    let out_of_reach = |reachable| Err(PackError::Infeasible { needed: total, reachable });
    let capacity: f64 = terms.iter().map(|term| term.most).sum();
    if capacity == 0.0 {
        return out_of_reach(0.0);
    }
    if !enough(capacity) {
        let loads: Vec<f64> = terms.iter().map(|term| total * (term.most / capacity)).collect();
        let objective = value(terms, objective, &loads) * cost_unit(problem, objective);
        return Ok(Some(Packing {
            status: Status::Feasible,
            objective,
            bound: objective,
            gap: 0.0,
            weights: loads.iter().map(|load| load / total).collect(),
            short_of_capacity: Some(total - capacity),
        }));
    }
    if let Some(theta) = problem.theta {
        // The widest window starts at the least limit.
        let least = terms.iter().fold(f64::INFINITY, |least, term| least.min(term.most));
        let reachable = terms.iter().map(|term| term.most.min(least + theta * total)).sum();
        if !enough(reachable) {
            return out_of_reach(reachable);
        }
    }
    Ok(None)
}

/// Lagrange's bound at a level λ: `Σ min (cost − λ·load) + λ·total`, minimal where the level is λ.
fn dual(terms: &[Term], total: f64, level: f64) -> f64 {
    let sum: f64 = terms
        .iter()
        .map(|term| {
            let (load, _) = term.load_at(level);
            term.cost(load) - level * load
        })
        .sum();
    sum + level * total
}

/// The best window `[y, y + width]` for all loads. Where the loads that nothing binds fit into one, that is it.
/// Otherwise the least cost within a window is convex in y, and the multipliers of the ends are its slope: y is found
/// as the slope's root, until the tangents prove the cost. Returns the loads and a bound from the tangents.
fn best_window(terms: &[Term], objective: Objective, total: f64, width: f64) -> (Vec<f64>, f64) {
    let free = waterfill(terms, total);
    let (least, most) = free
        .loads
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(least, most), &load| (least.min(load), most.max(load)));
    if most - least <= width {
        let bound = dual(terms, total, free.level);
        return (free.loads, bound);
    }
    let mut high = terms.iter().fold(f64::INFINITY, |least, term| least.min(term.most));
    high = high.min(total / terms.len() as f64);
    let low = lowest_window(terms, total, width, high);
    let mut best: Option<(f64, Vec<f64>)> = None;
    let mut bound = f64::NEG_INFINITY;
    let mut root = RisingRoot::within(low, high.max(low));
    let mut bottom = low;
    for _ in 0..MAX_STEPS {
        let (filled, cost, slope) = in_window(terms, objective, total, bottom, width);
        // The tangent at `bottom`, at whichever end of the bracket it is lower.
        let (low, high) = root.bracket();
        let tangent = cost + (slope * (low - bottom)).min(slope * (high - bottom));
        bound = bound.max(tangent);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, filled.loads));
        }
        let is_proven =
            best.as_ref().is_some_and(|(least, _)| relative_gap(*least, bound) <= EXACT);
        if is_proven || slope == 0.0 {
            break;
        }
        match root.next(bottom, slope) {
            Some(next) => bottom = next,
            None => break,
        }
    }
    let (_, loads) = best.unwrap_or_default();
    (loads, bound)
}

/// The lowest bottom from which a window can carry the total, no higher than `high`.
fn lowest_window(terms: &[Term], total: f64, width: f64, high: f64) -> f64 {
    let sum_of_tops =
        |bottom: f64| -> f64 { terms.iter().map(|term| term.most.min(bottom + width)).sum() };
    if sum_of_tops(0.0) >= total {
        return 0.0;
    }
    let (mut low, mut feasible) = (0.0, high);
    for _ in 0..MAX_HALVINGS {
        let middle = 0.5 * (low + feasible);
        if sum_of_tops(middle) >= total {
            feasible = middle;
        } else {
            low = middle;
        }
    }
    feasible
}

/// The optimum within one window: loads, cost, and the slope of the cost as the window moves up.
fn in_window(
    terms: &[Term],
    objective: Objective,
    total: f64,
    bottom: f64,
    width: f64,
) -> (Filled, f64, f64) {
    let clipped: Vec<Term> =
        terms.iter().map(|term| term.clipped(bottom, bottom + width)).collect();
    let filled = waterfill(&clipped, total);
    let mut slope = 0.0;
    for ((term, original), &load) in clipped.iter().zip(terms).zip(&filled.loads) {
        let pull = term.level(load) - filled.level;
        let follows = if pull > 0.0 {
            load <= term.least
        } else {
            load >= term.most && term.most < original.most
        };
        if follows {
            slope += pull;
        }
    }
    let cost = value(&clipped, objective, &filled.loads);
    (filled, cost, slope)
}

/// The least latency at which the pool carries the total with all loads within `width`, and its loads.
fn least_maximum(terms: &[Term], total: f64, width: f64) -> (Vec<f64>, f64) {
    // As much as each may carry at this latency, cut down to the window above the least of them.
    let loads_at = |latency: f64| -> Vec<f64> {
        let mut loads: Vec<f64> = terms
            .iter()
            .map(|term| {
                let (idle, full) = (term.latency(0.0), term.latency(term.most));
                if latency < idle {
                    0.0
                } else if latency >= full {
                    term.most
                } else {
                    term.load_at(latency).0
                }
            })
            .collect();
        let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
        loads.iter_mut().for_each(|load| *load = load.min(least + width));
        loads
    };
    let mut low = 0.0;
    let mut high = terms.iter().fold(0.0, |most, term| term.latency(term.most).max(most));
    for _ in 0..MAX_HALVINGS {
        let middle = 0.5 * (low + high);
        if loads_at(middle).iter().sum::<f64>() >= total {
            high = middle;
        } else {
            low = middle;
        }
    }
    (mix(loads_at(low), &loads_at(high), total), low)
}
