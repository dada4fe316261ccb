//! Policies under every law of service times, on every pool: the mean of `expected_delay`, which learns, over that of
//! least connections with the true capacities, and over the central queue's. Common arrivals and service times in all
//! cells of a seed; the mean ratio of all seeds, the upper bound of its 95 % interval, the worst seed and the median.
//!
//! `cargo run --release -p plimsoll-sim --example matrix -- [REQUESTS] [SEEDS] [LAW] [POOL] [LOAD] [BALANCERS] [METHOD]`;
//! `all` for any of them stands for all, and names select what contains them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll_policy::{ExpectedDelaySettings, Policy, PolicyKind, Settings, Sight};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{Arena, BackendModel, integer_weights, paper_pool, yardsticks};

const LAWS: [(&str, ServiceTime); 6] = [
    ("deterministic", ServiceTime::Deterministic),
    ("exponential", ServiceTime::Exponential),
    ("bimodal", ServiceTime::Bimodal),
    ("lognormal 1.5", ServiceTime::Lognormal { sigma: 1.5 }),
    ("Pareto 2.2", ServiceTime::Pareto { alpha: 2.2 }),
    ("Pareto 1.5", ServiceTime::Pareto { alpha: 1.5 }),
];
const POOLS: [&str; 6] =
    ["paper", "1:8", "two tiers", "cores against speed", "6 x 32", "100 equal"];
const LOADS: [f64; 3] = [0.7, 0.85, 0.95];

fn backends(count: usize, cores: u32, speed: f64) -> Vec<BackendModel> {
    vec![BackendModel { cores, speed }; count]
}

fn pool(name: &str, seed: u64) -> Vec<BackendModel> {
    match name {
        "paper" => paper_pool(10 + seed),
        "1:8" => [backends(16, 1, 1.0), backends(4, 1, 8.0)].concat(),
        "two tiers" => [backends(16, 1, 1.0), backends(4, 8, 1.0)].concat(),
        "cores against speed" => [backends(16, 1, 2.0), backends(4, 8, 0.5)].concat(),
        "6 x 32" => backends(6, 32, 1.0),
        _ => backends(100, 1, 1.0),
    }
}

#[derive(Clone, Copy)]
struct Cell {
    law: usize,
    pool: usize,
    load: f64,
}

/// Means of one seed.
struct Means {
    informed: f64,
    learned: f64,
    central: f64,
    tries: f64,
}

fn main() {
    let argument = |k: usize| std::env::args().nth(k).filter(|text| text != "all");
    let number = |k: usize, otherwise: f64| {
        argument(k).map_or(otherwise, |text| {
            text.parse().unwrap_or_else(|_| panic!("{text}: expected a number"))
        })
    };
    let (requests, seeds) = (number(1, 200_000.0) as u32, number(2, 20.0) as u64);
    let (law, pool_name) = (argument(3).unwrap_or_default(), argument(4).unwrap_or_default());
    let only_load = argument(5).map(|text| text.parse::<f64>().expect("a load"));
    let balancers = number(6, 1.0) as usize;
    let sight = match argument(7).as_deref() {
        None | Some("own") => Sight::Own,
        Some("probes") => Sight::Probes,
        Some(other) => {
            panic!("{other}: expected own or probes (refusals need doors: the example `arena`)")
        }
    };
    let mut cells = Vec::new();
    for (l, _) in LAWS.iter().enumerate().filter(|(_, (name, _))| name.contains(&law)) {
        for (p, _) in POOLS.iter().enumerate().filter(|(_, name)| name.contains(&pool_name)) {
            let loads = LOADS.iter().filter(|load| only_load.is_none_or(|only| only == **load));
            cells.extend(loads.map(|&load| Cell { law: l, pool: p, load }));
        }
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Means)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let k = next.fetch_add(1, Ordering::Relaxed);
                    let (cell, seed) = (k / seeds as usize, 1 + k as u64 % seeds);
                    let Some(&at) = cells.get(cell) else { return };
                    let means = measure(at, seed, requests, balancers, sight);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((cell, means));
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{:<14} {:<20} {:>5} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>6}",
        "LAW", "POOL", "LOAD", "RATIO", "UPPER", "WORST", "MEDIAN", "CENTRAL", "TOLD/C", "TRIES"
    );
    for (k, cell) in cells.iter().enumerate() {
        let of: Vec<&Means> = done.iter().filter(|(c, _)| *c == k).map(|(_, m)| m).collect();
        let mut ratios: Vec<f64> = of.iter().map(|m| m.learned / m.informed).collect();
        ratios.sort_by(f64::total_cmp);
        let n = ratios.len() as f64;
        let mean = ratios.iter().sum::<f64>() / n;
        let variance = ratios.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / (n - 1.0);
        let upper = mean + 1.96 * (variance / n).sqrt();
        let central = of.iter().map(|m| m.learned / m.central).sum::<f64>() / n;
        let informed = of.iter().map(|m| m.informed / m.central).sum::<f64>() / n;
        let tries = of.iter().map(|m| m.tries).sum::<f64>() / n;
        println!(
            "{:<14} {:<20} {:>5} {mean:>6.3} {upper:>6.3} {:>6.3} {:>6.3} {central:>8.3} {informed:>8.3} {tries:>6.2}",
            LAWS[cell.law].0,
            POOLS[cell.pool],
            cell.load,
            ratios.last().copied().unwrap_or(f64::NAN),
            ratios[ratios.len() / 2],
        );
    }
}

fn measure(cell: Cell, seed: u64, requests: u32, balancers: usize, sight: Sight) -> Means {
    let mut arena = Arena::new(pool(POOLS[cell.pool], seed), cell.load, requests, seed);
    (arena.service, arena.warm_up) = (LAWS[cell.law].1, requests / 4);
    let yard = yardsticks(&arena).expect("a pool with room");
    let capacities = integer_weights(&arena.capacities_rps(), 256);
    let alike = vec![1; arena.pool.len()];
    let build = |kind: PolicyKind, weights: &[u32]| -> Vec<Box<dyn Policy>> {
        let expected_delay = ExpectedDelaySettings { sight, ..ExpectedDelaySettings::default() };
        let settings = Settings { expected_delay, ..Settings::default() };
        (0..balancers).map(|_| kind.build(weights, &settings).expect("valid settings")).collect()
    };
    let informed = arena.run(&mut build(PolicyKind::LeastConnections, &capacities));
    let learned = arena.run(&mut build(PolicyKind::ExpectedDelay, &alike));
    Means {
        informed: informed.mean_us,
        learned: learned.mean_us,
        central: yard.central_mean_us,
        tries: learned.tries_per_request(),
    }
}
