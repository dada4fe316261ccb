//! KnapsackLB's controller, as the paper has it, in simulated pools.

mod climb;
mod schedule;

use plimsoll_control::{Phase, RecordKind};
use plimsoll_model::{Nanos, Plan, PlanKind};
use plimsoll_sim::knapsack::ExploreMode;
use plimsoll_sim::{BackendModel, Method, World, WorldSpec, paper_pool, small_pool};

const MODES: [ExploreMode; 2] = [ExploreMode::Bisect, ExploreMode::Literal];

/// A pool at this load under this exploration.
fn explored(mode: ExploreMode, pool: Vec<BackendModel>, load: f64) -> World {
    let mut world = World::new(WorldSpec::new(pool, Method::RoundRobin, load, 2));
    world.attach_knapsack(mode);
    world
}

fn of_kind(world: &World, kind: PlanKind) -> Vec<&(Nanos, Plan)> {
    world.plans.iter().filter(|(_, plan)| plan.kind == kind).collect()
}

fn recorded(world: &World, kind: RecordKind, backend: Option<&str>) -> usize {
    let is = |r: &plimsoll_control::Record| r.kind == kind && r.backend.as_deref() == backend;
    world.records.iter().filter(|(_, r)| is(r)).count()
}

#[test]
fn the_pool_is_explored_in_rounds_and_packed() {
    for mode in MODES {
        let mut w = explored(mode, small_pool(), 0.6);
        w.run_for(30.0);
        assert_eq!(w.phase(), Some(Phase::Exploring), "{mode:?}");
        w.run_for(370.0);
        assert_eq!(w.phase(), Some(Phase::Steady), "{mode:?}");
        let (rounds, packed) = (of_kind(&w, PlanKind::Measuring), of_kind(&w, PlanKind::Packed));
        assert!(rounds.len() >= 3 && packed.len() == 1, "{mode:?}: {} rounds", rounds.len());
        let gap = |two: &[&(Nanos, Plan)]| two[1].0.since(two[0].0).as_secs_f64();
        assert!(rounds.windows(2).all(|two| gap(two) >= 10.0), "{mode:?}: rounds last 10 s");
        for (_, plan) in &w.plans {
            let sum: f64 = plan.entries.iter().map(|e| e.share).sum();
            assert!((sum - 1.0).abs() < 1e-6, "{mode:?}: {plan:?}");
        }
    }
}

#[test]
fn printed_the_algorithm_gives_small_backends_nothing() {
    let mut printed = explored(ExploreMode::Literal, paper_pool(11), 0.7);
    printed.run_for(300.0);
    assert_eq!(printed.phase(), Some(Phase::Steady));
    let nothing = printed.weights().iter().filter(|w| **w == 0).count();
    assert!(nothing >= 3, "whose first weight overloads them: {nothing}");
}

#[test]
fn failed_backend_gets_nothing_and_is_explored_after_its_return() {
    for mode in MODES {
        let mut w = explored(mode, small_pool(), 0.4);
        w.set_alive(3, false);
        w.run_for(400.0);
        assert_eq!(w.phase(), Some(Phase::Steady), "{mode:?}");
        assert_eq!((w.weights()[3], recorded(&w, RecordKind::Failed, Some("s3"))), (0, 1));
        let back = w.now();
        w.set_alive(3, true);
        w.run_for(300.0);
        let given = |(at, plan): &&&(Nanos, Plan)| {
            *at > back && plan.entries.iter().any(|e| e.backend.0 == 3 && e.weight > 0)
        };
        assert!(of_kind(&w, PlanKind::Measuring).iter().any(|plan| given(&plan)), "{mode:?}");
        assert_eq!(w.phase(), Some(Phase::Steady), "{mode:?}");
    }
}

#[test]
fn the_bare_threshold_finds_a_change_and_fires_on_noise() {
    let mut w = explored(ExploreMode::Bisect, small_pool(), 0.5);
    w.run_for(400.0);
    let alarms = |w: &World| w.records.iter().filter(|(_, r)| r.kind == RecordKind::Drift).count();
    let before = alarms(&w);
    w.run_for(600.0);
    assert!(alarms(&w) > before + 20, "nothing has changed: {} alarms", alarms(&w) - before);
    let part = |w: &World, i: usize| {
        let weights = w.weights();
        f64::from(weights[i]) / f64::from(weights.iter().sum::<u32>())
    };
    let most = (0..6).max_by(|&a, &b| part(&w, a).total_cmp(&part(&w, b))).expect("six");
    let held = part(&w, most);
    w.set_speed(most, 0.2 * small_pool()[most].speed);
    w.run_for(60.0);
    assert!(part(&w, most) < 0.9 * held, "{held}, then {}", part(&w, most));
}

/// Requests of the first three minutes above `p99`, less the 1 % expected.
fn harm(world: &World, p99: f64) -> f64 {
    let early: Vec<_> = world.answers.iter().filter(|a| a.sent < Nanos(180_000_000_000)).collect();
    let slow = early.iter().filter(|a| !a.ok || a.latency_ms > p99).count();
    slow as f64 - 0.01 * early.len() as f64
}

#[test]
fn plimsoll_delays_a_fifth_of_the_requests_that_the_printed_algorithm_delays() {
    let mut ours = World::new(WorldSpec::new(paper_pool(11), Method::RoundRobin, 0.7, 1));
    ours.attach(ours.service_spec(), None);
    ours.run_for(240.0);
    let (_, p99, _) = ours.since(Nanos(180_000_000_000));
    let mut printed = World::new(WorldSpec::new(paper_pool(11), Method::RoundRobin, 0.7, 1));
    printed.attach_knapsack(ExploreMode::Literal);
    printed.run_for(240.0);
    let (ours, printed) = (harm(&ours, p99), harm(&printed, p99));
    assert!(ours <= 0.2 * printed, "{ours} against {printed}");
}
