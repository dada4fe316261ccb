//! §6.5: agents that report CPU, and weights that follow step by step, against learned curves.
//!
//! Four equal backends, one slowed to 75 %. The agents' way ends where utilisation is even; Plimsoll's
//! where the mean client waits least, which is a different place: the slower backend is used a little less.
//! The agents' time is until they measure an even load, as the paper's; and both are timed until the mean
//! client waits at most 3 % longer than under the best weights, by the true curves, for 30 s.

use std::time::Duration;

use super::baselines::changed;
use super::cpu::agents::{self, Awrr};
use super::cpu::{self, Track, controller, even_shares, mean_us};
use super::dynamics::Steering;
use super::dynamics::seen::{mean, median};
use crate::Provenance::Simulated;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Mark, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-sec6.5",
    paper: &super::PAPER,
    figure: "§6.5",
    title: "CPU agents and iterative weights against learned curves",
    claim: "Weights that follow the CPU load of agents step by step take four times as long to even it \
            out as KnapsackLB.",
    provenance: &[Provenance::Simulated, Provenance::Emulated],
    takes: Duration::from_secs(300),
    takes_quick: Duration::from_secs(8),
    run,
};

/// The paper's ratio of times.
const THEIR_RATIO: f64 = 4.0;
/// How often the paper's own controller measures, seconds: what its agents have as well, we suppose.
const THEIR_INTERVAL_S: f64 = 1.0;

/// Spreads of utilisation that may count as "roughly the same", which the paper does not define.
const SPREADS: [f64; 5] = [0.05, 0.03, 0.02, 0.015, 0.01];
/// The one at which the agents' iterations are the paper's four.
const ROUGHLY: f64 = 0.02;

/// What the plot shows, seconds.
const SHOWN_S: f64 = 120.0;

#[derive(Clone, Copy)]
enum Balancing {
    Agents(Awrr),
    Controller(Steering),
}

const fn agents(alpha: f64, interval_s: f64) -> Balancing {
    Balancing::Agents(Awrr { alpha, interval_s })
}

const ALL: [(&str, Balancing); 7] = [
    ("Plimsoll", Balancing::Controller(Steering::Plimsoll)),
    ("KnapsackLB, mended", Balancing::Controller(Steering::PaperMended)),
    ("agents, half steps, 1 s", agents(0.5, THEIR_INTERVAL_S)),
    ("agents, half steps, 5 s", agents(0.5, 5.0)),
    ("agents, half steps, 10 s", agents(0.5, 10.0)),
    ("agents, whole steps, 1 s", agents(0.0, THEIR_INTERVAL_S)),
    ("agents, whole steps, 10 s", agents(0.0, 10.0)),
];

struct Ran {
    name: &'static str,
    seed: u64,
    track: Track,
    good_s: Option<f64>,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let (seeds, seconds) = context.pick((2, 120.0), (20, 300.0));
    let (even, best) = (even_shares(), controller::best_shares()?);
    let mut all = Vec::new();
    for (i, (name, balancing)) in ALL.into_iter().enumerate() {
        context.progress(0.1 * i as f64 / ALL.len() as f64, name)?;
        for seed in (0..seeds).map(|n| context.seed.wrapping_add(n)) {
            context.check()?;
            let track = match balancing {
                Balancing::Agents(how) => agents::run(how, seconds, seed),
                Balancing::Controller(which) => controller::run(context, which, seconds, seed)?,
            };
            let good_s = track.good_s(mean_us(&best));
            all.push(Ran { name, seed, track, good_s });
        }
    }
    let (setting, happening) = (cpu::setting(context.seed), cpu::happening());
    let methods = changed::through(context, &setting, &happening, cpu::SERVICE_US, (0.1, 1.0))?;
    let mut plots = vec![plot(&all, context.seed, seconds)];
    plots.extend(changed::before_and_after("methods", "One of four at 75 %", &methods));
    let methods = changed::table(&[("one of four at 75 %", methods)])?;
    Ok(Outcome {
        tables: vec![runs_table(&all)?, summary_table(&all)?, iterations_table()?, methods],
        plots,
        comparisons: comparisons(&all),
        notes: notes(&even, &best).into_iter().chain(changed::notes()).collect(),
    })
}

fn runs_table(all: &[Ran]) -> Result<Table, Failure> {
    let mut table = Table::empty("runs", "Each run: from the change on");
    for Ran { name, seed, track, good_s } in all {
        row!(table, track.provenance, {
            balancing: *name;
            seed: *seed;
            noticed_or_stopped_s: track.stopped_s, "s";
            iterations: track.iterations, "programmed weights until then; Plimsoll: plans in all";
            good_s: *good_s, "s until clients' expected mean stays within 3 % of the least";
            even_s: track.even_s(), "s until true utilisation stays within 5 points for 30 s";
            later_ms: track.later_ms, "ms, clients' mean over the last minute";
        })?;
    }
    Ok(table)
}

fn of<'a>(all: &'a [Ran], name: &'static str) -> impl Iterator<Item = &'a Ran> + Clone {
    all.iter().filter(move |ran| ran.name == name)
}

