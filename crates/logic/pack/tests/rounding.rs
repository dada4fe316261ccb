//! Rounding to a balancer's range.

mod common;

use common::Rng;
use plimsoll_model::{Curve, Hyperbola, Objective};
use plimsoll_pack::{CurveBackend, CurveProblem, PackError, pack_curves, round_to_range};

#[test]
fn exact_ratios_come_out_exactly() {
    let rounded = round_to_range(&[0.1, 0.2, 0.3, 0.4], None, 0..=256).unwrap();
    assert!(rounded.cost < 1e-20, "{rounded:?}");
    assert_eq!(rounded.weights, [64, 128, 192, 256]);
    assert_eq!(round_to_range(&[3.0], None, 0..=256).unwrap().weights, [256]);
    assert_eq!(round_to_range(&[1.0, 0.0], None, 0..=1).unwrap().weights, [1, 0]);
    assert_eq!(round_to_range(&[1.0, 0.0], None, 1..=256).unwrap().weights, [256, 1]);
}

#[test]
fn equal_shares_stay_equal_and_small_ones_stay_in() {
    let mut rng = Rng(21);
    for _ in 0..300 {
        let kinds: Vec<f64> = (0..4).map(|_| rng.within(0.0005, 1.0)).collect();
        let count = 2 + rng.below(80);
        let shares: Vec<f64> = (0..count).map(|_| kinds[rng.below(4) as usize]).collect();
        let rounded = round_to_range(&shares, None, 0..=256).unwrap();
        let greatest = shares.iter().copied().fold(0.0, f64::max);
        for (share, weight) in shares.iter().zip(&rounded.weights) {
            assert!(*weight <= 256);
            assert_eq!(*weight > 0, share / greatest * 256.0 >= 0.1, "{share} of {greatest}");
            for (other, other_weight) in shares.iter().zip(&rounded.weights) {
                assert!(share != other || weight == other_weight);
                assert!(share < other || weight >= other_weight, "order is kept");
            }
        }
        assert!((rounded.shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}

#[test]
fn costs_next_to_nothing_on_the_curves() {
    let mut rng = Rng(22);
    for count in [3, 30, 300] {
        let curves: Vec<Hyperbola> = (0..count)
            .map(|_| {
                let c = rng.within(0.6, 1.4) * [1.0, 2.0, 4.0, 10.0][rng.below(4) as usize]
                    / (2.0 * f64::from(count));
                Hyperbola { a: rng.within(5.0, 15.0), b: rng.within(1.0, 5.0) * c, c }
            })
            .collect();
        let all: f64 = curves.iter().map(|curve| curve.c).sum();
        let backends: Vec<CurveBackend> =
            curves.iter().map(|curve| CurveBackend { curve, max_load: 0.98 * curve.c }).collect();
        let problem = CurveProblem { backends: &backends, total: 0.8 * all, theta: None };
        for objective in [Objective::Traffic, Objective::Sum, Objective::Max] {
            let best = pack_curves(&problem, objective).unwrap();
            let judged = Some((&problem, objective));
            let rounded = round_to_range(&best.weights, judged, 0..=256).unwrap();
            // The greatest latency answers to the worst single weight, the others to the mean.
            let most = if objective == Objective::Max { 1.1 } else { 1.01 };
            assert!(rounded.cost <= best.objective * most, "{count} {objective} {rounded:?}");
            let blind = round_to_range(&best.weights, None, 0..=256).unwrap();
            let latencies = curves.iter().zip(&blind.shares).map(|(curve, share)| {
                let latency = curve.latency_at(share * problem.total);
                if objective == Objective::Traffic { share * latency } else { latency }
            });
            let blind_cost = match objective {
                Objective::Max => latencies.fold(0.0, f64::max),
                _ => latencies.sum(),
            };
            assert!(rounded.cost <= blind_cost * (1.0 + 1e-3), "{count} {objective}");
        }
    }
}

#[test]
fn a_weight_of_one_that_would_overload_becomes_zero() {
    // Ideal weight 0.5 of 256; weight 1 is already twice the small one's capacity.
    let curves = [(10.0, 1.5), (10.0, 0.0025)].map(|(a, c)| Hyperbola { a, b: 1.0, c });
    let backends: Vec<CurveBackend> =
        curves.iter().map(|curve| CurveBackend { curve, max_load: curve.c * 0.98 }).collect();
    let problem = CurveProblem { backends: &backends, total: 1.0, theta: None };
    let shares = [0.998, 0.002];
    let judged = round_to_range(&shares, Some((&problem, Objective::Traffic)), 0..=256).unwrap();
    assert_eq!(judged.weights[1], 0);
    assert!(judged.cost.is_finite());
    assert_eq!(round_to_range(&shares, None, 0..=256).unwrap().weights[1], 1);
}

#[test]
fn nonsense_is_refused() {
    for shares in [&[][..], &[0.0, 0.0], &[1.0, -0.1], &[f64::NAN], &[f64::INFINITY]] {
        assert_eq!(round_to_range(shares, None, 0..=256).unwrap_err(), PackError::BadShares);
    }
    assert_eq!(round_to_range(&[1.0], None, 0..=0).unwrap_err(), PackError::BadRange);
}
