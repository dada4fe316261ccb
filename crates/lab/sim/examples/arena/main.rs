//! Policies to the limit: the mean of every method over that of the central queue, on pools like that of KnapsackLB's
//! Table 3, for 1, 10, 40 and 200 balancers, exponential and bimodal service. All methods but `expected_delay`, which
//! learns, know the capacities, or what their names say. Medians over seeds; one seed is one pool and one noise for
//! all. Beside the ratio: tries per request where refusals cost some, and the part that was dropped; under `again`
//! nothing is, for clients send what was refused for good again until it is served, and wait for as long.
//!
//! `cargo run --release -p plimsoll-sim --example arena -- [REQUESTS] [SEEDS] [NETWORK_MS] [BALANCERS] [NAME]`;
//! `BALANCERS` is one number instead of all four, 0 for all; `NAME` selects the methods whose names contain it.

mod doors;

use std::time::{Duration, Instant};

use doors::Doors;
use plimsoll_model::GREATEST_WEIGHT;
use plimsoll_policy::{Draw, ExpectedDelaySettings, Policy, PolicyKind, Settings, Sight};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{
    Arena, ArenaReport, InFlightBy, ShortestDelay, Surroundings, Yardsticks, integer_weights,
    paper_pool, yardsticks,
};

const LOADS: [f64; 4] = [0.5, 0.7, 0.85, 0.95];
/// When a client sends again what was refused for good: after a mean service time.
const AGAIN_AFTER: Duration = Duration::from_millis(30);
/// Clients' addresses, all of which send alike; hashes are of these.
const ADDRESSES: u32 = 10_000;
/// How often balancers hear how busy CPUs are.
const CPU_NEWS: Duration = Duration::from_secs(1);
/// What `first` lets a backend have, all balancers together.
const FULL: u32 = 8;
const LAWS: [ServiceTime; 2] = [ServiceTime::Exponential, ServiceTime::Bimodal];

/// What a method knows about the pool.
#[derive(Clone, Copy)]
enum Knows {
    Nothing,
    Cores,
    Capacities,
    StaticSplit,
}

/// What picks.
#[derive(Clone, Copy)]
enum By {
    Kind(PolicyKind),
    Informed(InFlightBy),
}

struct Method {
    name: &'static str,
    by: By,
    settings: Settings,
    knows: Knows,
    doors: Doors,
    /// Clients send again what was refused for good, until it is served.
    again: bool,
}

fn method(name: &'static str, kind: PolicyKind) -> Method {
    let (settings, knows, doors) = (Settings::default(), Knows::Capacities, Doors::Open);
    Method { name, by: By::Kind(kind), settings, knows, doors, again: false }
}

fn informed(name: &'static str, counts: InFlightBy) -> Method {
    Method { by: By::Informed(counts), ..method(name, PolicyKind::ExpectedDelay) }
}

fn sees(name: &'static str, sight: Sight, probes: u32, doors: Doors) -> Method {
    let expected_delay = ExpectedDelaySettings { sight, probes };
    let settings = Settings { expected_delay, ..Settings::default() };
    Method { settings, knows: Knows::Nothing, doors, ..method(name, PolicyKind::ExpectedDelay) }
}

fn again(name: &'static str, method: Method) -> Method {
    Method { name, again: true, ..method }
}

fn methods() -> Vec<Method> {
    use PolicyKind::{
        Bloc, CpuRandom, First, HashMaglev, HashMap, HashRing, LeastConnections, LeastTime,
        LeastconnHaproxy, PeakEwma, PowerOfN, PowerOfNLatency, Prequal, Random, RoundRobin,
        StaticRoundRobin,
    };
    let uniform = Settings { draw: Draw::Uniform, ..Settings::default() };
    vec![
        Method { knows: Knows::StaticSplit, ..method("best static split", RoundRobin) },
        method("random", Random),
        method("cpu_random", CpuRandom),
        method("round_robin", RoundRobin),
        method("static_round_robin", StaticRoundRobin),
        method("hash_map", HashMap),
        method("hash_ring", HashRing),
        method("hash_maglev", HashMaglev),
        Method { knows: Knows::Nothing, ..method("first, 8 in flight", First) },
        method("least_connections", LeastConnections),
        Method { knows: Knows::Nothing, ..method("least_connections, equal", LeastConnections) },
        Method { knows: Knows::Cores, ..method("least_connections, by cores", LeastConnections) },
        method("leastconn_haproxy", LeastconnHaproxy),
        method("power_of_n", PowerOfN),
        Method { settings: uniform, ..method("power_of_n, uniform", PowerOfN) },
        method("power_of_n_latency", PowerOfNLatency),
        method("peak_ewma", PeakEwma),
        method("least_time", LeastTime),
        method("prequal", Prequal),
        informed("shortest delay, true capacities", InFlightBy::Own),
        informed("the same, counts piggybacked", InFlightBy::Piggybacked),
        informed("the same, 2 probes by capacity", InFlightBy::Probes(2)),
        informed("the same, 5 probes by capacity", InFlightBy::Probes(5)),
        Method { doors: Doors::Limit(1.0), ..method("random, 1 × cores", Random) },
        Method { doors: Doors::Limit(1.5), ..method("random, 1.5 × cores", Random) },
        Method { doors: Doors::ButLast(1.0), ..method("random, 1 × cores, last try in", Random) },
        Method {
            doors: Doors::ButLast(1.5), ..method("random, 1.5 × cores, last try in", Random)
        },
        Method { doors: Doors::Chips(1.0), ..method("bloc, 1 × cores", Bloc) },
        Method { doors: Doors::Chips(2.0), ..method("bloc, 2 × cores", Bloc) },
        again("bloc, 1 × cores, again", Method { doors: Doors::Chips(1.0), ..method("", Bloc) }),
        again("bloc, 2 × cores, again", Method { doors: Doors::Chips(2.0), ..method("", Bloc) }),
        sees("expected_delay, own", Sight::Own, 5, Doors::Open),
        sees("expected_delay, refusals", Sight::Refusals, 5, Doors::Learned),
        again("expected_delay, refusals, again", sees("", Sight::Refusals, 5, Doors::Learned)),
        sees("expected_delay, 2 probes", Sight::Probes, 2, Doors::Open),
        sees("expected_delay, 5 probes", Sight::Probes, 5, Doors::Open),
        sees("expected_delay, 8 probes", Sight::Probes, 8, Doors::Open),
    ]
}

