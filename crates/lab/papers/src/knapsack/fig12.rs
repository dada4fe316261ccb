//! Figure 12 (§6.2): the thirty backends of Table 3 without weights, CPU utilisation and latency by type.

use std::time::Duration;

use super::baselines::{Both, Setting, bars, compare_cuts, compare_means, table};
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
    takes: Duration::from_secs(170),
    takes_quick: Duration::from_secs(9),
    run,
};

/// F-series cores are 15-20 % faster (§6, set-up).
const SPEED_OF_EIGHT: f64 = 1.175;

const LANES: [&str; 7] = [
    "roundrobin",
    "leastconn",
    "random(2)",
    "KLB",
    "Plimsoll roundrobin",
    "Plimsoll leastconn",
    "best static split",
];
const QUICK_LANES: [&str; 4] = ["roundrobin", "leastconn", "KLB", "Plimsoll leastconn"];

fn run(context: &Context) -> Result<Outcome, Failure> {
    let setting = Setting::table3(1.0, SPEED_OF_EIGHT, context.seed);
    let both = Both::run(context, &setting, &LANES, &QUICK_LANES, 1.0)?;
    let kinds = &setting.kinds;
    let mut comparisons = Vec::new();
    for (from, to, paper) in [
        ("roundrobin", "KLB", 45.0),
        ("leastconn", "KLB", 23.0),
        ("roundrobin", "Plimsoll leastconn", 45.0),
        ("leastconn", "Plimsoll leastconn", 23.0),
    ] {
        for pair in both.pairs(from, to) {
            comparisons.push(compare_cuts(kinds, pair, None, paper, WHY));
            comparisons.push(compare_means(pair));
        }
    }
    let mut plots =
        bars("emulated", "Thirty backends, no weights", kinds, &both.nearest_to_real(&LANES));
    let others = ["P2 by latency", "peak EWMA", "least_time", "ILP on CPU", "central queue"];
    let simulated: Vec<_> = ["Plimsoll roundrobin", "Plimsoll leastconn", "best static split"]
        .iter()
        .chain(&others)
        .map(|name| both.sim(name, true))
        .collect();
    plots.extend(bars("simulated", "Other methods, open clients", kinds, &simulated));
    let notes = both.notes(&setting);
    Ok(Outcome { tables: vec![table(kinds, &both.rows)], plots, comparisons, notes })
}

const WHY: &str = "The cut depends on how clients send and how service times scatter, neither of which the \
                   paper tells; ours are exponential, which makes queues longer than the paper's uniform \
                   computation does.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_methods_that_haproxy_has() {
        for name in LANES.iter().chain(&QUICK_LANES) {
            assert!(super::super::baselines::method(name).lane.is_some(), "{name}");
        }
    }
}
