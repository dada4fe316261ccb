//! One simulated run: the controller learns the pool, something happens, it reacts.

use std::ops::Range;

use plimsoll_control::{Record, RecordKind};
use plimsoll_model::Nanos;
use plimsoll_sim::{Answer, Method, World, WorldSpec};

use super::seen::{Noted, Reaction, Seen, mean};
use super::{Disturbance, LOAD, SERVICE_US, STEERINGS, Steering, table3};
use crate::{Context, Failure, Provenance};

/// The part of learning at whose end everything counts.
const BEFORE_S: f64 = 30.0;
/// A pool without a controller needs no longer to be steady.
const WARM_UP_S: f64 = 60.0;
/// HAProxy's `check` as it comes: every two seconds, down after three.
const HEALTH_CHECK_S: f64 = 5.0;
/// What counts as the first seconds.
const FIRST_S: f64 = 10.0;

/// How long each part of a run takes, simulated seconds.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Until something happens.
    pub learning_s: f64,
    /// Until all has settled.
    pub settling_s: f64,
    /// What is measured from then on.
    pub measured_s: f64,
}

/// Runs these changes under every steering, over so many seeds. Frozen weights are those that Plimsoll
/// had before.
pub fn every_steering(
    context: &Context,
    whats: &[Disturbance],
    length: Length,
    seeds: u64,
    progress: Range<f64>,
) -> Result<Vec<Seen>, Failure> {
    let steerings = if context.quick { &STEERINGS[..2] } else { &STEERINGS[..] };
    let whole = (whats.len() * steerings.len()) as f64;
    let mut runs: Vec<Seen> = Vec::new();
    for (k, &what) in whats.iter().enumerate() {
        for (i, &(method, steering)) in steerings.iter().enumerate() {
            if steering == Steering::HealthCheck && what != Disturbance::Failure {
                continue;
            }
            let done = (k * steerings.len() + i) as f64 / whole;
            let done = progress.start + (progress.end - progress.start) * done;
            context.progress(done, &format!("{}: {}", what.name(), steering.name()))?;
            for seed in (0..seeds).map(|n| context.seed.wrapping_add(n)) {
                let nobody = matches!(steering, Steering::Frozen | Steering::HealthCheck);
                let learned = |seen: &&Seen| {
                    (seen.method, seen.steering, seen.seed) == (method, Steering::Plimsoll, seed)
                };
                let weights = runs.iter().find(learned).filter(|_| nobody);
                let weights = weights.map(|seen| seen.held.clone());
                runs.push(run(context, (what, method, steering), length, seed, weights)?);
            }
        }
    }
    Ok(runs)
}

/// Runs it. Without a controller the balancer holds `weights`.
fn run(
    context: &Context,
    (what, method, steering): (Disturbance, Method, Steering),
    length: Length,
    seed: u64,
    weights: Option<Vec<u32>>,
) -> Result<Seen, Failure> {
    let pool = table3();
    let mut spec = WorldSpec::new(pool.clone(), method, LOAD, seed);
    spec.service_us = SERVICE_US;
    spec.rate_rps = Disturbance::Nothing.rate_after();
    spec.weights = weights.unwrap_or(spec.weights);
    let mut world = World::new(spec);
    let learning_s = if steering.attach(&mut world) { length.learning_s } else { WARM_UP_S };
    advance(context, &mut world, learning_s)?;
    let (held, at) = (world.weights(), world.now());
    disturb(&mut world, what);
    if steering == Steering::HealthCheck && what == Disturbance::Failure {
        advance(context, &mut world, HEALTH_CHECK_S.min(length.settling_s))?;
        what.concerned().for_each(|i| world.set_foreign_weight(i, 0));
    }
    let settled = Nanos(at.0 + (length.settling_s * 1e9) as u64);
    let rest_s = settled.since(world.now()).as_secs_f64() + length.measured_s;
    advance(context, &mut world, rest_s)?;
    Ok(report((what, method, steering), &world, at, settled, seed, held))
}

fn advance(context: &Context, world: &mut World, seconds: f64) -> Result<(), Failure> {
    let end = world.now().0 + (seconds * 1e9) as u64;
    while world.now().0 < end {
        context.check()?;
        world.run_for(((end - world.now().0) as f64 / 1e9).min(10.0));
    }
    Ok(())
}

fn disturb(world: &mut World, what: Disturbance) {
    for i in what.concerned() {
        match what {
            Disturbance::Failure => world.set_alive(i, false),
            _ => world.set_speed(i, super::SHRUNK * table3()[i].speed),
        }
    }
    world.set_rate(what.rate_after());
}

