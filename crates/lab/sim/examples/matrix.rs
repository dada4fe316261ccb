//! Policies under every law of service times, on every pool: the mean of `expected_delay`, which learns, over the
//! central queue's, over the least known bound's where speeds differ, and, for one balancer, over that of least
//! connections with the true capacities. Common arrivals and service times in all runs of a seed. Of the ratio that
//! comes first: mean over seeds, upper bound of its 95 % interval, worst seed, median.
//!
//! `cargo run --release -p plimsoll-sim --example matrix -- [REQUESTS] [SEEDS] [LAW] [POOL] [LOAD] [BALANCERS] [METHOD]
//! [NETWORK_MS] [WAIT_MS] [PROBES]`; `all` for any of them stands for all, and names select what contains them. `METHOD` is a sight of
//! `expected_delay`. Under `refusals` the backends have the product's admission by its defaults, and clients send again
//! after 30 ms what was refused for good, until it is served; tries per request are the mean, and the most in any 10 s.
//! `probes and refusals` is both at once, and under `auto and refusals` the balancer chooses. With `WAIT_MS` requests may wait at their balancer
//! for so long; `PROBES` backends are asked before a pick, and others where these are full.

use std::time::Duration;

use plimsoll_admission::{AdmissionOptions, RefusalRetries, RetryOptions, WaitOptions};
use plimsoll_model::GREATEST_WEIGHT;
use plimsoll_policy::{ExpectedDelaySettings, Policy, PolicyKind, Settings, Sight};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{
    AdmissionDoor, Arena, BackendModel, OneQueue, Surroundings, cores, half_width, integer_weights,
    mean, on_cores, paper_pool,
};

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
/// Tries are counted over so many seconds, wherever these begin.
const TRIES_OVER_S: usize = 10;
/// When a client sends again what was refused for good: after a mean service time.
const AGAIN_AFTER: Duration = Duration::from_millis(30);
/// Retries after refusals, as the proxy has them where the sight is refusals.
const RETRIES: u32 = 8;

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

/// What all runs have in common.
#[derive(Clone, Copy)]
struct Plan {
    requests: u32,
    seeds: u64,
    balancers: usize,
    expected_delay: ExpectedDelaySettings,
    doors: bool,
    wait: Option<WaitOptions>,
    network: Duration,
}

/// Results of one seed.
struct Means {
    learned: f64,
    central: f64,
    bound: f64,
    /// For one balancer.
    informed: Option<f64>,
    tries: f64,
    most_tries: f64,
}

fn arguments() -> (Plan, Vec<Cell>) {
    let argument = |k: usize| std::env::args().nth(k).filter(|text| text != "all");
    let number = |k: usize, otherwise: f64| {
        argument(k).map_or(otherwise, |text| {
            text.parse().unwrap_or_else(|_| panic!("{text}: expected a number"))
        })
    };
    let (law, pool_name) = (argument(3).unwrap_or_default(), argument(4).unwrap_or_default());
    let only_load = argument(5).map(|text| text.parse::<f64>().expect("a load"));
    let sight = match argument(7).as_deref() {
        None | Some("own") => Sight::Own,
        Some("probes" | "probes and refusals") => Sight::Probes,
        Some("refusals") => Sight::Refusals,
        Some("auto and refusals") => Sight::Auto,
        Some(other) => panic!(
            "{other}: expected own, probes, refusals, 'probes and refusals' or 'auto and refusals'"
        ),
    };
    let plan = Plan {
        requests: number(1, 200_000.0) as u32,
        seeds: number(2, 20.0) as u64,
        balancers: number(6, 1.0) as usize,
        expected_delay: ExpectedDelaySettings {
            sight,
            probes: number(10, f64::from(ExpectedDelaySettings::default().probes)) as u32,
        },
        doors: argument(7).is_some_and(|method| method.contains("refusals")),
        wait: argument(9)
            .map(|_| WaitOptions { timeout_ms: number(9, 0.0) as u64, ..WaitOptions::default() }),
        network: Duration::from_secs_f64(number(8, 0.0) / 1e3),
    };
    let mut cells = Vec::new();
    for (l, _) in LAWS.iter().enumerate().filter(|(_, (name, _))| name.contains(&law)) {
        for (p, _) in POOLS.iter().enumerate().filter(|(_, name)| name.contains(&pool_name)) {
            let loads = LOADS.iter().filter(|load| only_load.is_none_or(|only| only == **load));
            cells.extend(loads.map(|&load| Cell { law: l, pool: p, load }));
        }
    }
    (plan, cells)
}

