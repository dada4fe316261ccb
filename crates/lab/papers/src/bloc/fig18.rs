//! Figure 18 (§6.10): services that scatter, 250 ms in the mean with a standard deviation of 125 ms.

use std::time::Duration;

use plimsoll_queueing::ServiceTime;

use super::cluster::Cluster;
use super::methods::ALL;
use super::show::{Case, distributions, notes, run_all, table};
use crate::Provenance::Simulated;
use crate::outcome::Outcome;
use crate::{Comparison, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig18",
    paper: &super::PAPER,
    figure: "Figure 18",
    title: "Responses while services scatter",
    claim: "With a service cost of 250 ± 125 ms BLOC's responses are better than those of least connections.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(3),
    takes_quick: Duration::from_secs(1),
    run,
};

/// The standard deviation over the mean.
const SCATTER: f64 = 0.5;

fn run(context: &Context) -> Result<Outcome, Failure> {
    // A lognormal variable of this mean and deviation: a normal one would be negative at times.
    let sigma = (1.0 + SCATTER * SCATTER).ln().sqrt();
    let cluster = Cluster { service: ServiceTime::Lognormal { sigma }, ..Cluster::new(context) };
    let all = run_all(context, ALL.map(|method| Case::new("", method, cluster)).into())?;
    let (lc, bloc) = (&all[0], &all[3]);
    let order = |what: &str, paper: &str, ours: [f64; 2]| {
        Comparison::order(Simulated, what, paper, ["BLOC", "LC"].into_iter().zip(ours), "s")
            .why("No request waits behind more than nine.")
    };
    let comparisons = vec![
        order("range p10 to p90, BLOC beside LC", "narrower", [bloc.range(), lc.range()]),
        order("p99, BLOC beside LC", "lower", [bloc.at(0.99), lc.at(0.99)]),
    ];
    let mut notes = notes();
    notes.push(
        "Services are lognormal with the paper's mean and standard deviation; its normal distribution has \
         2 % of negative ones, whatever became of those."
            .to_owned(),
    );
    let plot = distributions("Responses, services of 250 ± 125 ms", &all[..6]);
    let tables = vec![table(("set_up", ""), &all)];
    Ok(Outcome { tables, plots: vec![plot], comparisons, notes })
}
