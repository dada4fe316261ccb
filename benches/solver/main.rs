//! Times the packers, on one thread.
//!
//! - `solver_bench table7`: all services of Table 7 of the KnapsackLB paper, 60,000 backends.
//! - `solver_bench rounding`: rounding to 0…256.
//! - `solver_bench queues`: queues of cores, as a controller learns them, without θ and with.
//! - `solver_bench solve FILE...`: one line of JSON per menu file, for `against_cbc.py`. A file holds
//!   the target, then one line per backend with its weights and costs in turn.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark measures time; the crate that it measures does not"
)]

mod pools;

use std::time::Instant;

use plimsoll_model::{Curve, Objective};
use plimsoll_pack::{
    Choice, CurveBackend, CurveProblem, Effort, MenuProblem, pack_curves, pack_menus, pack_units,
    round_to_range,
};
use plimsoll_queueing::QueueCurve;
use pools::{Pool, Rng, UNITS};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("table7") => table7(),
        Some("rounding") => rounding(),
        Some("queues") => queues(),
        Some("solve") => arguments[1..].iter().for_each(|file| solve(file)),
        _ => {
            eprintln!("usage: solver_bench table7 | rounding | queues | solve FILE...");
            std::process::exit(2);
        }
    }
}

/// Seconds that one call takes, and its result.
fn timed<T>(call: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = call();
    (start.elapsed().as_secs_f64(), result)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU seconds this thread has used, where the system tells.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

fn curve_backends(pool: &Pool) -> Vec<CurveBackend<'_>> {
    let with_limit = pool.curves.iter().zip(&pool.limits);
    with_limit.map(|(curve, &max_load)| CurveBackend { curve, max_load }).collect()
}

/// Services of each size in Table 7 of the paper.
const SERVICES: [(usize, usize); 6] =
    [(5, 2000), (10, 1000), (50, 200), (100, 100), (500, 20), (1000, 10)];

fn table7() {
    let mut rng = Rng(88_172_645_463_325_252);
    println!(
        "| backends × services | menus of 10, exact (s) | slowest service (ms) | unproven | curves (s) | whole units (s) |"
    );
    println!("|---|---|---|---|---|---|");
    let mut totals = [0.0; 3];
    let mut cpu = Some(0.0);
    let mut unproven_in_all = 0;
    for (backends, services) in SERVICES {
        let mut seconds = [0.0; 3];
        let (mut slowest, mut unproven) = (0f64, 0);
        for _ in 0..services {
            let pool = Pool::random(backends, &mut rng);
            let menus = pool.menus(10, &mut rng);
            let problem = MenuProblem { menus: &menus, target: UNITS, theta: None };
            let before = cpu_seconds();
            let (exact, packing) =
                timed(|| pack_menus(&problem, Objective::Sum, &Effort::default()));
            unproven += usize::from(!packing.expect("a feasible pool").proven());
            let carriers = curve_backends(&pool);
            let problem = CurveProblem { backends: &carriers, total: 1.0, theta: None };
            let (curves, packing) = timed(|| pack_curves(&problem, Objective::Traffic));
            unproven += usize::from(!packing.expect("a feasible pool").proven());
            let (whole, packing) =
                timed(|| pack_units(&carriers, 1.0, Objective::Traffic, 1_000_000));
            unproven += usize::from(!packing.expect("a feasible pool").proven());
            cpu = cpu.zip(cpu_seconds().zip(before)).map(|(sum, (now, then))| sum + now - then);
            slowest = slowest.max(exact);
            for (sum, part) in seconds.iter_mut().zip([exact, curves, whole]) {
                *sum += part;
            }
        }
        let [exact, curves, whole] = seconds;
        println!(
            "| {backends} × {services} | {exact:.4} | {:.3} | {unproven} | {curves:.4} | {whole:.4} |",
            slowest * 1e3
        );
        unproven_in_all += unproven;
        totals.iter_mut().zip(seconds).for_each(|(sum, part)| *sum += part);
    }
    let [exact, curves, whole] = totals;
    println!(
        "| **all, 60,000 backends** | **{exact:.3}** | | {unproven_in_all} | **{curves:.3}** | {whole:.3} |"
    );
    if let Some(cpu) = cpu {
        println!(
            "\nwall time as above, {:.3} s in all; CPU time {cpu:.3} s",
            exact + curves + whole
        );
    }
}

