//! The division of a pool among balancers.

mod common;

use common::Rng;
use plimsoll_pack::subsets;

fn sum(row: &[u32]) -> u32 {
    row.iter().sum()
}

#[test]
fn each_balancer_gets_its_part_and_shares_few_backends() {
    let mut rng = Rng(7);
    let mut divided = 0;
    for _ in 0..2_000 {
        let n = 1 + rng.below(40) as usize;
        let weights: Vec<u32> = (0..n).map(|_| rng.below(257) as u32).collect();
        let balancers = 1 + rng.below(5) as usize;
        let parts: Vec<f64> = (0..balancers).map(|_| rng.within(-0.1, 1.0).max(0.0)).collect();
        let rows = subsets(&weights, &parts);
        assert_eq!(rows.len(), balancers);
        let backends = |row: &[u32]| row.iter().filter(|weight| **weight > 0).count();
        assert!(rows.iter().all(|row| backends(row) != 1 || row == &weights), "{rows:?}");
        if rows.contains(&weights) {
            continue;
        }
        divided += 1;
        for (i, weight) in weights.iter().enumerate() {
            assert_eq!(
                rows.iter().map(|row| row[i]).sum::<u32>(),
                *weight,
                "{weights:?} {parts:?}"
            );
        }
        let all: f64 = parts.iter().sum();
        for (row, part) in rows.iter().zip(&parts).filter(|_| all > 0.0) {
            let due = part / all * f64::from(sum(&weights));
            assert!((f64::from(sum(row)) - due).abs() <= 1.0, "{weights:?} {parts:?} {row:?}");
        }
        let is_shared = |i: &usize| rows.iter().filter(|row| row[*i] > 0).count() > 1;
        let held_twice: usize = (0..n)
            .filter(is_shared)
            .map(|i| rows.iter().filter(|row| row[i] > 0).count() - 1)
            .sum();
        assert!(held_twice < balancers, "{weights:?} {parts:?} {rows:?}");
    }
    assert!(divided > 1_000, "{divided} of 2,000 pools were divided");
}

#[test]
fn heavy_backends_stand_together_and_the_one_on_the_cut_is_shared() {
    assert_eq!(subsets(&[10, 40, 20, 30], &[1.0, 1.0]), [[0, 40, 0, 10], [10, 0, 20, 20]]);
    // A little more traffic moves the cut a little.
    assert_eq!(subsets(&[10, 40, 20, 30], &[0.55, 0.45]), [[0, 40, 0, 15], [10, 0, 20, 15]]);
}

#[test]
fn where_a_balancer_would_have_a_single_backend_all_have_all() {
    assert_eq!(subsets(&[8, 2, 3, 3], &[1.0, 1.0, 0.0]), [[8, 2, 3, 3], [8, 2, 3, 3], [0; 4]]);
    assert_eq!(subsets(&[9, 0, 0], &[1.0, 1.0]), [[9, 0, 0], [9, 0, 0]]);
}

#[test]
fn a_balancer_without_traffic_gets_nothing_and_one_alone_gets_all() {
    let weights = [3, 5, 7];
    assert_eq!(subsets(&weights, &[0.0, 2.0]), [[0, 0, 0], [3, 5, 7]]);
    assert_eq!(subsets(&weights, &[2.0, 0.0]), [[3, 5, 7], [0, 0, 0]]);
    assert_eq!(subsets(&weights, &[1.0]), [[3, 5, 7]]);
    assert_eq!(subsets(&weights, &[]), Vec::<Vec<u32>>::new());
}

#[test]
fn parts_that_are_no_parts_count_as_nothing_and_none_as_equal() {
    let weights = [4, 4];
    assert_eq!(subsets(&weights, &[f64::NAN, 1.0]), [[0, 0], [4, 4]]);
    let weights = [4, 4, 4, 4];
    assert_eq!(subsets(&weights, &[-1.0, f64::INFINITY]), [[4, 4, 0, 0], [0, 0, 4, 4]]);
    assert_eq!(subsets(&[0, 0], &[1.0, 1.0]), [[0, 0], [0, 0]]);
}
