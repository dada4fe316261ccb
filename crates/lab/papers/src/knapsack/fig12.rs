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
    let mut comparisons = Vec::new();
    for (from, to, paper, why) in [
        ("roundrobin", "KLB", 45.0, BY_ROUND_ROBIN),
        ("leastconn", "KLB", 23.0, BY_LEASTCONN),
        ("roundrobin", "Plimsoll leastconn", 45.0, NOT_THE_PAPERS),
        ("leastconn", "Plimsoll leastconn", 23.0, NOT_THE_PAPERS),
    ] {
        comparisons.extend(both.cuts(&[(from, to, paper)], None, why));
    }
    Ok(Outcome { comparisons, ..both.outcome("Thirty backends, no weights", &UNWEIGHTED)? })
}

const BY_ROUND_ROBIN: &str = "An equal split asks the one-core backends for more than they serve, so what is \
                              cut off is as long as their queues are: a matter of how many clients wait in \
                              them, which the paper does not give.";
const BY_LEASTCONN: &str = "leastconn keeps queues alike whatever backends serve: what weights cut off a type \
                            is a matter of how many clients wait, and of how service times scatter, neither \
                            of which the paper gives (ours are exponential).";
const NOT_THE_PAPERS: &str = "The paper has weights under round robin alone; over leastconn the balancer \
                              counts what is in flight at each backend besides.";
