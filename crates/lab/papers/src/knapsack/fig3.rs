//! Figure 3 (§2.1): round robin over three backends of which one loses capacity.

use plimsoll_policy::PolicyKind;

use super::trio::sweep::{self, Sweep, Swept};
use crate::Provenance::Emulated;
use crate::outcome::Outcome;
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig3",
    paper: &super::PAPER,
    figure: "Figure 3",
    title: "Round robin while one of three backends loses capacity",
    claim: "Round robin goes on sending a third of the requests to a backend that has lost capacity: \
            its CPU nears 100 % before the others', and its latency rises above theirs.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: std::time::Duration::from_secs(170),
    takes_quick: std::time::Duration::from_secs(12),
    run,
};

fn run(context: &Context) -> Result<Outcome, Failure> {
    let sweep = Sweep { balance: "roundrobin", policy: PolicyKind::RoundRobin };
    sweep.figure(context, compare)
}

fn compare(_: &Context, swept: &Swept) -> Result<Vec<Comparison>, Failure> {
    let points = &swept.points;
    let (Some(equal), Some(least)) = (points.first(), points.last()) else {
        return Ok(Vec::new());
    };
    let cpu = equal.emulated.backends.iter().map(|b| b.cpu).sum::<f64>() / 3.0;
    let (full, idle) = (least.emulated.low().cpu, least.emulated.high().cpu);
    let ratios: Vec<(String, f64)> = points
        .iter()
        .map(|p| (format!("at {:.0} %", 100.0 * p.ratio), p.emulated.latency_ratio()))
        .collect();
    let ratios = ratios.iter().map(|(at, ratio)| (at.as_str(), *ratio));
    let short = "A short run; the simulated rows have the long-run values.";
    let (slow, others) = ("CPU of the slow backend at the lowest ratio", "CPU at the lowest ratio");
    let latency = "latency of the slow backend over that of the others";
    let theirs = (100.0 * sweep::EQUAL_CPU, Tolerance::Absolute(6.0));
    let close = ("close to 100", Bound::AtLeast(90.0));
    let (full, idle) = (100.0 * full, 100.0 * idle);
    Ok(vec![
        Comparison::number(Emulated, "CPU with three equal backends", theirs, 100.0 * cpu, "%")
            .fitted("the number of clients, by simulation")
            .why("What is left is noise of the run."),
        Comparison::bound(Emulated, slow, close, full, "%").why(short),
        Comparison::order(
            Emulated,
            others,
            "the slow backend's is the higher",
            [("others", idle), ("slow", full)],
            "%",
        )
        .why(short),
        Comparison::order(Emulated, latency, "grows as capacity falls", ratios, "×").why(short),
    ])
}
