//! How often a controller reports a change while there is none.

use plimsoll_control::{Phase, RecordKind};
use plimsoll_sim::{Method, World, WorldSpec};

use super::{LOAD, Steering, table3};
use crate::{Context, Failure};

/// One quiet time after learning.
#[derive(Clone, Copy, Debug)]
pub struct Quiet {
    /// What watched.
    pub steering: Steering,
    /// How long.
    pub hours: f64,
    /// Changes reported.
    pub false_alarms: usize,
    /// Plans programmed.
    pub plans: usize,
    /// Whether it was steady at the end.
    pub steady: bool,
}

/// Lets the pool of Table 3 be as it is, under round robin.
pub fn run(
    context: &Context,
    steering: Steering,
    learning_s: f64,
    quiet_s: f64,
    seed: u64,
) -> Result<Quiet, Failure> {
    let mut world = World::new(WorldSpec::new(table3(), Method::RoundRobin, LOAD, seed));
    world.forget_answers();
    steering.attach(&mut world);
    let mut left_s = learning_s;
    while left_s > 0.0 {
        context.check()?;
        world.run_for(left_s.min(10.0));
        left_s -= 10.0;
    }
    let (records, plans) = (world.records.len(), world.plans.len());
    left_s = quiet_s;
    while left_s > 0.0 {
        context.check()?;
        world.run_for(left_s.min(10.0));
        left_s -= 10.0;
    }
    let drifts = world.records[records..].iter().filter(|(_, r)| r.kind == RecordKind::Drift);
    let steady = world.phase() == Some(Phase::Steady);
    Ok(Quiet {
        steering,
        hours: quiet_s / 3600.0,
        false_alarms: drifts.count(),
        plans: world.plans.len() - plans,
        steady,
    })
}
