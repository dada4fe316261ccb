//! Figure 8 (§3.5): how long the ILP takes when every weight of the whole range is offered.
//!
//! All backends are alike, and each is offered so many weights between 0 and 1. The paper's cells DO
//! (no packing without an overloaded backend) follow from the grid alone: at 80 % load a backend can
//! carry 1/(0.8·n), and where the grid's step is more than that, its least weight is an overload.

use std::time::Duration;

use plimsoll_model::Objective;
use plimsoll_pack::{Effort, MenuProblem, pack_curves, pack_menus};

use super::instances::{Instance, UNITS};
use super::timing::cpu_ms;
use crate::Provenance::Measured;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot, Points};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig8",
    paper: &super::PAPER,
    figure: "Figure 8",
    title: "ILP run time over backends and weights per backend",
    claim: "One ILP over weights from the whole range is too slow or too coarse: from 500 backends on \
            it overloads a backend or does not end within 20 minutes.",
    provenance: &[Provenance::Measured],
    takes: Duration::from_secs(20),
    takes_quick: Duration::from_secs(2),
    run,
};

const BACKENDS: [usize; 4] = [10, 50, 100, 500];
const WEIGHTS: [usize; 4] = [10, 50, 100, 500];

/// A cell of the paper's table.
#[derive(Clone, Copy)]
enum Theirs {
    Ms(f64),
    Overload,
    TimeOut,
}

use Theirs::{Ms, Overload, TimeOut};

/// Rows: weights per backend; columns: backends.
const THEIRS: [[Theirs; 4]; 4] = [
    [Ms(17.0), Overload, Overload, Overload],
    [Ms(97.0), Ms(1_700.0), Overload, Overload],
    [Ms(289.0), Ms(8_000.0), Ms(37_000.0), TimeOut],
    [Ms(7_800.0), Ms(180_000.0), TimeOut, TimeOut],
];

/// The paper's solver was stopped after 20 minutes.
const THEIR_LIMIT_MS: f64 = 20.0 * 60e3;

struct Ours {
    ms: f64,
    overload: bool,
    gap: f64,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let budget = context.pick(Duration::from_millis(20), Duration::from_secs(1));
    let mut cells = Vec::new();
    for (row, &weights) in WEIGHTS.iter().enumerate() {
        for (column, &backends) in BACKENDS.iter().enumerate() {
            let done = (row * BACKENDS.len() + column) as f64 / 16.0;
            context.progress(done, &format!("{backends} backends × {weights} weights"))?;
            cells.push((weights, backends, THEIRS[row][column], solve(backends, weights, budget)?));
        }
    }
    let mut table = Table::empty("times", "CPU time of one solution");
    for &(weights, backends, theirs, ref ours) in &cells {
        row!(table, Measured, {
            backends: backends;
            weights: weights;
            time_ms: ours.ms, "ms";
            end: if ours.overload { "overload" } else { "solved" };
            gap: ours.gap, "part of the objective";
        })?;
        let (ms, end) = match theirs {
            Ms(ms) => (Some(ms), "solved"),
            Overload => (None, "overload"),
            TimeOut => (None, "over 20 minutes"),
        };
        row!(table, Provenance::Reported, {
            backends: backends;
            weights: weights;
            time_ms: ms;
            end: end;
        })?;
    }
    let comparisons = cells.iter().map(|(w, b, theirs, ours)| compare(*w, *b, *theirs, ours));
    let comparisons = comparisons.collect();
    let continuous = BACKENDS.map(|backends| curves_ms(backends, budget));
    let title = "CPU time of the same question without a grid: any weight, least sum of latencies";
    let mut without = Table::empty("continuous", title);
    for (backends, ms) in BACKENDS.into_iter().zip(continuous) {
        row!(without, Measured, { backends: backends; time_ms: ms?, "ms"; })?;
    }
    let plots = vec![plot(&cells)];
    let notes = vec![
        "The paper does not state the load of this figure; ours is the 80 % of §6.7, which reproduces \
         every overload it reports."
            .to_owned(),
    ];
    Ok(Outcome { tables: vec![table, without], plots, comparisons, notes })
}

