//! Table 5 (§4.4, §6.7): ten weights twice against a hundred weights at once, for 100 backends.
//!
//! The first step offers ten weights between 0 and `w_max`, the second ten within 10 % of `w_max` around
//! the first answer. Accuracy is the least sum of latencies over the one that was found.

use std::time::Duration;

use plimsoll_model::Objective;
use plimsoll_pack::{Choice, Effort, MenuProblem, pack_curves, pack_menus};

use super::instances::{Instance, UNITS};
use super::timing::cpu_ms;
use crate::Provenance::Measured;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Bars, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-table5",
    paper: &super::PAPER,
    figure: "Table 5",
    title: "Two steps of ten weights against one of a hundred, 100 backends",
    claim: "Two ILPs of ten weights each are 28.3 times faster than one of a hundred, and lose 0.1 % of \
            accuracy.",
    provenance: &[Provenance::Measured],
    takes: Duration::from_secs(10),
    takes_quick: Duration::from_secs(2),
    run,
};

const BACKENDS: usize = 100;
const POINTS: usize = 100;
const STEP_POINTS: usize = 10;
/// The paper: one step, two steps (ms); accuracy of two steps.
const THEIR_ONE_MS: f64 = 36_800.0;
const THEIR_TWO_MS: f64 = 1_300.0;
const THEIR_ACCURACY: f64 = 0.999;
/// The paper rounds to a tenth of a percent.
const ACCURACY_WITHIN: f64 = 0.001;

/// One pool, packed in three ways.
struct Ours {
    pool: &'static str,
    /// One step, two steps, any weight: time, and sum of latencies over the least.
    ms: [f64; 3],
    cost: [f64; 3],
}

const METHODS: [&str; 3] = ["100 weights", "10 weights twice", "any weight"];

fn run(context: &Context) -> Result<Outcome, Failure> {
    let budget = context.pick(Duration::from_millis(50), Duration::from_secs(1));
    context.progress(0.0, "backends that are alike")?;
    let alike = solve("alike", &Instance::alike(BACKENDS), budget)?;
    context.progress(0.5, "the mix of Table 3")?;
    let mixed = solve("mixed", &Instance::mixed(BACKENDS, context.seed), budget)?;
    let pools = [alike, mixed];
    Ok(Outcome {
        tables: vec![table(&pools)?],
        plots: vec![plot(&pools)],
        comparisons: comparisons(&pools[0]).into_iter().chain(comparisons(&pools[1])).collect(),
        notes: vec![
            "CPU time of one thread, median of repeated calls. \"mixed\" is the mix of the paper's \
             Table 3 with speeds spread by ±40 %, which the paper does not time."
                .to_owned(),
        ],
    })
}

fn solve(pool: &'static str, instance: &Instance, budget: Duration) -> Result<Ours, Failure> {
    let pack = |menus: &[Vec<Choice>]| {
        let problem = MenuProblem { menus, target: UNITS, theta: None };
        let (ms, packing) =
            cpu_ms(budget, || pack_menus(&problem, Objective::Sum, &Effort::default()));
        packing.map(|packing| (ms, packing))
    };
    let (one_ms, one) = pack(&instance.menus(POINTS))?;
    let (first_ms, first) = pack(&instance.menus(STEP_POINTS))?;
    let (second_ms, two) = pack(&instance.menus_around(&first.weights, STEP_POINTS))?;
    let carriers = instance.backends();
    let problem = instance.problem(&carriers);
    let (any_ms, any) = cpu_ms(budget, || pack_curves(&problem, Objective::Sum));
    let costs = [one.objective, two.objective, any?.objective];
    let least = costs.into_iter().fold(f64::INFINITY, f64::min);
    Ok(Ours {
        pool,
        ms: [one_ms, first_ms + second_ms, any_ms],
        cost: costs.map(|cost| cost / least),
    })
}

fn table(pools: &[Ours]) -> Result<Table, Failure> {
    let mut table = Table::empty("steps", "CPU time and accuracy");
    for ours in pools {
        for (i, method) in METHODS.into_iter().enumerate() {
            let accuracy = 1.0 / ours.cost[i];
            row!(table, Provenance::Measured, {
                pool: ours.pool;
                weights: method;
                time_ms: ours.ms[i], "ms";
                accuracy: accuracy, "least sum of latencies over the one found";
            })?;
        }
    }
    for (method, ms, accuracy) in
        [(METHODS[0], THEIR_ONE_MS, 1.0), (METHODS[1], THEIR_TWO_MS, THEIR_ACCURACY)]
    {
        row!(table, Provenance::Reported, {
            pool: "alike";
            weights: method;
            time_ms: ms;
            accuracy: accuracy;
        })?;
    }
    Ok(table)
}

fn plot(pools: &[Ours]) -> Plot {
    let ours = pools.iter().map(|pool| {
        let values = pool.ms.iter().map(|&ms| Some(ms)).collect();
        Bars::new(pool.pool, Provenance::Measured, values)
    });
    let theirs = vec![Some(THEIR_ONE_MS), Some(THEIR_TWO_MS), None];
    let series = ours.chain([Bars::new("paper, alike", Provenance::Reported, theirs).like(0)]);
    let methods = METHODS.map(str::to_owned).to_vec();
    let y = Axis::log("CPU time (ms)");
    Plot::bars("times", "Time of one packing of 100 backends", "", y, methods, series.collect())
}

fn comparisons(ours: &Ours) -> Vec<Comparison> {
    let solver = "An exact solver made for this problem instead of a general ILP solver; another \
                  machine as well.";
    let ratio = "The time of an exact solver with a Lagrangian bound grows about with the number of \
                 weights, that of a general ILP solver much faster; so a second step saves less.";
    let of = |what: &str, paper: (f64, Tolerance), ours_value: f64, unit: &str, why: &str| {
        let what = format!("{what}, {} backends", ours.pool);
        Comparison::number(Measured, what, paper, ours_value, unit).why(why)
    };
    let [one, two, _] = ours.ms;
    let part = Tolerance::Part;
    vec![
        of("one step of 100 weights", (THEIR_ONE_MS, part(0.1)), one, "ms", solver),
        of("two steps of 10 weights", (THEIR_TWO_MS, part(0.1)), two, "ms", solver),
        of(
            "times faster in two steps",
            (THEIR_ONE_MS / THEIR_TWO_MS, part(0.2)),
            one / two,
            "",
            ratio,
        ),
        of(
            "accuracy of two steps, 100 weights being 1",
            (THEIR_ACCURACY, part(ACCURACY_WITHIN)),
            ours.cost[0] / ours.cost[1],
            "",
            "Above 1 where the second step lands nearer to the optimum than the grid of a hundred weights does; \
             below where the first step's answer lies more than 10 % of w_max away from it.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_grid_beats_any_weight() {
        for instance in [Instance::alike(BACKENDS), Instance::mixed(BACKENDS, 1)] {
            let ours = solve("", &instance, Duration::ZERO).unwrap();
            assert!(ours.cost[0] >= 1.0 && ours.cost[1] >= 1.0);
            assert!(ours.cost[2] < 1.0 + 1e-9, "{:?}", ours.cost);
        }
    }
}
