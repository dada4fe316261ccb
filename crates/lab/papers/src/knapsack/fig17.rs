//! Figure 17 (appendix B): a tenth more traffic on the pool of Table 3.
//!
//! The paper notices it when all latencies rise, and shifts every curve to the left. Where the balancer
//! counts requests nothing needs to be noticed: curves are over requests per second, and another rate is
//! another packing of the same curves. Both are run, in simulated time, and held against the best split.

use std::time::Duration;

use plimsoll_model::Objective;
use plimsoll_sim::Method;

use super::baselines::changed;
use super::dynamics::episode::{self, Length};
use super::dynamics::seen::{Seen, groups, mean};
use super::dynamics::{self, Disturbance, GROUPS, WAYS, Way, optimum, tables};
use crate::outcome::{Comparison, Outcome, Verdict};
use crate::plot::{Axis, Bars, Plot};
use crate::{Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig17",
    paper: &super::PAPER,
    figure: "Figure 17",
    title: "Traffic grows by 10 %: weights before and after, and the time it takes",
    claim: "DIP-25 to DIP-30 take most of a tenth more traffic, and no backend is overloaded.",
    provenance: &[Provenance::Simulated, Provenance::Emulated],
    takes: Duration::from_secs(360),
    takes_quick: Duration::from_secs(13),
    run,
};

const WHAT: Disturbance = Disturbance::Traffic;
/// The last of the paper's groups that it names as taking most: DIP-25 to DIP-30.
const LARGE: std::ops::Range<usize> = 2..5;
/// The paper's time for the ILP of 30 backends, seconds.
const THEIR_ILP_S: f64 = 0.12;

fn run(context: &Context) -> Result<Outcome, Failure> {
    let length = context.pick(
        Length { learning_s: 100.0, settling_s: 30.0, measured_s: 30.0 },
        Length { learning_s: 400.0, settling_s: 60.0, measured_s: 120.0 },
    );
    let runs = episode::every_way(context, &[WHAT], length, context.pick(1, 5), 0.0..0.3)?;
    let best_ms = optimum::mean_after_ms(WHAT, context.pick(50_000, 1_000_000), context.seed)?;
    let shown: Vec<&Seen> = WAYS[..5]
        .iter()
        .filter_map(|way| runs.iter().find(|seen| (seen.method, seen.way) == *way))
        .collect();
    let title = "A tenth more traffic: clients' mean, one run of each";
    let setting = dynamics::setting(context.seed);
    let happening = WHAT.happening();
    let methods =
        changed::through(context, &setting, &happening, changed::EMULATED_US, (0.3, 1.0))?;
    let mut plots = vec![weights_plot(&runs)?, tables::latencies("latency", title, &shown, 60.0)];
    plots.extend(changed::before_and_after("methods", WHAT.name(), &methods));
    Ok(Outcome {
        tables: vec![
            tables::runs(&runs, |_| Some(best_ms)),
            tables::weights(&runs, &[WHAT])?,
            changed::table(&[(WHAT.name(), methods)]),
        ],
        plots,
        comparisons: comparisons(&runs, best_ms)?,
        notes: vec![
            "Parts are of all traffic, as the paper's weights: a group that takes a tenth more \
             requests keeps its part."
                .to_owned(),
            "Plimsoll counts the traffic, so there is nothing to notice (first_noticed_s is empty): \
             new_plan_s is the first plan after the change."
                .to_owned(),
            "The paper's ways are rebuilt in this controller, under exponential service times: a \
             threshold on the mean of a few requests then fires on noise, and every false alarm moves \
             weights. Under steadier service times it would fire less."
                .to_owned(),
            "best_static_split_ms: weights from the true curves under round robin; leastconn may go \
             below it."
                .to_owned(),
        ]
        .into_iter()
        .chain(changed::notes())
        .collect(),
    })
}

fn of(runs: &[Seen], method: Method, way: Way) -> impl Iterator<Item = &Seen> + Clone {
    runs.iter().filter(move |seen| (seen.method, seen.way) == (method, way))
}

