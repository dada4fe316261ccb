//! Figure 4 (§2.1): the same under leastconn, and every other method at the paper's example of 60 %.

use plimsoll_policy::PolicyKind;

use super::trio::others;
use super::trio::sweep::{Sweep, Swept, simulate};
use crate::Provenance::{Emulated, Simulated};
use crate::outcome::Outcome;
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig4",
    paper: &super::PAPER,
    figure: "Figure 4",
    title: "Leastconn while one of three backends loses capacity",
    claim: "Leastconn is hardly better than round robin: at 60 % capacity the slow backend still gets \
            about 27 % of the connections, is fully busy and answers later.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: std::time::Duration::from_secs(170),
    takes_quick: std::time::Duration::from_secs(12),
    run,
};

/// Part of the connections that the paper's slow backend got at 60 %.
const THEIR_SHARE: f64 = 0.27;

fn run(context: &Context) -> Result<Outcome, Failure> {
    let sweep = Sweep { balance: "leastconn", policy: PolicyKind::LeastconnHaproxy };
    let mut outcome = sweep.figure(context, compare)?;
    outcome.notes.push(
        "With the clients fixed, the best static split serves more requests, not only faster ones: by \
         Little's law mean latency is clients over throughput."
            .to_owned(),
    );
    outcome.notes.push(
        "With hardly more clients than cores, none of which rests, leastconn leaves no core idle, as the \
         central queue does: weights under it, learned or given, can only cost. Under round robin they \
         help, as far as they were learned in 40 s."
            .to_owned(),
    );
    Ok(outcome)
}

fn compare(context: &Context, swept: &Swept) -> Result<Vec<Comparison>, Failure> {
    let (points, clients, seed) = (&swept.points, swept.clients, context.seed);
    let mut found = Vec::new();
    let percent = |value: f64| 100.0 * value;
    if let Some(point) = points.iter().find(|p| p.ratio == others::RATIO) {
        let (real, robin) = (
            &point.emulated,
            simulate(PolicyKind::RoundRobin, [1; 3], point.ratio, clients, seed)?,
        );
        let gap = |seen: &super::trio::Seen| percent(seen.low().cpu - seen.high().cpu);
        let gaps = [("leastconn", gap(&point.simulated)), ("roundrobin", gap(&robin))];
        let higher = ("higher", Bound::AtLeast(1.05));
        found.extend([
            Comparison::number(
                Emulated,
                "connections of the slow backend at 60 %",
                (percent(THEIR_SHARE), Tolerance::Part(0.1)),
                percent(real.low().share),
                "%",
            )
            .why(
                "Leastconn splits by how long requests stay: 0.6 / 2.6 = 23 % where all are busy; an \
                 antagonist that takes cache as well as CPU need not slow each request in proportion.",
            ),
            Comparison::order(
                Simulated,
                "CPU of the slow backend above the others at 60 %",
                "slightly less under leastconn",
                gaps,
                "points",
            )
            .why(
                "Our clients are hardly more than there are cores and never rest, so leastconn keeps every \
                 core busy and CPU shows no imbalance; latency does. The paper's others were idle in part.",
            ),
            Comparison::bound(
                Emulated,
                "latency of the slow backend over that of the others at 60 %",
                higher,
                real.latency_ratio(),
                "×",
            )
            .why("A short run; the simulated row has the long-run value."),
        ]);
    }
    let mean = |name: &str| swept.others.lane(name).map(|ran| ran.mean_ms);
    if let (Some(plain), Some(ours)) = (mean("leastconn"), mean("Plimsoll leastconn")) {
        let what = "mean latency at 60 %: Plimsoll under leastconn beside leastconn";
        let ours = format!("{ours:.0} beside {plain:.0} ms");
        let why =
            "The paper compares on three backends in Figure 14 only; see the note on the limit.";
        found.push(Comparison::silent(Emulated, what, "not in this figure", ours, "").why(why));
    }
    Ok(found)
}
