//! Figure 9 (§6.1): the weights that the exploration tries, for one backend of each type.
//!
//! Algorithm 1 as printed, the same with its stopping rule mended, and what Plimsoll does instead: it
//! packs with what is known and learns from the traffic that its own plan brings, so that no weight is
//! tried that nobody wants.

use std::time::Duration;

use plimsoll_control::Exploration;
use plimsoll_learn::ExploreMode;
use plimsoll_sim::{Method, World, WorldSpec};

use super::explored::{
    Explored, KINDS, LOAD, SERVICE_US, explore, firsts, models, total_rps, true_w_max,
};
use crate::outcome::{Comparison, Outcome, Table, Verdict};
use crate::plot::{Axis, Lines, Mark, Plot, Points};
use crate::{Cell, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig9",
    paper: &super::PAPER,
    figure: "Figure 9",
    title: "Weights that the exploration tries, by type of backend",
    claim: "Exploration ends after 8 to 10 iterations of 1.7 rounds each, under three minutes, and finds \
            greatest weights of 0.02, 0.04, 0.085 and 0.165 for 1, 2, 4 and 8 cores.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(3),
    takes_quick: Duration::from_secs(1),
    run,
};

/// Rounds per iteration, and seconds that all of it took at most.
const THEIR_ROUNDS: f64 = 1.7;
const THEIR_SECONDS: f64 = 180.0;
/// Iterations.
const THEIR_STEPS: (usize, usize) = (8, 10);

/// What Plimsoll gave one backend of each type.
struct Own {
    /// Seconds and weights, one per plan.
    plans: Vec<(f64, [f64; 4])>,
    /// How long it was watched, seconds.
    seconds: f64,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    context.progress(0.0, "Algorithm 1 as printed")?;
    let printed = explore(context, context.seed, ExploreMode::Literal)?;
    context.progress(0.1, "Algorithm 1 mended")?;
    let mended = explore(context, context.seed, ExploreMode::Bisect)?;
    let own = own(context)?;
    let both = [("as printed", &printed), ("mended", &mended)];
    Ok(Outcome {
        tables: vec![trials(&both), plans(&own), summary(&both, &own)],
        plots: vec![
            plot("printed", "Weights tried by Algorithm 1 as printed", &printed),
            plot("mended", "Weights tried by Algorithm 1, stopping rule mended", &mended),
            own_plot(&own),
        ],
        comparisons: compare(&printed, &mended, &own),
        notes: vec![
            "Backends of a type are alike; service is exponential, 5 ms on a core. The latency of a weight \
             is the mean of 200 probes within a round of 10 s, noise included."
                .to_owned(),
            "As printed, line 1 of Algorithm 1 (w_now − w_prev ≤ D) is true after any step back, whose \
             difference is negative, so the exploration ends there. Mended, it stops when the step from \
             the last good weight is within D."
                .to_owned(),
        ],
    })
}

/// The real controller with every default, over round robin.
fn own(context: &Context) -> Result<Own, Failure> {
    let seconds = context.pick(20, 180);
    let mut spec = WorldSpec::new(models(), Method::RoundRobin, LOAD, context.seed);
    (spec.service_us, spec.rate_rps) = (SERVICE_US, total_rps());
    let mut world = World::new(spec);
    world.forget_answers();
    let mut service = world.service_spec();
    service.exploration = Exploration::Packed;
    world.attach(service, None);
    for second in 0..seconds {
        let done = 0.2 + 0.8 * f64::from(second) / f64::from(seconds);
        context.progress(done, "Plimsoll learns")?;
        world.run_for(1.0);
    }
    let mut weights = vec![1_u32; models().len()];
    let mut plans = vec![(0.0, shares(&weights))];
    for (at, plan) in &world.plans {
        for entry in &plan.entries {
            weights[entry.backend.0 as usize] = entry.weight;
        }
        plans.push((at.0 as f64 / 1e9, shares(&weights)));
    }
    Ok(Own { plans, seconds: f64::from(seconds) })
}

fn shares(weights: &[u32]) -> [f64; 4] {
    let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    firsts().map(|i| f64::from(weights[i]) / sum)
}

impl Own {
    fn most(&self, kind: usize) -> f64 {
        self.plans.iter().map(|(_, shares)| shares[kind]).fold(0.0, f64::max)
    }

