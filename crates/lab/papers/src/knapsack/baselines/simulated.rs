use plimsoll_policy::{Policy, PolicyKind, Settings};
use plimsoll_queueing::{Central, Run, Station};
use plimsoll_sim::{Arena, ArenaReport, BackendReport};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::closed::closed;
use super::weights::{Known, given_and_packed};
use super::{Clients, Coming, KindRan, METHODS, Method, Ran, Setting, Weights};
use crate::{Context, Failure, Provenance};

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
    /// All with open clients, where there are such, then all with closed ones.
    pub rows: Vec<Ran>,
    /// The weights that each had.
    pub weights: Known,
    /// How many closed clients there are.
    pub clients: u32,
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
    let mut weights = given_and_packed(setting, &arena, size.round_s)?;
    weights.add_plimsoll(context, setting, size, (at(0.1), at(0.5)))?;
    let kinds = match setting.clients {
        Coming::Closed(clients) => vec![Clients::Closed(clients)],
        Coming::Both => {
            let best = weights.of(Weights::BestSplit)?;
            let best = open_policy(&arena, PolicyKind::RoundRobin, best)?;
            let clients = (arena.rate_rps * best.mean_us / 1e6).round() as u32;
            vec![Clients::Open, Clients::Closed(clients)]
        }
    };
    let mut rows = Vec::new();
    for &kind in &kinds {
        for method in &METHODS {
            let done = rows.len() as f64 / (kinds.len() * METHODS.len()) as f64;
            let what = format!("simulated: {}, {}", method.name, kind.name());
            context.progress(at(0.5 + 0.5 * done), &what)?;
            rows.push(one(setting, &arena, method, weights.of(method.weights)?, kind)?);
        }
    }
    let clients = kinds.iter().find_map(|kind| match kind {
        Clients::Closed(clients) => Some(*clients),
        Clients::Open => None,
    });
    Ok(Simulated { rows, weights, clients: clients.unwrap_or(0) })
}

/// With every default.
pub fn build(policy: PolicyKind, weights: &[u32]) -> Result<Box<dyn Policy>, Failure> {
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
    let policy = method.policy.map(|policy| build(policy, weights)).transpose()?;
    let report = match (clients, policy) {
        (Clients::Open, Some(policy)) => arena.run(&mut [policy]),
        (Clients::Open, None) => open_central(arena),
        (Clients::Closed(clients), policy) => closed(arena, clients, policy),
    };
    let served_rps = match clients {
        Clients::Open => arena.rate_rps,
        Clients::Closed(_) => report.goodput_rps,
    };
    let overload = clients == Clients::Open && overloaded(arena, &report.backends);
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

/// Whether open clients ask more of some backend than it can serve, beyond what chance adds to one that is
/// just busy, as adaptive methods make the small ones.
pub fn overloaded(arena: &Arena, backends: &[BackendReport]) -> bool {
    let asked = |(b, seen): (&plimsoll_sim::BackendModel, &BackendReport)| {
        let excess = seen.share * arena.rate_rps / b.capacity_rps(arena.service_us) - 1.0;
        excess > CHANCE / (seen.requests.max(1) as f64).sqrt()
    };
    arena.pool.iter().zip(backends).any(asked)
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
        // Clients that wait for their answers overload no backend.
        assert!(!run("roundrobin", Clients::Closed(60)).overload);
        let shares: f64 = equal.kinds.iter().map(|k| k.share).sum();
        assert!((shares - 1.0).abs() < 1e-9);
    }
}
