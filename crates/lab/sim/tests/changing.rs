//! Pools and traffic that change: how soon a change is detected, that nothing else is taken for one, and the clients'
//! mean response time a minute later.

use std::collections::BTreeMap;

use plimsoll_control::{Record, RecordKind, ServiceSpec};
use plimsoll_model::Nanos;
use plimsoll_sim::{
    Arena, BackendModel, Method, Verdict, World, WorldSpec, paper_pool, small_pool, yardsticks,
};

const SERVICE_US: f64 = 30_000.0;
const LOAD: f64 = 0.7;

fn learned(seed: u64) -> (World, Vec<BackendModel>, f64) {
    let pool = paper_pool(11);
    let rate = LOAD * pool.iter().map(|b| b.capacity_rps(SERVICE_US)).sum::<f64>();
    let mut world = World::new(WorldSpec::new(pool.clone(), Method::RoundRobin, LOAD, seed));
    let spec = world.service_spec();
    world.attach(spec, None);
    world.run_for(240.0);
    (world, pool, rate)
}

/// Mean of the best static split, milliseconds.
fn optimum_ms(pool: &[BackendModel], rate_rps: f64) -> f64 {
    let arena = Arena { rate_rps, ..Arena::new(pool.to_vec(), LOAD, 600_000, 5) };
    yardsticks(&arena).expect("a pool with room").static_split.mean_us / 1e3
}

fn mean_a_minute_later(world: &mut World) -> f64 {
    world.run_for(60.0);
    let from = world.now();
    world.run_for(120.0);
    world.since(from).0
}

/// A change that was recorded for a backend.
#[derive(Debug)]
struct Seen {
    after_s: f64,
    backend: String,
    /// The factor by which its curve was rescaled. With uncertain cores it is relearned instead.
    rescaled: bool,
}

fn changes_recorded(world: &World, at: Nanos) -> Vec<Seen> {
    let later = world.records.iter().filter(|(t, _)| *t > at);
    later
        .filter_map(|(t, r)| {
            let verdict = Verdict::of(r).filter(|v| *v != Verdict::Underestimated)?;
            Some(Seen {
                after_s: t.since(at).as_secs_f64(),
                backend: r.backend.clone().unwrap_or_default(),
                rescaled: verdict == Verdict::Changed,
            })
        })
        .collect()
}

#[test]
fn a_slow_down_to_60_percent_is_detected_alone_and_in_time_and_clients_get_the_new_optimum() {
    let mut rescaled = 0;
    for seed in [1, 2] {
        let (mut world, mut pool, rate) = learned(seed);
        let weights = world.weights();
        let slowed = (0..pool.len()).max_by_key(|&i| weights[i]).expect("a pool");
        let at = world.now();
        pool[slowed].speed *= 0.6;
        world.set_speed(slowed, pool[slowed].speed);
        let mean = mean_a_minute_later(&mut world);
        let seen = changes_recorded(&world, at);
        let first = seen.first().expect("the change is seen");
        assert_eq!(first.backend, format!("s{slowed}"));
        // A deviation within three seconds, or three of the longest pauses, is a pause.
        assert!(first.after_s <= 10.0, "seed {seed}: after {:.1} s", first.after_s);
        let others: Vec<&Seen> = seen.iter().filter(|s| s.backend != first.backend).collect();
        assert!(others.is_empty(), "the others are untouched: {others:?}");
        let until = at + std::time::Duration::from_secs_f64(first.after_s);
        let plan = world.plans.iter().map(|(t, _)| *t).find(|t| *t >= until).expect("a plan");
        let later_s = plan.since(until).as_secs_f64();
        let within_s = if first.rescaled { 0.5 } else { 10.0 };
        assert!(later_s <= within_s, "seed {seed}: new weights {later_s:.1} s later, {first:?}");
        rescaled += u32::from(first.rescaled);
        let optimum = optimum_ms(&pool, rate);
        assert!(mean <= 1.10 * optimum, "{mean:.1} ms, {optimum:.1} at best");
    }
    assert!(rescaled > 0, "cores are certain in one of the runs, and its new weights come at once");
}

/// Under leastconn a backend that slows down gets fewer requests, and is detected all the same.
#[test]
fn under_leastconn_a_slow_down_is_detected_in_time_and_relieved_at_once() {
    let mut rescaled = 0;
    for seed in 1..=6 {
        let pool = small_pool();
        let mut world = World::new(WorldSpec::new(pool.clone(), Method::LeastConn, LOAD, seed));
        let spec = world.service_spec();
        world.attach(spec, None);
        world.run_for(300.0);
        let (at, slowed) = (world.now(), pool.len() - 1);
        let before = world.plans.last().expect("it was learned").1.entries[slowed].share;
        world.set_speed(slowed, 0.6 * pool[slowed].speed);
        world.run_for(10.0);
        let recorded = changes_recorded(&world, at);
        let slow = format!("s{slowed}");
        assert!(recorded.iter().all(|seen| seen.backend == slow), "seed {seed}: {recorded:?}");
        let first = recorded.first().expect("the change is seen");
        rescaled += u32::from(first.rescaled);
        let first = first.after_s;
        let lowered = world.plans.iter().find(|(t, _)| t.since(at).as_secs_f64() >= first);
        let (lowered_at, lowered) = lowered.expect("a plan");
        let lowered_s = lowered_at.since(at).as_secs_f64();
        assert!(
            lowered_s <= first + 1.5,
            "seed {seed}: seen after {first} s, plan after {lowered_s}"
        );
        let share = lowered.entries[slowed].share;
        assert!(
            share < 0.95 * before,
            "seed {seed}: {share:.3} of the traffic, {before:.3} before"
        );
        // After the change 150 requests take longer.
        assert!(first <= 5.0, "seed {seed}: after {first:.1} s");
    }
    assert!(rescaled >= 4, "it was known for a change, not for other cores, in {rescaled} of 6");
}