fn rounding() {
    let mut rng = Rng(7);
    println!("| backends | rounding to 0…256 (ms) | cost over unrounded |");
    println!("|---|---|---|");
    for backends in [30, 100, 1000] {
        let (mut seconds, mut excess) = (Vec::new(), Vec::new());
        for _ in 0..21 {
            let pool = Pool::random(backends, &mut rng);
            let carriers = curve_backends(&pool);
            let problem = CurveProblem { backends: &carriers, total: 1.0, theta: None };
            let best = pack_curves(&problem, Objective::Traffic).expect("a feasible pool");
            let curves = Some((&problem, Objective::Traffic));
            let (took, rounded) = timed(|| round_to_range(&best.weights, curves, 0..=256));
            seconds.push(took);
            excess.push(rounded.expect("a valid packing").cost / best.objective - 1.0);
        }
        println!("| {backends} | {:.3} | {:.1e} |", median(seconds) * 1e3, median(excess));
    }
}

fn queues() {
    let mut rng = Rng(23);
    println!(
        "| backends | without θ (µs) | θ that does not bind (µs) | θ that does (µs) | unproven |"
    );
    println!("|---|---|---|---|---|");
    for backends in [6, 30, 100, 1000] {
        let mut seconds: [Vec<f64>; 3] = Default::default();
        let mut unproven = 0;
        for _ in 0..POOLS {
            let (queues, total) = pools::queues(backends, &mut rng);
            let most_of = |curve: &QueueCurve| 0.98 * curve.capacity();
            let carriers: Vec<CurveBackend<'_>> =
                queues.iter().map(|q| CurveBackend { curve: q, max_load: most_of(q) }).collect();
            let mut pack = |theta, seconds: &mut Vec<f64>| {
                let problem = CurveProblem { backends: &carriers, total, theta };
                let (took, packing) = timed(|| pack_curves(&problem, Objective::Traffic));
                let packing = packing.expect("a feasible pool");
                unproven += usize::from(!packing.proven());
                seconds.push(took);
                packing.weights
            };
            let shares = pack(None, &mut seconds[0]);
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let most = shares.iter().copied().fold(0.0, f64::max);
            pack(Some(1.1 * (most - least)), &mut seconds[1]);
            pack(Some(0.9 * (most - least)), &mut seconds[2]);
        }
        let [free, wide, narrow] = seconds.map(|all| median(all) * 1e6);
        println!("| {backends} | {free:.1} | {wide:.1} | {narrow:.1} | {unproven} |");
    }
}

/// The least total time over which a median is taken.
const MEASURE_FOR: f64 = 0.05;
const MAX_RUNS: usize = 200;
/// Pools over which a median is taken.
const POOLS: usize = 101;

fn solve(file: &str) {
    let text = std::fs::read_to_string(file).expect("a readable file");
    let mut lines = text.lines();
    let target = lines.next().and_then(|line| line.trim().parse().ok()).expect("a target");
    let menus: Vec<Vec<Choice>> = lines
        .map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let choice = |pair: &[&str]| Choice {
                weight: pair[0].parse().expect("an integer weight"),
                cost: pair[1].parse().expect("a cost"),
            };
            fields.chunks_exact(2).map(choice).collect()
        })
        .collect();
    let problem = MenuProblem { menus: &menus, target, theta: None };
    let (mut runs, mut packing) = (Vec::new(), None);
    let before = cpu_seconds();
    while runs.len() < MAX_RUNS && runs.iter().sum::<f64>() < MEASURE_FOR {
        let (seconds, result) = timed(|| pack_menus(&problem, Objective::Sum, &Effort::default()));
        runs.push(seconds);
        packing = result.ok();
    }
    let cpu = cpu_seconds().zip(before).map_or(f64::NAN, |(now, then)| now - then);
    let cpu = cpu / runs.len() as f64;
    let packing = packing.expect("a feasible problem");
    println!(
        "{{\"file\":\"{file}\",\"seconds\":{:e},\"cpu_seconds\":{cpu:e},\"objective\":{},\"gap\":{:e}}}",
        median(runs),
        packing.objective,
        packing.gap
    );
}
