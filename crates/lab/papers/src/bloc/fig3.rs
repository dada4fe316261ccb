//! Figure 3 (§2): responses while more frontends balance the same load without knowing of each other.

use std::time::Duration;

use super::cluster::Cluster;
use super::methods::{ALL, LC, P2C};
use super::show::{Case, Ran, distributions, notes, run_all, table};
use crate::Provenance::Simulated;
use crate::outcome::Outcome;
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig3",
    paper: &super::PAPER,
    figure: "Figure 3",
    title: "Responses under least connections with 1 to 40 frontends",
    claim: "From 1 to 40 frontends the range from the 10th to the 90th percentile widens almost five times, \
            and the tail grows by more than 40 %, while the median stays.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(3),
    takes_quick: Duration::from_secs(1),
    run,
};

const FRONTENDS: [u32; 5] = [1, 5, 10, 20, 40];

fn run(context: &Context) -> Result<Outcome, Failure> {
    let of = |frontends| Cluster { frontends, ..Cluster::new(context) };
    let mut cases = Vec::new();
    for method in [P2C, LC] {
        cases.extend(FRONTENDS.map(|n| Case::new(format!("1:{n}"), method, of(n))));
    }
    let others = ALL.into_iter().filter(|method| ![P2C, LC].contains(method));
    cases.extend(others.map(|method| Case::new("1:40", method, of(40))));
    let all = run_all(context, cases)?;
    // One frontend that looks at all backends knows as much as a central balancer; P2C does not.
    let (one, many) = (&all[FRONTENDS.len()], &all[FRONTENDS.len() - 1]);
    let ratio = |value: fn(&Ran) -> f64| value(many) / value(one);
    let (range, tail) = (ratio(Ran::range), ratio(|r| r.at(0.99)));
    let median = |what: &str, ran: &Ran| {
        let paper = (2.5, Tolerance::Part(0.1));
        Comparison::number(Simulated, format!("median, {what}"), paper, ran.at(0.5), "s")
            .why("Closed clients: the mean is users over throughput, whatever the method.")
    };
    let range_paper = (5.0, Tolerance::Part(0.2));
    let tail_paper = ("more than 1.4", Bound::AtLeast(1.4));
    let comparisons = vec![
        Comparison::number(Simulated, "p10 to p90, 40 frontends over one", range_paper, range, "×")
            .why(
                "One simulated frontend knows all queues without the jitter of a real cluster, so that its \
                 own range is much narrower.",
            ),
        Comparison::bound(Simulated, "p99, 40 frontends over one", tail_paper, tail, "×")
            .why("The tail depends on how unevenly requests reach the frontends."),
        median("one frontend", one),
        median("40 frontends", many),
    ];
    let plot = distributions("Least connections (P2C) by frontends", &all[..FRONTENDS.len()]);
    let tables = vec![table(("upstreams", ""), &all)];
    Ok(Outcome { tables, plots: vec![plot], comparisons, notes: notes() })
}