fn summary_table(all: &[Ran]) -> Result<Table, Failure> {
    let mut table = Table::empty(
        "summary",
        "Medians over all runs; empty where less than half of them got there",
    );
    for (name, _) in ALL {
        let runs = of(all, name);
        let (good, good_runs) = median(runs.clone().map(|r| r.good_s));
        let (even, even_runs) = median(runs.clone().map(|r| r.track.even_s()));
        let (stopped, _) = median(runs.clone().map(|r| r.track.stopped_s));
        row!(table, Provenance::Simulated, {
            balancing: name;
            runs: runs.clone().count();
            noticed_or_stopped_s: stopped, "s";
            iterations: mean(runs.clone().map(|r| r.track.iterations as f64)), "mean";
            good_s: good, "s";
            good_runs: good_runs;
            even_s: even, "s";
            even_runs: even_runs;
            later_ms: mean(runs.map(|r| r.track.later_ms)), "ms, mean";
        })?;
    }
    Ok(table)
}

/// Iterations of exact readings; a packing of known curves takes one.
fn iterations_table() -> Result<Table, Failure> {
    let mut table = Table::empty(
        "iterations",
        "Iterations of exact CPU readings until utilisation is even; a packing of known curves takes one",
    );
    for same in SPREADS {
        let [half, whole] = [0.5, 0.0].map(|alpha| agents::exact_iterations(alpha, same));
        row!(table, Provenance::Simulated, {
            spread_points: 100.0 * same, "points";
            half_steps: half, "iterations";
            whole_steps: whole, "iterations";
        })?;
    }
    Ok(table)
}

/// The paper's ratio, if it is one of iterations.
fn iterations_comparison() -> Comparison {
    let what = "iterations of the agents, half steps and exact readings, where a packing takes one";
    let paper = (THEIR_RATIO, Tolerance::Absolute(0.0));
    let ours = agents::exact_iterations(0.5, ROUGHLY) as f64;
    Comparison::number(Simulated, what, paper, ours, "×")
        .fitted("a spread of 2 points as \"roughly the same\"")
        .why(format!(
            "From a spread of 23 points half steps leave {:.0} points after two iterations, which is \"roughly \
             the same\", or not.",
            100.0 * SPREADS[0]
        ))
}

fn plot(all: &[Ran], seed: u64, seconds: f64) -> Plot {
    let shown_s = seconds.min(SHOWN_S);
    let line = |(name, _): (&'static str, Balancing)| {
        let ran = of(all, name).find(|ran| ran.seed == seed)?;
        let mut points: Vec<(f64, f64)> =
            ran.track.spreads().into_iter().map(|(at, spread)| (at, 100.0 * spread)).collect();
        points.retain(|(at, _)| *at <= shown_s);
        points.push((shown_s, points.last()?.1));
        Some(Lines::new(name, ran.track.provenance, points).drawn(Mark::Steps))
    };
    let shown = [ALL[0], ALL[2], ALL[4], ALL[6]];
    let lines = shown.into_iter().filter_map(line).collect();
    let x = Axis::linear("time since one of four was slowed to 75 % (s)").from_to(0.0, shown_s);
    let y = Axis::linear("spread of true utilisation (points)");
    Plot::lines("spread", "How even the weights make utilisation, one run of each", x, y, lines)
}

fn comparisons(all: &[Ran]) -> Vec<Comparison> {
    let good = |name| median(of(all, name).map(|ran| ran.good_s));
    let stopped = |name| median(of(all, name).map(|ran| ran.track.stopped_s)).0;
    let (plimsoll, _) = good(ALL[0].0);
    let after = |seconds: Option<f64>| {
        seconds.map_or_else(|| "never in most runs".to_owned(), |s| format!("after {s:.0} s"))
    };
    let noticed = after(stopped(ALL[0].0));
    let one = |(name, balancing): (&'static str, Balancing)| {
        let Balancing::Agents(how) = balancing else { return None };
        let (agents, runs) = good(name);
        let ratio = stopped(name).zip(plimsoll).map(|(agents, plimsoll)| agents / plimsoll);
        let why = format!(
            "The paper gives neither the interval nor the load, nor what it holds for the same. Here the \
             agents measure an even load {}, and have good weights for good {}, in {runs} of {} runs: a \
             reading of {} s is off by {:.0} points in the standard deviation, and weights follow noise. \
             Plimsoll has them {}, when its test is sure ({noticed}); the paper's threshold takes one \
             second, and is wrong many times an hour (knapsack-fig16).",
            after(stopped(name)),
            after(agents),
            of(all, name).count(),
            how.interval_s,
            100.0 * agents::reading_error(how.interval_s),
            after(plimsoll),
        );
        let what = format!(
            "time until they measure an even load, over Plimsoll's until its weights are good: {name}"
        );
        let paper = (THEIR_RATIO, Tolerance::Part(0.25));
        let found = match ratio {
            Some(ratio) => Comparison::number(Simulated, what, paper, ratio, "×"),
            None => Comparison::word(Simulated, what, "4 ×", "not reached"),
        };
        Some(found.why(why))
    };
    std::iter::once(iterations_comparison()).chain(ALL.into_iter().filter_map(one)).collect()
}

fn notes(even: &[f64], best: &[f64]) -> Vec<String> {
    vec![
        format!(
            "Even utilisation wants {:.3} of the traffic at the slowed backend, the least mean latency \
             {:.3}: goals differ, and so does what clients wait once there (later_ms).",
            even[3], best[3]
        ),
        "Four backends of four cores, 30 ms exponential service, 70 % load while all are equal. \
         Utilisation is busy cores over cores."
            .to_owned(),
        "Plimsoll is met as it is after 300 s, whatever it is at: it may be measuring a backend anew with \
         other weights than its best."
            .to_owned(),
        "Steps are those of Cheetah's AWRR, w ← w·L/((1−α)l + αL), taken again and again as the paper \
         describes it: α = 0.5 (half steps, Cheetah's) and 0 (whole steps). It stops when the measured \
         spread is at most 5 points."
            .to_owned(),
    ]
}
