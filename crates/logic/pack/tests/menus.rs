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

fn choice(weight: i64, cost: f64) -> Choice {
    Choice { weight, cost }
}

fn pack(menus: &[Vec<Choice>], target: i64) -> Result<Packing<i64>, PackError> {
    pack_menus(&MenuProblem { menus, target, theta: None }, Objective::Sum, &Effort::default())
}

#[test]
fn edges() {
    let one = vec![vec![choice(5, 1.0), choice(0, 3.0), choice(9, 2.0)]];
    assert_eq!(pack(&one, 6).unwrap().weights, [9]);
    for target in [0, -7, i64::MIN] {
        let packing = pack(&one, target).unwrap();
        assert_eq!((packing.objective, packing.proven()), (1.0, true));
    }
    let single: Vec<_> = (0..50).map(|at| vec![choice(at, at as f64)]).collect();
    assert_eq!(pack(&single, 1225).unwrap().objective, 1225.0);
    assert_eq!(
        pack(&single, 1226).unwrap_err(),
        PackError::Infeasible { needed: 1226.0, reachable: 1225.0 }
    );
    let free = vec![vec![choice(0, 0.0), choice(3, 0.0)]; 4];
    let packing = pack(&free, 10).unwrap();
    assert_eq!((packing.objective, packing.gap, packing.proven()), (0.0, 0.0, true));
    let problem = MenuProblem { menus: &one, target: 1, theta: None };
    let traffic = pack_menus(&problem, Objective::Traffic, &Effort::default());
    assert_eq!(traffic.unwrap_err(), PackError::TrafficOnMenus);
    let problem = MenuProblem { theta: Some(-1), ..problem };
    let negative = pack_menus(&problem, Objective::Sum, &Effort::default());
    assert_eq!(negative.unwrap_err(), PackError::BadTheta);
}

#[test]
fn weights_near_the_end_of_the_type() {
    let half = i64::MAX / 2;
    let menus = vec![vec![choice(0, 1.0), choice(half - 1, 2.0), choice(half, 4.0)]; 2];
    let packing = pack(&menus, i64::MAX - 2).unwrap();
    assert_eq!((packing.weights.iter().sum::<i64>(), packing.objective), (i64::MAX - 2, 6.0));
    for theta in [0, 1, i64::MAX] {
        let problem = MenuProblem { menus: &menus, target: i64::MAX - 2, theta: Some(theta) };
        let packing = pack_menus(&problem, Objective::Sum, &Effort::default()).unwrap();
        assert_eq!(packing.objective, if theta == 0 { 8.0 } else { 6.0 });
    }
    let menus = vec![vec![choice(half, 1.0)]; 3];
    assert_eq!(pack(&menus, 1).unwrap_err(), PackError::Overflow { what: "weights" });
}

#[test]
fn identical_backends_do_not_blow_up() {
    // Weights without a common lattice, curved costs; all menus equal.
    let menu: Vec<Choice> = (0..10i64)
        .map(|at| choice(at * at * 1_009 + at * 131_071, (at as f64).powf(1.7) * 10.0 + 7.0))
        .collect();
    for count in [10, 100, 1000] {
        let menus = vec![menu.clone(); count];
        let target = count as i64 * 600_001;
        let packing = pack(&menus, target).unwrap();
        assert!(packing.proven(), "{count}: {}", packing.gap);
        assert!(packing.weights.iter().sum::<i64>() >= target);
    }
}

#[test]
fn fixed_charges_end_with_an_honest_gap() {
    // What is used costs 3, then in proportion to weight: the search cannot prove much, and must end.
    let mut rng = Rng(5);
    for (count, entries) in [(50, 10), (300, 10), (40, 100)] {
        let menus: Vec<Vec<Choice>> = (0..count)
            .map(|_| {
                let size = rng.within(0.5, 1.5) * 2.5e6 / count as f64;
                let entry = |_| {
                    let weight = rng.within(0.0, size) as i64;
                    choice(weight, 10.0 + weight as f64 * 2e-5 * count as f64 + 3.0)
                };
                let mut menu: Vec<Choice> = (1..entries).map(entry).collect();
                menu.push(choice(0, 10.0));
                menu
            })
            .collect();
        let effort = Effort { work: 2_000_000, ..Effort::default() };
        let problem = MenuProblem { menus: &menus, target: 1_000_000, theta: None };
        let packing = pack_menus(&problem, Objective::Sum, &effort).unwrap();
        check_weights(&problem, Objective::Sum, &packing);
        assert!(packing.gap < 0.01, "{count} × {entries}: {}", packing.gap);
        assert_eq!(packing.proven(), packing.gap <= 1e-9);
    }
}

#[test]
fn very_large_pools_stop_at_a_millionth() {
    let mut rng = Rng(6);
    let menus: Vec<Vec<Choice>> = (0..20_000)
        .map(|_| {
            let (size, steep) = (rng.within(1e4, 1e5), rng.within(1.0, 9.0));
            let entry = |at: i32| {
                let x = f64::from(at) / 9.0;
                choice((x * size) as i64, 10.0 + steep * x * x * x)
            };
            (0..10).map(entry).collect()
        })
        .collect();
    let packing = pack(&menus, 600_000_000).unwrap();
    assert!(packing.gap <= 1e-6, "{}", packing.gap);
}

#[test]
fn pools_of_few_kinds_agree_with_dynamic_programming() {
    let mut rng = Rng(7);
    for case in 0..4_000 {
        let span = 2 + rng.below(20);
        let kinds: Vec<Vec<Choice>> = (0..1 + rng.below(3))
            .map(|_| {
                let entries = 2 + rng.below(4);
                let entry = |_| choice(rng.below(span) as i64, rng.within(0.0, 9.0).floor() + 0.1);
                (0..entries).map(entry).collect()
            })
            .collect();
        let count = 2 + rng.below(25);
        let menus: Vec<Vec<Choice>> =
            (0..count).map(|_| kinds[rng.below(kinds.len() as u64) as usize].clone()).collect();
        let heaviest: i64 =
            menus.iter().map(|menu| menu.iter().map(|item| item.weight).max().unwrap()).sum();
        let mut best = vec![f64::INFINITY; heaviest as usize + 1];
        best[0] = 0.0;
        for menu in &menus {
            let mut next = vec![f64::INFINITY; best.len()];
            for (sum, cost) in best.iter().enumerate().filter(|(_, cost)| cost.is_finite()) {
                for item in menu {
                    let at = &mut next[sum + item.weight as usize];
                    *at = at.min(cost + item.cost);
                }
            }
            best = next;
        }
        let target = (heaviest as f64 * rng.within(0.2, 1.0)) as i64;
        let least = best[target as usize..].iter().copied().fold(f64::INFINITY, f64::min);
        let packing = pack(&menus, target).unwrap();
        assert!(
            packing.proven() && (packing.objective - least).abs() < 1e-9,
            "{case}: {packing:?}"
        );
    }
}
