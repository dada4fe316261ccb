//! Figure 14 (§6.5): an overloaded cluster is given an eleventh backend.

use std::time::Duration;

use plimsoll_sim::{Arena, Change, Step};

use super::cluster::{BACKENDS, Cluster, run_in};
use super::show::{holds, notes};
use super::ways::{ALL, Way};
use crate::outcome::{Outcome, Table};
use crate::plot::{Axis, Lines, Mark, Plot, Points};
use crate::{Cell, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig14",
    paper: &super::PAPER,
    figure: "Figure 14",
    title: "A backend is added to an overloaded cluster",
    claim: "With an eleventh backend after a minute BLOC's mean response falls from 5.0 to 3.4 s, a third \
            less; least connections stays overloaded.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(3),
    takes_quick: Duration::from_secs(1),
    run,
};

/// When the backend is added, seconds.
const ADDED_S: f64 = 60.0;
/// How long the run is (§6.5).
const WHOLE_S: f64 = 300.0;
/// Slightly more than ten backends serve, and less than eleven.
const RATE_RPS: f64 = 42.0;
/// Runs over which means are taken: each is of a few thousand requests.
const RUNS: u64 = 20;
/// The paper's fall.
const THEIRS: f64 = 0.32;

struct Ran {
    way: Way,
    /// By second: mean response in seconds, requests lost.
    seconds: Vec<(f64, f64)>,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let mut all = Vec::new();
    for (i, way) in ALL.into_iter().enumerate() {
        context.progress(i as f64 / ALL.len() as f64, way.name)?;
        all.push(one(context, way)?);
    }
    let (lc, bloc) = (&all[0], &all[3]);
    let fall = 1.0 - bloc.after() / bloc.before();
    let comparisons = vec![
        holds(
            "mean response under BLOC, first minute and the last three",
            "5.0 and 3.4 s",
            format!("{:.2} and {:.2} s, {:.0} % less", bloc.before(), bloc.after(), 100.0 * fall),
            fall > 0.5 * THEIRS,
            "BLOC holds all queues below ten from the start, so that nobody waits 5 s; the eleventh backend \
             changes how full they are.",
        ),
        holds(
            "mean response under least connections, the last three minutes over the first",
            "still overloaded",
            format!("{:.2} beside {:.2} s", lc.after(), lc.before()),
            lc.after() > 0.8 * lc.before(),
            "At 42 requests/s ten backends fall behind by two requests a second, and eleven catch up by two: the \
             queue of the first minute is gone a minute later. Nearer to 44 it would stay.",
        ),
    ];
    let mut notes = notes();
    notes.push(format!(
        "Open clients, {RATE_RPS:.0} requests/s, where ten backends serve 40 and eleven 44; means over \
         {RUNS} runs."
    ));
    let tables = vec![table(&all)];
    Ok(Outcome { tables, plots: vec![plot(&all)], comparisons, notes })
}

fn one(context: &Context, way: Way) -> Result<Ran, Failure> {
    let runs = context.pick(2, RUNS);
    let mut seconds = vec![(0.0, 0.0, 0.0); WHOLE_S as usize];
    for seed in 0..runs {
        context.check()?;
        let seed = context.seed.wrapping_mul(RUNS).wrapping_add(seed);
        let requests = (RATE_RPS * WHOLE_S) as u32;
        let eleven = Cluster { backends: BACKENDS + 1, requests, seed, ..Cluster::new(context) };
        let weights = |last| {
            let mut weights = vec![1; BACKENDS + 1];
            weights[BACKENDS] = last;
            Change::Weights(weights)
        };
        let arena = Arena {
            warm_up: 0,
            window_s: Some(1.0),
            timeline: vec![
                Step { at_s: 0.0, change: weights(0) },
                Step { at_s: ADDED_S, change: weights(1) },
            ],
            ..eleven.open(RATE_RPS).arena()
        };
        let report = run_in(&arena, way, eleven.frontends)?.report;
        for (sum, window) in seconds.iter_mut().zip(&report.windows) {
            sum.0 += window.mean_us / 1e6 * window.requests as f64;
            sum.1 += window.requests as f64;
            sum.2 += (window.errors + window.dropped + window.abandoned) as f64;
        }
    }
    let mean =
        |&(sum, count, lost): &(f64, f64, f64)| (sum / f64::max(count, 1.0), lost / runs as f64);
    Ok(Ran { way, seconds: seconds.iter().map(mean).collect() })
}

impl Ran {
    fn mean(&self, from_s: f64, to_s: f64) -> f64 {
        let shown = &self.seconds[from_s as usize..to_s as usize];
        shown.iter().map(|(mean, _)| mean).sum::<f64>() / shown.len() as f64
    }

    /// The second half of the first minute, when queues are what they will be.
    fn before(&self) -> f64 {
        self.mean(ADDED_S / 2.0, ADDED_S)
    }

    fn after(&self) -> f64 {
        self.mean(WHOLE_S - 180.0, WHOLE_S)
    }
}

fn table(all: &[Ran]) -> Table {
    let mut table = Table::new(
        "added",
        "Mean response before and after an eleventh backend",
        &[
            ("method", ""),
            ("before_s", "s, second 30 to 60"),
            ("after_s", "s, second 120 to 300"),
            ("lost_per_s_before", "requests/s"),
            ("lost_per_s_after", "requests/s"),
        ],
    );
    for ran in all {
        let lost = |from: usize, to: usize| {
            let shown = &ran.seconds[from..to];
            shown.iter().map(|(_, lost)| lost).sum::<f64>() / shown.len() as f64
        };
        let cells: [Cell; 5] = [
            ran.way.name.into(),
            ran.before().into(),
            ran.after().into(),
            lost(30, 60).into(),
            lost(120, 300).into(),
        ];
        table.row(Provenance::Simulated, cells);
    }
    table
}

fn plot(all: &[Ran]) -> Plot {
    let line = |ran: &Ran| {
        let points: Points =
            ran.seconds.iter().enumerate().map(|(s, (mean, _))| (s as f64, *mean)).collect();
        Lines::new(ran.way.name, Provenance::Simulated, points).drawn(Mark::Line)
    };
    let lines = all.iter().take(6).map(line).collect();
    let (x, y) = (Axis::linear("time (s)"), Axis::linear("mean response time (s)"));
    Plot::lines("responses", "An eleventh backend after 60 s", x, y, lines)
}
