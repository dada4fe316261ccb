//! Figure 2b (§2.1): how unevenly policies spread connections over 468 servers that stay.
//!
//! The system imbalance is the most connections that a server has over the mean, less one; its mean over
//! time is shown.

use std::time::Duration;

use plimsoll_feedback::awrr;
use plimsoll_policy::{PolicyKind, Settings};
use plimsoll_sim::flows::{Reweigh, Spreading};

use super::cluster::{RING_WEIGHT, SERVERS, build, notes, traffic};
use crate::Provenance::Simulated;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cheetah-fig2b",
    paper: &super::PAPER,
    figure: "Figure 2b",
    title: "Load imbalance over the number of connections",
    claim: "A uniform hash balances twice as well as consistent hashing, round robin 1.2 times better than \
            that, two choices 10 times better, and the least loaded server another 4 times.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(30),
    takes_quick: Duration::from_secs(2),
    run,
};

const ACTIVE: [f64; 6] = [20e3, 40e3, 70e3, 100e3, 150e3, 200e3];
const QUICK_ACTIVE: [f64; 2] = [20e3, 40e3];
/// Where the points on a ring are swept.
const SWEPT: f64 = 70e3;
/// How often the imbalance is read, and weights may change.
const TICK: Duration = Duration::from_millis(100);

/// A policy, what a server weighs, and how many ticks pass between new weights.
#[derive(Clone, Copy, PartialEq)]
struct Method {
    name: &'static str,
    kind: PolicyKind,
    weight: u32,
    awrr_every: Option<usize>,
}

const fn plain(name: &'static str, kind: PolicyKind) -> Method {
    Method { name, kind, weight: RING_WEIGHT, awrr_every: None }
}

const fn ring(name: &'static str, weight: u32) -> Method {
    Method { name, kind: PolicyKind::HashRing, weight, awrr_every: None }
}

const fn awrr(name: &'static str, every: usize) -> Method {
    Method { name, kind: PolicyKind::RoundRobin, weight: 10, awrr_every: Some(every) }
}

const RINGS: [Method; 5] = [
    ring("hash_ring, 16 points", 1),
    ring("hash_ring, 32 points", 2),
    ring("hash_ring, 64 points", 4),
    ring("hash_ring, 128 points", 8),
    ring("hash_ring, 256 points", 16),
];
const HASH: Method = plain("hash_map", PolicyKind::HashMap);
const ROUND_ROBIN: Method = plain("round_robin", PolicyKind::RoundRobin);
const TWO: Method = plain("power_of_n", PolicyKind::PowerOfN);
const LEAST: Method = plain("least_connections", PolicyKind::LeastConnections);
const AWRR: Method = awrr("awrr, every 0.1 s", 1);
/// The paper's, then the others.
const METHODS: [Method; 10] = [
    RINGS[1],
    HASH,
    ROUND_ROBIN,
    TWO,
    LEAST,
    RINGS[0],
    RINGS[4],
    plain("hash_maglev", PolicyKind::HashMaglev),
    AWRR,
    awrr("awrr, every second", 10),
];

struct Point {
    method: Method,
    active: f64,
    imbalance_percent: f64,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let active: &[f64] = context.pick(&QUICK_ACTIVE, &ACTIVE);
    let mut plan: Vec<(Method, f64)> = Vec::new();
    for method in METHODS {
        plan.extend(active.iter().map(|&n| (method, n)));
    }
    let others = RINGS.iter().filter(|ring| !METHODS.contains(ring));
    plan.extend(others.map(|&ring| (ring, context.pick(QUICK_ACTIVE[0], SWEPT))));
    let mut points = Vec::new();
    for (i, &(method, active)) in plan.iter().enumerate() {
        let what = format!("{}, {active:.0} connections", method.name);
        context.progress(i as f64 / plan.len() as f64, &what)?;
        points.push(point(context, method, active)?);
    }
    let mut notes = notes();
    notes.extend([
        "Imbalance: the most connections that a server has over the mean of all, less one; read every 0.1 s, \
         once the number of connections is stationary. The pool stays as it is."
            .to_owned(),
        "awrr is the paper's §4.1 over open connections: weights of round_robin anew at every report, α 0.5, \
         between 2 and 30 turns. round_robin is the same without."
            .to_owned(),
        "One balancer sees all connections, as in the paper.".to_owned(),
    ]);
    Ok(Outcome {
        tables: vec![table(&points)?],
        plots: vec![plot(&points)],
        comparisons: comparisons(context, &points),
        notes,
    })
}

/// AWRR's turns for so many open connections, which are the load of §2.1.
fn turns(open: &[u32]) -> Vec<u32> {
    let loads: Vec<Option<f64>> = open.iter().map(|&n| Some(f64::from(n))).collect();
    awrr::weights(&loads).into_iter().map(u32::from).collect()
}

