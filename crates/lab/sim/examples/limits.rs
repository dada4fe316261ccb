//! What a least-connections balancer gains over the best static split, by what it knows. These are the
//! tables that decided which methods to build, of another, coarser simulation; its numbers are printed in brackets
//! beside ours. All methods but the static split know what their names say: none of them learns.
//!
//! `cargo run --release -p plimsoll-sim --example limits -- [REQUESTS] [SEEDS]`: medians over seeds, each of which is
//! one pool with the same random numbers for all methods.

use plimsoll_model::GREATEST_WEIGHT;
use plimsoll_policy::{Draw, Policy, PolicyKind, Settings};
use plimsoll_queueing::ServiceTime::{self, Bimodal, Exponential};
use plimsoll_sim::{
    Arena, InFlightBy, ShortestDelay, Yardsticks, integer_weights, paper_pool, yardsticks,
};
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

const COLUMNS: [(ServiceTime, f64); 6] = [
    (Exponential, 0.5),
    (Exponential, 0.7),
    (Exponential, 0.85),
    (Exponential, 0.95),
    (Bimodal, 0.7),
    (Bimodal, 0.85),
];
/// Standard deviation of the logarithm of wrong capacities.
const SIGMA: f64 = 0.2;
/// This many wrong sets of capacities for each pool.
const ERRORS: u64 = 5;

/// One pool under one load, and its best static split and central queue.
struct Case {
    arena: Arena,
    yard: Yardsticks,
}

impl Case {
    fn mean_us(&self, balancers: usize, make: impl Fn() -> Box<dyn Policy>) -> f64 {
        let mut policies: Vec<Box<dyn Policy>> = (0..balancers).map(|_| make()).collect();
        self.arena.run(&mut policies).mean_us
    }

    fn of(&self, kind: PolicyKind, capacities: &[f64], balancers: usize) -> f64 {
        let weights = integer_weights(capacities, GREATEST_WEIGHT);
        // Two choices are drawn uniformly, and compared by weight.
        let settings = Settings { draw: Draw::Uniform, ..Settings::default() };
        self.mean_us(balancers, || kind.build(&weights, &settings).expect("valid settings"))
    }

    fn over_static(&self, mean_us: f64) -> f64 {
        mean_us / self.yard.static_split.mean_us
    }

    /// Capacities without the slowest backends, as many as leave the others with at most this load.
    fn parked(&self, load_of_others: f64) -> Vec<f64> {
        let mut capacities = self.arena.capacities_rps();
        let mut slowest: Vec<usize> = (0..capacities.len()).collect();
        let speed = |i: usize| self.arena.pool[i].speed;
        slowest.sort_by(|&a, &b| speed(a).total_cmp(&speed(b)));
        let mut left: f64 = capacities.iter().sum();
        for i in slowest {
            left -= capacities[i];
            if self.arena.rate_rps > load_of_others * left {
                break;
            }
            capacities[i] = 0.0;
        }
        capacities
    }

    /// By how much the mean is greater with wrong capacities, percent.
    fn price_of_errors(&self, kind: PolicyKind) -> f64 {
        let capacities = self.arena.capacities_rps();
        let mut sum_us = 0.0;
        for seed in 0..ERRORS {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut wrong = || -> f64 { StandardNormal.sample(&mut rng) };
            let known: Vec<f64> = capacities.iter().map(|c| c * (SIGMA * wrong()).exp()).collect();
            sum_us += self.of(kind, &known, 1);
        }
        100.0 * (sum_us / ERRORS as f64 / self.of(kind, &capacities, 1) - 1.0)
    }
}

struct Runs {
    requests: u32,
    seeds: u64,
}

impl Runs {
    fn cases(&self, service: ServiceTime, load: f64) -> Vec<Case> {
        let case = |seed| {
            let mut arena = Arena::new(paper_pool(10 + seed), load, self.requests, seed);
            (arena.service, arena.warm_up) = (service, self.requests / 4);
            let yard = yardsticks(&arena).expect("a pool with room");
            Case { arena, yard }
        };
        (1..=self.seeds).map(case).collect()
    }
}

