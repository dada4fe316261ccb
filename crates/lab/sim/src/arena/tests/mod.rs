use std::time::Duration;

use plimsoll_model::Curve;
use plimsoll_policy::{Policy, PolicyKind, Settings};

mod around;
mod inputs;
mod waiting;

use super::*;
use crate::{paper_pool, small_pool};

pub(super) fn balancer(kind: PolicyKind, weights: &[u32]) -> [Box<dyn Policy>; 1] {
    [kind.build(weights, &Settings::default()).expect("the defaults are valid")]
}

fn step(at_s: f64, change: Change) -> Step {
    Step { at_s, change }
}

#[test]
fn one_backend_is_a_textbook_queue() {
    for cores in [1, 4] {
        let pool = vec![BackendModel { cores, speed: 1.2 }];
        let mut arena = Arena::new(pool, 0.7, 400_000, 3);
        let exact = arena.pool[0].curve(arena.service_us).latency_at(arena.rate_rps);
        let near = arena.run(&mut balancer(PolicyKind::RoundRobin, &[1]));
        assert!((near.mean_us / exact - 1.0).abs() < 0.03, "{} for {exact}", near.mean_us);
        assert!((near.backends[0].utilisation - 0.7).abs() < 0.01, "{:?}", near.backends);
        assert_eq!((near.requests, near.errors, near.unserved), (360_000, 0, 0));
        assert!(near.p50_us < near.mean_us && near.mean_us < near.p99_us);
        // A constant way there and back adds itself and nothing else.
        arena.network = Duration::from_millis(5);
        let far = arena.run(&mut balancer(PolicyKind::RoundRobin, &[1]));
        assert!((far.mean_us - near.mean_us - 10_000.0).abs() < 20.0, "{}", far.mean_us);
    }
}

#[test]
fn it_agrees_with_the_solvers_simulation() {
    use plimsoll_queueing::{HaproxyLeastconn, Run, Station, simulate};
    use rand::SeedableRng;
    let arena = Arena::new(small_pool(), 0.7, 400_000, 1);
    let weights = integer_weights(&arena.capacities_rps(), 256);
    let here = arena.run(&mut balancer(PolicyKind::LeastconnHaproxy, &weights)).mean_us;
    let stations: Vec<Station> = arena
        .pool
        .iter()
        .map(|b| Station { cores: b.cores, service_us: arena.service_us / b.speed })
        .collect();
    let Arena { rate_rps, requests, warm_up, service, .. } = arena;
    let run = Run { rate_rps, requests, warm_up, service };
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(2);
    let there = simulate(&stations, &mut HaproxyLeastconn::new(&weights), &run, &mut rng).mean_us;
    assert!((here / there - 1.0).abs() < 0.02, "{here} and {there}");
}