fn point(context: &Context, method: Method, active: f64) -> Result<Point, Failure> {
    let traffic = traffic(context, active, context.pick(2.0, 120.0));
    let policy = build(method.kind, &[method.weight; SERVERS], &Settings::default())?;
    let reweigh = method.awrr_every.map(|every| Reweigh { every, weights: turns });
    let mut spreading =
        Spreading::new(policy, reweigh, SERVERS, traffic.counted_from(), context.seed);
    traffic.run(&traffic.every(TICK), &mut spreading);
    Ok(Point { method, active, imbalance_percent: spreading.imbalance_percent() })
}

fn table(points: &[Point]) -> Result<Table, Failure> {
    let mut table = Table::empty("imbalance", "The most loaded server over the mean");
    for p in points {
        row!(table, Provenance::Simulated, {
            method: p.method.name;
            active_connections: p.active;
            connections_per_server: p.active / SERVERS as f64;
            imbalance_percent: p.imbalance_percent, "% above the mean";
        })?;
    }
    Ok(table)
}

fn plot(points: &[Point]) -> Plot {
    let line = |method: &Method| {
        let those = points.iter().filter(|p| p.method == *method);
        let points = those.map(|p| (p.active, p.imbalance_percent)).collect();
        Lines::new(method.name, Provenance::Simulated, points)
    };
    Plot::lines(
        "imbalance",
        "The most loaded of 468 servers above the mean",
        Axis::linear("active connections"),
        Axis::log("imbalance (%)"),
        METHODS.iter().map(line).collect(),
    )
}

/// The mean over the numbers of connections of how much more one is out of balance than the other.
fn ratio(points: &[Point], worse: Method, better: Method) -> f64 {
    let of = |method: Method| points.iter().filter(move |p| p.method == method);
    let ratios = of(worse).filter_map(|w| {
        let b = of(better).find(|b| b.active == w.active)?;
        Some(w.imbalance_percent / b.imbalance_percent)
    });
    let (sum, n) = ratios.fold((0.0, 0), |(sum, n), ratio| (sum + ratio, n + 1));
    sum / f64::from(n)
}

fn comparisons(context: &Context, points: &[Point]) -> Vec<Comparison> {
    let mut all = ratios(points);
    let awrr = ratio(points, ROUND_ROBIN, AWRR);
    all.push(
        Comparison::silent(
            Simulated,
            "round robin over awrr, every 0.1 s",
            "not in this figure",
            awrr,
            "×",
        )
        .why("The paper has no AWRR in this figure."),
    );
    if !context.quick {
        all.extend(hash_alone(points));
    }
    all
}

/// How much more one is out of balance than the other, as the paper says it.
fn ratios(points: &[Point]) -> Vec<Comparison> {
    let times = |what, paper: f64, part: f64, (worse, better), why| {
        let ours = ratio(points, worse, better);
        Comparison::number(Simulated, what, (paper, Tolerance::Part(part)), ours, "×").why(why)
    };
    vec![
        times(
            "consistent hash (ring of 32 points per server) over uniform hash",
            2.0,
            0.3,
            (RINGS[1], HASH),
            "A ring is as uneven as its points are few, and the paper does not say how many there are.",
        )
        .fitted("32 points per server on the ring"),
        times(
            "consistent hash (ring of 256 points per server) over uniform hash",
            2.0,
            0.3,
            (RINGS[4], HASH),
            "With as many points as the policy advises, a ring's own unevenness is less than that of the \
             connections.",
        ),
        times(
            "uniform hash over round robin",
            1.2,
            0.1,
            (HASH, ROUND_ROBIN),
            "It follows from how much durations scatter alone.",
        ),
        times(
            "uniform hash over two choices",
            10.0,
            0.3,
            (HASH, TWO),
            "The ratio grows with the square root of the connections per server, and ours is the mean over all \
             numbers.",
        ),
        times(
            "two choices over the least loaded",
            4.0,
            0.3,
            (TWO, LEAST),
            "The least loaded server is as even as whole connections allow, two choices are off by two or \
             three connections, and the paper's tie-breaking is not given.",
        ),
    ]
}

/// The uniform hash at two of the paper's numbers of connections.
fn hash_alone(points: &[Point]) -> [Comparison; 2] {
    let at = |active: f64, what, paper, why| {
        let is = |p: &&Point| p.method == HASH && p.active == active;
        let ours = points.iter().find(is).map_or(f64::NAN, |p| p.imbalance_percent);
        let paper = (paper, Tolerance::Part(0.2));
        Comparison::number(Simulated, what, paper, ours, "% above the mean").why(why)
    };
    [
        at(
            SWEPT,
            "uniform hash with 70 000 connections",
            30.0,
            "Of 468 Poisson numbers of mean 150 the greatest is 25 % above it.",
        ),
        at(
            200e3,
            "uniform hash with 200 000 connections",
            15.0,
            "Of 468 Poisson numbers of mean 427 the greatest is 15 % above it.",
        ),
    ]
}
