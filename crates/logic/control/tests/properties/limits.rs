//! The configured limits hold: the spread of shares, the growth of a share per step, the least change worth a plan.

use plimsoll_control::ServiceSpec;
use plimsoll_model::{MethodKind, Plan, PlanKind};

use super::bed::{Bed, spec};

/// Half of the sum of what each share differs.
fn moved(before: &[f64], after: &[f64]) -> f64 {
    0.5 * before.iter().zip(after).map(|(a, b)| (a - b).abs()).sum::<f64>()
}

fn shares(plan: &Plan) -> Vec<f64> {
    plan.entries.iter().map(|e| e.share).collect()
}

fn parts(plan: &Plan) -> Vec<f64> {
    let sum: f64 = plan.entries.iter().map(|e| f64::from(e.weight)).sum();
    plan.entries.iter().map(|e| f64::from(e.weight) / sum).collect()
}

#[test]
fn shares_spread_no_further_than_theta_where_the_pool_has_room() {
    let spread = |theta: Option<f64>| {
        let spec = ServiceSpec { theta, refresh: false, ..spec(4) };
        let mut bed = Bed::new(spec, &[1, 2, 2, 4], MethodKind::Split, 180.0, 1);
        bed.run_for(200.0);
        let spread = |plan: &Plan| {
            let shares = shares(plan);
            shares.iter().copied().fold(0.0, f64::max) - shares.iter().copied().fold(1.0, f64::min)
        };
        let packed = bed.plans.iter().filter(|plan| plan.kind == PlanKind::Packed);
        packed.map(spread).fold(0.0, f64::max)
    };
    assert!(spread(None) > 0.25, "{}", spread(None));
    for theta in [0.05, 0.1, 0.2] {
        assert!(spread(Some(theta)) <= theta + 1e-6, "{theta}: {}", spread(Some(theta)));
    }
}

#[test]
fn while_it_is_learned_a_share_grows_by_at_most_max_step() {
    for (seed, max_step) in [(1, 1.2), (2, 1.5), (3, 2.0), (4, 1.5)] {
        let spec = ServiceSpec { max_step, refresh: false, ..spec(4) };
        let mut bed = Bed::new(spec, &[1, 1, 1, 16], MethodKind::Split, 120.0, seed);
        let mut before: Vec<f64> = vec![0.25; 4];
        bed.run_for(100.0);
        let learning: Vec<&Plan> =
            bed.plans.iter().take_while(|plan| plan.kind == PlanKind::Learning).collect();
        assert!(learning.len() >= 3, "seed {seed}: {learning:?}");
        for plan in learning {
            let after = shares(plan);
            for (before, after) in before.iter().zip(&after) {
                let (had, gets): (f64, f64) = (120.0 * before, 120.0 * after);
                // It grows from the last window, which is a Poisson count; half a core is always allowed.
                let most = (max_step * (had + 4.0 * had.sqrt())).max(25.0);
                assert!(gets <= most, "seed {seed}: {gets:.0} req/s after {had:.0}: {plan:?}");
            }
            before = after;
        }
    }
}

#[test]
fn every_plan_changes_a_weight_and_packed_ones_move_min_change() {
    // Weights round shares.
    const ROUNDED: f64 = 0.004;
    let min_change = 0.03;
    for seed in 1..=3 {
        let spec = ServiceSpec { min_change, refresh: false, ..spec(4) };
        // Any one of them may fail: no plan is made only to have a second one take its part.
        let mut bed = Bed::new(spec, &[1, 2, 3, 4], MethodKind::Split, 180.0, seed);
        bed.run_for(150.0);
        for load in [180.0, 200.0, 140.0, 230.0, 100.0, 240.0].repeat(4) {
            bed.rate_rps = load;
            bed.run_for(25.0);
        }
        let pairs: Vec<&[Plan]> = bed.plans.windows(2).collect();
        let packed = pairs.iter().filter(|pair| pair[1].kind == PlanKind::Packed);
        let mut count = 0;
        for pair in packed {
            let by_shares = moved(&shares(&pair[0]), &shares(&pair[1]));
            let by_weights = moved(&parts(&pair[0]), &parts(&pair[1]));
            let moves = by_shares.max(by_weights);
            assert!(moves >= min_change - ROUNDED, "seed {seed}: {moves}: {:?}", pair[1]);
            count += 1;
        }
        assert!(count > 2, "seed {seed}: {count}");
        let same = pairs.iter().find(|pair| parts(&pair[0]) == parts(&pair[1]));
        assert_eq!(same, None, "seed {seed}");
    }
}
