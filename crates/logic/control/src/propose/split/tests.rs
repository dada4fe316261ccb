use std::time::Duration;

use plimsoll_model::BackendId;

use super::*;
use crate::spec::BackendSpec;

fn spec() -> ServiceSpec {
    ServiceSpec::new("shop", Vec::new())
}

const BY_SHARES: Judge<'static> = Judge { curves: None, bearable_rps: None };

#[test]
fn near_capacity_weights_are_as_fine_as_the_remaining_room_requires() {
    // Six backends at 95 %: half a unit of 40 is more than some have left.
    let pool = [(1.0, 33.3), (1.0, 23.3), (1.0, 40.0), (2.0, 66.7), (2.0, 53.3), (4.0, 88.0)];
    let curves = pool.map(|(cores, rps)| {
        let service_us = cores * 1e6 / rps;
        QueueCurve { service_us, cores, variability: 1.0 }
    });
    let backends = curves.each_ref().map(|curve| {
        let max_load = plimsoll_learn::USABLE_CAPACITY * curve.capacity();
        CurveBackend { curve, max_load }
    });
    let rounded_at = |total: f64, by_curves: bool| {
        let problem = CurveProblem { backends: &backends, total, theta: None };
        let packing = pack_curves(&problem, Objective::Traffic).expect("a packing");
        let curves = by_curves.then_some((&problem, Objective::Traffic, packing.objective));
        let bearable_rps = Some(backends.iter().map(|b| b.max_load).collect());
        let judge = Judge { curves, bearable_rps };
        let rounded = round(&spec(), &packing.weights, total, &judge).expect("weights");
        (rounded, packing)
    };
    let most = |rounded: &Rounded| *rounded.weights.iter().max().expect("six");
    let (calm, _) = rounded_at(190.0, true);
    assert!(most(&calm) <= PRECISE, "{calm:?}");
    let (full, packing) = rounded_at(290.7, true);
    assert!(most(&full) > PRECISE && full.cost <= COSTLY * packing.objective, "{full:?}");
    let (full, _) = rounded_at(299.0, false);
    let mut loads = full.shares.iter().zip(&backends);
    assert!(loads.all(|(share, b)| share * 299.0 <= OVERLOADED * b.max_load), "{full:?}");
}

#[test]
fn returned_backend_gets_a_share_that_grows_over_its_slow_start() {
    let slow_start = Duration::from_secs(10);
    let mut backends: Vec<Backend> = (0..3)
        .map(|i| {
            let spec = BackendSpec { id: BackendId(i), name: format!("s{i}") };
            let mut backend = Backend::new(&spec, slow_start);
            // A capacity of 100 requests a second each.
            backend.knowledge = crate::belief::knowledge::Knowledge::known(10_000.0);
            backend.recent.rate_rps = 40.0;
            backend
        })
        .collect();
    backends[0].begin_ramp(Nanos::ZERO);
    let share_after = |seconds: u64| {
        let now = Nanos::ZERO + Duration::from_secs(seconds);
        let decision = decide(now, &spec(), &backends, 120.0, false).expect("a packing");
        decision.wishes[0].share
    };
    let shares = [0, 3, 6, 10].map(share_after);
    assert!(shares.windows(2).all(|two| two[1] > two[0] - 1e-9), "{shares:?}");
    // A tenth of its capacity at first; of 120 requests a second.
    assert!(shares[0] <= 0.1 * 100.0 / 120.0 && shares[0] > 0.0, "{shares:?}");
    assert!(shares[1] <= 0.37 * 100.0 / 120.0, "{shares:?}");
    assert!((shares[3] - 1.0 / 3.0).abs() < 0.02, "{shares:?}");
}

#[test]
fn small_weights_are_used_only_where_they_are_close_enough() {
    // Four tiny shares beside one: 1 each of 44 would take 7 % from it.
    let shares = [0.003, 0.988, 0.003, 0.003, 0.003];
    let rounded = round(&spec(), &shares, 1.0, &BY_SHARES).expect("shares that can be rounded");
    let off = rounded.shares.iter().zip(shares).map(|(made, share)| (made - share).abs());
    assert!(off.fold(0.0, f64::max) <= ROUNDING, "{rounded:?}");
    let even = round(&spec(), &[0.2, 0.8], 1.0, &BY_SHARES).expect("shares that can be rounded");
    assert!(even.weights.iter().all(|w| *w <= PRECISE), "precise enough: {even:?}");
}

#[test]
fn pinned_loads_leave_valid_shares_however_little_arrives() {
    let mut backends: Vec<Backend> = (0..3)
        .map(|i| {
            let spec = BackendSpec { id: BackendId(i), name: format!("s{i}") };
            Backend::new(&spec, Duration::ZERO)
        })
        .collect();
    backends[0].pin = Some(Pin::Exactly(0.0));
    for rate in [1e-13, 1e-3, 10.0] {
        let decision = decide(Nanos::ZERO, &spec(), &backends, rate, false).expect("a packing");
        let sum: f64 = decision.wishes.iter().map(|w| w.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{rate}: {sum}");
    }
}

#[test]
fn theta_gives_way_where_the_traffic_cannot_be_carried_within_it_and_no_further() {
    let curve = QueueCurve { service_us: 1e4, cores: 8.0, variability: 1.0 };
    let pool = [100.0, 700.0].map(|max_load| CurveBackend { curve: &curve, max_load });
    assert_eq!(bearable_theta(0.5, &pool, 300.0), 0.5, "100 + 250 are enough");
    let wider = bearable_theta(0.5, &pool, 600.0);
    assert!((wider - 406.0 / 600.0).abs() < 1e-3, "{wider}");
    let problem = CurveProblem { backends: &pool, total: 600.0, theta: Some(wider) };
    assert!(pack_curves(&problem, plimsoll_model::Objective::Traffic).is_ok());
    assert_eq!(bearable_theta(0.5, &pool, 900.0), 0.5, "more than all can bear");
}
