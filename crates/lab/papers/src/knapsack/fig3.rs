//! Figure 3 (§2.1): round robin over three backends of which one loses capacity.

use plimsoll_policy::PolicyKind;

use super::trio::sweep::{self, Sweep, Swept};
use crate::outcome::{Comparison, Outcome, Verdict};
use crate::{Context, Experiment, Failure, Provenance};

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
    let percent = |value: f64| format!("{:.0} %", 100.0 * value);
    let cpu = equal.emulated.backends.iter().map(|b| b.cpu).sum::<f64>() / 3.0;
    let full = least.emulated.low().cpu;
    let idle = least.emulated.high().cpu;
    let ratios: Vec<f64> = points.iter().map(|p| p.emulated.latency_ratio()).collect();
    let grows = ratios.last() > ratios.first();
    let named = |(ratio, p): (&f64, &sweep::Point)| format!("{ratio:.1}× at {}", percent(p.ratio));
    let shown: Vec<String> = ratios.iter().zip(points).map(named).collect();
    let comparison = |what: &str, paper: &str, ours: String, verdict, why: &str| Comparison {
        what: what.to_owned(),
        paper: paper.into(),
        ours: ours.into(),
        unit: String::new(),
        verdict,
        provenance: Provenance::Emulated,
        why: why.to_owned(),
    };
    Ok(vec![
        comparison(
            "CPU with three equal backends",
            "close to 80 %",
            percent(cpu),
            Verdict::agrees_if((cpu - sweep::EQUAL_CPU).abs() <= 0.06),
            "The number of clients is chosen so by simulation; what is left is luck of the run.",
        ),
        comparison(
            "CPU of the slow backend at the lowest ratio",
            "close to 100 %",
            format!("{}, the others {}", percent(full), percent(idle)),
            Verdict::agrees_if(full >= 0.9 && idle < full),
            "A short run; the simulated row has the long-run value.",
        ),
        comparison(
            "latency of the slow backend over that of the others",
            "grows as capacity falls",
            shown.join(", "),
            Verdict::agrees_if(grows),
            "A short run; the simulated rows have the long-run values.",
        ),
    ])
}
