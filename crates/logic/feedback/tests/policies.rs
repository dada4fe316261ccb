//! What every policy must hold, and what each is for.

use plimsoll_feedback::{
    Balancer, BalancerKind, CoreLoad, FLOOR, Gains, Monitor, Pid, PidLiteral, Residual, WaterFill,
    WeightedRoundRobin,
};

fn core(old: f64, new: f64) -> CoreLoad {
    let predicted = old + new;
    CoreLoad {
        serves: true,
        old,
        new,
        aging: None,
        predicted,
        reported: Some(predicted.min(1.0)),
        cost: 1e-6,
    }
}

fn once(policy: &mut dyn Balancer, cores: &[CoreLoad]) -> Vec<f64> {
    let mut weights = vec![1.0 / cores.len() as f64; cores.len()];
    policy.update(0.01, cores, &mut weights);
    weights
}

#[track_caller]
fn near(found: &[f64], expected: &[f64]) {
    let same = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-3;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(same),
        "{found:?} is not {expected:?}"
    );
}

/// A repeatable sequence of numbers between 0 and 1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Loads as they are, and as they should never be.
    fn load(&mut self) -> f64 {
        match (self.next() * 12.0) as u32 {
            0 => 0.0,
            1 => 1e12,
            2 => f64::NAN,
            3 => f64::INFINITY,
            4 => -1.0,
            5 => 1e-300,
            _ => 2.0 * self.next(),
        }
    }
}

#[test]
fn weights_are_finite_shares_of_those_that_serve_whatever_the_loads() {
    for &kind in BalancerKind::ALL {
        let mut numbers = Numbers(24);
        for run in 0..200 {
            let mut policy = kind.build();
            let count = 1 + (numbers.next() * 20.0) as usize;
            let mut weights = vec![0.0; count];
            for step in 0..30 {
                let cores: Vec<CoreLoad> = (0..count)
                    .map(|_| CoreLoad {
                        serves: numbers.next() < 0.8,
                        old: numbers.load(),
                        new: numbers.load(),
                        aging: (run % 2 == 0).then(|| numbers.load()),
                        predicted: numbers.load(),
                        reported: (numbers.next() < 0.5).then(|| numbers.load()),
                        cost: numbers.load(),
                    })
                    .collect();
                policy.update(0.1 * numbers.next(), &cores, &mut weights);
                let about = format!("{kind}, run {run}, step {step}: {weights:?}");
                assert!(weights.iter().all(|w| w.is_finite() && *w >= 0.0), "{about}");
                let outside = cores.iter().zip(&weights).filter(|(core, _)| !core.serves);
                assert!(outside.into_iter().all(|(_, weight)| *weight == 0.0), "{about}");
                let expected = if cores.iter().any(|core| core.serves) { 1.0 } else { 0.0 };
                assert!((weights.iter().sum::<f64>() - expected).abs() < 1e-9, "{about}");
            }
        }
    }
}

#[test]
fn one_core_gets_everything_and_none_nothing() {
    for &kind in BalancerKind::ALL {
        assert_eq!(once(&mut *kind.build(), &[core(0.9, 0.3)]), [1.0], "{kind}");
        assert_eq!(once(&mut *kind.build(), &[CoreLoad::default(); 2]), [0.0, 0.0], "{kind}");
        assert!(once(&mut *kind.build(), &[]).is_empty(), "{kind}");
    }
}

#[test]
fn without_any_load_shares_are_equal() {
    for &kind in BalancerKind::ALL {
        near(&once(&mut *kind.build(), &[core(0.0, 0.0); 4]), &[0.25; 4]);
    }
}

#[test]
fn where_all_are_overloaded_the_least_overloaded_gets_most() {
    let cores = [core(1.6, 0.0), core(1.1, 0.1), core(2.0, 0.0)];
    for kind in [BalancerKind::WaterFill, BalancerKind::Pid, BalancerKind::PidLiteral] {
        let weights = once(&mut *kind.build(), &cores);
        assert!(weights[1] > weights[0] && weights[0] >= weights[2], "{kind}: {weights:?}");
    }
    // No server has capacity left, so all have the floor of it.
    near(&once(&mut Residual, &cores), &[1.0 / 3.0; 3]);
}

#[test]
fn water_fill_levels_what_old_flows_left() {
    // An elephant of 0.47 beside 0.53 of mice: both cores are to hold 0.5.
    near(
        &once(&mut WaterFill::default(), &[core(0.47, 0.25), core(0.0, 0.28)]),
        &[0.03 / 0.53, 0.5 / 0.53],
    );
    // Three cores, the first above the level of the other two.
    let cores = [core(0.9, 0.1), core(0.3, 0.1), core(0.1, 0.1)];
    near(&once(&mut WaterFill::default(), &cores), &[0.0, 0.05 / 0.3, 0.25 / 0.3]);
}

#[test]
fn water_fill_gives_a_slow_core_fewer_packets_for_the_same_level() {
    let mut cores = [core(0.2, 0.3), core(0.2, 0.3)];
    cores[1].cost = 2e-6;
    // 0.3 of a core at 1 µs and 0.3 at 2 µs are 450,000 packets a second: to one level they are split 2 to 1.
    near(&once(&mut WaterFill::default(), &cores), &[2.0 / 3.0, 1.0 / 3.0]);
}

#[test]
fn water_fill_without_young_flows_points_at_the_least_loaded() {
    near(
        &once(&mut WaterFill::default(), &[core(0.7, 0.0), core(0.4, 0.0), core(0.6, 0.0)]),
        &[0.0, 1.0, 0.0],
    );
}