#[test]
fn a_fifth_more_or_less_traffic_is_no_change_of_a_backend_and_weights_follow_in_seconds() {
    for (seed, part) in [(1, 1.2), (3, 1.2), (2, 0.8), (4, 0.8)] {
        let (mut world, pool, rate) = learned(seed);
        let at = world.now();
        world.set_rate(part * rate);
        let mean = mean_a_minute_later(&mut world);
        let recorded = changes_recorded(&world, at);
        assert!(recorded.is_empty(), "{part} of the traffic: {recorded:?}");
        // Weights that were made for more than half of the difference.
        let follows = |rps: f64| (rps / rate - 1.0) / (part - 1.0) > 0.5;
        let plan = world.planned_rps.iter().find(|(t, rps)| *t > at && follows(*rps));
        let after_s = plan.expect("a plan").0.since(at).as_secs_f64();
        assert!(after_s <= 5.0, "seed {seed}: {after_s} s");
        let optimum = optimum_ms(&pool, part * rate);
        assert!(mean <= 1.10 * optimum, "{mean:.1} ms, {optimum:.1} at best");
    }
}

/// Where the weights before are as good as any there is nothing to gain, and noise moves a run of ten minutes by half a
/// per cent: clients wait no more than that longer because of the controller.
#[test]
fn clients_are_never_worse_off_than_with_unchanged_weights() {
    let pool = small_pool();
    let last = pool.len() - 1;
    let rate_rps = LOAD * pool.iter().map(|b| b.capacity_rps(SERVICE_US)).sum::<f64>();
    // The speed of the last backend, and the traffic.
    for (what, speed, traffic) in
        [("slowed", 0.6, 1.0), ("more traffic", 1.0, 1.2), ("less traffic", 1.0, 0.8)]
    {
        for seed in 1..=3 {
            let spec = WorldSpec::new(pool.clone(), Method::RoundRobin, LOAD, seed);
            let mut world = World::new(spec.clone());
            let service = world.service_spec();
            world.attach(service, None);
            world.run_for(300.0);
            let mut alone = World::new(WorldSpec { weights: world.weights(), ..spec });
            alone.run_for(300.0);
            let [mean, left_alone] = [&mut world, &mut alone].map(|w| {
                w.set_speed(last, speed * pool[last].speed);
                w.set_rate(traffic * rate_rps);
                w.run_for(60.0);
                let from = w.now();
                w.run_for(600.0);
                w.since(from).0
            });
            assert!(
                mean <= 1.01 * left_alone,
                "{what}, seed {seed}: {mean} ms, {left_alone} alone"
            );
        }
    }
}

#[test]
fn measured_backend_takes_no_more_than_its_part_and_only_if_configured() {
    for refresh in [true, false] {
        let pool = small_pool();
        let mut world = World::new(WorldSpec::new(pool.clone(), Method::RoundRobin, LOAD, 5));
        let spec = ServiceSpec { refresh, ..world.service_spec() };
        world.attach(spec, None);
        world.run_for(600.0);
        let begun: Vec<&(Nanos, Record)> =
            world.records.iter().filter(|(_, r)| r.kind == RecordKind::Refresh).collect();
        assert_eq!(!begun.is_empty(), refresh, "{begun:?}");
        // Every backend here is more than 5 % of the pool: one at a time.
        assert!(begun.windows(2).all(|two| two[0].0 < two[1].0), "{begun:?}");
    }
}

#[test]
fn several_small_backends_are_measured_at_once_within_5_percent_of_the_pool() {
    // The fast half is enough for the clients' mean: the slow half is parked, and forgotten after twenty minutes.
    let of_speed = |speed| BackendModel { cores: 1, speed };
    let pool: Vec<BackendModel> =
        (0..40).map(|i| of_speed(if i % 2 == 0 { 1.0 } else { 0.4 })).collect();
    let all: f64 = pool.iter().map(|b| b.capacity_rps(SERVICE_US)).sum();
    let mut world = World::new(WorldSpec::new(pool.clone(), Method::RoundRobin, 0.25, 8));
    world.forget_answers();
    let spec = world.service_spec();
    world.attach(spec, None);
    world.run_for(2_000.0);
    let mut together: BTreeMap<Nanos, Vec<f64>> = BTreeMap::new();
    for (at, record) in &world.records {
        if record.kind == RecordKind::Refresh {
            let name = record.backend.as_ref().expect("a backend");
            let measured: usize = name[1..].parse().expect("a number");
            together.entry(*at).or_default().push(pool[measured].capacity_rps(SERVICE_US));
        }
    }
    assert!(together.values().any(|capacities| capacities.len() > 1), "{together:?}");
    for (at, capacities) in &together {
        // Each capacity may be believed wrong by a tenth.
        let part = capacities.iter().sum::<f64>() / all;
        assert!(capacities.len() == 1 || part <= 1.1 * 0.05, "{at:?}: {part}");
    }
}
