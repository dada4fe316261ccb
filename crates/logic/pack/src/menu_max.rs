use crate::classes::Classes;
use crate::menu::least_sum;
use crate::packing::Packing;
use crate::problem::{Effort, MenuProblem, PackError};
use crate::theta::widest;

/// Between choices with the same maximum a small sum is preferred; this is worth little effort.
const TIE_BREAK: Effort = Effort { gap: 1e-3, states: 1 << 12, work: 1 << 18 };

/// The least possible maximum of the chosen costs, by bisection over all costs that occur: whether a
/// limit suffices is seen from the heaviest entries that keep it. `O(items · log items)`.
pub(crate) fn pack_max(
    classes: &Classes,
    problem: &MenuProblem,
) -> Result<Packing<i64>, PackError> {
    let reach = |classes: &Classes| match problem.theta {
        Some(theta) => widest(classes, theta),
        None => Ok(classes.heaviest()),
    };
    let reachable = reach(classes)?;
    if reachable < problem.target {
        return Err(PackError::Infeasible {
            needed: problem.target as f64,
            reachable: reachable as f64,
        });
    }
    let mut limits: Vec<f64> = classes.items().iter().map(|item| item.cost).collect();
    limits.sort_unstable_by(f64::total_cmp);
    limits.dedup();
    let within = |limit: f64| classes.only(|item| item.cost <= limit);
    let suffices = |limit: &f64| {
        within(*limit).is_some_and(|left| reach(&left).is_ok_and(|sum| sum >= problem.target))
    };
    let least = limits[limits.partition_point(|limit| !suffices(limit)).min(limits.len() - 1)];
    let left = within(least).ok_or(PackError::NoBackends)?;
    let choice = least_sum(&left, problem, TIE_BREAK.gap, &TIE_BREAK)?;
    Ok(Packing::new(least, least, choice.weights))
}