#[test]
fn water_fill_counts_young_flows_that_last_as_load_that_stays() {
    let mut policy = WaterFill::default();
    // All that is young lasts, and an eighth of the whole is young: what is on core 0 stays there.
    let cores = [
        CoreLoad { aging: Some(0.2), ..core(0.4, 0.2) },
        CoreLoad { aging: Some(0.1), ..core(0.4, 0.1) },
    ];
    let mut weights = [0.5; 2];
    for _ in 0..500 {
        policy.update(0.01, &cores, &mut weights);
    }
    assert!((policy.lasting() - 1.0).abs() < 0.01, "{}", policy.lasting());
    // Kept 0.8 and 0.6; 0.3 starts in an interval: the level is 0.85.
    near(&weights, &[0.05 / 0.3, 0.25 / 0.3]);
    // The same young load, which ends young: old load is level, so shares are.
    let cores = [core(0.4, 0.2), core(0.4, 0.1)].map(|core| CoreLoad { aging: Some(0.0), ..core });
    for _ in 0..1000 {
        policy.update(0.01, &cores, &mut weights);
    }
    near(&weights, &[0.5, 0.5]);
}

#[test]
fn residual_is_in_proportion_to_what_is_left() {
    near(
        &once(&mut Residual, &[core(0.8, 0.0), core(0.1, 0.3), core(1.3, 0.0)]),
        &[0.25, 0.75, FLOOR],
    );
}

#[test]
fn weighted_round_robin_keeps_its_shares_among_those_that_serve() {
    let mut policy = WeightedRoundRobin::new(&[1.0, 3.0]);
    near(&once(&mut policy, &[core(9.0, 0.0), core(0.0, 0.0)]), &[0.25, 0.75]);
    let away = CoreLoad { serves: false, ..core(0.0, 0.0) };
    near(&once(&mut policy, &[core(9.0, 0.0), away]), &[1.0, 0.0]);
}

#[test]
fn pid_takes_from_the_overloaded_by_its_gains() {
    let weights = once(&mut Pid::default(), &[core(0.8, 0.0), core(0.4, 0.0)]);
    // e = ±0.2, no error before: (0.6 · 0.2 + 0.5 · 0.2 · 0.01) / 2. A core that joins has no derivative.
    let change = (0.6 * 0.2 + 0.5 * 0.2 * 0.01) / 2.0;
    near(&weights, &[0.5 - change, 0.5 + change]);
}

#[test]
fn pid_takes_more_while_an_error_grows_and_less_while_it_shrinks() {
    let gains = Gains { p: 0.0, i: 0.0, d: 0.125 };
    let mut policy = Pid::new(gains);
    let mut weights = [0.5; 2];
    let mut after = |busy: f64| {
        policy.update(0.03, &[core(busy, 0.0), core(0.4, 0.0)], &mut weights);
        weights
    };
    near(&after(0.8), &[0.5, 0.5]);
    // e goes from 0.2 to 0.3, and back.
    let change = 0.125 * 0.1 / 2.0;
    near(&after(1.0), &[0.5 - change, 0.5 + change]);
    near(&after(0.8), &[0.5, 0.5]);
}

#[test]
fn pid_does_not_wind_up_at_the_floor() {
    let mut policy = Pid::default();
    let mut weights = [0.5; 2];
    let cores = [core(1.5, 0.0), core(0.5, 0.0)];
    for _ in 0..10_000 {
        policy.update(0.03, &cores, &mut weights);
    }
    near(&weights, &[FLOOR, 1.0 - FLOOR]);
    let wound = policy.integral(0);
    assert!(wound < 0.5, "{wound} core-seconds were summed up at the floor");
    // The elephant has gone: the weights are back within a second.
    let cores = [core(0.2, 0.0), core(0.8, 0.0)];
    for _ in 0..33 {
        policy.update(0.03, &cores, &mut weights);
    }
    assert!(weights[0] > 0.9, "{weights:?}");
}

#[test]
fn pid_literal_is_what_the_paper_prints() {
    let mut policy = PidLiteral::default();
    let mut weights = [0.5; 2];
    let (mut sum, mut before, mut expected) = (0.0, 0.0, 0.5);
    for load in [0.60, 0.62, 0.55, 0.52, 0.51] {
        policy.update(0.03, &[core(load, 0.0), core(1.0 - load, 0.0)], &mut weights);
        let error = 0.6 * (load - 0.5);
        sum += 0.5 * error * 0.03;
        expected -= error + sum + 0.125 * (before - error) * 0.03;
        before = error;
        assert!((weights[0] - expected).abs() < 1e-9, "{weights:?}, {expected}");
    }
}

#[test]
fn monitor_goes_by_reports_and_takes_the_silent_for_average() {
    let told = |predicted: f64, reported| CoreLoad { reported, ..core(predicted, 0.0) };
    let weights = once(
        &mut Monitor::default(),
        &[told(0.0, Some(0.9)), told(2.0, Some(0.3)), told(5.0, None)],
    );
    assert!(weights[0] < weights[2] && weights[2] < weights[1], "{weights:?}");
    near(&weights[2..], &[1.0 / 3.0]);
    near(&once(&mut Monitor::default(), &[told(0.3, None), told(0.9, None)]), &[0.5, 0.5]);
}

#[test]
fn names_are_read_back_and_unknown_ones_answered_with_all() {
    for &kind in BalancerKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert!(kind.summary().ends_with('.') && !kind.interval().is_zero());
    }
    assert_eq!(BalancerKind::default(), BalancerKind::ALL[0]);
    let error = "waterfill".parse::<BalancerKind>().err().map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some(
            "unknown policy \"waterfill\"; known: water_fill, pid, pid_literal, residual, \
             weighted_round_robin, monitor"
        )
    );
}
