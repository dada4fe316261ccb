//! How good a learned capacity is: the adaptive one and the paper's average against every static value, for BLOC's
//! cluster (40 balancers, chips, three retries, 1 ms of network) and others.
//!
//! The best static value is that of the least 99th percentile among those whose goodput is within 1 % of
//! the greatest; where backends have several cores, so many a core are tried as well. `max_wait` is the adaptive one with
//! a `max_wait` of three and of eleven services. `cargo run --release -p plimsoll-sim --example admission -- [SEED] [NAME]`; `NAME` selects the
//! scenarios whose names contain it, and prints every static value of these.

use std::time::Duration;

use plimsoll_admission::{AdaptiveOptions, CapacityOptions, RetryOptions, WaitOptions};
use plimsoll_model::GREATEST_WEIGHT;
use plimsoll_policy::{Policy, PolicyKind, Settings};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{
    AdmissionDoor, Arena, ArenaReport, BackendModel, Change, Clients, Step, Surroundings,
    integer_weights,
};

const STATIC: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30];
/// And so many times each backend's cores, where any has several.
const PER_CORE: [f64; 6] = [1.0, 1.25, 1.5, 2.0, 3.0, 5.0];
/// With `max_wait` requests may wait for so many services.
const MAX_WAITS: [f64; 2] = [3.0, 11.0];
const BALANCERS: usize = 40;
const RETRIES: u32 = 3;
const NETWORK: Duration = Duration::from_millis(1);
/// Goodput within this part of the greatest is as good.
const AS_GOOD: f64 = 0.99;
const REQUESTS: u32 = 100_000;
const WARM_UP: u32 = 25_000;

struct Scenario {
    name: String,
    arena: Arena,
}

fn scenario(name: &str, pool: Vec<BackendModel>, service_ms: f64, load: f64) -> Scenario {
    let mut arena = Arena::new(pool, load, REQUESTS, 1);
    arena.service_us = service_ms * 1e3;
    arena.rate_rps = load * arena.capacities_rps().iter().sum::<f64>();
    arena.service = ServiceTime::Deterministic;
    arena.warm_up = WARM_UP;
    arena.network = NETWORK;
    arena.retry = RetryOptions::of_refusals(RETRIES);
    Scenario { name: format!("{name}, load {load}"), arena }
}

fn alike() -> Vec<BackendModel> {
    vec![BackendModel { cores: 1, speed: 1.0 }; 10]
}

/// All backends slow down to half their speed after the warm-up, which is what counts then.
fn slow_down(load: f64) -> Scenario {
    let mut slow =
        scenario("250 ms exponential, half speed from a moment on", alike(), 250.0, load);
    slow.arena.service = ServiceTime::Exponential;
    let at_s = f64::from(WARM_UP) / slow.arena.rate_rps;
    let half = |backend| Step { at_s, change: Change::Speed { backend, speed: 0.5 } };
    slow.arena.timeline = (0..slow.arena.pool.len()).map(half).collect();
    slow
}

fn scenarios() -> Vec<Scenario> {
    let mut all = vec![scenario("Fig 13: 250 ms", alike(), 250.0, 47.0 / 40.0)];
    for load in [0.7, 0.85, 1.175] {
        for service_ms in [50.0, 100.0, 250.0, 500.0] {
            all.push(scenario(&format!("{service_ms} ms"), alike(), service_ms, load));
        }
        let mut exponential = scenario("250 ms exponential", alike(), 250.0, load);
        exponential.arena.service = ServiceTime::Exponential;
        all.push(exponential);
    }
    all.extend([0.35, 0.45, 0.6].map(slow_down));
    for load in [0.85, 1.175] {
        let speeds = [0.5, 0.7, 1.0, 1.4, 2.0];
        let unequal = (0..10).map(|i| BackendModel { cores: 1, speed: speeds[i % 5] }).collect();
        all.push(scenario("250 ms, speeds 0.5 to 2", unequal, 250.0, load));
        let cores = (0..12).map(|i| BackendModel { cores: [1, 2, 4, 8][i % 4], speed: 1.0 });
        let mut many = scenario("250 ms exponential, 1 to 8 cores", cores.collect(), 250.0, load);
        many.arena.service = ServiceTime::Exponential;
        (many.arena.requests, many.arena.warm_up) = (4 * REQUESTS, 4 * WARM_UP);
        all.push(many);
    }
    let four = || vec![BackendModel { cores: 4, speed: 1.0 }; 10];
    all.push(scenario("250 ms, four cores each", four(), 250.0, 1.175));
    let mut far = scenario("20 ms over a network of 20 ms", alike(), 20.0, 1.175);
    far.arena.network = Duration::from_millis(20);
    all.push(far);
    // BLOC's Fig 11: a hundred users who send again at once.
    let mut closed = scenario("Fig 11: 100 users without pause, 250 ms", alike(), 250.0, 1.0);
    closed.arena.clients = Clients::Roaming { users: 100, think: Duration::ZERO };
    all.push(closed);
    all
}

