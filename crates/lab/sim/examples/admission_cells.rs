//! The learned capacity against the best static one, cell by cell: pools, laws of service times and loads, over BLOC's
//! 40 balancers (chips, three retries) or those of another policy (which learns, with the proxy's retries).
//!
//! Static limits are so many times each backend's cores. The best has the least 99th percentile among those that serve 99 %
//! of the most that any serves; the learned one holds a cell if it serves 99 % of that most, too, and its 99th percentile is
//! at most 1.15 times that of the best. Medians over seeds.
//! `cargo run --release -p plimsoll-sim --example admission_cells -- [SEEDS] [POOL] [LAW] [LOAD] [LOSS]
//! [POLICY]`; `all` for
//! any of them stands for all, and names select what contains them. `LOSS` is the option of that name.

use std::time::Duration;

use plimsoll_admission::{AdaptiveOptions, CapacityOptions, RetryOptions};
use plimsoll_model::GREATEST_WEIGHT;
use plimsoll_policy::{Policy, PolicyKind, Settings};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{
    AdmissionDoor, Arena, ArenaReport, BackendModel, Surroundings, cores, integer_weights,
    on_cores, paper_pool,
};

const PER_CORE: [f64; 12] = [1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0];
const LAWS: [(&str, ServiceTime); 5] = [
    ("deterministic", ServiceTime::Deterministic),
    ("exponential", ServiceTime::Exponential),
    ("bimodal", ServiceTime::Bimodal),
    ("lognormal 1.5", ServiceTime::Lognormal { sigma: 1.5 }),
    ("Pareto 2.2", ServiceTime::Pareto { alpha: 2.2 }),
];
const LOADS: [f64; 5] = [0.7, 0.85, 1.0, 1.2, 1.5];
/// Name, service time and network, each way, in milliseconds.
const POOLS: [(&str, f64, u64); 5] = [
    ("one core", 250.0, 1),
    ("four cores", 250.0, 1),
    ("far, 20 ms", 20.0, 20),
    ("paper", 30.0, 1),
    ("6 x 32", 30.0, 1),
];
const BALANCERS: usize = 40;
/// BLOC's, without a budget.
const RETRIES: u32 = 3;
const REQUESTS: u32 = 60_000;
const WARM_UP: u32 = 20_000;
const AS_GOOD: f64 = 0.99;
const NEAR: f64 = 1.15;

#[derive(Clone, Copy)]
struct Cell {
    pool: usize,
    law: usize,
    load: f64,
}

/// Of one seed: the best static limit, and goodput and 99th percentile of the learned one over the most and over that.
struct Found {
    best: f64,
    goodput: f64,
    p99: f64,
    dropped: f64,
}

fn backends(name: &str, seed: u64) -> Vec<BackendModel> {
    match name {
        "four cores" => vec![BackendModel { cores: 4, speed: 1.0 }; 10],
        "paper" => paper_pool(10 + seed),
        "6 x 32" => vec![BackendModel { cores: 32, speed: 1.0 }; 6],
        _ => vec![BackendModel { cores: 1, speed: 1.0 }; 10],
    }
}

fn run(arena: &Arena, policy: PolicyKind, capacities: &[CapacityOptions]) -> ArenaReport {
    let weights = match policy {
        PolicyKind::ExpectedDelay => vec![1; arena.pool.len()],
        _ => integer_weights(&arena.capacities_rps(), GREATEST_WEIGHT),
    };
    let build = |_| policy.build(&weights, &Settings::default()).expect("valid settings");
    let mut balancers: Vec<Box<dyn Policy>> = (0..BALANCERS).map(build).collect();
    let mut doors = AdmissionDoor::of_capacities(capacities).expect("valid options");
    arena.run_with(&mut balancers, Surroundings { ingress: &mut doors })
}

