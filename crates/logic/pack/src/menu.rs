use plimsoll_model::Objective;

use crate::classes::Classes;
use crate::core_search::search;
use crate::menu_max::pack_max;
use crate::packing::Packing;
use crate::problem::{Effort, MenuProblem, PackError};
use crate::theta::{search_theta, widest};

/// Chooses one entry of every backend's menu so that the weights reach the target and the costs are
/// least: their sum ([`Objective::Sum`]) or the greatest of them ([`Objective::Max`]).
///
/// The answer is exact within the effort: [`Packing::proven`] says whether that sufficed. With
/// [`Objective::Max`] it always does; among the choices with the least maximum one with a small sum is
/// taken.
///
/// # Errors
/// Malformed input, [`Objective::Traffic`], a target out of reach, or a θ that leaves a backend nothing.
pub fn pack_menus(
    problem: &MenuProblem,
    objective: Objective,
    effort: &Effort,
) -> Result<Packing<i64>, PackError> {
    if problem.theta.is_some_and(|theta| theta < 0) {
        return Err(PackError::BadTheta);
    }
    let classes = Classes::sorted(problem)?;
    match objective {
        Objective::Traffic => Err(PackError::TrafficOnMenus),
        Objective::Max => pack_max(&classes, problem),
        Objective::Sum => {
            let choice = least_sum(&classes, problem, effort.gap_for(classes.len()), effort)?;
            Ok(Packing::new(choice.cost, choice.bound, choice.weights))
        }
    }
}

/// Weights with the sum of their costs and a bound on it.
pub(crate) struct LeastSum {
    pub weights: Vec<i64>,
    pub cost: f64,
    pub bound: f64,
}

/// The least sum of costs over sorted classes.
pub(crate) fn least_sum(
    classes: &Classes,
    problem: &MenuProblem,
    gap: f64,
    effort: &Effort,
) -> Result<LeastSum, PackError> {
    let reachable = match problem.theta {
        Some(theta) => widest(classes, theta)?,
        None => classes.heaviest(),
    };
    let out_of_reach =
        || PackError::Infeasible { needed: problem.target as f64, reachable: reachable as f64 };
    if reachable < problem.target {
        return Err(out_of_reach());
    }
    let free = classes.efficient(|_| true).ok_or(PackError::NoBackends)?;
    let mut work = effort.work;
    let found = search(&free, problem.target, f64::INFINITY, gap, effort.states, &mut work)
        .ok_or_else(out_of_reach)?;
    let weights = found.chosen.as_deref().map(|chosen| free.weights(chosen)).unwrap_or_default();
    let Some(theta) = problem.theta.filter(|&theta| spread(&weights) > theta) else {
        return Ok(LeastSum { weights, cost: found.cost, bound: found.bound });
    };
    let mut within = search_theta(classes, problem.target, theta, gap, effort.states, &mut work)
        .ok_or_else(out_of_reach)?;
    within.bound = within.bound.max(found.bound);
    Ok(within)
}

/// The difference between the heaviest and the lightest.
fn spread(weights: &[i64]) -> i64 {
    let most = weights.iter().copied().max().unwrap_or(0);
    most - weights.iter().copied().min().unwrap_or(0)
}
