//! What deadlines and retry budgets do, in the arena.
//!
//! *Deadlines*: BLOC's cluster (40 balancers, chips, three retries, ten backends of 250 ms exponential, 1 ms of network) whose
//! clients wait for a second, with the same admission, with and without deadlines. *Budgets*: the pool of KnapsackLB's
//! Table 3 with learned admission, 10 balancers of `expected_delay` by refusals, eight retries, from usual load to four
//! times the capacity, and with backends that fail.
//!
//! `cargo run --release -p plimsoll-sim --example admission_bounds`

use std::time::Duration;

use plimsoll_admission::{
    AdmissionOptions, CapacityOptions, FailureRetries, RefusalRetries, RetryOptions,
};
use plimsoll_policy::{ExpectedDelaySettings, Policy, PolicyKind, Settings, Sight};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{
    AdmissionDoor, Arena, ArenaReport, BackendModel, Change, Ingress, Patience, Step, Surroundings,
    paper_pool,
};

fn policies(kind: PolicyKind, count: usize, backends: usize) -> Vec<Box<dyn Policy>> {
    let expected_delay =
        ExpectedDelaySettings { sight: Sight::Refusals, ..ExpectedDelaySettings::default() };
    let settings = Settings { expected_delay, ..Settings::default() };
    (0..count).map(|_| kind.build(&vec![1; backends], &settings).expect("valid settings")).collect()
}

fn percent(part: u64, report: &ArenaReport) -> f64 {
    100.0 * part as f64 / report.offered() as f64
}

fn within_a_second(capacity: CapacityOptions, load: f64, with_deadlines: bool) -> ArenaReport {
    let mut arena = Arena::new(vec![BackendModel { cores: 1, speed: 1.0 }; 10], load, 100_000, 1);
    arena.service_us = 250e3;
    arena.service = ServiceTime::Exponential;
    arena.rate_rps = load * 40.0;
    arena.warm_up = 25_000;
    arena.network = Duration::from_millis(1);
    arena.retry = RetryOptions::of_refusals(3);
    arena.patience = Some(Patience { after: Duration::from_secs(1), cancels: false });
    let options = AdmissionOptions { capacity, deadline_ms: None };
    let door = || match with_deadlines {
        true => AdmissionDoor::new(&options),
        false => AdmissionDoor::without_deadlines(&options),
    };
    let door = |_| Box::new(door().expect("valid options")) as Box<dyn Ingress>;
    let mut doors: Vec<Box<dyn Ingress>> = (0..10).map(door).collect();
    arena.run_with(&mut policies(PolicyKind::Bloc, 40, 10), Surroundings { ingress: &mut doors })
}

fn deadlines() {
    println!(
        "| admission, load | deadlines | in time/s | too late, % | refused, % | tries | p99 ms |"
    );
    println!("|---|---|---|---|---|---|---|");
    let doors = [
        ("static 4", CapacityOptions::Static(4)),
        ("static 10", CapacityOptions::Static(10)),
        ("adaptive", CapacityOptions::default()),
    ];
    for load in [0.85, 1.175] {
        for (name, capacity) in doors {
            for with_deadlines in [false, true] {
                let report = within_a_second(capacity, load, with_deadlines);
                println!(
                    "| {name}, {load} | {} | {:.1} | {:.1} | {:.1} | {:.2} | {:.0} |",
                    if with_deadlines { "yes" } else { "no" },
                    report.goodput_rps,
                    percent(report.abandoned, &report),
                    percent(report.dropped, &report),
                    report.tries_per_request(),
                    report.p99_us / 1e3,
                );
            }
        }
    }
}

fn learning(load: f64, retry: RetryOptions, timeline: Vec<Step>) -> (ArenaReport, f64) {
    let mut arena = Arena::new(paper_pool(11), load, 300_000, 1);
    arena.network = Duration::from_millis(1);
    (arena.retry, arena.timeline) = (retry, timeline);
    let options = AdmissionOptions::default();
    let mut doors = AdmissionDoor::for_each(&arena.pool, &options).expect("valid options");
    let mut policies = policies(PolicyKind::ExpectedDelay, 10, arena.pool.len());
    let report = arena.run_with(&mut policies, Surroundings { ingress: &mut doors });
    (report, arena.capacities_rps().iter().sum())
}

fn row(name: &str, budget: &str, (report, capacity): &(ArenaReport, f64)) {
    println!(
        "| {name} | {budget} | {:.3} | {:.1} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} |",
        report.goodput_rps / capacity,
        report.mean_us / 1e3,
        report.p99_us / 1e3,
        report.tries_per_request(),
        percent(report.over_budget, report),
        percent(report.dropped, report),
        percent(report.errors, report),
    );
}

fn budgets() {
    println!(
        "\n| load | budget | served ÷ capacity | mean ms | p99 ms | tries | over budget, % | refused, % | failed, % |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let bounded = RefusalRetries { most: 8, ..RefusalRetries::default() };
    for load in [0.7, 0.85, 0.95, 1.2, 2.0, 4.0] {
        for (name, budget) in [("no", None), ("yes", bounded.budget)] {
            let refusals = RefusalRetries { budget, ..bounded };
            let failures = FailureRetries { most: 0, ..FailureRetries::default() };
            let retry = RetryOptions { refusals, failures };
            row(&format!("{load}"), name, &learning(load, retry, Vec::new()));
        }
    }
    for (failing, ms, name) in [(3, 5, "0.5, 3 of 30 fail"), (30, 300, "0.5, all fail, slowly")] {
        for (budget, share) in [("no", 1.0), ("yes", 0.2)] {
            let failures = FailureRetries { most: 1, share, least: 3 };
            let after = Duration::from_millis(ms);
            let fail = |backend| Step { at_s: 0.0, change: Change::FailFast { backend, after } };
            let retry = RetryOptions { refusals: RefusalRetries { most: 7, ..bounded }, failures };
            row(name, budget, &learning(0.5, retry, (0..failing).map(fail).collect()));
        }
    }
}

fn main() {
    deadlines();
    budgets();
}