fn median(cases: &[Case], value: impl Fn(&Case) -> f64) -> f64 {
    let mut values: Vec<f64> = cases.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(name: &str, cells: impl Iterator<Item = (f64, f64)>) {
    let cells: String = cells.map(|(ours, was)| format!(" {ours:.2} ({was}) |")).collect();
    println!("| {name} |{cells}");
}

fn methods(columns: &[Vec<Case>]) {
    use PolicyKind::{LeastConnections, PowerOfN, RoundRobin};
    let by_cores = |c: &Case| c.arena.pool.iter().map(|b| f64::from(b.cores)).collect::<Vec<_>>();
    let equal = |c: &Case| vec![1.0; c.arena.pool.len()];
    let capacity = |c: &Case| c.arena.capacities_rps();
    let known =
        |c: &Case| c.mean_us(1, || Box::new(ShortestDelay::new(&c.arena.pool, InFlightBy::Own)));
    type Method<'a> = (&'a str, &'a dyn Fn(&Case) -> f64, [f64; 6]);
    let rows: [Method<'_>; 9] = [
        (
            "split ∝ capacity",
            &|c| c.of(RoundRobin, &capacity(c), 1),
            [1.08, 1.15, 1.04, 1.17, 1.44, 1.05],
        ),
        (
            "leastconn",
            &|c| c.of(LeastConnections, &equal(c), 1),
            [1.22, 1.39, 1.31, 0.87, 0.84, 0.51],
        ),
        (
            "leastconn ∝ cores",
            &|c| c.of(LeastConnections, &by_cores(c), 1),
            [1.02, 0.85, 0.54, 0.31, 0.48, 0.2],
        ),
        (
            "leastconn ∝ capacity",
            &|c| c.of(LeastConnections, &capacity(c), 1),
            [0.93, 0.79, 0.55, 0.33, 0.45, 0.22],
        ),
        ("shortest expected delay", &known, [0.83, 0.78, 0.58, 0.35, 0.45, 0.22]),
        (
            "two random choices ∝ capacity",
            &|c| c.of(PowerOfN, &capacity(c), 1),
            [1.31, 1.93, 16.0, 18.0, 1.7, 7.5],
        ),
        (
            "leastconn, 10 balancers",
            &|c| c.of(LeastConnections, &equal(c), 10),
            [2.6, 2.96, 2.24, 1.38, 1.77, 0.85],
        ),
        (
            "leastconn ∝ capacity, 10 balancers",
            &|c| c.of(LeastConnections, &capacity(c), 10),
            [1.98, 3.04, 3.13, 1.92, 1.86, 1.22],
        ),
        (
            "*central queue (limit)*",
            &|c| c.yard.central_mean_us,
            [0.82, 0.74, 0.5, 0.27, 0.42, 0.19],
        ),
    ];
    println!(
        "| mean over the best static split | exp 50 % | 70 % | 85 % | 95 % | bim 70 % | 85 % |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, mean_us, was) in rows {
        let ours = columns.iter().map(|cases| median(cases, |c| c.over_static(mean_us(c))));
        row(name, ours.zip(was));
    }
}

fn main() {
    let number = |k: usize, otherwise: u64| {
        std::env::args().nth(k).map_or(otherwise, |arg| {
            arg.parse().unwrap_or_else(|_| panic!("{arg}: expected a number"))
        })
    };
    let runs = Runs { requests: number(1, 60_000) as u32, seeds: number(2, 9) };
    let columns: Vec<Vec<Case>> =
        COLUMNS.iter().map(|&(service, load)| runs.cases(service, load)).collect();
    methods(&columns);

    println!("\n| leastconn by HAProxy's key, ∝ capacity | 30 % | 50 % | 70 % | 85 % |");
    println!("|---|---|---|---|---|");
    let by_key = |c: &Case, capacities: &[f64]| {
        c.over_static(c.of(PolicyKind::LeastconnHaproxy, capacities, 1))
    };
    let light = runs.cases(Exponential, 0.3);
    let cells = [(&light, 1.17), (&columns[0], 0.99), (&columns[1], 0.81), (&columns[2], 0.55)];
    let all = |c: &Case| by_key(c, &c.arena.capacities_rps());
    row("all", cells.into_iter().map(|(cases, was)| (median(cases, all), was)));

    // There 15, 10, 6 and 10 of one pool were out, which left the others with this load.
    println!("\n| the slowest parked | 50 % → 81 % | 60 % → 80 % | 70 % → 79 % | 70 % → 93 % |");
    println!("|---|---|---|---|---|");
    let middle = runs.cases(Exponential, 0.6);
    let cells = [
        (&columns[0], 0.81, 0.86),
        (&middle, 0.8, 0.82),
        (&columns[1], 0.79, 0.77),
        (&columns[1], 0.93, 0.89),
    ];
    let parked = |cases, load| median(cases, |c| by_key(c, &c.parked(load)));
    let cells = cells.into_iter().map(|(cases, load, was)| (parked(cases, load), was));
    row("by HAProxy's key, ∝ capacity", cells);

    println!("\n| capacities wrong by σ = 20 %: price, % | 70 % | 85 % |");
    println!("|---|---|---|");
    for kind in [PolicyKind::LeastConnections, PolicyKind::LeastconnHaproxy] {
        let cells = [(&columns[1], 1.6), (&columns[2], 5.0)];
        row(
            kind.name(),
            cells.into_iter().map(|(cases, was)| (median(cases, |c| c.price_of_errors(kind)), was)),
        );
    }
}
