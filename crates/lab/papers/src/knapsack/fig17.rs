//! Figure 17 (appendix B): a tenth more traffic on the pool of Table 3.
//!
//! The paper notices it when all latencies rise, and shifts every curve to the left. Where the balancer
//! counts requests nothing needs to be noticed: curves are over requests per second, and another rate is
//! another packing of the same curves. Both are run in simulated time and held against the best split; the
//! real daemon and a real HAProxy beside another that keeps the weights of before.

use std::time::Duration;

use plimsoll_model::Objective;
use plimsoll_sim::Method;

use super::baselines::changed;
use super::dynamics::episode::{self, Length};
use super::dynamics::seen::{Seen, groups, mean, median, standard_error};
use super::dynamics::{
    self, Disturbance, GROUPS, GROWN, LOAD, STEERINGS, Steering, emulated, optimum, tables,
};
use crate::outcome::{Cell, Outcome};
use crate::plot::{Axis, Bars, Plot};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig17",
    paper: &super::PAPER,
    figure: "Figure 17",
    title: "Traffic grows by 10 %: weights before and after, and the time it takes",
    claim: "DIP-25 to DIP-30 take most of a tenth more traffic, and no backend is overloaded.",
    provenance: &[Provenance::Simulated, Provenance::Emulated],
    takes: Duration::from_secs(500),
    takes_quick: Duration::from_secs(20),
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
    let mut runs = episode::every_steering(context, &[WHAT], length, context.pick(1, 5), 0.0..0.2)?;
    let best_ms = optimum::mean_after_ms(WHAT, context.pick(50_000, 1_000_000), context.seed)?;
    let shown: Vec<&Seen> = STEERINGS[..5]
        .iter()
        .filter_map(|steering| runs.iter().find(|seen| (seen.method, seen.steering) == *steering))
        .collect();
    let title = "A tenth more traffic: clients' mean, one run of each";
    let setting = dynamics::setting(context.seed);
    let happening = WHAT.happening();
    let real = real(context, 0.2..0.5)?;
    let methods =
        changed::through(context, &setting, &happening, changed::EMULATED_US, (0.5, 1.0))?;
    let mut plots = vec![weights_plot(&runs)?, tables::latencies("latency", title, &shown, 60.0)];
    plots.extend(changed::before_and_after("methods", WHAT.name(), &methods));
    let comparisons = comparisons(&runs, &real, best_ms)?;
    runs.extend(real);
    Ok(Outcome {
        tables: vec![
            tables::runs(&runs, |_| Some(best_ms))?,
            tables::weights(&runs, &[WHAT])?,
            changed::table(&[(WHAT.name(), methods)])?,
        ],
        plots,
        comparisons,
        notes: vec![
            "Parts are of all traffic, as the paper's weights: a group that takes a tenth more \
             requests keeps its part."
                .to_owned(),
            "Plimsoll counts the traffic, so there is nothing to notice (first_noticed_s is empty): \
             new_plan_s is the first plan packed for more than half of the additional requests."
                .to_owned(),
            "The paper's methods are rebuilt in this controller, under exponential service times: a \
             threshold on the mean of a few requests then fires on noise, and every false alarm moves \
             weights. Under steadier service times it would fire less."
                .to_owned(),
            "Emulated requests take 80 ms; parts of the traffic are weights there."
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

/// The real daemon over a real HAProxy, and the same weights left alone.
fn real(context: &Context, progress: std::ops::Range<f64>) -> Result<Vec<Seen>, Failure> {
    let seconds = Duration::from_secs;
    let length = |learning, before, settling, measured, load| emulated::Length {
        learning: seconds(learning),
        before: seconds(before),
        settling: seconds(settling),
        measured: seconds(measured),
        healing: seconds(0),
        load,
    };
    // So short a time teaches nothing: at 0.4 equal weights overload no backend.
    let length = context.pick(length(3, 1, 1, 2, 0.4), length(60, 20, 30, 25, LOAD));
    emulated::run(context, &[WHAT], length, progress)
}

fn of(runs: &[Seen], method: Method, steering: Steering) -> impl Iterator<Item = &Seen> + Clone {
    runs.iter().filter(move |seen| (seen.method, seen.steering) == (method, steering))
}

fn weights_plot(runs: &[Seen]) -> Result<Plot, Failure> {
    let ours = groups(of(runs, Method::RoundRobin, Steering::Plimsoll));
    let best = tables::best_groups(WHAT, Objective::Traffic)?;
    let paper = tables::best_groups(WHAT, Objective::Sum)?;
    let change = |(before, after): (f64, f64)| 100.0 * (after / before - 1.0);
    let more = |parts: &[(f64, f64)]| parts.iter().map(|part| Some(change(*part))).collect();
    let runs = of(runs, Method::RoundRobin, Steering::Plimsoll);
    let each = |range| runs.clone().map(move |seen| change(seen.group(range)));
    let errors = GROUPS.iter().map(|(_, range)| standard_error(each(range))).collect();
    let series = vec![
        Bars::new("Plimsoll, roundrobin", Provenance::Simulated, more(&ours)).errors(errors),
        Bars::new(tables::BEST[0].0, Provenance::Simulated, more(&best)),
        Bars::new(tables::BEST[1].0, Provenance::Simulated, more(&paper)),
    ];
    let names = GROUPS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let y = Axis::linear("change of the weight (%)");
    Ok(Plot::bars("weights", "Weights by type, traffic +10 %", "backends", y, names, series))
}

/// The part of the additional requests that DIP-25 to DIP-30 take.
fn taken(parts: &[(f64, f64)]) -> f64 {
    let more: f64 = parts[LARGE].iter().map(|(before, after)| GROWN * after - before).sum();
    more / (GROWN - 1.0)
}

fn comparisons(runs: &[Seen], real: &[Seen], best_ms: f64) -> Result<Vec<Comparison>, Failure> {
    let mut all = Vec::new();
    for (runs, from) in [(runs, Provenance::Simulated), (real, Provenance::Emulated)] {
        let plimsoll: Vec<&Seen> = of(runs, Method::RoundRobin, Steering::Plimsoll).collect();
        all.push(taken_comparison(&plimsoll, from)?);
        all.push(busiest_comparison(&plimsoll, from));
        all.push(planned_comparison(&plimsoll, from));
    }
    let later =
        |runs, steering| mean(of(runs, Method::RoundRobin, steering).map(|seen| seen.later_ms));
    let over = |from, what: &str, ours: Option<f64>, than: Option<f64>, why: String| {
        let ours = ours.zip(than).map_or(f64::NAN, |(ours, than)| ours / than);
        Comparison::silent(from, what, "not given", ours, "").why(why)
    };
    let (ours, frozen) = (later(runs, Steering::Plimsoll), later(runs, Steering::Frozen));
    all.push(over(
        Provenance::Simulated,
        "clients' mean afterwards over that of the best static split",
        ours,
        Some(best_ms),
        format!("With the weights of before it is {:.3}.", frozen.unwrap_or(f64::NAN) / best_ms),
    ));
    all.push(over(
        Provenance::Emulated,
        "clients' mean afterwards over that with the weights of before",
        later(real, Steering::Plimsoll),
        later(real, Steering::Frozen),
        "One run, two lanes side by side, each with arrivals of its own.".to_owned(),
    ));
    Ok(all)
}

fn taken_comparison(plimsoll: &[&Seen], from: Provenance) -> Result<Comparison, Failure> {
    let ours = taken(&groups(plimsoll.iter().copied()));
    let by_sum = taken(&tables::best_groups(WHAT, Objective::Sum)?);
    let by_mean = taken(&tables::best_groups(WHAT, Objective::Traffic)?);
    let what = "additional requests that DIP-25 to DIP-30 take";
    let scatter = match from {
        Provenance::Emulated => {
            " One run: a tenth of the traffic is little beside what weights move by themselves."
        }
        _ => "",
    };
    let why = format!(
        "Half of the pool's capacity is theirs. Exact queues packed for the mean client give them \
         {by_mean:.2}, packed by the paper's unweighted sum {by_sum:.2}: large ones are the fuller \
         already. The paper's curves come from its own machines.{scatter}"
    );
    let paper = ("most", Bound::AtLeast(0.5));
    Ok(Comparison::bound(from, what, paper, ours, "part of them").why(why))
}

fn busiest_comparison(plimsoll: &[&Seen], from: Provenance) -> Comparison {
    let busiest = plimsoll.iter().map(|seen| seen.busiest).fold(0.0, f64::max);
    let (what, unit) = ("the busiest backend afterwards", "part of its capacity");
    let learned = match from {
        Provenance::Emulated => {
            " Learned behind a real HAProxy for a minute, weights are still rough."
        }
        _ => "",
    };
    let why = format!("The pool as a whole is used to {:.2}.{learned}", GROWN * LOAD);
    let paper = ("not overloaded", Bound::AtMost(1.0));
    Comparison::bound(from, what, paper, busiest, unit).why(why)
}

fn planned_comparison(plimsoll: &[&Seen], from: Provenance) -> Comparison {
    let (planned_s, there) = median(plimsoll.iter().map(|seen| seen.reaction.planned_s));
    let ours = planned_s.map_or_else(|| Cell::from("never in most runs"), Cell::from);
    let why = format!(
        "The paper's is its ILP alone, without the time until the change is noticed, which it does not give \
         for traffic; ours is all of it, the wait until the rate is sure included. Median; in {there} of \
         {} runs a plan for most of the additional requests came.",
        plimsoll.len()
    );
    let what = "time until new weights";
    Comparison::silent(from, what, THEIR_ILP_S, ours, "s").why(why)
}
