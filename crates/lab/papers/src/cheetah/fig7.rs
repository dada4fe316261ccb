//! Figure 7 (§5.2): how unevenly servers are loaded, when connections go in turn and when they go by hash.

use std::time::Duration;

use plimsoll_l4::Policy;
use plimsoll_testbed::Service as Work;

use super::show::{lines, trials as table};
use super::trial::{self, Named, Trial};
use crate::Provenance::Emulated;
use crate::outcome::Outcome;
use crate::plot::{Axis, Plot};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cheetah-fig7",
    paper: &super::PAPER,
    figure: "Figure 7",
    title: "Variance of the servers' load",
    claim: "The variance of the servers' load is considerably smaller in turn than by hash.",
    provenance: &[Provenance::Emulated],
    takes: Duration::from_secs(4 * 60),
    takes_quick: Duration::from_secs(12),
    run,
};

/// Half of the paper's 16, 32 and 64.
const SERVERS: [usize; 3] = [8, 16, 32];
const LOAD: f64 = 0.6;
const SERVICE: Duration = Duration::from_millis(100);
const TURN: Named = ("round_robin", Policy::RoundRobin);
const POLICIES: [Named; 3] = [TURN, ("hash", Policy::Hash), ("maglev", Policy::Maglev)];
/// What "considerably" is taken for.
const CONSIDERABLY: f64 = 3.0;

fn run(context: &Context) -> Result<Outcome, Failure> {
    let sizes: &[usize] = context.pick(&[4], &SERVERS);
    let policies = &POLICIES[..context.pick(2, 3)];
    let (warmup, measured) = context.pick((1, 3), (2, 20));
    let pools = sizes.iter().map(|&servers| (servers, LOAD));
    let plans = trial::plans(pools, policies, (warmup, measured));
    let trials = trial::run_all(context, Work::deterministic(SERVICE), &plans)?;
    let notes = vec![
        trial::note("100 ms of work for every request"),
        format!(
            "Scaled to this machine: {sizes:?} servers instead of 16, 32 and 64, six requests per second and server \
             instead of 100, {measured} s each. The load of a server is the part of the time that it worked; its \
             variance over the servers is of the whole time, and of each second in the mean. A second of ours \
             holds as many requests as 60 ms of theirs."
        ),
        "Click's own hash function, the paper's worst, is not repeated; hash and maglev use the product's keyed \
         hash."
            .to_owned(),
    ];
    Ok(Outcome {
        tables: vec![table("variance", "Variance of the servers' load at 60 %", &trials)?],
        plots: vec![plot(&trials, policies)],
        comparisons: comparisons(&trials),
        notes,
    })
}

fn plot(all: &[Trial], policies: &[Named]) -> Plot {
    Plot::lines(
        "variance",
        "Variance of the servers' load",
        Axis::linear("servers"),
        Axis::log("variance of the load"),
        lines(all, policies, |one| (one.servers as f64, one.variance)),
    )
}

fn comparisons(all: &[Trial]) -> Vec<Comparison> {
    let turns = all.iter().filter(|one| one.policy == TURN.0);
    let of = |one: &Trial| {
        let hash = all.iter().find(|two| two.policy == "hash" && two.servers == one.servers);
        hash.map_or(f64::NAN, |hash| hash.variance / one.variance)
    };
    turns
        .map(|one| {
            let what = format!("variance of the load, hash to turns, {} servers", one.servers);
            let paper = ("considerably larger", Bound::AtLeast(CONSIDERABLY));
            Comparison::bound(Emulated, what, paper, of(one), "times").why(
                "Too few requests, or a machine too busy to serve them in time: turns are even by construction.",
            )
        })
        .collect()
}
