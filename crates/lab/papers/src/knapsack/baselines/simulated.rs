use std::collections::BTreeMap;

use plimsoll_policy::{Policy, PolicyKind, Settings};
use plimsoll_queueing::{Central, Run, Station};
use plimsoll_sim::{Arena, ArenaReport, BackendReport, World, integer_weights, static_shares};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::closed::closed;
use super::super::learned::{Cost, learn};
use super::{Clients, KindRan, METHODS, Method, Ran, Setting, Weights};
use crate::{Context, Failure, Provenance};

/// HAProxy's greatest weight.
const GREATEST_WEIGHT: u32 = 256;

/// Standard deviations of a Poisson count that chance is allowed.
const CHANCE: f64 = 3.0;

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Requests per method and kind of clients.
    pub requests: u32,
    /// How long Plimsoll learns, seconds.
    pub learn_s: f64,
    /// Length of a round of the paper's exploration, seconds.
    pub round_s: f64,
}

impl Size {
    /// What the figures take.
    pub fn of(context: &Context) -> Self {
        context.pick(
            Size { requests: 8_000, learn_s: 20.0, round_s: 10.0 },
            Size { requests: 300_000, learn_s: 240.0, round_s: 10.0 },
        )
    }
}

/// All methods in simulated time.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// First all with open clients, then all with closed ones.
    pub rows: Vec<Ran>,
    /// What each source of weights gave.
    pub weights: BTreeMap<Weights, Vec<u32>>,
    /// How many closed clients there are: as many as are in the pool in the mean when open ones come at
    /// the load and are split as well as a static split can.
    pub clients: u32,
    /// Measurements per backend that the paper's exploration took.
    pub steps: f64,
}

/// Runs all methods; tells the context of progress between these two parts of the experiment.
pub fn simulated(
    context: &Context,
    setting: &Setting,
    size: Size,
    part: (f64, f64),
) -> Result<Simulated, Failure> {
    let at = |done: f64| part.0 + (part.1 - part.0) * done;
    let arena = setting.arena(size.requests);
    context.progress(at(0.0), "simulated: learning as the paper does")?;
    let learned = learn(&arena, size.round_s)?;
    let mut weights = BTreeMap::new();
    let n = setting.pool.len();
    weights.insert(Weights::Equal, vec![1; n]);
    weights.insert(Weights::Cores, setting.pool.iter().map(|b| b.cores).collect());
    for (source, cost) in [
        (Weights::IlpLatency, Cost::Latency),
        (Weights::IlpConnections, Cost::Connections),
        (Weights::IlpCpu, Cost::Cpu),
    ] {
        weights.insert(source, integer_weights(&learned.shares(cost)?, GREATEST_WEIGHT));
    }
    weights.insert(Weights::BestSplit, integer_weights(&static_shares(&arena)?, GREATEST_WEIGHT));
    for (i, (source, method)) in [
        (Weights::PlimsollRoundrobin, plimsoll_sim::Method::RoundRobin),
        (Weights::PlimsollLeastconn, plimsoll_sim::Method::LeastConn),
    ]
    .into_iter()
    .enumerate()
    {
        let done = at(0.1 + 0.2 * i as f64);
        weights.insert(source, plimsoll(context, setting, method, size.learn_s, done)?);
    }
    let best = open_policy(&arena, PolicyKind::RoundRobin, &weights[&Weights::BestSplit])?;
    let clients = (arena.rate_rps * best.mean_us / 1e6).round() as u32;
    let mut rows = Vec::new();
    for (i, kind) in [Clients::Open, Clients::Closed(clients)].into_iter().enumerate() {
        for (j, method) in METHODS.iter().enumerate() {
            let done = 0.5 + 0.25 * (i as f64 + j as f64 / METHODS.len() as f64);
            context.progress(at(done), &format!("simulated: {}, {}", method.name, kind.name()))?;
            rows.push(one(setting, &arena, method, &weights[&method.weights], kind)?);
        }
    }
    Ok(Simulated { rows, weights, clients, steps: learned.steps })
}

/// The weights that the controller has come to from nothing, under open clients.
fn plimsoll(
    context: &Context,
    setting: &Setting,
    method: plimsoll_sim::Method,
    seconds: f64,
    done: f64,
) -> Result<Vec<u32>, Failure> {
    let mut world = World::new(setting.world(method));
    let spec = world.service_spec();
    world.attach(spec, None);
    world.forget_answers();
    let steps = (seconds / 2.0).ceil() as u32;
    for _ in 0..steps {
        world.run_for(seconds / f64::from(steps));
        context.progress(done, &format!("simulated: Plimsoll learns under {method:?}"))?;
    }
    Ok(world.weights())
}

