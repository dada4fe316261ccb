//! A controller on the same backends: no agents, curves that were learned before the change.

use plimsoll_control::RecordKind;
use plimsoll_model::Nanos;
use plimsoll_pack::PackError;
use plimsoll_sim::{Arena, Method, World, WorldSpec, static_shares};

use super::super::dynamics::Steering;
use super::{LOAD, SERVICE_US, SLOWED, Track, pool, pool_after, rate_rps};
use crate::{Context, Failure, Provenance};

/// Learning is over long before.
const LEARNING_S: f64 = 300.0;
/// What clients' mean is over.
const LATER_S: f64 = 60.0;

/// Runs it for so long after the change.
pub fn run(
    context: &Context,
    steering: Steering,
    seconds: f64,
    seed: u64,
) -> Result<Track, Failure> {
    let mut world = World::new(WorldSpec::new(pool(), Method::RoundRobin, LOAD, seed));
    steering.attach(&mut world);
    world.run_for(LEARNING_S);
    context.check()?;
    let at = world.now();
    let held = world.weights();
    world.set_speed(SLOWED.0, SLOWED.1 * pool()[SLOWED.0].speed);
    world.run_for(seconds - LATER_S);
    let later = world.now();
    world.run_for(LATER_S);
    let mut weights = vec![(0.0, held.clone())];
    let mut now_held = held;
    for (t, plan) in world.plans.iter().filter(|(t, _)| *t > at) {
        for entry in &plan.entries {
            now_held[entry.backend.0 as usize] = entry.weight;
        }
        weights.push((since(*t, at), now_held.clone()));
    }
    let slowed = format!("s{}", SLOWED.0);
    let noticed = world.records.iter().find(|(t, r)| {
        *t > at && r.kind == RecordKind::Drift && r.backend.as_deref() == Some(&slowed)
    });
    let noticed_s = noticed.map(|(t, _)| since(*t, at));
    let iterations = weights.len() - 1;
    let later_ms = world.since(later).0;
    let provenance = Provenance::Simulated;
    Ok(Track { provenance, weights, stopped_s: noticed_s, iterations, end_s: seconds, later_ms })
}

fn since(t: Nanos, at: Nanos) -> f64 {
    t.since(at).as_secs_f64()
}

/// Where it is headed: the best split for the mean client, by the true curves.
pub fn best_shares() -> Result<Vec<f64>, PackError> {
    let arena = Arena {
        service_us: SERVICE_US,
        rate_rps: rate_rps(),
        ..Arena::new(pool_after(), LOAD, 0, 0)
    };
    static_shares(&arena)
}