fn main() {
    let (plan, cells) = arguments();
    let done = on_cores(cores(), 0..cells.len() as u64 * plan.seeds, |k| {
        let (cell, seed) = ((k / plan.seeds) as usize, 1 + k % plan.seeds);
        (cell, measure(cells[cell], seed, plan))
    });
    print(&cells, &done);
}

/// Mean, upper bound of its 95 % interval, greatest, median.
fn summary(mut ratios: Vec<f64>) -> [f64; 4] {
    ratios.sort_by(f64::total_cmp);
    let mean = mean(&ratios).unwrap_or(f64::NAN);
    let upper = mean + half_width(&ratios).unwrap_or(f64::NAN);
    [mean, upper, ratios.last().copied().unwrap_or(f64::NAN), ratios[ratios.len() / 2]]
}

fn print(cells: &[Cell], done: &[(usize, Means)]) {
    println!(
        "| law | pool | load | ÷ central | upper | worst | median | ÷ bound | told ÷ central | ÷ told | upper | worst | median | tries | most |"
    );
    println!("|{}", "---|".repeat(15));
    for (k, cell) in cells.iter().enumerate() {
        let of: Vec<&Means> = done.iter().filter(|(c, _)| *c == k).map(|(_, m)| m).collect();
        let mean =
            |f: &dyn Fn(&Means) -> f64| of.iter().map(|m| f(m)).sum::<f64>() / of.len() as f64;
        let [central, upper, worst, median] =
            summary(of.iter().map(|m| m.learned / m.central).collect());
        let bound = mean(&|m| m.learned / m.bound);
        let told: Option<Vec<f64>> = of.iter().map(|m| Some(m.learned / m.informed?)).collect();
        let told = told.map_or_else(
            || "| | | | ".to_owned(),
            |ratios| {
                let [told, upper, worst, median] = summary(ratios);
                let informed = mean(&|m| m.informed.unwrap_or(f64::NAN) / m.central);
                format!("{informed:.3} | {told:.3} | {upper:.3} | {worst:.3} | {median:.3} ")
            },
        );
        let most = of.iter().map(|m| m.most_tries).fold(f64::NAN, f64::max);
        println!(
            "| {} | {} | {} | {central:.3} | {upper:.3} | {worst:.3} | {median:.3} | {bound:.3} | {told}| {:.2} | {most:.1} |",
            LAWS[cell.law].0,
            POOLS[cell.pool],
            cell.load,
            mean(&|m| m.tries),
        );
    }
}

fn measure(cell: Cell, seed: u64, plan: Plan) -> Means {
    let mut arena = Arena::new(pool(POOLS[cell.pool], seed), cell.load, plan.requests, seed);
    (arena.service, arena.warm_up) = (LAWS[cell.law].1, plan.requests / 4);
    (arena.network, arena.window_s) = (plan.network, Some(1.0));
    let queue = OneQueue::of(&arena);
    let informed = (plan.balancers == 1).then(|| {
        let capacities = integer_weights(&arena.capacities_rps(), GREATEST_WEIGHT);
        let settings = Settings::default();
        let told = PolicyKind::LeastConnections.build(&capacities, &settings);
        arena.run(&mut [told.expect("valid settings")]).mean_us
    });
    let settings = Settings { expected_delay: plan.expected_delay, ..Settings::default() };
    let build = |_| -> Box<dyn Policy> {
        let alike = vec![1; arena.pool.len()];
        PolicyKind::ExpectedDelay.build(&alike, &settings).expect("valid settings")
    };
    let mut balancers: Vec<Box<dyn Policy>> = (0..plan.balancers).map(build).collect();
    let mut doors = Vec::new();
    arena.wait = plan.wait;
    let most = match plan.expected_delay.sight {
        Sight::Refusals => RETRIES,
        _ => RefusalRetries::default().most,
    };
    if plan.doors {
        let options = AdmissionOptions::default();
        doors = AdmissionDoor::for_each(&arena.pool, &options).expect("the defaults");
        arena.comes_again = Some(AGAIN_AFTER);
        arena.retry = RetryOptions {
            refusals: RefusalRetries { most, ..RefusalRetries::default() },
            ..RetryOptions::default()
        };
    }
    let learned = arena.run_with(&mut balancers, Surroundings { ingress: &mut doors });
    let warm_up_s = f64::from(arena.warm_up) / arena.rate_rps;
    Means {
        learned: learned.mean_us,
        central: queue.central_us,
        bound: queue.bound_us,
        informed,
        tries: learned.tries_per_request(),
        most_tries: learned.most_tries(warm_up_s as usize, TRIES_OVER_S).unwrap_or(f64::NAN),
    }
}
