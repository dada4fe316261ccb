//! Figure 2a (§2.1): connections that updates of the pool break, with and without daisy chaining.
//!
//! The paper gives the rates, 1.5 to 80 updates a minute, and no more of the updates than that they are
//! SilkRoad's. Here they are a Poisson process in two orders: servers at random, and a rolling upgrade.

use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{PolicyKind, Settings};
use plimsoll_sim::flows::{
    Broken, ByKey, Comeback, IndirectionTable, Steering, Tracking, Traffic, UpdateOrder, Updates,
};

use super::cluster::{ENTRIES, RING_WEIGHT, SERVERS, build, notes, traffic};
use super::cookies::ByCookie;
use crate::Provenance::Simulated;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cheetah-fig2a",
    paper: &super::PAPER,
    figure: "Figure 2a",
    title: "Connections broken by updates of the pool",
    claim: "Beamer and Faild still break almost 1 % of the connections at 80 updates a minute.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(110),
    takes_quick: Duration::from_secs(4),
    run,
};

const RATES: [f64; 6] = [1.5, 5.0, 10.0, 20.0, 40.0, 80.0];
const QUICK_RATES: [f64; 2] = [1.5, 80.0];
/// Servers that are out while servers leave and join at random: a tenth.
const OUT: usize = SERVERS / 10;
/// For how long a server is out in a rolling upgrade, seconds.
const ROLLING_S: f64 = 60.0;
/// What the paper says of the highest rate.
const THEIRS_PERCENT: f64 = 1.0;

#[derive(Clone, Copy, PartialEq)]
enum Method {
    /// A policy that hashes, by packet.
    Hash(PolicyKind),
    /// Beamer's and Faild's table.
    Table,
    /// A policy for the SYN, the cookie for all others.
    Cookie(PolicyKind),
}

const TABLE: Method = Method::Table;
const COOKIES: [Method; 3] = [
    Method::Cookie(PolicyKind::RoundRobin),
    Method::Cookie(PolicyKind::PowerOfN),
    Method::Cookie(PolicyKind::HashMap),
];
const METHODS: [Method; 7] = [
    TABLE,
    Method::Hash(PolicyKind::HashMaglev),
    Method::Hash(PolicyKind::HashRing),
    Method::Hash(PolicyKind::HashMap),
    COOKIES[0],
    COOKIES[1],
    COOKIES[2],
];

impl Method {
    fn name(self) -> String {
        match self {
            Method::Hash(kind) => kind.to_string(),
            Method::Table => "indirection table".to_owned(),
            Method::Cookie(kind) => format!("cookie, {kind}"),
        }
    }

    fn steering(self, weights: &[u32], seed: u64) -> Result<Box<dyn Steering>, Failure> {
        let policy = |kind| build(kind, weights, &Settings::default());
        Ok(match self {
            Method::Hash(kind) => Box::new(ByKey::new(policy(kind)?)),
            Method::Table => {
                Box::new(IndirectionTable::new(ENTRIES, weights, Comeback::Share, seed))
            }
            Method::Cookie(kind) => Box::new(ByCookie::new(policy(kind)?, weights.len(), seed)),
        })
    }
}

struct Point {
    order: &'static str,
    rate: f64,
    method: Method,
    updates: usize,
    broken: Broken,
}

const AT_RANDOM: &str = "at random";
const ROLLING: &str = "rolling upgrade";

fn run(context: &Context) -> Result<Outcome, Failure> {
    let rates: &[f64] = context.pick(&QUICK_RATES, &RATES);
    let orders = [
        (AT_RANDOM, UpdateOrder::AtRandom { out: OUT }, SERVERS + OUT),
        (ROLLING, UpdateOrder::Rolling { out_s: ROLLING_S }, SERVERS),
    ];
    let traffic = Traffic {
        to_their_end: true,
        ..traffic(context, context.pick(2_000.0, 20_000.0), context.pick(60.0, 900.0))
    };
    // A ring of many points is what takes the time.
    let weight = context.pick(1, RING_WEIGHT);
    let count = (orders.len() * rates.len() * METHODS.len()) as f64;
    let mut points = Vec::new();
    for (name, order, servers) in orders {
        for &rate in rates {
            let updates = Updates { per_minute: rate, order, servers, seed: context.seed };
            for method in METHODS {
                let what = format!("{} at {rate} updates a minute, {name}", method.name());
                context.progress(points.len() as f64 / count, &what)?;
                points.push(point(&traffic, name, &updates, method, weight)?);
            }
        }
    }
    let mut notes = notes();
    notes.extend([
        format!(
            "{:.0} connections at a time, counted for {:.0} s and followed to their end. A server that leaves \
             finishes what it has: an update breaks a connection only by sending its packets elsewhere. \
             Packets are taken to flow all the time.",
            traffic.active, traffic.counted_s
        ),
        format!(
            "At random: leaving and joining are equally likely, and so are all servers that can; {SERVERS} \
             in the pool and {OUT} out at the start. Rolling upgrade: a server that leaves is back after {ROLLING_S:.0} s."
        ),
        format!(
            "Indirection table: {ENTRIES} entries; a server that joins takes an even share from all others, \
             one that leaves gives its own to them. hash_ring has {} points per server.",
            16 * weight
        ),
    ]);
    let tables = vec![table(&points)?];
    Ok(Outcome { tables, plots: plots(&points), comparisons: comparisons(&points), notes })
}