    fn last(&self, kind: usize) -> f64 {
        self.plans.last().map_or(0.0, |(_, shares)| shares[kind])
    }
}

fn trials(both: &[(&str, &Explored)]) -> Table {
    let mut table = Table::new(
        "trials",
        "Weights tried for the first backend of each type",
        &[
            ("rule", ""),
            ("type", ""),
            ("iteration", ""),
            ("round", "rounds of 10 s"),
            ("weight", "part of the traffic"),
            ("latency_ms", "ms"),
            ("drop", ""),
        ],
    );
    for (rule, explored) in both {
        for (kind, first) in KINDS.iter().zip(firsts()) {
            for (i, trial) in explored.backends[first].trials.iter().enumerate() {
                let cells: [Cell; 7] = [
                    (*rule).into(),
                    kind.name.into(),
                    (i + 1).into(),
                    trial.round.into(),
                    trial.weight.into(),
                    (trial.latency_us / 1e3).into(),
                    if trial.bad { "yes" } else { "no" }.into(),
                ];
                table.row(Provenance::Simulated, cells);
            }
        }
    }
    table
}

fn plans(own: &Own) -> Table {
    let mut columns = vec![("time_s", "s")];
    columns.extend(
        ["one_core", "two_cores", "four_cores", "eight_cores"].map(|n| (n, "part of the traffic")),
    );
    let title = "Weights that Plimsoll gave the first backend of each type, by plan";
    let mut table = Table::new("plimsoll", title, &columns);
    for (at, shares) in &own.plans {
        let cells = [*at].into_iter().chain(*shares).map(Cell::from);
        table.row(Provenance::Simulated, cells);
    }
    table
}

fn summary(both: &[(&str, &Explored)], own: &Own) -> Table {
    let mut table = Table::new(
        "w_max",
        "Greatest weight without drops, and the greatest tried, by type (mean of its backends)",
        &[
            ("rule", ""),
            ("type", ""),
            ("w_max", "part of the traffic"),
            ("greatest_tried", "part of the traffic"),
            ("fewest_steps", ""),
            ("most_steps", ""),
            ("rounds_per_step", ""),
            ("seconds", "s"),
        ],
    );
    for (k, kind) in KINDS.iter().enumerate() {
        for (rule, explored) in both {
            let from = firsts()[k];
            let of = &explored.backends[from..from + kind.count];
            let most = of.iter().flat_map(|b| &b.trials).map(|t| t.weight).fold(0.0, f64::max);
            let steps = of.iter().map(|b| b.trials.len());
            let cells: [Cell; 8] = [
                (*rule).into(),
                kind.name.into(),
                explored.mean_w_max(k).into(),
                most.into(),
                steps.clone().min().into(),
                steps.max().into(),
                explored.rounds_per_step().into(),
                explored.seconds().into(),
            ];
            table.row(Provenance::Simulated, cells);
        }
        let cells: [Cell; 4] =
            ["Plimsoll".into(), kind.name.into(), Cell::Empty, own.most(k).into()];
        table.row(Provenance::Simulated, cells);
        let edge = true_w_max(&kind.model.curve(SERVICE_US));
        let truth: [Cell; 3] = ["true curve".into(), kind.name.into(), edge.into()];
        table.row(Provenance::Simulated, truth);
        let theirs: [Cell; 8] = [
            "paper".into(),
            kind.name.into(),
            kind.their_w_max.into(),
            Cell::Empty,
            THEIR_STEPS.0.into(),
            THEIR_STEPS.1.into(),
            THEIR_ROUNDS.into(),
            THEIR_SECONDS.into(),
        ];
        table.row(Provenance::Reported, theirs);
    }
    table
}

fn plot(name: &str, title: &str, explored: &Explored) -> Plot {
    let mut lines = Vec::new();
    for (kind, first) in KINDS.iter().zip(firsts()) {
        let trials = explored.backends[first].trials.iter().enumerate();
        let points: Points = trials.map(|(i, t)| ((i + 1) as f64, t.weight)).collect();
        lines.push(Lines::new(kind.name, Provenance::Simulated, points));
    }
    let most = explored.iterations.max(2);
    for (i, kind) in KINDS.iter().enumerate() {
        let points = vec![(1.0, kind.their_w_max), (f64::from(most), kind.their_w_max)];
        let label = format!("paper's w_max, {}", kind.name);
        lines.push(Lines::new(&label, Provenance::Reported, points).drawn(Mark::Line).like(i));
    }
    let y = Axis::log("weight (part of the traffic)").from_to(0.005, 0.5);
    Plot::lines(name, title, Axis::linear("iteration"), y, lines)
}

