//! Figure 4 (§2.1): the same under leastconn, and every other method at the paper's example of 60 %.

use plimsoll_policy::PolicyKind;

use super::trio::others;
use super::trio::sweep::{Sweep, Swept, simulate};
use crate::outcome::{Comparison, Outcome, Verdict};
use crate::{Context, Experiment, Failure, Provenance};

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
        "With hardly more clients than cores, none of which rests, leastconn leaves no core idle and is \
         the limit already: weights under it, learned or given, can only cost. Under round robin they \
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
        let share = real.low().share;
        found.push(Comparison {
            what: "connections of the slow backend at 60 %".to_owned(),
            paper: percent(THEIR_SHARE).into(),
            ours: percent(share).into(),
            unit: "%".to_owned(),
            verdict: Verdict::within(0.1, THEIR_SHARE, share),
            provenance: Provenance::Emulated,
            why: "Leastconn splits by how long requests stay: 0.6 / 2.6 = 23 % where all are busy; an \
                  antagonist that takes cache as well as CPU need not slow each request in proportion."
                .to_owned(),
        });
        let (lc, rr) = (&point.simulated, &robin);
        let gap = |seen: &super::trio::Seen| seen.low().cpu - seen.high().cpu;
        found.push(Comparison {
            what: "CPU of the slow backend above the others at 60 %, leastconn beside round robin"
                .to_owned(),
            paper: "slightly smaller".into(),
            ours: format!("{:.0} beside {:.0} points", percent(gap(lc)), percent(gap(rr))).into(),
            unit: String::new(),
            verdict: if (0.5..1.0).contains(&(gap(lc) / gap(rr))) {
                Verdict::Agrees
            } else {
                Verdict::Differs
            },
            provenance: Provenance::Simulated,
            why: "Our clients are hardly more than there are cores and never rest, so leastconn keeps every \
                  core busy and CPU shows no imbalance; latency does. The paper's others were idle in part."
                .to_owned(),
        });
        found.push(Comparison {
            what: "latency of the slow backend over that of the others at 60 %".to_owned(),
            paper: "higher".into(),
            ours: format!("{:.2}×", real.latency_ratio()).into(),
            unit: String::new(),
            verdict: Verdict::agrees_if(real.latency_ratio() > 1.05),
            provenance: Provenance::Emulated,
            why: "A short run; the simulated row has the long-run value.".to_owned(),
        });
    }
    let mean = |name: &str| swept.others.lane(name).map(|ran| ran.mean_ms);
    if let (Some(plain), Some(ours)) = (mean("leastconn"), mean("Plimsoll leastconn")) {
        found.push(Comparison {
            what: "mean latency at 60 %: Plimsoll under leastconn beside leastconn".to_owned(),
            paper: "not in this figure".into(),
            ours: format!("{ours:.0} beside {plain:.0} ms").into(),
            unit: String::new(),
            verdict: Verdict::NotComparable,
            provenance: Provenance::Emulated,
            why:
                "The paper compares on three backends in Figure 14 only; see the note on the limit."
                    .to_owned(),
        });
    }
    Ok(found)
}