fn run(arena: &Arena, yard: &Yardsticks, method: &Method, balancers: usize) -> ArenaReport {
    let weights = match method.knows {
        Knows::Nothing => vec![1; arena.pool.len()],
        Knows::Cores => arena.pool.iter().map(|b| b.cores).collect(),
        Knows::Capacities => integer_weights(&arena.capacities_rps(), GREATEST_WEIGHT),
        Knows::StaticSplit => integer_weights(&yard.shares, 1_000_000),
    };
    let mut settings = method.settings;
    if matches!(method.by, By::Kind(PolicyKind::First)) {
        settings.max_in_flight = Some(FULL.div_ceil(balancers as u32));
    }
    let build = |_| -> Box<dyn Policy> {
        match method.by {
            By::Kind(kind) => kind.build(&weights, &settings).expect("valid settings"),
            By::Informed(counts) => Box::new(ShortestDelay::new(&arena.pool, counts)),
        }
    };
    let mut policies: Vec<Box<dyn Policy>> = (0..balancers).map(build).collect();
    let mut ingress = method.doors.build(&arena.pool);
    let mut arena = arena.clone();
    arena.comes_again = method.again.then_some(AGAIN_AFTER);
    arena.tells_load = matches!(method.by, By::Informed(InFlightBy::Piggybacked));
    arena.retry = method.doors.retries();
    arena.addresses = ADDRESSES;
    let by_cpu = matches!(method.by, By::Kind(PolicyKind::CpuRandom));
    arena.cpu_news = by_cpu.then_some(CPU_NEWS);
    arena.run_with(&mut policies, Surroundings { ingress: &mut ingress })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cell(reports: &[(ArenaReport, f64)]) -> String {
    let of = |f: &dyn Fn(&ArenaReport, f64) -> f64| {
        median(reports.iter().map(|(report, limit_us)| f(report, *limit_us)).collect())
    };
    let ratio = of(&|report, limit_us| report.mean_us / limit_us);
    let tries = of(&|report, _| report.tries_per_request());
    let lost =
        |report: &ArenaReport| (report.dropped + report.unserved) as f64 / report.offered() as f64;
    let dropped = 100.0 * of(&|report, _| lost(report));
    let mut text = if ratio < 100.0 { format!("{ratio:.2}") } else { "≥100".to_owned() };
    if tries >= 1.005 {
        text += &format!(" ({tries:.1})");
    }
    if dropped >= 0.005 {
        text += &format!(" −{dropped:.2} %");
    }
    text
}

fn main() {
    let number = |k: usize, otherwise: f64| {
        std::env::args().nth(k).map_or(otherwise, |arg| {
            arg.parse().unwrap_or_else(|_| panic!("{arg}: expected a number"))
        })
    };
    let (requests, seeds) = (number(1, 300_000.0) as u32, number(2, 3.0) as u64);
    let network = Duration::from_secs_f64(number(3, 0.0) / 1e3);
    let settings = |law, load, seed| {
        let mut arena = Arena::new(paper_pool(10 + seed), load, requests, seed);
        (arena.service, arena.network, arena.warm_up) = (law, network, requests / 4);
        let yard = yardsticks(&arena).expect("a pool with room");
        (arena, yard)
    };
    let of_all = LAWS.iter().flat_map(|&law| LOADS.map(|load| (law, load)));
    let columns: Vec<Vec<(Arena, Yardsticks)>> = of_all
        .map(|(law, load)| (1..=seeds).map(|seed| settings(law, load, seed)).collect())
        .collect();
    let (mut events, mut seconds) = (0, 0.0);
    let only = number(4, 0.0) as usize;
    let name = std::env::args().nth(5).unwrap_or_default();
    for balancers in [1, 10, 40, 200].into_iter().filter(|&n| only == 0 || n == only) {
        println!(
            "\n| {balancers} balancer(s) | exp 50 % | 70 % | 85 % | 95 % | bim 50 % | 70 % | 85 % | 95 % |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        for method in methods().iter().filter(|method| method.name.contains(&name)) {
            let mut line = format!("| {} |", method.name);
            for column in &columns {
                let from = Instant::now();
                let reports: Vec<(ArenaReport, f64)> = column
                    .iter()
                    .map(|(a, yard)| (run(a, yard, method, balancers), yard.central_mean_us))
                    .collect();
                seconds += from.elapsed().as_secs_f64();
                events += reports.iter().map(|(report, _)| report.events).sum::<u64>();
                line += &format!(" {} |", cell(&reports));
            }
            println!("{line}");
        }
    }
    println!("\n{:.1} million events a second", events as f64 / 1e6 / seconds);
}