fn solve(backends: usize, weights: usize, budget: Duration) -> Result<Ours, Failure> {
    let instance = Instance::alike(backends);
    let menus = instance.whole_range_menus(weights);
    let problem = MenuProblem { menus: &menus, target: UNITS, theta: None };
    let (ms, packing) = cpu_ms(budget, || pack_menus(&problem, Objective::Sum, &Effort::default()));
    let packing = packing?;
    Ok(Ours { ms, overload: instance.overloads(&packing.weights), gap: packing.gap })
}

fn curves_ms(backends: usize, budget: Duration) -> Result<f64, Failure> {
    let instance = Instance::alike(backends);
    let carriers = instance.backends();
    let problem = instance.problem(&carriers);
    let (ms, packing) = cpu_ms(budget, || pack_curves(&problem, Objective::Sum));
    packing?;
    Ok(ms)
}

fn compare(weights: usize, backends: usize, theirs: Theirs, ours: &Ours) -> Comparison {
    let what = format!("{backends} backends × {weights} weights");
    let solver = "An exact solver made for this problem (Lagrangian bound, small core) instead of a general ILP \
                  solver, on another machine.";
    let shown = if ours.overload { "overload" } else { "solved" };
    match theirs {
        Ms(ms) if !ours.overload => {
            Comparison::number(Measured, what, (ms, Tolerance::Part(0.1)), ours.ms, "ms").why(solver)
        }
        Ms(_) => Comparison::word(Measured, what, "solved", shown)
            .why("At our load this grid has no other packing."),
        Overload => Comparison::word(Measured, what, "overload", shown)
            .why("At our load the grid is fine enough."),
        TimeOut if ours.overload => Comparison::word(Measured, what, "over 20 minutes", shown).why(
            "The solver ends at once; but the grid's least weight is more than a backend can carry, so no \
             packing without overload exists, whatever the time.",
        ),
        TimeOut => {
            let paper = ("over 20 minutes", Bound::AtLeast(THEIR_LIMIT_MS));
            Comparison::bound(Measured, what, paper, ours.ms, "ms").why(solver)
        }
    }
}

fn plot(cells: &[(usize, usize, Theirs, Ours)]) -> Plot {
    let of = |wanted: usize, value: fn(&Theirs, &Ours) -> Option<f64>| -> Points {
        let cells = cells.iter().filter(|cell| cell.1 == wanted);
        cells.filter_map(|(w, _, theirs, ours)| Some((*w as f64, value(theirs, ours)?))).collect()
    };
    let mut lines = Vec::new();
    for backends in BACKENDS {
        let points = of(backends, |_, ours| (!ours.overload).then_some(ours.ms));
        lines.push(Lines::new(&format!("ours, {backends}"), Provenance::Measured, points));
    }
    for (i, backends) in BACKENDS.into_iter().enumerate() {
        let points = of(backends, |theirs, _| match theirs {
            Ms(ms) => Some(*ms),
            Overload | TimeOut => None,
        });
        if !points.is_empty() {
            let label = format!("paper, {backends}");
            lines.push(Lines::new(&label, Provenance::Reported, points).like(i));
        }
    }
    Plot::lines(
        "times",
        "Time of one exact packing, by number of backends",
        Axis::log("weights per backend"),
        Axis::log("CPU time (ms)"),
        lines,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overloads_are_where_the_grid_is_too_coarse() {
        // 1/9 of the traffic is within the eighth that one of ten can carry; of fifty it is not.
        let budget = Duration::ZERO;
        assert!(!solve(10, 10, budget).unwrap().overload);
        assert!(solve(50, 10, budget).unwrap().overload);
        assert!(!solve(100, 100, budget).unwrap().overload);
    }
}