fn point(
    traffic: &Traffic,
    order: &'static str,
    updates: &Updates,
    method: Method,
    weight: u32,
) -> Result<Point, Failure> {
    let weights: Vec<u32> = updates.weights().iter().map(|takes| takes * weight).collect();
    let all = updates.until(traffic.ends());
    let ticks: Vec<Nanos> = all.iter().map(|(at, _)| *at).collect();
    let mut tracking = Tracking::new(method.steering(&weights, updates.seed)?, &all, &weights);
    traffic.run(&ticks, &mut tracking);
    Ok(Point {
        order,
        rate: updates.per_minute,
        method,
        updates: all.len(),
        broken: tracking.broken(),
    })
}

fn table(points: &[Point]) -> Result<Table, Failure> {
    let mut table = Table::empty("broken", "Connections that updates of the pool broke");
    for p in points {
        // A cookie needs no chain, and there is none to follow.
        let chained = !matches!(p.method, Method::Cookie(_));
        row!(table, Provenance::Simulated, {
            updates: p.order;
            updates_per_minute: p.rate;
            method: p.method.name();
            broken_percent: p.broken.plain_percent(), "% of the connections";
            broken_with_daisy_chaining_percent: chained.then(|| p.broken.chained_percent()), "% of the connections";
            broken: p.broken.plain, "connections";
            broken_with_daisy_chaining: chained.then_some(p.broken.chained), "connections";
            connections: p.broken.connections;
            updates_made: p.updates;
        })?;
    }
    Ok(table)
}

fn plots(points: &[Point]) -> Vec<Plot> {
    let line = |label: String, method: Method, value: fn(&Broken) -> f64| {
        let those = points.iter().filter(|p| p.method == method && p.order == AT_RANDOM);
        let points = those.map(|p| (p.rate, value(&p.broken))).collect();
        Lines::new(&label, Provenance::Simulated, points)
    };
    let chained = |method: Method| {
        line(format!("{}, daisy chaining", method.name()), method, Broken::chained_percent)
    };
    let plain = |method: Method| line(method.name(), method, Broken::plain_percent);
    let hashes = || METHODS.into_iter().filter(|method| !matches!(method, Method::Cookie(_)));
    let mut few = vec![line("Beamer, Faild".to_owned(), TABLE, Broken::chained_percent)];
    few.push(chained(Method::Hash(PolicyKind::HashMaglev)));
    few.push(plain(COOKIES[0]));
    let theirs = vec![(80.0, THEIRS_PERCENT)];
    few.push(Lines::new("Beamer, Faild, paper", Provenance::Reported, theirs).like(0));
    let x = || Axis::linear("updates of the pool per minute");
    let y = "broken connections (%)";
    let all = hashes().map(plain).chain(hashes().map(chained));
    vec![
        Plot::lines("chained", "Connections broken by updates", x(), Axis::linear(y), few),
        Plot::lines(
            "all",
            "Connections broken by updates, with and without daisy chaining",
            x(),
            Axis::log(y),
            all.filter(has_positive).collect(),
        ),
    ]
}

/// A logarithmic axis shows nothing else.
fn has_positive(line: &Lines) -> bool {
    line.points.iter().any(|(_, y)| *y > 0.0)
}

fn comparisons(points: &[Point]) -> Vec<Comparison> {
    let highest = RATES[RATES.len() - 1];
    let at = |method: Method, order: &str| {
        let is = |p: &&Point| p.method == method && p.order == order && p.rate == highest;
        points.iter().find(is).map_or(Broken::default(), |p| p.broken)
    };
    let cookies = || points.iter().filter(|p| matches!(p.method, Method::Cookie(_)));
    let broken: u64 = cookies().map(|p| p.broken.plain).sum();
    let connections: u64 = cookies().map(|p| p.broken.connections).sum();
    let cookie = "cookie under round_robin, power_of_n and hash_map, all rates and orders";
    let paper = (THEIRS_PERCENT, Tolerance::Part(0.4));
    let none = (0.0, Tolerance::Absolute(0.0));
    let of = format!("broken of {connections}");
    let mut all = Vec::new();
    for order in [AT_RANDOM, ROLLING] {
        let beamer = at(TABLE, order);
        let what = format!(
            "Beamer and Faild (indirection table, daisy chaining) at 80 updates a minute, {order}"
        );
        let chained = beamer.chained_percent();
        all.push(Comparison::number(Simulated, what, paper, chained, "% broken").why(
            "The order of updates is not given; it depends on how many of the connections are long and on which \
             entries a joining server takes.",
        ));
        let what = format!("the same without daisy chaining, {order}");
        let line = "a second line, without numbers in the text";
        let plain = beamer.plain_percent();
        all.push(
            Comparison::silent(Simulated, what, line, plain, "% broken")
                .why("The line has no numbers in the text."),
        );
    }
    all.push(
        Comparison::number(Simulated, cookie, none, broken as f64, &of)
            .why("A cookie named another server than the one that holds the connection."),
    );
    all
}
