//! Figure 11 (§6.2): BLOC with a capacity of 10, of 15 and of the mean in flight; and how uneven the load is.

use std::time::Duration;

use super::cluster::Cluster;
use super::show::{Case, Ran, distributions, holds, notes, run_all, table, told};
use super::ways::{ALL, Door, bloc};
use crate::outcome::Outcome;
use crate::plot::{Axis, Bars, Plot};
use crate::{Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig11",
    paper: &super::PAPER,
    figure: "Figure 11",
    title: "Sensitivity to the capacity, and load imbalance",
    claim: "A capacity of 10 is the best, 15 overloads, the mean in flight is between; all are better than \
            least connections, and load them more evenly.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(2),
    takes_quick: Duration::from_secs(1),
    run,
};

fn run(context: &Context) -> Result<Outcome, Failure> {
    let cluster = Cluster::new(context);
    let fifteen = bloc("BLOC, capacity 15", Door::Static(15));
    let ways = ALL.into_iter().chain([fifteen]);
    let all = run_all(context, ways.map(|way| Case::new("", way, cluster)).collect())?;
    let (lc, ten, average, adaptive) = (&all[0], &all[3], &all[4], &all[5]);
    let fifteen = &all[ALL.len()];
    let ranges = |runs: &[&Ran]| {
        let one = |ran: &&Ran| format!("{:.2}", ran.range());
        runs.iter().map(one).collect::<Vec<_>>().join(" < ") + " s"
    };
    let imbalance = |ran: &Ran| ran.seen.report.imbalance();
    let comparisons = vec![
        holds(
            "range p10 to p90: capacity 10, 15, least connections",
            "10 < 15 < LC",
            ranges(&[ten, fifteen, lc]),
            ten.range() < fifteen.range() && fifteen.range() < lc.range(),
            "Above 10 no queue is full with 100 users, unless picks are uneven.",
        ),
        holds(
            "range p10 to p90: the mean in flight, least connections",
            "less than LC",
            ranges(&[average, lc]),
            average.range() < lc.range(),
            "The mean ratchets down: each is below the limit that made it.",
        ),
        told(
            "requests lost: capacity 10, the mean in flight, adaptive",
            "not given",
            format!("{:.0}, {:.0}, {:.0} %", ten.lost(), average.lost(), adaptive.lost()),
            "Whoever finds no place in a queue asks again 150 ms later: requests lost say how many users are out, \
             not how many are served, which is 40 a second under all.",
        ),
        holds(
            "imbalance: capacity 10 beside least connections",
            "less",
            format!("{:.2} beside {:.2} requests", imbalance(ten), imbalance(lc)),
            imbalance(ten) < imbalance(lc),
            "With 100 users hardly a backend is ever idle, so all serve the same, whatever they are sent.",
        ),
    ];
    let shown = [ten, fifteen, average, adaptive, lc];
    let names = shown.map(|ran| ran.name()).to_vec();
    let bars = shown.map(|ran| Some(imbalance(ran))).to_vec();
    let plots = vec![
        distributions("Responses by capacity", shown),
        Plot::bars(
            "imbalance",
            "Standard deviation over backends of the requests served in 2 s",
            "method",
            Axis::linear("requests"),
            names,
            vec![Bars::new("imbalance", Provenance::Simulated, bars)],
        ),
    ];
    let tables = vec![table(("set_up", ""), &all)];
    Ok(Outcome { tables, plots, comparisons, notes: notes() })
}
