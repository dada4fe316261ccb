//! Figure 6 (§3): the 99th percentile of waiting over the number of balancers, all queues known or one's own
//! requests only; and how far picks are from the shortest queue.
//!
//! The paper gives neither the load nor how services scatter. Its two numbers tell: a median error of 3
//! requests with 20 balancers and of 9 with 100 is that of a load near 99 %. Other loads are beside it.

use std::time::Duration;

use super::cluster::{Cluster, SERVICE_MS, run as simulate};
use super::methods::{JSQ, LC, Method, OTHERS, P2C};
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig6",
    paper: &super::PAPER,
    figure: "Figure 6",
    title: "Waiting over the number of balancers: JSQ and least connections",
    claim: "JSQ does not care how many balancers there are; least connections waits ever longer, for its \
            picks are off by 3 requests in the median with 20 balancers and by 9 with 100.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(60),
    takes_quick: Duration::from_secs(1),
    run,
};

/// The load whose errors are the paper's.
pub const LOAD: f64 = 0.99;
const LOADS: [f64; 4] = [0.8, 0.9, 0.95, LOAD];
const BALANCERS: [u32; 9] = [1, 2, 5, 10, 20, 40, 60, 80, 100];
const QUICK_BALANCERS: [u32; 3] = [1, 20, 100];
/// Balancers, and the paper's median error.
const THEIRS: [(u32, f64); 2] = [(20, 3.0), (100, 9.0)];

struct Point {
    method: &'static str,
    load: f64,
    balancers: u32,
    /// Milliseconds.
    mean_wait: f64,
    p99_wait: f64,
    median_error: usize,
    mean_error: f64,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let balancers: &[u32] = if context.quick { &QUICK_BALANCERS } else { &BALANCERS };
    let loads: &[f64] = if context.quick { &LOADS[3..] } else { &LOADS };
    let mut plan: Vec<(Method, f64, u32)> = Vec::new();
    for &load in loads {
        for method in [JSQ, LC] {
            plan.extend(balancers.iter().map(|&n| (method, load, n)));
        }
        for method in rest() {
            plan.extend(QUICK_BALANCERS.map(|n| (method, load, n)));
        }
    }
    let mut points = Vec::new();
    for (i, &(method, load, balancers)) in plan.iter().enumerate() {
        let what = format!("{} at {load}, {balancers} balancers", method.name);
        context.progress(i as f64 / plan.len() as f64, &what)?;
        points.push(point(context, method, load, balancers)?);
    }
    Ok(Outcome {
        tables: vec![table(&points)?],
        plots: plots(&points),
        comparisons: comparisons(&points),
        notes: vec![
            format!(
                "Ten backends that serve one request at a time, {SERVICE_MS:.0} ms each; Poisson arrivals, \
                 each at a balancer drawn at random. What is waited is the response time less the service."
            ),
            "Error: how much longer the picked queue was than the shortest, both counted before the pick."
                .to_owned(),
            "JSQ is given every queue, which no real balancer has. Round robin, random, two choices by \
             requests or latency and peak EWMA are run as one would deploy them, one per balancer."
                .to_owned(),
        ],
    })
}

/// Ten backends at this load, without a network.
pub fn cluster(context: &Context, load: f64, frontends: u32) -> Cluster {
    let requests = context.pick(20_000, 1_000_000);
    let network = Duration::ZERO;
    let cluster = Cluster { frontends, network, requests, ..Cluster::new(context) };
    cluster.open(load * cluster.capacity_rps())
}

/// All but the paper's two.
pub fn rest() -> Vec<Method> {
    [P2C].into_iter().chain(OTHERS).collect()
}

fn point(context: &Context, method: Method, load: f64, balancers: u32) -> Result<Point, Failure> {
    let seen = simulate(&cluster(context, load, balancers), method)?;
    Ok(Point {
        method: method.name,
        load,
        balancers,
        mean_wait: seen.report.mean_us / 1e3 - SERVICE_MS,
        p99_wait: seen.report.p99_us / 1e3 - SERVICE_MS,
        median_error: seen.truth.median_error(),
        mean_error: seen.truth.mean_error(),
    })
}

fn table(points: &[Point]) -> Result<Table, Failure> {
    let mut table =
        Table::empty("waits", "What requests wait, and how far picks are from the shortest queue");
    for p in points {
        row!(table, Provenance::Simulated, {
            method: p.method;
            load: p.load, "part of the capacity";
            balancers: p.balancers;
            mean_wait_ms: p.mean_wait, "ms";
            p99_wait_ms: p.p99_wait, "ms";
            median_error: p.median_error, "requests";
            mean_error: p.mean_error, "requests";
        })?;
    }
    Ok(table)
}

fn plots(points: &[Point]) -> Vec<Plot> {
    let x = || Axis::linear("balancers");
    let line = |method: &Method, value: fn(&Point) -> f64| {
        let those = points.iter().filter(|p| p.method == method.name && p.load == LOAD);
        let points = those.map(|p| (f64::from(p.balancers), value(p))).collect();
        Lines::new(method.name, Provenance::Simulated, points)
    };
    let lines = |value: fn(&Point) -> f64| {
        [JSQ, LC].iter().chain(&rest()).map(|method| line(method, value)).collect::<Vec<_>>()
    };
    let title = format!("at {:.0} % load, ten backends", 100.0 * LOAD);
    let theirs = THEIRS.map(|(n, error)| (f64::from(n), error)).to_vec();
    let mut errors = lines(|p| p.median_error as f64);
    errors.push(Lines::new("LC, paper", Provenance::Reported, theirs).like(1));
    vec![
        Plot::lines(
            "p99",
            &format!("99th percentile of waiting {title}"),
            x(),
            Axis::log("waiting (ms)"),
            lines(|p| p.p99_wait),
        ),
        Plot::lines(
            "error",
            &format!("Median distance of picks from the shortest queue {title}"),
            x(),
            Axis::linear("requests"),
            errors,
        ),
    ]
}

fn comparisons(points: &[Point]) -> Vec<Comparison> {
    let at = |method: Method, balancers: u32| {
        let is = |p: &&Point| (p.method, p.balancers, p.load) == (method.name, balancers, LOAD);
        points.iter().find(is)
    };
    let tail = "A short run: near full load the tail scatters.";
    let from = Provenance::Simulated;
    let mut found = Vec::new();
    if let (Some(one), Some(many)) = (at(JSQ, 1), at(JSQ, 100)) {
        let what = "p99 of waiting with 100 balancers over that with one, JSQ";
        let paper = (1.0, Tolerance::Part(0.15));
        let ratio = many.p99_wait / one.p99_wait;
        found.push(Comparison::number(from, what, paper, ratio, "×").why(tail));
    }
    let lc = QUICK_BALANCERS.iter().filter_map(|&n| Some((n.to_string(), at(LC, n)?.p99_wait)));
    let lc: Vec<(String, f64)> = lc.collect();
    let ours = lc.iter().map(|(n, wait)| (n.as_str(), *wait));
    let what = "p99 of waiting by number of balancers, least connections";
    found.push(Comparison::order(from, what, "a continual increase", ours, "ms").why(tail));
    for (balancers, theirs) in THEIRS {
        let Some(point) = at(LC, balancers) else { continue };
        let what = format!("median error of least connections with {balancers} balancers");
        let (paper, ours) = ((theirs, Tolerance::Part(0.25)), point.median_error as f64);
        found.push(
            Comparison::number(from, what, paper, ours, "requests").fitted("a load of 99 %").why(
                "The error grows with the load and the length, neither of which the paper gives.",
            ),
        );
    }
    found
}
