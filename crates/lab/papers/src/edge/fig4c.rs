//! Figure 4c (§4): difference of CPU usage between the two nodes over the elephant's part of the traffic.

use std::time::Duration;

use super::elephants::{Point, sweep};
use super::show::{EDGE_BALANCE, MONITOR, WATER_FILL, WRR, notes};
use crate::Provenance::Simulated;
use crate::comparison::Bound;
use crate::outcome::Outcome;
use crate::plot::Axis;
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "edge-fig4c",
    paper: &super::PAPER,
    figure: "Figure 4c",
    title: "Difference of CPU usage with an elephant of 7 to 47 % of the traffic",
    claim: "EdgeBalance keeps the two nodes within 3 points of each other and Monitor within 7; static WRR is 41 \
            apart with the heaviest elephant.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(60),
    takes_quick: Duration::from_secs(3),
    run,
};

fn run(context: &Context) -> Result<Outcome, Failure> {
    let sweep = sweep(context)?;
    let gap: fn(&Point) -> f64 = |point| point.gap;
    let within = |way: &str, words: &str, most: f64| {
        let what = format!("{way}: the greatest of all shares");
        let ours = sweep.range(way, gap).0;
        Comparison::bound(Simulated, what, (words, Bound::AtMost(most)), ours, "points")
            .why("Mice start at random: with windows of 30 ms the numbers that are there differ.")
    };
    let comparisons = vec![
        within(EDGE_BALANCE, "below 3", 3.0),
        within(WATER_FILL, "below 3", 3.0),
        within(MONITOR, "at most 7", 7.0)
            .fitted("a report of busy time has a standard error of one point"),
        Comparison::number(
            Simulated,
            "static WRR with 47 %",
            (41.0, Tolerance::Absolute(5.0)),
            sweep.heaviest(WRR, gap),
            "points",
        )
        .why(
            "At a mean load of 85 % the elephant's core is full and the other has 45 %. A full core beside one of 59 % \
             would be 111 % offered, which no policy serves.",
        ),
    ];
    let y = Axis::linear("difference of busy time (points)");
    let plots = vec![sweep.plot("gap", "Difference between the two nodes", y, gap)];
    Ok(Outcome { tables: vec![sweep.table()?], plots, comparisons, notes: notes() })
}
