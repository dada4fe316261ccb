//! Closed clients: as many users as `hey -c` has, each of whom sends the next request when the last one was answered or
//! refused, through 40 balancers that do not know of each other (BLOC's Figures 9 and 11), before ten backends.
//!
//! What is lost, and the shape of response times, under least connections without admission, BLOC with static capacities
//! and with the learned one, and the proxy's defaults (`expected_delay`, learned capacity, retry budget). Medians over seeds.
//! `cargo run --release -p plimsoll-sim --example closed -- [SEEDS] [NAME]`; `NAME` selects scenarios.

use std::time::Duration;

use plimsoll_admission::{AdmissionOptions, CapacityOptions, RetryOptions, WaitOptions};
use plimsoll_policy::{Policy, PolicyKind, Settings};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{
    AdmissionDoor, Arena, ArenaReport, BackendModel, Clients, Ingress, Surroundings,
};

const BALANCERS: usize = 40;
const BACKENDS: usize = 10;
const NETWORK: Duration = Duration::from_millis(1);
/// Requests of each user that warm up, most of which are refused before anything is learned, and all that count.
const WARM_UP: u32 = 3_000;
const REQUESTS: u32 = 100_000;

/// Users, their pause, cores of a backend, service time.
type Scenario = (&'static str, u32, u64, u32, f64, ServiceTime);

const SCENARIOS: [Scenario; 8] = [
    ("100 users (Fig 9, 11)", 100, 0, 1, 250.0, ServiceTime::Deterministic),
    ("100 users, exponential", 100, 0, 1, 250.0, ServiceTime::Exponential),
    ("100 users, pause of 150 ms", 100, 150, 1, 250.0, ServiceTime::Deterministic),
    ("100 users, pause of 1 s", 100, 1_000, 1, 250.0, ServiceTime::Deterministic),
    ("30 users", 30, 0, 1, 250.0, ServiceTime::Deterministic),
    ("150 users", 150, 0, 1, 250.0, ServiceTime::Deterministic),
    ("400 users, 4 cores", 400, 0, 4, 250.0, ServiceTime::Exponential),
    ("300 users, 10 ms", 300, 0, 1, 10.0, ServiceTime::Exponential),
];

#[derive(Clone, Copy)]
struct Method {
    name: &'static str,
    policy: PolicyKind,
    capacity: Option<CapacityOptions>,
    wait: Option<WaitOptions>,
}

fn methods() -> Vec<Method> {
    let method = |name, policy, capacity| Method { name, policy, capacity, wait: None };
    let adaptive = Some(CapacityOptions::default());
    vec![
        method("least connections", PolicyKind::LeastConnections, None),
        method("BLOC, 10", PolicyKind::Bloc, Some(CapacityOptions::Static(10))),
        method("BLOC, 12", PolicyKind::Bloc, Some(CapacityOptions::Static(12))),
        method("BLOC, adaptive", PolicyKind::Bloc, adaptive),
        method("defaults", PolicyKind::ExpectedDelay, adaptive),
        Method {
            wait: Some(WaitOptions::default()),
            ..method("defaults, queue", PolicyKind::ExpectedDelay, adaptive)
        },
    ]
}

fn run(scenario: Scenario, method: Method, seed: u64) -> ArenaReport {
    let (_, users, pause_ms, cores, service_ms, service) = scenario;
    let pool = vec![BackendModel { cores, speed: 1.0 }; BACKENDS];
    let mut arena = Arena::new(pool, 1.0, WARM_UP * users + REQUESTS, seed);
    (arena.service_us, arena.service, arena.warm_up) = (service_ms * 1e3, service, WARM_UP * users);
    arena.rate_rps = arena.capacities_rps().iter().sum();
    arena.network = NETWORK;
    arena.clients = Clients::Roaming { users, think: Duration::from_millis(pause_ms) };
    arena.wait = method.wait;
    arena.retry = match method.policy {
        PolicyKind::ExpectedDelay => RetryOptions::default(),
        _ => RetryOptions::of_refusals(3),
    };
    let settings = Settings::default();
    let build = |_| method.policy.build(&[1; BACKENDS], &settings).expect("valid settings");
    let mut balancers: Vec<Box<dyn Policy>> = (0..BALANCERS).map(build).collect();
    let mut doors: Vec<Box<dyn Ingress>> = match method.capacity {
        Some(capacity) => {
            let options = AdmissionOptions { capacity, deadline_ms: None };
            AdmissionDoor::for_each(&arena.pool, &options).expect("valid options")
        }
        None => Vec::new(),
    };
    arena.run_with(&mut balancers, Surroundings { ingress: &mut doors })
}

fn main() {
    let seeds = std::env::args().nth(1).map_or(3, |arg| arg.parse().expect("SEEDS is a number"));
    let name = std::env::args().nth(2).unwrap_or_default();
    for scenario in SCENARIOS.into_iter().filter(|scenario| scenario.0.contains(&name)) {
        println!(
            "\n| {} | served/s | p50 ms | p99 ms | p10–p90 ms | lost, % | tries |",
            scenario.0
        );
        println!("|{}", "---|".repeat(7));
        for method in methods() {
            let seen: Vec<ArenaReport> =
                (1..=seeds).map(|seed| run(scenario, method, seed)).collect();
            let median = |of: &dyn Fn(&ArenaReport) -> f64| {
                let mut all: Vec<f64> = seen.iter().map(of).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            println!(
                "| {} | {:.1} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} |",
                method.name,
                median(&|r| r.goodput_rps),
                median(&|r| r.p50_us / 1e3),
                median(&|r| r.p99_us / 1e3),
                median(&|r| (r.p90_us - r.p10_us) / 1e3),
                median(&|r| 100.0 * r.drop_ratio()),
                median(&|r| r.tries_per_request()),
            );
        }
    }
}
