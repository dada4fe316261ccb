use plimsoll_model::Objective;

use crate::continuous::{judge, pack_curves, short_of_capacity};
use crate::grid::{menu, pack_loads};
use crate::packing::Packing;
use crate::problem::{Choice, CurveProblem, Effort, PackError};
use crate::terms::{Term, terms};

/// Weights offered per backend and step.
const POINTS: usize = 10;
/// The second step is worth it from this many backends on (KnapsackLB §4.4).
const SECOND_STEP_FROM: usize = 100;
/// How far the second step looks around the first, as a part of the greatest load.
const AROUND: f64 = 0.1;

/// The paper's own way to pack curves (KnapsackLB §4.4): ten weights per backend from 0 to its greatest;
/// from a hundred backends on, once more with ten weights around the first answer. It is here to be
/// compared with [`pack_curves`], whose bound tells what it misses.
///
/// # Errors
/// As [`pack_curves`].
pub fn pack_two_step(
    problem: &CurveProblem,
    objective: Objective,
    effort: &Effort,
) -> Result<Packing<f64>, PackError> {
    let terms = terms(problem, objective)?;
    if let Some(short) = short_of_capacity(&terms, problem, objective)? {
        return Ok(short);
    }
    let step = |range: &dyn Fn(usize, &Term) -> (f64, f64)| {
        let menus: Vec<Vec<Choice>> = terms
            .iter()
            .enumerate()
            .map(|(at, term)| menu(term, objective, problem.total, range(at, term), POINTS))
            .collect();
        pack_loads(&menus, problem, objective, effort)
    };
    let mut loads = step(&|_, term| (0.0, term.most))?;
    if terms.len() >= SECOND_STEP_FROM {
        loads = step(&|at, term| {
            let reach = AROUND * term.most;
            ((loads[at] - reach).max(0.0), (loads[at] + reach).min(term.most))
        })?;
    }
    let best = pack_curves(problem, objective)?;
    let mut packing = judge(&terms, problem, objective, &loads, f64::NEG_INFINITY);
    packing = Packing::new(packing.objective, best.bound, packing.weights);
    Ok(packing)
}