/// A limit of so many times each backend's cores; a static one is the same for all.
fn per_core(pool: &[BackendModel], times: f64) -> Vec<CapacityOptions> {
    let limit =
        |b: &BackendModel| CapacityOptions::Static((f64::from(b.cores) * times).round() as u32);
    pool.iter().map(limit).collect()
}

fn run(arena: &Arena, capacity: CapacityOptions) -> ArenaReport {
    run_each(arena, &vec![capacity; arena.pool.len()])
}

fn run_each(arena: &Arena, capacities: &[CapacityOptions]) -> ArenaReport {
    let weights = integer_weights(&arena.capacities_rps(), GREATEST_WEIGHT);
    let build = |_| PolicyKind::Bloc.build(&weights, &Settings::default()).expect("valid settings");
    let mut balancers: Vec<Box<dyn Policy>> = (0..BALANCERS).map(build).collect();
    let mut doors = AdmissionDoor::of_capacities(capacities).expect("valid options");
    let around = Surroundings { ingress: &mut doors };
    arena.run_with(&mut balancers, around)
}

/// Goodput over the most that any static value has, the 99th percentile over the best one's.
fn row(name: &str, report: &ArenaReport, best: &ArenaReport, most: f64) {
    println!(
        "{name:>12} {:9.2} {:7.3} {:9.0} {:9.0} {:7.3} {:8.2} {:7.2}",
        report.goodput_rps,
        report.goodput_rps / most,
        report.p50_us / 1e3,
        report.p99_us / 1e3,
        report.p99_us / best.p99_us,
        100.0 * report.drop_ratio(),
        report.tries_per_request(),
    );
}

/// The least part that any admission must drop, by the requests that arrived and the capacity.
fn least_drop(arena: &Arena, report: &ArenaReport) -> f64 {
    let speed = |i: usize| {
        let slower = arena.timeline.iter().find_map(|step| match step.change {
            Change::Speed { backend, speed } if backend == i => Some(speed),
            _ => None,
        });
        slower.unwrap_or(arena.pool[i].speed) / arena.pool[i].speed
    };
    let served: f64 =
        arena.capacities_rps().iter().enumerate().map(|(i, rate)| rate * speed(i)).sum();
    let came = report.goodput_rps * report.offered() as f64 / report.requests as f64;
    (1.0 - served / came).max(0.0)
}

fn main() {
    let seed = std::env::args().nth(1).map_or(1, |arg| arg.parse().expect("SEED is a number"));
    let name = std::env::args().nth(2);
    for Scenario { name: title, mut arena } in scenarios() {
        if name.as_ref().is_some_and(|name| !title.contains(name.as_str())) {
            continue;
        }
        arena.seed = seed;
        let mut swept: Vec<(String, ArenaReport)> =
            STATIC.map(|n| (n.to_string(), run(&arena, CapacityOptions::Static(n)))).into();
        if arena.pool.iter().any(|b| b.cores > 1) {
            let each = |times: f64| {
                (format!("{times} a core"), run_each(&arena, &per_core(&arena.pool, times)))
            };
            swept.extend(PER_CORE.map(each));
        }
        let most = swept.iter().map(|(_, report)| report.goodput_rps).fold(0.0, f64::max);
        let good = swept.iter().filter(|(_, report)| report.goodput_rps >= AS_GOOD * most);
        let best = good.min_by(|one, other| one.1.p99_us.total_cmp(&other.1.p99_us));
        let (limit, best) = best.expect("the greatest is as good as itself");
        println!("\n{title}: {:.1} requests/s", arena.rate_rps);
        println!(
            "{:>12} {:>9} {:>7} {:>9} {:>9} {:>7} {:>8} {:>7}",
            "capacity", "served/s", "/most", "p50 ms", "p99 ms", "/best", "dropped%", "tries"
        );
        if name.is_some() {
            swept.iter().for_each(|(n, report)| row(n, report, best, most));
        }
        row(&format!("best: {limit}"), best, best, most);
        let adaptive = run(&arena, CapacityOptions::default());
        row("adaptive", &adaptive, best, most);
        for services in MAX_WAITS {
            let rather_waits = AdaptiveOptions {
                max_wait_ms: Some((services * arena.service_us / 1e3) as u64),
                ..AdaptiveOptions::default()
            };
            let report = run(&arena, CapacityOptions::Adaptive(rather_waits));
            row(&format!("max_wait {services}"), &report, best, most);
        }
        let mut waits = arena.clone();
        waits.wait = Some(WaitOptions::default());
        row("waits", &run(&waits, CapacityOptions::default()), best, most);
        waits.wait = Some(WaitOptions { timeout_ms: 1000, ..WaitOptions::default() });
        row("waits 1 s", &run(&waits, CapacityOptions::default()), best, most);
        row("average", &run(&arena, CapacityOptions::Average), best, most);
        println!("{:>12} {:58.2}", "least drop", 100.0 * least_drop(&arena, &adaptive));
    }
}
