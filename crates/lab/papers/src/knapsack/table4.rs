//! Table 4 (§6.7): how long the ILP takes with ten weights per backend, from 10 to 1,000 backends.
//!
//! Ten weights between 0 and `w_max` at 80 % load. The paper's backends are all alike, which is the
//! hardest case for a search (every exchange of two of them is another solution of the same cost) and
//! the easiest for one that groups equals; so the mix of Table 3 is timed as well.

mod cbc;

use std::time::Duration;

use plimsoll_model::Objective;
use plimsoll_pack::{Effort, MenuProblem, pack_curves, pack_menus};

use super::instances::{Instance, UNITS};
use super::timing::cpu_ms;
use crate::Provenance::Measured;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot, Points};
use crate::{Baseline, Better, Comparison, Context, Experiment, Failure, Provenance, Tolerance};
use cbc::Cbc;
pub use cbc::version as cbc_version;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-table4",
    paper: &super::PAPER,
    figure: "Table 4",
    title: "ILP run time from 10 to 1,000 backends, ten weights each",
    claim: "With ten weights per backend the ILP takes 20 ms for 10 backends and 21 s for 1,000.",
    provenance: &[Provenance::Measured],
    takes: Duration::from_secs(10),
    takes_quick: Duration::from_secs(2),
    run,
};

/// Backends and the paper's milliseconds.
const THEIRS: [(usize, f64); 5] =
    [(10, 20.0), (50, 194.0), (100, 645.0), (500, 5_800.0), (1000, 21_100.0)];
/// How long CBC may take for one instance.
const CBC_WITHIN: Duration = Duration::from_secs(60);
/// A quick run asks CBC up to this many backends.
const CBC_QUICK: usize = 50;
/// By so much CBC may be faster or slower here than on the paper's machine and still be the same baseline.
const OTHER_MACHINE: Tolerance = Tolerance::Factor(4.0);
/// Weights per backend.
const POINTS: usize = 10;

struct Row {
    backends: usize,
    kind: &'static str,
    menus_ms: f64,
    gap: f64,
    curves_ms: f64,
    /// How much more the ten weights cost than any weights would, a part.
    excess: f64,
    /// The paper's solver on the same instance; nothing where it is not installed.
    cbc: Option<Cbc>,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let budget = context.pick(Duration::from_millis(50), Duration::from_secs(1));
    let mut rows = Vec::new();
    for (i, (backends, _)) in THEIRS.into_iter().enumerate() {
        let done = i as f64 / THEIRS.len() as f64;
        context.progress(done, &format!("{backends} backends"))?;
        let pools = [
            ("alike", Instance::alike(backends)),
            ("mixed", Instance::mixed(backends, context.seed)),
        ];
        for (kind, instance) in pools {
            let mut row = solve(&instance, kind, backends, budget)?;
            if !context.quick || backends <= CBC_QUICK {
                row.cbc = cbc::solve(&instance.menus(POINTS), CBC_WITHIN)?;
            }
            rows.push(row);
            context.check()?;
        }
    }
    let mut notes = vec![
        "CPU time of one thread, median of repeated calls. \"mixed\" is the mix of the paper's Table 3 \
         with speeds spread by ±40 %, which the paper does not time."
            .to_owned(),
    ];
    notes.push(if rows.iter().all(|row| row.cbc.is_none()) {
        "The paper's solver, CBC through PuLP, was not timed: python3 with PuLP is not installed."
            .to_owned()
    } else {
        "cbc_ms is the paper's solver, CBC through PuLP, on the same instances and this machine: CPU \
         time by its own log, one thread, no gap allowed, a minute at most for each."
            .to_owned()
    });
    Ok(Outcome {
        tables: vec![table(&rows)?],
        plots: vec![plot(&rows)],
        comparisons: rows.iter().filter_map(compare).collect(),
        notes,
    })
}

