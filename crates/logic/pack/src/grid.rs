//! Curves as menus: a number of points on each, packed by the exact menu solver.

use plimsoll_model::Objective;

use crate::continuous::judge;
use crate::menu::pack_menus;
use crate::packing::Packing;
use crate::problem::{Choice, CurveProblem, Effort, MenuProblem, PackError};
use crate::terms::Term;

/// Integer units of weight per total load: fine enough that rounding to them does not show.
const UNITS: f64 = 1e9;
/// Points per curve where no closed form and no convexity helps.
const POINTS: usize = 200;

/// Points from `from` to `to` on a curve, as weights and costs.
pub(crate) fn menu(
    term: &Term,
    objective: Objective,
    total: f64,
    (from, to): (f64, f64),
    points: usize,
) -> Vec<Choice> {
    let last = (points - 1) as f64;
    let point = |number: usize| {
        let load = from + (to - from) * number as f64 / last;
        let cost = match objective {
            // A backend without load keeps no client waiting.
            Objective::Max if load == 0.0 => 0.0,
            _ => term.cost(load),
        };
        Choice { weight: (load / total * UNITS).round() as i64, cost }
    };
    (0..points).map(point).collect()
}

/// The best choice out of menus made of curves, in [`UNITS`].
fn pack_points(
    menus: &[Vec<Choice>],
    problem: &CurveProblem,
    objective: Objective,
    effort: &Effort,
) -> Result<Packing<i64>, PackError> {
    // A curve that knows no end (a parabola) reaches further than numbers do.
    let most = menus.iter().filter_map(|menu| menu.last());
    let reachable = most.fold(0_i64, |sum, last| sum.saturating_add(last.weight));
    // Rounding to units may leave a pool without reserves short by a few of them.
    let target = reachable.min(UNITS as i64);
    let theta = problem.theta.map(|theta| (theta * UNITS).ceil() as i64);
    let objective = if objective == Objective::Max { objective } else { Objective::Sum };
    let packing = pack_menus(&MenuProblem { menus, target, theta }, objective, effort);
    packing.map_err(|error| in_loads(error, problem.total))
}

/// What is missing, from [`UNITS`] to the caller's unit of load.
fn in_loads(error: PackError, total: f64) -> PackError {
    match error {
        PackError::Infeasible { needed, reachable } => PackError::Infeasible {
            needed: needed * total / UNITS,
            reachable: reachable * total / UNITS,
        },
        PackError::ThetaTooSmall { theta, least } => {
            PackError::ThetaTooSmall { theta: theta / UNITS, least: least / UNITS }
        }
        other => other,
    }
}

/// The same as loads that sum up to the total: the surplus that a grid leaves is taken from all in
/// proportion, which makes no latency longer.
pub(crate) fn pack_loads(
    menus: &[Vec<Choice>],
    problem: &CurveProblem,
    objective: Objective,
    effort: &Effort,
) -> Result<Vec<f64>, PackError> {
    let packing = pack_points(menus, problem, objective, effort)?;
    let sum: f64 = packing.weights.iter().map(|&weight| weight as f64).sum();
    Ok(packing.weights.iter().map(|&weight| weight as f64 * problem.total / sum).collect())
}

/// Packs curves that no common level solves: exactly on a fine grid, with a bound that holds between the
/// grid's points as well, as costs never fall with load.
pub(crate) fn pack_grid(
    problem: &CurveProblem,
    terms: &[Term],
    objective: Objective,
) -> Result<Packing<f64>, PackError> {
    let menus: Vec<Vec<Choice>> = terms
        .iter()
        .map(|term| menu(term, objective, problem.total, (0.0, term.most), POINTS))
        .collect();
    // The grid itself is only good for about a percent.
    let effort = Effort { gap: 1e-4, work: 4_000_000, ..Effort::default() };
    let loads = pack_loads(&menus, problem, objective, &effort)?;
    // θ is left out of the bound: with loads between the points it would need a wider window.
    let free = CurveProblem { theta: None, ..*problem };
    let between = pack_points(&between_points(&menus), &free, objective, &effort)?;
    Ok(judge(terms, problem, objective, &loads, between.bound))
}

/// The costs of all loads, on the grid or between, from below: a load between two points weighs at most
/// what the heavier does, and costs at least what the lighter does.
fn between_points(menus: &[Vec<Choice>]) -> Vec<Vec<Choice>> {
    let relaxed = |menu: &Vec<Choice>| {
        let between =
            menu.windows(2).map(|pair| Choice { weight: pair[1].weight, cost: pair[0].cost });
        menu.first().copied().into_iter().chain(between).collect()
    };
    menus.iter().map(relaxed).collect()
}
