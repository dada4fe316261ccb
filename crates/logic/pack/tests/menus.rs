//! The menu solver against brute force, and its limits.

mod common;

use common::Rng;
use plimsoll_model::Objective;
use plimsoll_pack::{Choice, Effort, MenuProblem, PackError, Packing, pack_menus};

/// A small random problem: unsorted, with equal weights, costs that fall, plateaus and zero targets.
fn random_menus(rng: &mut Rng) -> (Vec<Vec<Choice>>, i64) {
    let backends = 1 + rng.below(5);
    let span = if rng.below(2) == 0 { 1000 } else { 12 };
    let whole_costs = rng.below(2) == 0;
    let rising = rng.below(2) == 0;
    let mut heaviest = 0;
    let menus = (0..backends).map(|_| {
        let mut menu: Vec<Choice> = (0..1 + rng.below(5))
            .map(|_| {
                let cost = rng.within(0.0, 20.0);
                let weight = rng.below(span) as i64;
                Choice { weight, cost: if whole_costs { cost.floor() } else { cost } }
            })
            .collect();
        if rising {
            menu.sort_by_key(|item| item.weight);
            let mut costs: Vec<f64> = menu.iter().map(|item| item.cost).collect();
            costs.sort_by(f64::total_cmp);
            menu.iter_mut().zip(costs).for_each(|(item, cost)| item.cost = cost);
        }
        heaviest += menu.iter().map(|item| item.weight).max().unwrap();
        menu
    });
    let menus: Vec<Vec<Choice>> = menus.collect();
    let target = (heaviest as f64 * rng.within(-0.05, 1.05)) as i64;
    (menus, target)
}

/// The best objective over all combinations.
fn brute_force(problem: &MenuProblem, objective: Objective) -> Option<f64> {
    fn walk(
        problem: &MenuProblem,
        objective: Objective,
        chosen: &mut Vec<Choice>,
        best: &mut Option<f64>,
    ) {
        if let Some(menu) = problem.menus.get(chosen.len()) {
            for &item in menu {
                chosen.push(item);
                walk(problem, objective, chosen, best);
                chosen.pop();
            }
            return;
        }
        let weights = chosen.iter().map(|item| item.weight);
        let spread = weights.clone().max().unwrap() - weights.clone().min().unwrap();
        if weights.sum::<i64>() < problem.target || problem.theta.is_some_and(|most| spread > most)
        {
            return;
        }
        let costs = chosen.iter().map(|item| item.cost);
        let value = match objective {
            Objective::Max => costs.fold(f64::NEG_INFINITY, f64::max),
            _ => costs.sum(),
        };
        if best.is_none_or(|least| value < least) {
            *best = Some(value);
        }
    }
    let mut best = None;
    walk(problem, objective, &mut Vec::new(), &mut best);
    best
}

/// The weights are on the menus, meet every constraint, and cost what the packing says.
fn check_weights(problem: &MenuProblem, objective: Objective, packing: &Packing<i64>) {
    let weights = &packing.weights;
    assert_eq!(weights.len(), problem.menus.len());
    assert!(weights.iter().sum::<i64>() >= problem.target);
    if let Some(theta) = problem.theta {
        assert!(weights.iter().max().unwrap() - weights.iter().min().unwrap() <= theta);
    }
    let costs = problem.menus.iter().zip(weights).map(|(menu, &weight)| {
        let at_weight = menu.iter().filter(|item| item.weight == weight).map(|item| item.cost);
        at_weight.min_by(f64::total_cmp).expect("a weight that is on the menu")
    });
    let value = match objective {
        Objective::Max => costs.fold(f64::NEG_INFINITY, f64::max),
        _ => costs.sum(),
    };
    assert!((value - packing.objective).abs() < 1e-9, "{value} {packing:?}");
    assert!(packing.bound <= packing.objective);
}

fn agree(seed: u64, cases: usize, objective: Objective, with_theta: bool) {
    let mut rng = Rng(seed);
    let mut feasible = 0;
    for case in 0..cases {
        let (menus, target) = random_menus(&mut rng);
        let most = menus.iter().flatten().map(|item| item.weight).max().unwrap() as f64;
        let theta = with_theta.then(|| (most * rng.within(0.0, 1.1)) as i64);
        let problem = MenuProblem { menus: &menus, target, theta };
        match (
            brute_force(&problem, objective),
            pack_menus(&problem, objective, &Effort::default()),
        ) {
            (Some(best), Ok(packing)) => {
                feasible += 1;
                check_weights(&problem, objective, &packing);
                assert!(packing.proven(), "case {case}: {packing:?} {problem:?}");
                assert!(
                    (packing.objective - best).abs() < 1e-7,
                    "case {case}: best {best}, {packing:?} {problem:?}"
                );
            }
            (None, Err(PackError::Infeasible { needed, reachable })) => {
                assert!(reachable < needed, "case {case}");
            }
            (None, Err(PackError::ThetaTooSmall { theta, least })) => {
                assert!(theta < least, "case {case}");
                let wider = MenuProblem { theta: Some(least as i64), target: 0, ..problem };
                assert!(brute_force(&wider, objective).is_some(), "case {case}");
                let narrower = MenuProblem { theta: Some(least as i64 - 1), target: 0, ..problem };
                assert!(brute_force(&narrower, objective).is_none(), "case {case}");
            }
            (best, packing) => panic!("case {case}: {best:?} {packing:?} {problem:?}"),
        }
    }
    assert!(feasible > cases / 3, "only {feasible} of {cases} cases say anything");
}

#[test]
fn sum_agrees_with_brute_force() {
    agree(1, 60_000, Objective::Sum, false);
}

#[test]
fn sum_within_theta_agrees_with_brute_force() {
    agree(2, 60_000, Objective::Sum, true);
}

#[test]
fn max_agrees_with_brute_force() {
    agree(3, 20_000, Objective::Max, false);
}

#[test]
fn max_within_theta_agrees_with_brute_force() {
    agree(4, 20_000, Objective::Max, true);
}