fn report(
    (what, method, steering): (Disturbance, Method, Steering),
    world: &World,
    at: Nanos,
    settled: Nanos,
    seed: u64,
    held: Vec<u32>,
) -> Seen {
    let after_s = |t: Nanos| (t.0 as f64 - at.0 as f64) / 1e9;
    let within = |from: f64, to: f64| -> Vec<&Answer> {
        let inside = |a: &&Answer| (from..to).contains(&after_s(a.sent));
        world.answers.iter().filter(inside).collect()
    };
    let mean_ms = |answers: &[&Answer]| {
        let served = answers.iter().filter(|a| a.ok).map(|a| a.latency_ms);
        mean(served).unwrap_or(f64::NAN)
    };
    let (begin, end) = (-BEFORE_S, after_s(world.now()));
    let later_s = after_s(settled);
    let (before, first) = (within(begin, 0.0), within(0.0, FIRST_S));
    let later = within(later_s, end);
    let before_rps = Disturbance::Nothing.rate_after();
    let mut reaction = Reaction::of(what, before_rps, &noted(world, at));
    reaction.requests = requests(world, at, &reaction);
    let after = shares(&later);
    Seen {
        provenance: Provenance::Simulated,
        what,
        method,
        steering,
        seed,
        held,
        before: shares(&before),
        busiest: busiest(what, &after),
        after,
        reaction,
        before_ms: mean_ms(&before),
        first_ms: mean_ms(&first),
        later_ms: mean_ms(&later),
        lost: world.answers.iter().filter(|a| !a.ok && a.sent >= at).count() as u64,
        series: series(world, at, begin, end),
    }
}

/// What the controller recorded. Learning is over and no news when something happens.
fn noted(world: &World, at: Nanos) -> Vec<Noted> {
    let steady = world.records.iter().filter(|(t, r)| *t < at && r.kind == RecordKind::Phase);
    let steady = steady.map(|(t, _)| *t).next_back().unwrap_or(at);
    let note = |(t, r): &(Nanos, Record)| {
        let planned = world.planned_rps.iter().find(|(made, _)| made == t);
        Noted {
            at_s: (t.0 as f64 - at.0 as f64) / 1e9,
            kind: r.kind,
            place: r.backend.as_deref().and_then(|name| name.strip_prefix('s')?.parse().ok()),
            planned_rps: planned.filter(|_| r.kind == RecordKind::Plan).map(|(_, rps)| *rps),
        }
    };
    world.records.iter().filter(|(t, _)| *t >= steady).map(note).collect()
}

fn requests(world: &World, at: Nanos, reaction: &Reaction) -> Option<f64> {
    let until = |&(i, seconds): &(usize, f64)| {
        let ended = |a: &&Answer| {
            let end = a.sent.0 as f64 + a.latency_ms * 1e6 - at.0 as f64;
            a.ok && a.backend == i && (0.0..=seconds * 1e9).contains(&end)
        };
        world.answers.iter().filter(ended).count() as f64
    };
    mean(reaction.each_s.iter().map(until))
}

fn shares(answers: &[&Answer]) -> Vec<f64> {
    let mut shares = vec![0.0; table3().len()];
    for answer in answers {
        if let Some(share) = shares.get_mut(answer.backend) {
            *share += 1.0 / answers.len() as f64;
        }
    }
    shares
}

/// The greatest part of its capacity that one of those which live is asked for.
pub fn busiest(what: Disturbance, shares: &[f64]) -> f64 {
    let part = |(i, b): (usize, plimsoll_sim::BackendModel)| {
        shares[i] * what.rate_after() / b.capacity_rps(SERVICE_US)
    };
    what.pool_after().into_iter().map(part).fold(0.0, f64::max)
}

fn series(world: &World, at: Nanos, begin: f64, end: f64) -> Vec<(f64, f64)> {
    let mut sums = vec![(0.0, 0u32); (end - begin).ceil() as usize];
    for answer in world.answers.iter().filter(|a| a.ok) {
        let second = ((answer.sent.0 as f64 - at.0 as f64) / 1e9 - begin).floor();
        if second >= 0.0
            && let Some((sum, count)) = sums.get_mut(second as usize)
        {
            *sum += answer.latency_ms;
            *count += 1;
        }
    }
    let place = |(i, (sum, count)): (usize, (f64, u32))| {
        (count > 0).then(|| (begin + i as f64, sum / f64::from(count)))
    };
    sums.into_iter().enumerate().filter_map(place).collect()
}
