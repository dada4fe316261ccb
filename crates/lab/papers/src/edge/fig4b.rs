//! Figure 4b (§4): latency over the elephant's part of the traffic.

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
    name: "edge-fig4b",
    paper: &super::PAPER,
    figure: "Figure 4b",
    title: "Latency with an elephant of 7 to 47 % of the traffic",
    claim: "EdgeBalance's latency does not depend on the elephant; Monitor's is up to 3 times as high, static WRR's \
            more than 300 µs.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(60),
    takes_quick: Duration::from_secs(3),
    run,
};

fn run(context: &Context) -> Result<Outcome, Failure> {
    let sweep = sweep(context)?;
    let p99: fn(&Point) -> f64 = |point| point.p99_us;
    let mean: fn(&Point) -> f64 = |point| point.mean_us;
    let grows = |way: &str| {
        let all = sweep.of(way, p99);
        let grown = sweep.heaviest(way, p99) / all.first().copied().unwrap_or(f64::NAN);
        let what = format!("{way}: p99 with 47 % over that with 7 %");
        let paper = ("independent: at most 1.3 times", Bound::AtMost(1.3));
        Comparison::bound(Simulated, what, paper, grown, "×")
            .why("The fewer mice there are, the less chance moves, and the less there is to move.")
    };
    let ratios = sweep.of(MONITOR, mean).into_iter().zip(sweep.of(EDGE_BALANCE, mean));
    let most = ratios.map(|(monitor, ours)| monitor / ours).fold(f64::MIN, f64::max);
    let comparisons = vec![
        grows(EDGE_BALANCE),
        grows(WATER_FILL),
        Comparison::number(
            Simulated,
            "mean, Monitor over EdgeBalance, the greatest of all shares",
            (3.0, Tolerance::Part(0.3)),
            most,
            "×",
        )
        .why(
            "Monitor's weights swing by its reports' error, here a point, and at a mean load of 85 % its gap of a few \
             points fills no queue. Nearer to full it would.",
        ),
        Comparison::bound(
            Simulated,
            "static WRR, p99 with 47 %",
            ("more than 300 µs", Bound::AtLeast(300.0)),
            sweep.heaviest(WRR, p99),
            "µs",
        )
        .why("A full queue is as long as it is configured."),
    ];
    let plots = vec![
        sweep.plot("p99", "99th percentile", Axis::log("waiting and service (µs)"), p99),
        sweep.plot("mean", "Mean", Axis::log("waiting and service (µs)"), mean),
    ];
    Ok(Outcome { tables: vec![sweep.table()?], plots, comparisons, notes: notes() })
}
