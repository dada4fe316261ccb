//! What a policy is compared with: the best static split, and a central queue, which is a reference and no
//! bound (`plimsoll_queueing::Central`).

use plimsoll_model::{Curve, Objective};
use plimsoll_pack::{CurveBackend, CurveProblem, PackError, pack_curves};
use plimsoll_policy::{Policy, RoundRobin};
use plimsoll_queueing::{Central, QueueCurve, Run, ServiceTime, Station};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Arena, ArenaReport};

/// Squared variation of service times beyond which a split is no longer adapted.
const LARGEST_VARIATION: f64 = 100.0;

/// The best static split and the central queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Yardsticks {
    /// Each backend's share in the best static split.
    pub shares: Vec<f64>,
    /// That split under smooth round robin.
    pub static_split: ArenaReport,
    /// Mean of one queue that all share and that feeds the fastest free core, microseconds.
    pub central_mean_us: f64,
    /// Its 99th percentile, microseconds.
    pub central_p99_us: f64,
}

/// Runs both over the arena's pool, without its timeline.
pub fn yardsticks(arena: &Arena) -> Result<Yardsticks, PackError> {
    let shares = static_shares(arena)?;
    let weights = integer_weights(&shares, 1_000_000);
    let still = Arena { timeline: Vec::new(), window_s: None, ..arena.clone() };
    let mut balancers: [Box<dyn Policy>; 1] = [Box::new(RoundRobin::new(&weights))];
    let static_split = still.run(&mut balancers);
    let station = |b: &crate::BackendModel| Station {
        cores: b.cores,
        service_us: arena.service_us / b.speed,
    };
    let stations: Vec<Station> = arena.pool.iter().map(station).collect();
    let Arena { rate_rps, requests, warm_up, service, .. } = *arena;
    let run = Run { rate_rps, requests, warm_up, service };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(arena.seed);
    let central = Central::simulate(&stations, &run, &mut rng);
    let travel_us = 2.0 * arena.network.as_nanos() as f64 / 1e3;
    Ok(Yardsticks {
        shares,
        static_split,
        central_mean_us: central.mean_us + travel_us,
        central_p99_us: central.p99_us + travel_us,
    })
}

/// The split of least mean latency by the true curves: exact (M/M/c) for exponential service, else
/// Sakasegawa's with Kingman's factor `(1 + cv²)/2`. Sums to 1.
pub fn static_shares(arena: &Arena) -> Result<Vec<f64>, PackError> {
    let curve = |b: &crate::BackendModel| -> Box<dyn Curve> {
        match arena.service {
            ServiceTime::Exponential => Box::new(b.curve(arena.service_us)),
            other => Box::new(QueueCurve {
                service_us: arena.service_us / b.speed,
                cores: f64::from(b.cores),
                // Where the variance is infinite, the split is that of a great one.
                variability: (1.0 + other.squared_variation().min(LARGEST_VARIATION)) / 2.0,
            }),
        }
    };
    let curves: Vec<Box<dyn Curve>> = arena.pool.iter().map(curve).collect();
    let backends: Vec<CurveBackend<'_>> = curves
        .iter()
        .map(|c| CurveBackend { curve: c.as_ref(), max_load: 0.995 * c.capacity() })
        .collect();
    let problem = CurveProblem { backends: &backends, total: arena.rate_rps, theta: None };
    let loads = pack_curves(&problem, Objective::Traffic)?.weights;
    let sum: f64 = loads.iter().sum();
    Ok(loads.iter().map(|w| w / sum).collect())
}

/// Weights in these proportions, the greatest being `greatest`; what is above 0 stays above 0.
pub fn integer_weights(parts: &[f64], greatest: u32) -> Vec<u32> {
    let most = parts.iter().copied().fold(0.0, f64::max);
    let scale = if most > 0.0 { f64::from(greatest) / most } else { 0.0 };
    let weight = |&p: &f64| if p > 0.0 { ((p * scale).round() as u32).max(1) } else { 0 };
    parts.iter().map(weight).collect()
}