fn weights_plot(runs: &[Seen]) -> Result<Plot, Failure> {
    let ours = groups(of(runs, Method::RoundRobin, Way::Plimsoll));
    let best = tables::best_groups(WHAT, Objective::Traffic)?;
    let paper = tables::best_groups(WHAT, Objective::Sum)?;
    let more = |parts: &[(f64, f64)]| {
        parts.iter().map(|(before, after)| Some(100.0 * (after / before - 1.0))).collect()
    };
    let series = vec![
        Bars::new("Plimsoll, roundrobin", Provenance::Simulated, more(&ours)),
        Bars::new(tables::BEST[0].0, Provenance::Simulated, more(&best)),
        Bars::new(tables::BEST[1].0, Provenance::Simulated, more(&paper)),
    ];
    let names = GROUPS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let y = Axis::linear("change of the weight (%)");
    Ok(Plot::bars("weights", "Weights by type, traffic +10 %", "backends", y, names, series))
}

/// The part of the additional requests that DIP-25 to DIP-30 take.
fn taken(parts: &[(f64, f64)]) -> f64 {
    let grown = super::dynamics::GROWN;
    let more: f64 = parts[LARGE].iter().map(|(before, after)| grown * after - before).sum();
    more / (grown - 1.0)
}

fn comparisons(runs: &[Seen], best_ms: f64) -> Result<Vec<Comparison>, Failure> {
    let plimsoll = of(runs, Method::RoundRobin, Way::Plimsoll);
    let ours = taken(&groups(plimsoll.clone()));
    let by_sum = taken(&tables::best_groups(WHAT, Objective::Sum)?);
    let by_mean = taken(&tables::best_groups(WHAT, Objective::Traffic)?);
    let busiest = plimsoll.clone().map(|seen| seen.busiest).fold(0.0, f64::max);
    let planned = mean(plimsoll.clone().filter_map(|s| s.reaction.planned_s)).unwrap_or(f64::NAN);
    let later = mean(plimsoll.map(|seen| seen.later_ms)).unwrap_or(f64::NAN);
    let frozen = of(runs, Method::RoundRobin, Way::Frozen);
    let frozen = mean(frozen.map(|seen| seen.later_ms)).unwrap_or(f64::NAN);
    let one = |what: &str, paper: crate::Value, ours: f64, unit: &str, verdict, why: String| {
        let (what, unit) = (what.to_owned(), unit.to_owned());
        let provenance = Provenance::Simulated;
        Comparison { what, paper, ours: ours.into(), unit, verdict, provenance, why }
    };
    let agrees = |yes| if yes { Verdict::Agrees } else { Verdict::Differs };
    Ok(vec![
        one(
            "additional requests that DIP-25 to DIP-30 take",
            "most".into(),
            ours,
            "part of them",
            agrees(ours > 0.5),
            format!(
                "Half of the pool's capacity is theirs. Exact queues packed for the mean client give them \
                 {by_mean:.2}, packed by the paper's unweighted sum {by_sum:.2}: large ones are the \
                 fuller already. The paper's curves come from its own machines."
            ),
        ),
        one(
            "the busiest backend afterwards",
            "not overloaded".into(),
            busiest,
            "part of its capacity",
            agrees(busiest < 1.0),
            "The pool as a whole is used to 0.77.".to_owned(),
        ),
        one(
            "time until new weights",
            THEIR_ILP_S.into(),
            planned,
            "s",
            Verdict::NotComparable,
            "The paper's is its ILP alone, without the time until the change is noticed, which it does \
             not give for traffic; ours is all of it, the wait until the rate is sure included."
                .to_owned(),
        ),
        one(
            "clients' mean afterwards over that of the best static split",
            "not given".into(),
            later / best_ms,
            "",
            Verdict::NotComparable,
            format!("With the weights of before it is {:.3}.", frozen / best_ms),
        ),
    ])
}
