//! Figure 2c (§2.1): an indirection table that takes out whoever is overloaded, and what that breaks.

use std::time::Duration;

use plimsoll_policy::{PolicyKind, Settings};
use plimsoll_sim::flows::{Comeback, IndirectionTable, Rebalanced, Traffic};

use super::cluster::{ENTRIES, SERVERS, build, notes, traffic};
use super::cookies::{ByCookie, Carried};
use crate::Provenance::Simulated;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cheetah-fig2c",
    paper: &super::PAPER,
    figure: "Figure 2c",
    title: "Connections broken by balancing a hash",
    claim: "Keeping Beamer's imbalance within 10 % breaks 3 % of the connections, within 40 % still 0.1 %.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(15),
    takes_quick: Duration::from_secs(5),
    run,
};

const THRESHOLDS: [f64; 7] = [10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0];
const QUICK_THRESHOLDS: [f64; 2] = [10.0, 40.0];
/// The paper's connections at a time.
const ACTIVE: f64 = 70e3;
/// Percent: threshold, and what breaks.
const THEIRS: [(f64, f64); 2] = [(10.0, 3.0), (40.0, 0.1)];
const WHY: [&str; 2] = [
    "The paper says neither how often loads are looked at (here with every connection) nor which entries a \
     server gets that comes back: its own, or an even share of all, which breaks several times as many.",
    "Poisson arrivals have no micro-bursts, to which the paper puts it: 40 % above a mean of 150 connections \
     is five standard deviations, and no server gets there.",
];
/// How long the table changes before anything is counted, seconds: the longest connection's time.
const SETTLE_S: f64 = 150.0;

const SHARE: &str = "table, joins with an even share";
const HOME: &str = "table, joins with its own entries";
const TABLES: [(&str, Comeback); 2] = [(HOME, Comeback::Home), (SHARE, Comeback::Share)];

struct Point {
    method: String,
    threshold: Option<f64>,
    imbalance_percent: f64,
    connections: u64,
    /// With daisy chaining, and without.
    broken: u64,
    plain: Option<u64>,
    changes_per_minute: Option<f64>,
}

impl Point {
    fn percent(&self) -> f64 {
        100.0 * self.broken as f64 / self.connections.max(1) as f64
    }

    fn is(&self, method: &str, threshold: f64) -> bool {
        self.method == method && self.threshold == Some(threshold)
    }
}

const BOUNDED: &str = "cookie, hash_maglev with bounded loads";

fn run(context: &Context) -> Result<Outcome, Failure> {
    let thresholds: &[f64] = context.pick(&QUICK_THRESHOLDS, &THRESHOLDS);
    let traffic = Traffic {
        settle_s: context.pick(10.0, SETTLE_S),
        to_their_end: !context.quick,
        ..traffic(context, ACTIVE, context.pick(10.0, 300.0))
    };
    let kinds = [PolicyKind::RoundRobin, PolicyKind::PowerOfN, PolicyKind::LeastConnections];
    let count = (3 * thresholds.len() + kinds.len()) as f64;
    let mut points = Vec::new();
    let told =
        |points: &[Point], what: String| context.progress(points.len() as f64 / count, &what);
    for &threshold in thresholds {
        for (name, comeback) in TABLES {
            told(&points, format!("{name}, {threshold} %"))?;
            points.push(rebalanced(context, &traffic, name, comeback, threshold));
        }
        told(&points, format!("{BOUNDED}, {threshold} %"))?;
        let factor = Some(100 + threshold as u32);
        let settings = Settings { hash_balance_factor: factor, ..Settings::default() };
        let bounded = carried(context, &traffic, PolicyKind::HashMaglev, &settings)?;
        let method = BOUNDED.to_owned();
        points.push(Point { method, threshold: Some(threshold), ..bounded });
    }
    for kind in kinds {
        told(&points, format!("cookie, {kind}"))?;
        points.push(carried(context, &traffic, kind, &Settings::default())?);
    }
    let mut notes = notes();
    notes.extend([
        format!(
            "{:.0} connections at a time, counted for {:.0} s{}; a table of {ENTRIES} \
             entries. A server leaves it as soon as a connection puts it above the threshold, and joins again \
             when it has fewer than the mean.",
            traffic.active,
            traffic.counted_s,
            context.pick("", " and followed to their end")
        ),
        "With a cookie nothing has to move: hash_maglev with bounded loads (hash_balance_factor) passes new \
         connections on when a server has its bound, and the cookie of every connection is decoded every \
         second. The other policies have no threshold."
            .to_owned(),
    ]);
    let tables = vec![table(&points)?];
    Ok(Outcome { tables, plots: vec![plot(&points)], comparisons: comparisons(&points), notes })
}

