//! Figure 11 (§6.2): BLOC with a capacity of 10, of 15 and of the mean in flight; and how uneven the load is.

use std::time::Duration;

use super::cluster::Cluster;
use super::methods::{ALL, Door, bloc};
use super::show::{Case, Ran, distributions, notes, run_all, table};
use crate::Provenance::Simulated;
use crate::outcome::Outcome;
use crate::plot::{Axis, Bars, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance};

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
    let methods = ALL.into_iter().chain([fifteen]);
    let all = run_all(context, methods.map(|method| Case::new("", method, cluster)).collect())?;
    let (lc, ten, average, adaptive) = (&all[0], &all[3], &all[4], &all[5]);
    let fifteen = &all[ALL.len()];
    let imbalance = |ran: &Ran| ran.seen.report.imbalance();
    let order = |what: &str, paper: &str, ours: &[(&str, f64)], unit: &str| {
        Comparison::order(Simulated, what, paper, ours.iter().copied(), unit)
    };
    let (lc_range, lost) =
        (("LC", lc.range()), "requests lost: capacity 10, the mean in flight, adaptive");
    let lost_here = format!("{:.0}, {:.0}, {:.0} %", ten.lost(), average.lost(), adaptive.lost());
    let comparisons = vec![
        order(
            "range p10 to p90 by capacity",
            "10 < 15 < LC",
            &[("10", ten.range()), ("15", fifteen.range()), lc_range],
            "s",
        )
        .why("Above 10 no queue is full with 100 users, unless picks are uneven."),
        order(
            "range p10 to p90 with the mean in flight",
            "less than LC",
            &[("mean", average.range()), lc_range],
            "s",
        )
        .why("The mean ratchets down: each is below the limit that made it."),
        Comparison::silent(Simulated, lost, "not given", lost_here, "").why(
            "A refused user asks again 150 ms later: requests lost say how many users are out, not how many are \
             served, which is 40 a second under all.",
        ),
        order(
            "imbalance with capacity 10",
            "less than LC",
            &[("10", imbalance(ten)), ("LC", imbalance(lc))],
            "requests",
        )
        .why("With 100 users hardly a backend is ever idle, so all serve the same, whatever they are sent."),
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
