//! Figure 8 (§5.2): completion times when one request in ten takes 500 ms, under policies that look at the
//! servers' load and under those that do not.

use std::time::Duration;

use plimsoll_l4::{Load, Policy};
use plimsoll_testbed::{Service as Work, ServiceKind};

use super::show::trials as table;
use super::trial::{self, Named, Trial, p99_ms};
use crate::Provenance::Emulated;
use crate::outcome::Outcome;
use crate::plot::{Axis, Bars, Plot};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cheetah-fig8",
    paper: &super::PAPER,
    figure: "Figure 8",
    title: "Completion times of a bimodal load",
    claim: "AWRR and power of two lower the 99th percentile 2.2 and 1.9 times against a hash; turns do not.",
    provenance: &[Provenance::Emulated],
    takes: Duration::from_secs(5 * 60),
    takes_quick: Duration::from_secs(12),
    run,
};

const SERVERS: usize = 32;
/// The paper does not say; at half of the capacity, most servers are idle when a slow request ends.
const LOADS: [f64; 2] = [0.3, 0.5];
const SLOW_SHARE: f64 = 0.1;
const SLOW_MS: f64 = 500.0;
/// "A few hundred microseconds."
const FAST_MS: f64 = 0.3;
const POLICIES: [Named; 6] = [
    ("hash", Policy::Hash),
    ("maglev", Policy::Maglev),
    ("round_robin", Policy::RoundRobin),
    ("awrr", Policy::Awrr(Load::Connections)),
    ("power_of_two", Policy::PowerOfTwo),
    ("least_connections", Policy::LeastConnections),
];
/// How many times lower the percentile is than by hash.
const THEIRS: [(&str, f64); 2] = [("awrr", 2.2), ("power_of_two", 1.9)];

fn mean_ms() -> f64 {
    SLOW_SHARE * SLOW_MS + (1.0 - SLOW_SHARE) * FAST_MS
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let servers = context.pick(4, SERVERS);
    let loads: &[f64] = context.pick(&[0.5], &LOADS);
    let policies =
        if context.quick { [&POLICIES[..1], &POLICIES[3..5]].concat() } else { POLICIES.to_vec() };
    let (warmup, measured) = context.pick((1, 2), (4, 20));
    let work = Work {
        mean: Duration::from_secs_f64(mean_ms() / 1e3),
        kind: ServiceKind::Bimodal { slow_share: SLOW_SHARE, slow_factor: SLOW_MS / FAST_MS },
    };
    let pools = loads.iter().map(|&load| (servers, load));
    let plans = trial::plans(pools, &policies, (warmup, measured));
    let trials = trial::run_all(context, work, &plans)?;
    let notes = vec![
        trial::note("500 ms of work for one request in ten, 0.3 ms for the others"),
        format!(
            "Scaled to this machine: {servers} servers instead of 64, {measured} s each. The paper does not say how \
             loaded its servers were."
        ),
        "The load that policies look at are the connections which the balancer itself counts (SYN, FIN); awrr \
         follows it ten times a second. In the paper servers report their load over HTTP."
            .to_owned(),
    ];
    Ok(Outcome {
        tables: vec![table("bimodal", "Completion times of a bimodal load", &trials)?],
        plots: vec![plot(&trials, &policies, loads)],
        comparisons: comparisons(&trials, loads),
        notes,
    })
}

fn plot(all: &[Trial], policies: &[Named], loads: &[f64]) -> Plot {
    let bars = |load: &f64| {
        let values = policies.iter().map(|(name, _)| Some(p99_ms(all, name, *load))).collect();
        Bars::new(&format!("load {load}"), Provenance::Emulated, values)
    };
    Plot::bars(
        "p99",
        "99th percentile of the completion times",
        "",
        Axis::linear("p99 (ms)"),
        policies.iter().map(|(name, _)| (*name).to_owned()).collect(),
        loads.iter().map(bars).collect(),
    )
}

fn comparisons(all: &[Trial], loads: &[f64]) -> Vec<Comparison> {
    let mut rows = Vec::new();
    for &load in loads {
        let lower = |policy: &str| p99_ms(all, "hash", load) / p99_ms(all, policy, load);
        for (policy, theirs) in THEIRS {
            let what = format!("99th percentile, hash to {policy}, load {load}");
            let paper = (theirs, Tolerance::Part(0.25));
            rows.push(Comparison::number(Emulated, what, paper, lower(policy), "times").why(
                "The paper's load is not known, and the ratio depends on it. awrr moves shares of the next turns, \
                 and half a second of work is over before they matter; power of two looks at every connection.",
            ));
        }
        if all.iter().any(|one| one.policy == "least_connections") {
            let what = format!("99th percentile, hash to least connections, load {load}");
            let paper = ("performs poorly, below 1", Bound::AtMost(1.0));
            let ours = lower("least_connections");
            rows.push(Comparison::bound(Emulated, what, paper, ours, "times").why(
                "The paper's balancer sends everything to one server until the next report, 10 ms later; ours \
                 counts the connections that it opens itself.",
            ));
        }
    }
    rows
}