fn solve(
    instance: &Instance,
    kind: &'static str,
    backends: usize,
    budget: Duration,
) -> Result<Row, Failure> {
    let menus = instance.menus(POINTS);
    let problem = MenuProblem { menus: &menus, target: UNITS, theta: None };
    let (menus_ms, packing) =
        cpu_ms(budget, || pack_menus(&problem, Objective::Sum, &Effort::default()));
    let packing = packing?;
    let carriers = instance.backends();
    let problem = instance.problem(&carriers);
    let (curves_ms, best) = cpu_ms(budget, || pack_curves(&problem, Objective::Sum));
    let excess = packing.objective / best?.objective - 1.0;
    Ok(Row { backends, kind, menus_ms, gap: packing.gap, curves_ms, excess, cbc: None })
}

fn table(rows: &[Row]) -> Result<Table, Failure> {
    let mut table = Table::empty("times", "CPU time of one solution");
    for row in rows {
        let end = |cbc: Cbc| if cbc.ended { "proven" } else { "not proven within a minute" };
        row!(table, Measured, {
            backends: row.backends;
            pool: row.kind;
            ten_weights_ms: row.menus_ms, "ms";
            gap: row.gap, "part of the objective";
            any_weight_ms: row.curves_ms, "ms";
            ten_weights_cost_more: row.excess, "part of the least sum of latencies";
            cbc_ms: row.cbc.map(|cbc| cbc.cpu_ms), "ms";
            cbc_end: row.cbc.map(end);
        })?;
    }
    for (backends, ms) in THEIRS {
        row!(table, Provenance::Reported, {
            backends: backends;
            pool: "alike";
            ten_weights_ms: ms;
        })?;
    }
    Ok(table)
}

fn plot(rows: &[Row]) -> Plot {
    let of = |kind: &str, value: fn(&Row) -> f64| -> Points {
        let rows = rows.iter().filter(|row| row.kind == kind);
        rows.map(|row| (row.backends as f64, value(row))).collect()
    };
    let theirs = THEIRS.map(|(backends, ms)| (backends as f64, ms)).to_vec();
    let proven = |row: &Row| row.cbc.filter(|cbc| cbc.ended && row.kind == "mixed");
    let cbc: Points =
        rows.iter().filter_map(|row| Some((row.backends as f64, proven(row)?.cpu_ms))).collect();
    let mut lines = vec![
        Lines::new("ten weights, alike", Provenance::Measured, of("alike", |r| r.menus_ms)),
        Lines::new("ten weights, mixed", Provenance::Measured, of("mixed", |r| r.menus_ms)),
        Lines::new("any weight, mixed", Provenance::Measured, of("mixed", |r| r.curves_ms)),
        Lines::new("paper, ten weights, alike", Provenance::Reported, theirs).like(0),
    ];
    if !cbc.is_empty() {
        lines.push(Lines::new("CBC here, ten weights, mixed", Provenance::Measured, cbc));
    }
    let (x, y) = (Axis::log("backends"), Axis::log("CPU time (ms)"));
    Plot::lines("times", "Time of one exact packing", x, y, lines)
}

fn compare(row: &Row) -> Option<Comparison> {
    let paper = THEIRS.iter().find(|(n, _)| *n == row.backends && row.kind == "alike")?.1;
    let what = format!("{} backends × {POINTS} weights", row.backends);
    // Only what it proved took as long as it takes.
    let cbc = row.cbc.filter(|cbc| cbc.ended).map(|cbc| Baseline {
        name: "CBC on this instance".to_owned(),
        paper,
        here: cbc.cpu_ms,
        same: OTHER_MACHINE,
        better: Better::Less,
    });
    let found =
        Comparison::number(Measured, what, (paper, Tolerance::Part(0.1)), row.menus_ms, "ms");
    Some(found.beside(cbc).why(
        "An exact solver made for this problem instead of a general ILP solver; another machine, and CPU time \
         instead of wall time, as well.",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_weights_are_packed_exactly_and_cost_more_than_any_weights() {
        for instance in [Instance::alike(50), Instance::mixed(50, 1)] {
            let row = solve(&instance, "", 50, Duration::ZERO).unwrap();
            assert!(row.gap <= 1e-9 && row.excess >= -1e-9, "{} {}", row.gap, row.excess);
        }
    }
}
