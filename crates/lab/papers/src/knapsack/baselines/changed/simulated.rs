use plimsoll_policy::{Policy, PolicyKind};
use plimsoll_sim::{Arena, Change, Step, Window, World, WorldSpec, integer_weights, static_shares};

use super::super::simulated::{build, overloaded};
use super::super::weights::Known;
use super::super::{METHODS, Method, Setting, Weights};
use super::{FIRST_S, HEALTH_CHECK_S, Happening, Length, Through};
use crate::{Context, Failure, Provenance};

/// The scale of weights that nobody has to program.
const FINE: u32 = 1_000_000;

/// Every method that has a policy, each through the change.
pub fn run(
    context: &Context,
    setting: &Setting,
    happening: &Happening,
    (weights, length): (&Known, Length),
    part: (f64, f64),
) -> Result<Vec<Through>, Failure> {
    let mut rows = Vec::new();
    for (i, method) in METHODS.iter().enumerate() {
        let done = part.0 + (part.1 - part.0) * i as f64 / METHODS.len() as f64;
        context.progress(done, &format!("simulated, through the change: {}", method.name))?;
        let steered = match method.weights {
            Weights::PlimsollRoundrobin => Some(plimsoll_sim::Method::RoundRobin),
            Weights::PlimsollLeastconn => Some(plimsoll_sim::Method::LeastConn),
            _ => None,
        };
        if let Some(by) = steered {
            rows.push(controlled(context, setting, happening, (method, by), length)?);
        } else if let Some(policy) = method.policy {
            let held = weights.of(method.weights)?;
            rows.push(one(setting, happening, (method, policy, held), length)?);
        }
    }
    Ok(rows)
}

