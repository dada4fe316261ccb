//! Figure 6 (§5.2): completion times by the servers' load, when connections go in turn and when they go by
//! hash.

use std::time::Duration;

use plimsoll_l4::Policy;
use plimsoll_testbed::Service as Work;

use super::show::{lines, trials as table};
use super::trial::{self, Named, Trial, p99_ms};
use crate::Provenance::Emulated;
use crate::outcome::Outcome;
use crate::plot::{Axis, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cheetah-fig6",
    paper: &super::PAPER,
    figure: "Figure 6",
    title: "Completion times over load, in turn and by hash",
    claim: "In turn, the 99th percentile of flow completion times is two to three times lower than by hash.",
    provenance: &[Provenance::Emulated],
    takes: Duration::from_secs(5 * 60),
    takes_quick: Duration::from_secs(12),
    run,
};

/// Half of the paper's 64.
const SERVERS: usize = 32;
const LOADS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];
/// Ten to twenty times the paper's, so that two cores bear the connections.
const SERVICE: Duration = Duration::from_millis(100);
const TURN: Named = ("round_robin", Policy::RoundRobin);
const POLICIES: [Named; 3] = [TURN, ("hash", Policy::Hash), ("maglev", Policy::Maglev)];
/// How many times lower, at the least and at the most.
const THEIRS: (f64, f64) = (2.0, 3.0);

fn run(context: &Context) -> Result<Outcome, Failure> {
    let servers = context.pick(4, SERVERS);
    let loads: &[f64] = context.pick(&[0.7], &LOADS);
    let policies = &POLICIES[..context.pick(2, 3)];
    let (warmup, measured) = context.pick((1, 2), (3, 15));
    let pools = loads.iter().map(|&load| (servers, load));
    let plans = trial::plans(pools, policies, (warmup, measured));
    let trials = trial::run_all(context, Work::deterministic(SERVICE), &plans)?;
    let notes = vec![
        trial::note("100 ms of work for every request"),
        format!(
            "Scaled to this machine: {servers} servers instead of 64, ten requests per second each instead of 100 to \
             200, {measured} s a point. Percentiles at a load do not depend on the scale of time."
        ),
    ];
    Ok(Outcome {
        tables: vec![table("completion", "Completion times", &trials)?],
        plots: vec![plot(&trials, policies)],
        comparisons: comparisons(&trials),
        notes,
    })
}

fn plot(all: &[Trial], policies: &[Named]) -> Plot {
    Plot::lines(
        "p99",
        "99th percentile of the completion times",
        Axis::linear("load (% of the servers' capacity)").from_to(45.0, 95.0),
        Axis::log("p99 (ms)"),
        lines(all, policies, |one| (100.0 * one.load, one.p99_ms())),
    )
}

/// Hash over turns at each load.
fn comparisons(all: &[Trial]) -> Vec<Comparison> {
    let loads = all.iter().filter(|one| one.policy == TURN.0).map(|one| one.load);
    loads
        .map(|load| {
            let ours = p99_ms(all, "hash", load) / p99_ms(all, TURN.0, load);
            let what = format!("99th percentile, hash to turns, load {load}");
            let paper = (THEIRS.0, THEIRS.1, Tolerance::Part(0.1));
            Comparison::range(Emulated, what, paper, ours, "times").why(
                "The ratio grows with the load; the paper gives one range for all. Our servers do nothing beside \
                 the requests' work, so that turns leave hardly any queue.",
            )
        })
        .collect()
}
