//! Figure 5 (§4): the traffic doubles, a second node joins.

use std::time::Duration;

use plimsoll_feedback::ScaleSettings;
use plimsoll_sim::edge::{EdgeRun, Mice, Seen, Standby, Step, Way};

use super::show::{EDGE_BALANCE, WATER_FILL, WRR, mean, ways};
use crate::Provenance::Simulated;
use crate::comparison::Bound;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Mark, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "edge-fig5",
    paper: &super::PAPER,
    figure: "Figure 5",
    title: "The traffic doubles at 9 s and a second node joins",
    claim: "Under EdgeBalance the loads of the two servers are equal in close to a second, under static WRR in about \
            35 s.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(90),
    takes_quick: Duration::from_secs(5),
    run,
};

/// How long every flow lasts, seconds, and packets that it sends in a millisecond: 15 new flows a second are then 0.95 of a core.
const LIFE_S: f64 = 30.0;
const PACKETS_PER_MS: u32 = 3;
const FLOWS_PER_S: f64 = 15.0;
/// When the traffic doubles, seconds.
const DOUBLES_S: f64 = 9.0;
/// Loads are equal when their mean difference over so many windows of 30 ms is at most so many points.
const WINDOWS: usize = 10;
const EQUAL: f64 = 5.0;

fn run(context: &Context) -> Result<Outcome, Failure> {
    let mut ran: Vec<(&str, Seen)> = Vec::new();
    let shown =
        ways().into_iter().filter(|(name, _)| [WATER_FILL, EDGE_BALANCE, WRR].contains(name));
    for (name, way) in shown {
        context.progress(ran.len() as f64 / 3.0, name)?;
        ran.push((name, doubled(context, way)));
    }
    let time = |way: &str| {
        let seen = ran.iter().find(|(name, _)| *name == way);
        seen.and_then(|(_, seen)| equal_after(seen)).unwrap_or(f64::NAN)
    };
    let within = |way: &str| {
        let what = format!("{way}: from the second node's start until loads are within 5 points");
        let paper = ("close to 1 s", Bound::AtMost(1.0));
        Comparison::bound(Simulated, what, paper, time(way), "s")
    };
    let comparisons = vec![
        within(EDGE_BALANCE).why(
            "The first time that they are: its sum of errors has grown meanwhile and goes on sending new flows to the new node, \
             which is then the fuller one. New flows can make loads equal only as soon as enough of them have come.",
        ),
        within(WATER_FILL).why("As many flows must come as make up the difference."),
        Comparison::number(
            Simulated,
            "static WRR: the same",
            (35.0, Tolerance::Part(0.25)),
            time(WRR),
            "s",
        )
        .fitted("flows last 30 s")
        .why("Half of the new flows go to the first node until the old ones end."),
    ];
    let (tables, plots) = (vec![table(&ran)?], vec![plot(&ran)]);
    Ok(Outcome { tables, plots, comparisons, notes: notes() })
}

fn doubled(context: &Context, way: Way) -> Seen {
    let mut run = EdgeRun::new(2, 0.0, way);
    let flows = FLOWS_PER_S * LIFE_S;
    run.traffic.packets_per_ms = flows * f64::from(PACKETS_PER_MS);
    run.traffic.packets_per_mouse_ms = PACKETS_PER_MS;
    run.traffic.even = true;
    run.traffic.mice = Mice::Packets((LIFE_S * 1e3) as u32);
    run.traffic.step = Some(Step { at_ms: (DOUBLES_S * 1e3) as u64, factor: 2.0, ramp_ms: 1000 });
    run.standby = Some(Standby {
        cores: 1,
        scale: ScaleSettings { up: SCALE_UP, ..ScaleSettings::default() },
    });
    run.queue = 512;
    (run.run_ms, run.warm_ms) = (context.pick(12_000, 50_000), 0);
    run.seed = context.seed;
    run.run()
}

/// The threshold of the paper.
const SCALE_UP: f64 = 0.95;

/// Seconds from when the second node serves until loads are equal.
fn equal_after(seen: &Seen) -> Option<f64> {
    let joined = seen.windows.iter().position(|window| window.serving == 2)?;
    let from = seen.windows[joined].at;
    let gap = |core: &[f64]| 100.0 * (core[0] - core[1]).abs();
    let after = &seen.windows[joined..];
    let equal =
        after.windows(WINDOWS).find(|some| mean(some.iter().map(|w| gap(&w.busy))) <= EQUAL);
    equal.map(|some| some[0].at - from)
}

fn table(ran: &[(&str, Seen)]) -> Result<Table, Failure> {
    let mut table = Table::empty("loads", "Loads of the two nodes, means of 0.3 s");
    for (way, seen) in ran {
        for some in seen.windows.chunks_exact(WINDOWS) {
            let busy = |core: usize| 100.0 * mean(some.iter().map(|window| window.busy[core]));
            row!(table, Provenance::Simulated, {
                method: *way;
                time_s: some[0].at, "s";
                first_node_percent: busy(0), "% of its core";
                second_node_percent: busy(1), "% of its core";
                serving: some[0].serving, "nodes that get new flows";
            })?;
        }
    }
    Ok(table)
}

fn plot(ran: &[(&str, Seen)]) -> Plot {
    let line = |(way, seen): &(&str, Seen), core: usize| {
        let points = seen
            .windows
            .chunks_exact(WINDOWS)
            .map(|some| (some[0].at, 100.0 * mean(some.iter().map(|window| window.busy[core]))));
        let label = format!("{way}, node {}", core + 1);
        Lines::new(&label, Provenance::Simulated, points.collect()).drawn(Mark::Line)
    };
    let lines = ran.iter().flat_map(|one| [line(one, 0), line(one, 1)]).collect();
    let (x, y) = (Axis::linear("time (s)"), Axis::linear("CPU usage (%)"));
    Plot::lines("loads", "Loads of two nodes; the traffic doubles at 9 s", x, y, lines)
}

fn notes() -> Vec<String> {
    vec![
        "Weights touch new flows alone, so the result is one about lifetimes, which the paper does not give. Here all flows \
         last 30 s and send 3 packets a millisecond (15 new flows a second are 0.95 of a core), and at 9 s a second source \
         begins with as many flows within a second, which then come and go like the first's. The first node is at 0.95 \
         when the second joins, as the paper's rule (mean predicted load of 95 %) has it."
            .to_owned(),
    ]
}