fn rebalanced(
    context: &Context,
    traffic: &Traffic,
    method: &str,
    comeback: Comeback,
    threshold: f64,
) -> Point {
    let table = IndirectionTable::new(ENTRIES, &[1; SERVERS], comeback, context.seed);
    let (from, counted) = (traffic.stationary_from(), traffic.counted_from());
    let mut watch = Rebalanced::new(table, threshold / 100.0, from, counted);
    traffic.run(&traffic.every(Duration::from_millis(100)), &mut watch);
    let broken = watch.broken();
    let minutes = traffic.ends().since(counted).as_secs_f64() / 60.0;
    Point {
        method: method.to_owned(),
        threshold: Some(threshold),
        imbalance_percent: watch.imbalance_percent(),
        connections: broken.connections,
        broken: broken.chained,
        plain: Some(broken.plain),
        changes_per_minute: Some(watch.changes() as f64 / minutes),
    }
}

fn carried(
    context: &Context,
    traffic: &Traffic,
    kind: PolicyKind,
    settings: &Settings,
) -> Result<Point, Failure> {
    let policy = build(kind, &[1; SERVERS], settings)?;
    let steering = ByCookie::new(policy, SERVERS, context.seed);
    let mut watch = Carried::new(steering, SERVERS, traffic.counted_from());
    traffic.run(&traffic.every(Duration::from_secs(1)), &mut watch);
    Ok(Point {
        method: format!("cookie, {kind}"),
        threshold: None,
        imbalance_percent: watch.imbalance_percent(),
        connections: watch.connections,
        broken: watch.broken,
        plain: None,
        changes_per_minute: None,
    })
}

fn table(points: &[Point]) -> Result<Table, Failure> {
    let mut table = Table::empty("broken", "What balance costs in broken connections");
    for p in points {
        row!(table, Provenance::Simulated, {
            method: p.method.as_str();
            threshold_percent: p.threshold, "% above the mean";
            imbalance_percent: p.imbalance_percent, "% above the mean";
            broken_percent: p.percent(), "% of the connections";
            broken: p.broken, "connections";
            broken_without_daisy_chaining: p.plain.map(|n| n as f64), "connections";
            connections: p.connections;
            changes_per_minute: p.changes_per_minute, "of the table";
        })?;
    }
    Ok(table)
}

fn plot(points: &[Point]) -> Plot {
    let line = |method: &str| {
        let at = |p: &Point| Some((p.threshold?, p.percent()));
        let points = points.iter().filter(|p| p.method == method).filter_map(at).collect();
        Lines::new(method, Provenance::Simulated, points)
    };
    let mut lines = vec![line(HOME), line(SHARE), line(BOUNDED)];
    lines.push(Lines::new("Beamer, paper", Provenance::Reported, THEIRS.to_vec()).like(0));
    Plot::lines(
        "broken",
        "Connections broken by balancing a hash",
        Axis::linear("imbalance threshold (% above the mean)"),
        Axis::linear("broken connections (%)"),
        lines,
    )
}

fn comparisons(points: &[Point]) -> Vec<Comparison> {
    let mut all: Vec<Comparison> = Vec::new();
    for ((threshold, theirs), why) in THEIRS.into_iter().zip(WHY) {
        for (table, _) in TABLES {
            let of = points.iter().find(|p| p.is(table, threshold));
            let ours = of.map_or(f64::NAN, Point::percent);
            let what = format!("{table}; servers {threshold:.0} % above the mean are taken out");
            let paper = (theirs, Tolerance::Part(0.5));
            all.push(Comparison::number(Simulated, what, paper, ours, "% broken").why(why));
        }
    }
    let cookies = || points.iter().filter(|p| p.method.starts_with("cookie"));
    let broken: u64 = cookies().map(|p| p.broken).sum();
    let connections: u64 = cookies().map(|p| p.connections).sum();
    let none = (0.0, Tolerance::Absolute(0.0));
    let of = format!("broken of {connections}");
    all.push(
        Comparison::number(Simulated, "cookie, whatever the policy", none, broken as f64, &of)
            .why("A cookie named another server than the one that holds the connection."),
    );
    all
}