fn own_plot(own: &Own) -> Plot {
    let mut lines = Vec::new();
    for (k, kind) in KINDS.iter().enumerate() {
        let mut points: Points = own.plans.iter().map(|(at, shares)| (*at, shares[k])).collect();
        points.push((own.seconds, own.last(k)));
        lines.push(Lines::new(kind.name, Provenance::Simulated, points).drawn(Mark::Steps));
    }
    let y = Axis::log("weight (part of the traffic)").from_to(0.005, 0.5);
    let title = "Weights that Plimsoll gives while it learns";
    Plot::lines("plimsoll", title, Axis::linear("time (s)"), y, lines)
}

/// The greatest weight after the first plan, as a part of what the backend bears.
fn greatest_try(own: &Own) -> f64 {
    let most = |k: usize| {
        let edge = true_w_max(&KINDS[k].model.curve(SERVICE_US));
        own.plans.iter().skip(1).map(|(_, s)| s[k]).fold(0.0, f64::max) / edge
    };
    (0..KINDS.len()).map(most).fold(0.0, f64::max)
}

fn compare(printed: &Explored, mended: &Explored, own: &Own) -> Vec<Comparison> {
    let mut found = Vec::new();
    let mut add = |what: String, paper: crate::Value, ours: crate::Value, verdict, why: &str| {
        let (unit, provenance, why) = (String::new(), Provenance::Simulated, why.to_owned());
        found.push(Comparison { what, paper, ours, unit, verdict, provenance, why });
    };
    for (k, kind) in KINDS.iter().enumerate() {
        let ours = mended.mean_w_max(k);
        add(
            format!("w_max, {}", kind.name),
            kind.their_w_max.into(),
            ours.into(),
            Verdict::within(0.15, kind.their_w_max, ours),
            "A queue of c exponential cores instead of a web server: with more cores latency stays low \
             closer to capacity, and the paper's 8-core machines did not scale linearly.",
        );
    }
    let steps = |explored: &Explored| explored.steps();
    let shown = |(few, many): (usize, usize)| format!("{few} to {many}");
    let (few, many) = steps(mended);
    let near = few + 2 >= THEIR_STEPS.0 && many <= THEIR_STEPS.1 + 2;
    add(
        "iterations, mended".to_owned(),
        shown(THEIR_STEPS).into(),
        shown((few, many)).into(),
        if near { Verdict::Agrees } else { Verdict::Differs },
        "Ours do not count the measurement at weight 0, and a step back goes to the last good weight, not \
         the last one; the paper's listing does not lead to its count.",
    );
    let (few, many) = steps(printed);
    add(
        "iterations, as printed".to_owned(),
        shown(THEIR_STEPS).into(),
        shown((few, many)).into(),
        if few >= THEIR_STEPS.0 { Verdict::Agrees } else { Verdict::Differs },
        "As printed the rule ends at the first step back; backends that 1/30 of the traffic overloads \
         get a w_max of 0. The paper's program must differ from its listing.",
    );
    let rounds = mended.rounds_per_step();
    add(
        "rounds per iteration, mended".to_owned(),
        THEIR_ROUNDS.into(),
        rounds.into(),
        Verdict::less_is_better(0.2, THEIR_ROUNDS, rounds),
        "Rounds are needed where wishes sum to more than 1, and one more where nobody is left to take the \
         rest; iterations late in the run have few wishes.",
    );
    add(
        "time of the exploration, mended (s)".to_owned(),
        format!("under {THEIR_SECONDS}").into(),
        mended.seconds().into(),
        if mended.seconds() <= THEIR_SECONDS { Verdict::Agrees } else { Verdict::Differs },
        "More iterations of the slowest backend.",
    );
    let worst = greatest_try(own);
    add(
        "greatest weight that Plimsoll tried after its first plan, over w_max".to_owned(),
        "above 1: drops are how the paper finds w_max".into(),
        format!("{worst:.2}").into(),
        if worst < 1.0 { Verdict::Better } else { Verdict::Agrees },
        if worst < 1.0 {
            "No weight is tried beyond what the packing can use."
        } else {
            "Early plans rest on few requests and may overshoot; later ones take it back."
        },
    );
    found
}
