//! A pool in which nothing changes: no change is detected, from the first request on.

use plimsoll_model::Nanos;
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{BackendModel, Method, Verdict, World, WorldSpec, paper_pool, small_pool};

const LEARNING: Nanos = Nanos(60_000_000_000);

/// Changes that are recorded in a pool that does not change.
fn alarms(
    pool: Vec<BackendModel>,
    (method, service): (Method, ServiceTime),
    load: f64,
    seed: u64,
    seconds: f64,
) -> Vec<String> {
    let mut world = World::new(WorldSpec { service, ..WorldSpec::new(pool, method, load, seed) });
    world.forget_answers();
    let spec = world.service_spec();
    world.attach(spec, None);
    world.run_for(seconds);
    let verdicts = world.records.iter().filter_map(|(at, r)| Some((*at, Verdict::of(r)?, r)));
    // A backend that is relearned while next to nothing is known is only being learned.
    let is_alarm = |at: Nanos, verdict| verdict == Verdict::Changed || at > LEARNING;
    verdicts
        .filter(|(at, verdict, _)| is_alarm(*at, *verdict))
        .map(|(at, _, r)| format!("{:.0} s: {r:?}", at.as_secs_f64()))
        .collect()
}

#[test]
fn an_hour_of_noise_raises_no_alarm() {
    use ServiceTime::{Bimodal, Deterministic, Exponential};
    for (pool, method, service, load, seed) in [
        (paper_pool(11), Method::RoundRobin, Exponential, 0.7, 2),
        (small_pool(), Method::RoundRobin, Exponential, 0.7, 2),
        (small_pool(), Method::LeastConn, Exponential, 0.7, 3),
        (paper_pool(11), Method::RoundRobin, Deterministic, 0.7, 4),
        (small_pool(), Method::RoundRobin, Deterministic, 0.85, 5),
        (small_pool(), Method::LeastConn, Deterministic, 0.7, 6),
        (small_pool(), Method::RoundRobin, Bimodal, 0.7, 7),
    ] {
        let alarms = alarms(pool, (method, service), load, seed, 3_600.0);
        assert!(alarms.is_empty(), "{method:?}, {service:?}, {load}: {alarms:#?}");
    }
}

/// While a pool is learned loads move and cores are uncertain, and one can look like the other.
#[test]
fn learning_is_not_taken_for_a_change() {
    for (pool, method, load, seed) in [
        (paper_pool(11), Method::RoundRobin, 0.5, 10),
        (paper_pool(11), Method::RoundRobin, 0.85, 49),
        (small_pool(), Method::RoundRobin, 0.85, 44),
        (small_pool(), Method::LeastConn, 0.7, 46),
    ] {
        let alarms = alarms(pool, (method, ServiceTime::Exponential), load, seed, 300.0);
        assert!(alarms.is_empty(), "{method:?} at {load}: {alarms:#?}");
    }
}
