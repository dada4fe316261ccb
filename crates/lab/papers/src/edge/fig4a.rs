//! Figure 4a (§4): throughput over the elephant's part of the traffic.

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
    name: "edge-fig4a",
    paper: &super::PAPER,
    figure: "Figure 4a",
    title: "Throughput with an elephant of 7 to 47 % of the traffic",
    claim: "EdgeBalance's throughput is nearly constant, Monitor's close to it, and static WRR's 33 % lower with \
            the heaviest elephant.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(60),
    takes_quick: Duration::from_secs(3),
    run,
};

fn run(context: &Context) -> Result<Outcome, Failure> {
    let sweep = sweep(context)?;
    let served: fn(&Point) -> f64 = |point| point.served;
    let flat = |way: &str| {
        let (most, least) = sweep.range(way, served);
        100.0 * (1.0 - least / most)
    };
    let less = |way: &str| {
        100.0 * (1.0 - sweep.heaviest(way, served) / sweep.heaviest(EDGE_BALANCE, served))
    };
    let constant = |way: &str| {
        let what = format!("{way}: least below the greatest throughput over all shares");
        let paper = ("nearly constant: at most 10 %", Bound::AtMost(10.0));
        Comparison::bound(Simulated, what, paper, flat(way), "%")
            .why("What mice are left to move does not make up for the elephant.")
    };
    let comparisons = vec![
        constant(EDGE_BALANCE),
        constant(WATER_FILL),
        Comparison::number(
            Simulated,
            "static WRR below EdgeBalance, elephant of 47 %",
            (33.0, Tolerance::Absolute(5.0)),
            less(WRR),
            "%",
        )
        .why(
            "Half of the mice beside the elephant offer one core 73.5 % of all traffic: at a mean load of 85 % that is \
             1.25 of a core, of which a quarter is lost, 15 % of all. No mean load gives the paper's 33 % together with \
             its gap of 41 points (fig4c): a core that is full beside one of 59 % serves 20 % less than two full ones.",
        ),
        Comparison::bound(
            Simulated,
            "Monitor below EdgeBalance, elephant of 47 %",
            ("close: at most 5 %", Bound::AtMost(5.0)),
            less(MONITOR),
            "%",
        )
        .why("Weights that swing with the error of reports fill one core's queue now and then."),
    ];
    let y = Axis::linear("throughput (million packets/s)");
    let plots = vec![sweep.plot("throughput", "Throughput of two nodes", y, served)];
    Ok(Outcome { tables: vec![sweep.table()?], plots, comparisons, notes: notes() })
}