fn build(policy: PolicyKind, weights: &[u32]) -> Result<Box<dyn Policy>, Failure> {
    policy.build(weights, &Settings::default()).map_err(|e| Failure::Other(e.to_string()))
}

fn open_policy(arena: &Arena, policy: PolicyKind, weights: &[u32]) -> Result<ArenaReport, Failure> {
    Ok(arena.run(&mut [build(policy, weights)?]))
}

/// One method under one kind of clients.
pub fn one(
    setting: &Setting,
    arena: &Arena,
    method: &'static Method,
    weights: &[u32],
    clients: Clients,
) -> Result<Ran, Failure> {
    let (report, served_rps) = match (clients, method.policy) {
        (Clients::Open, Some(policy)) => (open_policy(arena, policy, weights)?, arena.rate_rps),
        (Clients::Open, None) => (open_central(arena), arena.rate_rps),
        (Clients::Closed(clients), Some(policy)) => {
            closed(arena, clients, Some(build(policy, weights)?.as_mut()))
        }
        (Clients::Closed(clients), None) => closed(arena, clients, None),
    };
    // Beyond what chance adds to a backend that is just busy, as adaptive methods make the small ones.
    let asked = |(b, seen): (&plimsoll_sim::BackendModel, &BackendReport)| {
        let excess = seen.share * arena.rate_rps / b.capacity_rps(arena.service_us) - 1.0;
        excess > CHANCE / (seen.requests.max(1) as f64).sqrt()
    };
    let overload = clients == Clients::Open && arena.pool.iter().zip(&report.backends).any(asked);
    Ok(Ran {
        method,
        provenance: Provenance::Simulated,
        clients,
        served_rps,
        mean_ms: report.mean_us / 1e3,
        error_ms: None,
        p99_ms: report.p99_us / 1e3,
        errors: report.errors + report.unserved,
        kinds: kinds(setting, &report.backends),
        overload,
    })
}

fn kinds(setting: &Setting, backends: &[BackendReport]) -> Vec<KindRan> {
    let of = |kind: &super::Kind| {
        let group: Vec<&BackendReport> = kind.backends.iter().map(|&i| &backends[i]).collect();
        let requests: u64 = group.iter().map(|r| r.requests).sum();
        let sum_us: f64 = group.iter().map(|r| r.mean_us * r.requests as f64).sum();
        KindRan {
            latency_ms: (requests > 0).then(|| sum_us / requests as f64 / 1e3),
            utilisation: group.iter().map(|r| r.utilisation).sum::<f64>() / group.len() as f64,
            share: group.iter().map(|r| r.share).sum(),
        }
    };
    setting.kinds.iter().map(of).collect()
}

fn open_central(arena: &Arena) -> ArenaReport {
    let station = |b: &plimsoll_sim::BackendModel| Station {
        cores: b.cores,
        service_us: arena.service_us / b.speed,
    };
    let stations: Vec<Station> = arena.pool.iter().map(station).collect();
    let Arena { rate_rps, requests, warm_up, service, .. } = *arena;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(arena.seed);
    let run = Run { rate_rps, requests, warm_up, service };
    let result = Central::simulate(&stations, &run, &mut rng);
    let all: u64 = result.served.iter().sum();
    let backend = |((station, &requests), &mean_us): ((&Station, &u64), &f64)| {
        let share = requests as f64 / all.max(1) as f64;
        let utilisation = share * rate_rps / station.capacity_rps();
        BackendReport { requests, errors: 0, mean_us, utilisation, share }
    };
    let seen = stations.iter().zip(&result.served).zip(&result.station_mean_us);
    ArenaReport {
        requests: all,
        mean_us: result.mean_us,
        p99_us: result.p99_us,
        backends: seen.map(backend).collect(),
        ..ArenaReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::method;
    use super::*;

    #[test]
    fn an_equal_split_overloads_small_backends_and_counting_does_not() {
        let setting = Setting::table3(1.0, 1.15, 3);
        let arena = setting.arena(20_000);
        let run = |name: &str, clients| {
            let weights = vec![1; setting.pool.len()];
            one(&setting, &arena, method(name), &weights, clients).unwrap()
        };
        let equal = run("roundrobin", Clients::Open);
        assert!(equal.overload && equal.kinds[0].utilisation > 0.99);
        let counted = run("least_time", Clients::Open);
        assert!(!counted.overload && counted.mean_ms < 0.5 * equal.mean_ms);
        let central = run("central queue", Clients::Open);
        assert!(!central.overload && central.mean_ms < counted.mean_ms);
        // Who waits for an answer overloads nobody.
        assert!(!run("roundrobin", Clients::Closed(60)).overload);
        let shares: f64 = equal.kinds.iter().map(|k| k.share).sum();
        assert!((shares - 1.0).abs() < 1e-9);
    }
}
