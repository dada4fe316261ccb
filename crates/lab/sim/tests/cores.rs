//! Estimates of cores by the number in flight a service time before: under in-flight methods, where arrivals depend on
//! the number in flight, and with any distribution of service times.

use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{BackendModel, Method, World, WorldSpec, small_pool};

const SERVICE_US: f64 = 30_000.0;
/// One core of eight is more.
const RIGHT: f64 = 0.07;

/// A pool of which nothing was known at first, this many seconds later.
fn learned(seed: u64, method: Method, service: ServiceTime, load: f64, seconds: f64) -> World {
    let spec = WorldSpec { service, ..WorldSpec::new(small_pool(), method, load, seed) };
    let mut world = World::new(spec);
    world.forget_answers();
    let service = world.service_spec();
    world.attach(service, None);
    world.run_for(seconds);
    world
}

/// The number of backends with only a lower bound; all others must be estimated right.
fn unknown(world: &World, pool: &[BackendModel], what: &str) -> usize {
    let controller = world.controller().expect("one is attached");
    let mut bounds = 0;
    for (i, (model, belief)) in pool.iter().zip(controller.beliefs()).enumerate() {
        let off = belief.capacity_rps.unwrap_or(0.0) / model.capacity_rps(SERVICE_US) - 1.0;
        assert!(belief.is_lower_bound || off.abs() < RIGHT, "{what}: s{i} off by {off:.3}");
        bounds += usize::from(belief.is_lower_bound);
    }
    bounds
}

#[test]
fn behind_leastconn_the_cores_of_nearly_every_backend_are_known_and_stay_known_when_one_slows_down()
{
    let mut bounds = 0;
    for seed in 1..=4 {
        let mut pool = small_pool();
        let mut world = learned(seed, Method::LeastConn, ServiceTime::Exponential, 0.7, 1_500.0);
        bounds += unknown(&world, &pool, &format!("seed {seed}"));
        let largest = pool.len() - 1;
        pool[largest].speed *= 0.6;
        world.set_speed(largest, pool[largest].speed);
        world.run_for(60.0);
        bounds += unknown(&world, &pool, &format!("seed {seed}, slowed"));
    }
    assert!(bounds <= 2, "{bounds} of 48");
}

/// Requests of equal length must not be taken for more cores, which would overload backends; nor those of which a few
/// take long for fewer.
#[test]
fn under_a_split_cores_are_known_with_any_distribution_of_service_times() {
    for (service, load) in [
        (ServiceTime::Exponential, 0.7),
        (ServiceTime::Deterministic, 0.7),
        (ServiceTime::Deterministic, 0.85),
        (ServiceTime::Bimodal, 0.7),
    ] {
        for seed in [1, 2] {
            let world = learned(seed, Method::RoundRobin, service, load, 600.0);
            let what = format!("{service:?}, {load}, seed {seed}");
            assert_eq!(unknown(&world, &small_pool(), &what), 0, "{what}");
        }
    }
}