fn measure(cell: Cell, seed: u64, policy: PolicyKind, learned: AdaptiveOptions) -> Found {
    let (name, service_ms, network_ms) = POOLS[cell.pool];
    let mut arena = Arena::new(backends(name, seed), 1.0, REQUESTS, seed);
    (arena.service_us, arena.service) = (service_ms * 1e3, LAWS[cell.law].1);
    arena.rate_rps = cell.load * arena.capacities_rps().iter().sum::<f64>();
    (arena.warm_up, arena.network) = (WARM_UP, Duration::from_millis(network_ms));
    arena.retry = match policy {
        PolicyKind::Bloc => RetryOptions::of_refusals(RETRIES),
        _ => RetryOptions::default(),
    };
    let fixed = |times: f64| {
        let limit = |b: &BackendModel| (f64::from(b.cores) * times).round() as u32;
        let each: Vec<_> = arena.pool.iter().map(|b| CapacityOptions::Static(limit(b))).collect();
        (times, run(&arena, policy, &each))
    };
    let swept = PER_CORE.map(fixed);
    let learned = run(&arena, policy, &vec![CapacityOptions::Adaptive(learned); arena.pool.len()]);
    let most = swept.iter().map(|(_, report)| report.goodput_rps).fold(0.0, f64::max);
    let good = swept.iter().filter(|(_, report)| report.goodput_rps >= AS_GOOD * most);
    let best = good.min_by(|one, other| one.1.p99_us.total_cmp(&other.1.p99_us));
    let (times, best) = best.expect("the most is as good as itself");
    Found {
        best: *times,
        goodput: learned.goodput_rps / most,
        p99: learned.p99_us / best.p99_us,
        dropped: 100.0 * learned.drop_ratio(),
    }
}

fn main() {
    let argument = |k: usize| std::env::args().nth(k).filter(|text| text != "all");
    let seeds: u64 = argument(1).map_or(3, |text| text.parse().expect("SEEDS is a number"));
    let (pool, law) = (argument(2).unwrap_or_default(), argument(3).unwrap_or_default());
    let only = argument(4).map(|text| text.parse::<f64>().expect("LOAD is a number"));
    let mut options = AdaptiveOptions::default();
    options.loss = argument(5).map_or(options.loss, |text| text.parse().expect("LOSS is a number"));
    let policy =
        argument(6).map_or(PolicyKind::Bloc, |text| text.parse().expect("POLICY is a name"));
    let mut cells = Vec::new();
    for p in (0..POOLS.len()).filter(|&p| POOLS[p].0.contains(&pool)) {
        for l in (0..LAWS.len()).filter(|&l| LAWS[l].0.contains(&law)) {
            let loads = LOADS.iter().filter(|&&load| only.is_none_or(|only| only == load));
            cells.extend(loads.map(|&load| Cell { pool: p, law: l, load }));
        }
    }
    let done = on_cores(cores(), 0..cells.len() as u64 * seeds, |k| {
        let (cell, seed) = ((k / seeds) as usize, 1 + k % seeds);
        (cell, measure(cells[cell], seed, policy, options))
    });
    print(&cells, &done);
}

fn print(cells: &[Cell], done: &[(usize, Found)]) {
    println!("| backends | service | load | best static, a core | served | p99 | dropped, % | |");
    println!("|{}", "---|".repeat(8));
    let (mut slow, mut few) = (0, 0);
    for (k, cell) in cells.iter().enumerate() {
        let median = |of: &dyn Fn(&Found) -> f64| {
            let mut all: Vec<f64> =
                done.iter().filter(|(c, _)| *c == k).map(|(_, f)| of(f)).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (goodput, p99) = (median(&|f| f.goodput), median(&|f| f.p99));
        let verdict = match (goodput >= AS_GOOD, p99 <= NEAR) {
            (true, true) => "",
            (true, false) => "slow",
            (false, true) => "few",
            (false, false) => "slow, few",
        };
        (slow, few) = (slow + u32::from(p99 > NEAR), few + u32::from(goodput < AS_GOOD));
        println!(
            "| {} | {} | {} | {} | {goodput:.3} | {p99:.2} | {:.1} | {verdict} |",
            POOLS[cell.pool].0,
            LAWS[cell.law].0,
            cell.load,
            median(&|f| f.best),
            median(&|f| f.dropped),
        );
    }
    println!(
        "\nOf {} cells {slow} have a p99 above {NEAR} times the best static one's, {few} serve less than {AS_GOOD}.",
        cells.len()
    );
}