/// A policy that keeps its weights.
fn one(
    setting: &Setting,
    happening: &Happening,
    (method, policy, held): (&'static Method, PolicyKind, &[u32]),
    length: Length,
) -> Result<Through, Failure> {
    let at_s = length.warm_up_s + length.before_s;
    let rate_rps = setting.rate_rps();
    let later_rps = happening.traffic * rate_rps;
    let settled = (rate_rps * at_s + later_rps * length.settle_s) as u32;
    let requests = settled + (later_rps * length.later_s) as u32;
    let arena = Arena {
        warm_up: settled,
        timeline: timeline(setting, happening, (method, held), at_s)?,
        window_s: Some(1.0),
        ..setting.arena(requests)
    };
    let mut balancers: [Box<dyn Policy>; 1] = [build(policy, held)?];
    let report = arena.run(&mut balancers);
    let (after, left) = happening.after(setting);
    let backends: Vec<_> = left.iter().map(|&i| report.backends[i].clone()).collect();
    let windows = |from: f64, to: f64| {
        let to = (to as usize).min(report.windows.len());
        &report.windows[(from as usize).min(to)..to]
    };
    let (before, first) = (windows(length.warm_up_s, at_s), windows(at_s, at_s + FIRST_S));
    Ok(Through {
        method,
        provenance: Provenance::Simulated,
        before_ms: mean_ms(before),
        first_ms: mean_ms(first),
        later_ms: (report.requests > 0).then_some(report.mean_us / 1e3),
        lost: windows(at_s, f64::MAX).iter().map(|w| w.errors).sum(),
        overload: Some(overloaded(&after.arena(0), &backends)),
    })
}

fn mean_ms(windows: &[Window]) -> Option<f64> {
    let requests: u64 = windows.iter().map(|w| w.requests).sum();
    let sum_us: f64 = windows.iter().map(|w| w.mean_us * w.requests as f64).sum();
    (requests > 0).then(|| sum_us / requests as f64 / 1e3)
}

/// What happens, and what is done about it without being measured.
fn timeline(
    setting: &Setting,
    happening: &Happening,
    (method, held): (&Method, &[u32]),
    at_s: f64,
) -> Result<Vec<Step>, Failure> {
    let now = |change| Step { at_s, change };
    let mut steps: Vec<Step> =
        happening.dies.iter().map(|&backend| now(Change::Kill { backend })).collect();
    for &(backend, part) in &happening.slows {
        let speed = part * setting.pool[backend].speed;
        steps.push(now(Change::Speed { backend, speed }));
    }
    steps.push(now(Change::Rate(happening.traffic * setting.rate_rps())));
    if method.weights == Weights::BestSplit {
        let (after, left) = happening.after(setting);
        let mut shares = vec![0.0; setting.pool.len()];
        for (i, share) in left.into_iter().zip(static_shares(&after.arena(0))?) {
            shares[i] = share;
        }
        steps.push(now(Change::Weights(integer_weights(&shares, FINE))));
    } else if !happening.dies.is_empty() {
        let mut without = held.to_vec();
        happening.dies.iter().for_each(|&i| without[i] = 0);
        steps.push(Step { at_s: at_s + HEALTH_CHECK_S, change: Change::Weights(without) });
    }
    Ok(steps)
}

/// Plimsoll's controller, which has to notice.
fn controlled(
    context: &Context,
    setting: &Setting,
    happening: &Happening,
    (method, by): (&'static Method, plimsoll_sim::Method),
    length: Length,
) -> Result<Through, Failure> {
    let spec: WorldSpec = setting.world(by);
    let mut world = World::new(spec);
    let service = world.service_spec();
    world.attach(service, None);
    advance(context, &mut world, length.learn_s)?;
    let from = world.now();
    advance(context, &mut world, length.before_s)?;
    let at = world.now();
    let before_ms = world.since(from).0;
    for &i in &happening.dies {
        world.set_alive(i, false);
    }
    for &(i, part) in &happening.slows {
        world.set_speed(i, part * setting.pool[i].speed);
    }
    world.set_rate(happening.traffic * setting.rate_rps());
    advance(context, &mut world, FIRST_S)?;
    let first_ms = world.since(at).0;
    advance(context, &mut world, (length.settle_s - FIRST_S).max(0.0))?;
    let settled = world.now();
    advance(context, &mut world, length.later_s)?;
    let lost = world.answers.iter().filter(|a| !a.ok && a.sent >= at).count() as u64;
    Ok(Through {
        method,
        provenance: Provenance::Simulated,
        before_ms: Some(before_ms),
        first_ms: Some(first_ms),
        later_ms: Some(world.since(settled).0),
        lost,
        overload: None,
    })
}

fn advance(context: &Context, world: &mut World, seconds: f64) -> Result<(), Failure> {
    let mut left_s = seconds;
    while left_s > 0.0 {
        context.check()?;
        world.run_for(left_s.min(10.0));
        left_s -= 10.0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::{method, thirty};
    use super::*;

    fn through(name: &str, happening: &Happening) -> Through {
        let length =
            Length { learn_s: 0.0, warm_up_s: 10.0, before_s: 10.0, settle_s: 10.0, later_s: 20.0 };
        let setting = thirty(4);
        let method = method(name);
        let held =
            super::super::super::weights::of(&setting, &setting.arena(1), method.weights, None);
        one(&setting, happening, (method, method.policy.unwrap(), &held.unwrap()), length).unwrap()
    }

    #[test]
    fn a_split_updated_after_a_loss_waits_less_than_a_fixed_one_and_leastconn_needs_no_update() {
        let slows = (24..28).map(|i| (i, 0.5)).collect();
        let loss = Happening { slows, traffic: 1.0, ..Happening::default() };
        let told = through("best static split", &loss);
        let keeps = through("weighted roundrobin", &loss);
        let counts = through("weighted leastconn", &loss);
        assert_eq!((told.overload, keeps.overload), (Some(false), Some(true)));
        assert!(keeps.later_ms > told.later_ms && keeps.later_ms > keeps.before_ms);
        assert!(counts.later_ms < told.later_ms, "{counts:?} {told:?}");
    }

    #[test]
    fn the_dead_are_out_after_the_health_check() {
        let death = Happening { dies: vec![24, 25], traffic: 1.0, ..Happening::default() };
        let ran = through("weighted roundrobin", &death);
        // Their part of the requests of five seconds, and what they had.
        let rate = thirty(4).rate_rps();
        let sent = rate * 8.0 / 64.0 * HEALTH_CHECK_S;
        assert!((ran.lost as f64 / sent - 1.0).abs() < 0.2, "{} of {sent}", ran.lost);
        assert!(through("best static split", &death).lost < 60);
    }
}
