//! Every method at one capacity ratio: simulated all, emulated where HAProxy has the method or Plimsoll
//! steers it.

use plimsoll_policy::RoundRobin;
use plimsoll_sim::{Arena, integer_weights, static_shares};

use super::{NAMES, SERVICE_MS, arena, pool};
use crate::knapsack::baselines::{Both, Coming, Kind, Setting};
use crate::knapsack::closed::closed;
use crate::{Context, Failure};

/// The paper's example (§2.1.2).
pub const RATIO: f64 = 0.6;
/// What an administrator would set who knew the capacities; cores are the same.
const BY_CAPACITY: [u32; 3] = [5, 5, 3];
/// The paper's three backends in the plots.
pub const SHOWN: [&str; 15] = [
    "roundrobin",
    "leastconn",
    "random(2)",
    "P2 by latency",
    "peak EWMA",
    "Prequal",
    "weighted roundrobin",
    "weighted leastconn",
    "ILP on connections",
    "ILP on CPU",
    "KLB",
    "Plimsoll roundrobin",
    "Plimsoll leastconn",
    "Plimsoll expected delay",
    "central queue",
];
/// The load and the split that serves clients best at it are found in so many rounds.
const ROUNDS: usize = 4;
/// Learning needs room.
const MOST: f64 = 0.95;
/// Requests of each round.
const REQUESTS: u32 = 40_000;

/// Runs all. Progress goes from `part.0` to `part.1`.
///
/// # Errors
/// When a part does not start or ends, or the run is interrupted.
pub fn run(context: &Context, clients: u32, part: (f64, f64)) -> Result<Both, Failure> {
    Both::run(context, setting(clients, context.seed)?, part)
}

fn setting(clients: u32, seed: u64) -> Result<Setting, Failure> {
    let kind = |(i, name): (usize, &str)| Kind { label: name.to_owned(), backends: vec![i] };
    Ok(Setting {
        pool: pool(RATIO).to_vec(),
        kinds: NAMES.into_iter().enumerate().map(kind).collect(),
        service_us: SERVICE_MS as f64 * 1e3,
        load: load(clients, seed)?,
        administrator: BY_CAPACITY.to_vec(),
        clients: Coming::Closed(clients),
        seed,
    })
}

/// The part of the capacity that so many clients use under the best static split.
fn load(clients: u32, seed: u64) -> Result<f64, Failure> {
    let mut load = 0.8;
    for _ in 0..ROUNDS {
        let arena = arena(RATIO, REQUESTS, seed);
        let capacity: f64 = arena.capacities_rps().iter().sum();
        let arena = Arena { rate_rps: load * capacity, ..arena };
        let weights = integer_weights(&static_shares(&arena)?, 1_000_000);
        let report = closed(&arena, clients, Some(Box::new(RoundRobin::new(&weights))));
        load = (report.goodput_rps / capacity).min(MOST);
    }
    Ok(load)
}

#[cfg(test)]
mod tests {
    use super::super::{clients_for, simulate};
    use super::*;

    #[test]
    fn weights_are_learned_at_the_load_that_the_clients_make() {
        let clients = clients_for(0.8, 1.0, 1);
        let found = load(clients, 1).unwrap();
        let capacity: f64 = arena(RATIO, 1, 1).capacities_rps().iter().sum();
        // An equal split serves them less, a central queue more.
        let equal = simulate(Some(Box::new(RoundRobin::new(&[1; 3]))), RATIO, clients, 1).rps;
        let central = simulate(None, RATIO, clients, 1).rps;
        assert!((equal / capacity..central / capacity).contains(&found), "{found}");
    }
}
