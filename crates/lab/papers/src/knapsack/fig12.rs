//! Figure 12 (§6.2): the thirty backends of Table 3 without weights, CPU utilisation and latency by type.

use std::time::Duration;

use super::baselines::{Both, UNWEIGHTED, thirty};
use crate::outcome::Outcome;
use crate::{Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig12",
    paper: &super::PAPER,
    figure: "Figure 12",
    title: "Thirty unequal backends without weights: CPU and latency by type",
    claim: "On the pool of Table 3 at 70 % load KLB cuts the latency of a type of backends by up to 45 % \
            against round robin and by up to 23 % against least connection.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: Duration::from_secs(230),
    takes_quick: Duration::from_secs(9),
    run,
};

fn run(context: &Context) -> Result<Outcome, Failure> {
    let both = Both::run(context, thirty(context.seed), (0.0, 1.0))?;
    let pairs = [
        ("roundrobin", "KLB", 45.0),
        ("leastconn", "KLB", 23.0),
        ("roundrobin", "Plimsoll leastconn", 45.0),
        ("leastconn", "Plimsoll leastconn", 23.0),
    ];
    let comparisons = both.cuts(&pairs, None, WHY);
    Ok(Outcome { comparisons, ..both.outcome("Thirty backends, no weights", &UNWEIGHTED) })
}

const WHY: &str = "The cut depends on how clients send and how service times scatter, neither of which the \
                   paper tells; ours are exponential, which makes queues longer than the paper's uniform \
                   computation does.";