#[test]
fn a_seed_determines_the_run_and_all_policies_get_the_same_traffic() {
    let arena = Arena::new(small_pool(), 0.7, 20_000, 9);
    let run = |kind| arena.run(&mut balancer(kind, &[1; 6]));
    for &kind in PolicyKind::ALL {
        let report = run(kind);
        assert_eq!(report, run(kind), "{kind}");
        assert_eq!(report.requests, 18_000, "{kind}");
        let shares: f64 = report.backends.iter().map(|b| b.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{kind}");
    }
    let other = Arena { seed: 10, ..arena.clone() };
    assert_ne!(run(PolicyKind::Random), other.run(&mut balancer(PolicyKind::Random, &[1; 6])));
}

#[test]
fn yardsticks_bound_in_flight_methods() {
    let arena = Arena::new(paper_pool(11), 0.7, 300_000, 1);
    let yard = yardsticks(&arena).expect("a pool with room");
    assert!((yard.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    let capacity = integer_weights(&arena.capacities_rps(), 10_000);
    let counting = arena.run(&mut balancer(PolicyKind::LeastConnections, &capacity)).mean_us;
    let blind = arena.run(&mut balancer(PolicyKind::RoundRobin, &capacity)).mean_us;
    let best = yard.static_split.mean_us;
    assert!(yard.central_mean_us < counting && counting < best && best < blind);
    // More cores can be filled further for the same marginal wait.
    let types = yard.static_split.by_cores(&arena.pool);
    assert_eq!(
        types.iter().map(|t| (t.cores, t.backends)).collect::<Vec<_>>(),
        [(1, 16), (2, 8), (4, 4), (8, 2)]
    );
    assert!(types.windows(2).all(|w| w[0].utilisation < w[1].utilisation), "{types:?}");
}

#[test]
fn timeline_changes_take_effect() {
    let pool = vec![BackendModel { cores: 1, speed: 1.0 }; 2];
    let mut arena = Arena::new(pool, 0.3, 40_000, 1);
    arena.warm_up = 0;
    arena.window_s = Some(10.0);
    arena.timeline = vec![
        step(100.0, Change::Rate(2.0 * arena.rate_rps)),
        step(200.0, Change::Weights(vec![1, 3])),
        step(300.0, Change::Speed { backend: 1, speed: 2.0 }),
        step(400.0, Change::Kill { backend: 0 }),
        step(500.0, Change::Return { backend: 0 }),
        step(600.0, Change::FailFast { backend: 1, after: Duration::from_millis(7) }),
        step(700.0, Change::Weights(vec![0, 0])),
    ];
    let report = arena.run(&mut balancer(PolicyKind::Random, &[1, 1]));
    // Means over ten windows of ten seconds, from the first one that is wholly after the change.
    let over = |from: usize| {
        let windows = &report.windows[from..from + 9];
        let sum = |f: &dyn Fn(&Window) -> f64| windows.iter().map(f).sum::<f64>();
        let all = sum(&|w| f64::from(w.by_backend[0] + w.by_backend[1]));
        let first = sum(&|w| f64::from(w.by_backend[0])) / all;
        (all / 90.0, first, sum(&|w| w.errors as f64) / all, sum(&|w| w.mean_us) / 9.0)
    };
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.1;
    let (rate, first, errors, _) = over(0);
    assert!(near(rate, 20.0) && near(first, 0.5) && errors == 0.0);
    assert!(near(over(11).0, 40.0));
    assert!(near(over(21).1, 0.25));
    // 30 rps at one core of 15 ms: M/M/1 says 27 ms; 10 at 30 ms: 43 ms.
    assert!(near(over(31).3, 31_000.0), "{:?}", over(31));
    assert!(near(over(41).2, 0.25), "the dead one's part fails: {:?}", over(41));
    assert!(over(51).2 == 0.0);
    assert!(near(over(61).2, 0.75));
    assert!(report.unserved > 5_000 && report.windows[75].by_backend == [0, 0]);
    let served: u64 = report.requests + report.errors + report.unserved;
    assert_eq!(served, 40_000);
}

#[test]
fn dying_backend_loses_its_requests() {
    let pool = vec![BackendModel { cores: 2, speed: 1.0 }];
    let mut arena = Arena::new(pool, 5.0, 1_000, 1);
    arena.warm_up = 0;
    arena.network = Duration::from_millis(1);
    arena.timeline =
        vec![step(1.0, Change::Kill { backend: 0 }), step(1.5, Change::Return { backend: 0 })];
    let report = arena.run(&mut balancer(PolicyKind::RoundRobin, &[1]));
    // About 330 requests per second arrive and 67 are served: 270 wait when it dies, and 165 arrive while it is dead.
    assert!((380..490).contains(&report.errors), "{}", report.errors);
    assert_eq!(report.requests + report.errors, 1_000);
    assert!(report.backends[0].utilisation < 0.9, "idle while dead");
}

#[test]
fn independent_balancers_do_worse() {
    let arena = Arena::new(paper_pool(11), 0.7, 200_000, 1);
    let weights = integer_weights(&arena.capacities_rps(), 10_000);
    let one = arena.run(&mut balancer(PolicyKind::LeastConnections, &weights)).mean_us;
    let mut ten: Vec<Box<dyn Policy>> =
        (0..10).flat_map(|_| balancer(PolicyKind::LeastConnections, &weights)).collect();
    assert!(arena.run(&mut ten).mean_us > 1.5 * one);
}
