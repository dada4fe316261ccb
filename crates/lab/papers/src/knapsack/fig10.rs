//! Figure 10 (§6.1): measured points and the curves through them.
//!
//! The paper fits a polynomial of degree two to the points without drops and makes it monotone; Plimsoll
//! fits a hyperbola unless another family predicts left-out points clearly better. The true curves are
//! known here, so that both can be judged between their points and beyond.

use std::time::Duration;

use plimsoll_learn::{CurveFit, Family};
use plimsoll_model::Curve;
use plimsoll_queueing::MmcCurve;
use plimsoll_sim::knapsack::ExploreMode;

use super::explored::{
    Backend, Explored, KINDS, SERVICE_US, explore, firsts, true_w_max, truth_us,
};
use crate::Provenance::Simulated;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Mark, Plot, Points};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig10",
    paper: &super::PAPER,
    figure: "Figure 10",
    title: "Measured points and fitted curves, by type of backend",
    claim: "A polynomial of degree two fits the weight-latency curve well through only four or five \
            points.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(2),
    takes_quick: Duration::from_secs(1),
    run,
};

/// Places at which a curve is judged, evenly from 0 to the true `w_max`.
const JUDGED: usize = 50;
/// Places at which it is drawn.
const DRAWN: usize = 80;
/// Points that the paper's curves had.
const THEIR_POINTS: [usize; 4] = [4, 4, 4, 5];

/// The fits of one backend.
struct Fitted {
    theirs: CurveFit,
    ours: CurveFit,
}

/// Relative errors of curves against the truth, root mean square over a type's backends and explorations.
#[derive(Clone, Copy, Default)]
struct Errors {
    theirs: f64,
    ours: f64,
    /// At 90 % of `w_max`, where the packing decides.
    theirs_high: f64,
    ours_high: f64,
    points: f64,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let repeats = context.pick(2, 30);
    let mut first: Option<Explored> = None;
    let mut errors = [Errors::default(); 4];
    for repeat in 0..repeats {
        context.progress(repeat as f64 / repeats as f64, "explore and fit")?;
        let seed = context.seed.wrapping_add(repeat);
        let explored = explore(context, seed, ExploreMode::Bisect)?;
        for (k, errors) in errors.iter_mut().enumerate() {
            add_errors(&explored, k, errors)?;
        }
        first.get_or_insert(explored);
    }
    let explored = first.ok_or_else(|| Failure::Other("nothing was explored".to_owned()))?;
    for (kind, errors) in KINDS.iter().zip(&mut errors) {
        let n = repeats as f64 * kind.count as f64;
        let root = |sum: f64| (sum / n).sqrt();
        *errors = Errors {
            theirs: root(errors.theirs),
            ours: root(errors.ours),
            theirs_high: root(errors.theirs_high),
            ours_high: root(errors.ours_high),
            points: errors.points / n,
        };
    }
    let mut plots = Vec::new();
    let points_title = "Points measured on the first backend of each type";
    let curves_title = "Curves fitted to them, at weights up to the true w_max";
    let mut points = Table::empty("points", points_title);
    let mut curves = Table::empty("curves", curves_title);
    for (k, first) in firsts().into_iter().enumerate() {
        let backend = &explored.backends[first];
        let fitted = fits(backend)?;
        plots.push(plot(k, backend, &fitted));
        add_points(&mut points, k, backend)?;
        add_curves(&mut curves, k, &fitted)?;
    }
    Ok(Outcome {
        tables: vec![points, curves, errors_table(&errors)?],
        plots,
        comparisons: compare(&errors),
        notes: vec![
            format!(
                "Errors are relative to the true latency, root mean square over {JUDGED} weights from 0 to \
                 the true w_max, over all backends of the type, and over {repeats} explorations. Each \
                 point is the mean of 200 probes, which alone is off by 7 % and more."
            ),
            "The exploration is Algorithm 1 with its stopping rule mended; knapsack-fig9 has the weights."
                .to_owned(),
        ],
    })
}

fn fits(backend: &Backend) -> Result<Fitted, Failure> {
    let fit = |family| backend.curve(family).map_err(|error| Failure::Other(error.to_string()));
    Ok(Fitted { theirs: fit(Some(Family::Poly2))?, ours: fit(None)? })
}

/// The latency of a fit. Beyond the greatest weight that a plan may give it keeps its last value.
fn latency_us(fit: &CurveFit, weight: f64) -> f64 {
    fit.curve.latency_at(weight.min(fit.max_load()))
}

fn off(fit: &CurveFit, truth: &MmcCurve, weight: f64) -> f64 {
    let exact = truth_us(truth, weight);
    (latency_us(fit, weight) / exact - 1.0).powi(2)
}

fn add_errors(explored: &Explored, k: usize, errors: &mut Errors) -> Result<(), Failure> {
    let kind = &KINDS[k];
    let truth = kind.model.curve(SERVICE_US);
    let edge = true_w_max(&truth);
    let from = firsts()[k];
    for backend in &explored.backends[from..from + kind.count] {
        let Fitted { theirs, ours } = fits(backend)?;
        let mean = |fit: &CurveFit| {
            let at = |i: usize| edge * i as f64 / JUDGED as f64;
            (0..=JUDGED).map(|i| off(fit, &truth, at(i))).sum::<f64>() / (JUDGED + 1) as f64
        };
        errors.theirs += mean(&theirs);
        errors.ours += mean(&ours);
        errors.theirs_high += off(&theirs, &truth, 0.9 * edge);
        errors.ours_high += off(&ours, &truth, 0.9 * edge);
        errors.points += backend.points().len() as f64;
    }
    Ok(())
}

fn add_points(table: &mut Table, k: usize, backend: &Backend) -> Result<(), Failure> {
    let mut row = |weight: f64, us: f64, used: &str| {
        row!(table, Simulated, {
            r#type: KINDS[k].name;
            weight: weight, "part of the traffic";
            latency_ms: us / 1e3, "ms";
            used: used;
        })
    };
    row(0.0, backend.l0_us, "yes")?;
    let used = |bad: bool| if bad { "no: drop" } else { "yes" };
    backend.trials.iter().try_for_each(|t| row(t.weight, t.latency_us, used(t.bad)))
}

fn add_curves(table: &mut Table, k: usize, fitted: &Fitted) -> Result<(), Failure> {
    let truth = KINDS[k].model.curve(SERVICE_US);
    let edge = true_w_max(&truth);
    for i in 0..=20 {
        let weight = edge * f64::from(i) / 20.0;
        row!(table, Simulated, {
            r#type: KINDS[k].name;
            weight: weight, "part of the traffic";
            true_ms: truth_us(&truth, weight) / 1e3, "ms";
            degree_2_ms: latency_us(&fitted.theirs, weight) / 1e3, "ms";
            plimsoll_ms: latency_us(&fitted.ours, weight) / 1e3, "ms";
            plimsoll_family: fitted.ours.family.to_string();
        })?;
    }
    Ok(())
}

fn errors_table(errors: &[Errors; 4]) -> Result<Table, Failure> {
    let mut table = Table::empty("errors", "Error against the true curve");
    for ((kind, errors), theirs) in KINDS.iter().zip(errors).zip(THEIR_POINTS) {
        for (name, all, high) in [
            ("degree 2, monotone", errors.theirs, errors.theirs_high),
            ("Plimsoll", errors.ours, errors.ours_high),
        ] {
            row!(table, Provenance::Simulated, {
                r#type: kind.name;
                curve: name;
                points: errors.points, "mean number without drops";
                error_percent: 100.0 * all, "%";
                error_at_90_percent_of_w_max: 100.0 * high, "%";
            })?;
        }
        row!(table, Provenance::Reported, {
            r#type: kind.name;
            curve: "degree 2, monotone";
            points: theirs;
        })?;
    }
    Ok(table)
}

fn plot(k: usize, backend: &Backend, fitted: &Fitted) -> Plot {
    let kind = &KINDS[k];
    let truth = kind.model.curve(SERVICE_US);
    let edge = true_w_max(&truth);
    let line = |latency_us: &dyn Fn(f64) -> f64| -> Points {
        let at = |i: usize| edge * i as f64 / DRAWN as f64;
        (0..=DRAWN).map(|i| (at(i), latency_us(at(i)) / 1e3)).collect()
    };
    let mut points: Points =
        backend.points().iter().map(|p| (p.load, p.latency_us / 1e3)).collect();
    points.insert(0, (0.0, backend.l0_us / 1e3));
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let from = Provenance::Simulated;
    let ours = format!("Plimsoll ({})", fitted.ours.family);
    let lines = vec![
        Lines::new("measured", from, points).drawn(Mark::Points),
        Lines::new("degree 2", from, line(&|w| latency_us(&fitted.theirs, w))).drawn(Mark::Line),
        Lines::new(&ours, from, line(&|w| latency_us(&fitted.ours, w))).drawn(Mark::Line),
        Lines::new("true curve", from, line(&|w| truth_us(&truth, w))).drawn(Mark::Line),
    ];
    let name = format!("curve-{}", kind.model.cores);
    let title = format!("Curves of a backend of {}", kind.name);
    let x = Axis::linear("weight (part of the traffic)");
    Plot::lines(&name, &title, x, Axis::linear("mean latency (ms)"), lines)
}

fn compare(errors: &[Errors; 4]) -> Vec<Comparison> {
    let mut found = Vec::new();
    for ((kind, errors), theirs) in KINDS.iter().zip(errors).zip(THEIR_POINTS) {
        let what = |what: &str| format!("{}, {what}", kind.name);
        let points = (theirs as f64, Tolerance::Absolute(1.5));
        let fits = ("fits well", Bound::AtMost(15.0));
        let error = 100.0 * errors.theirs;
        found.extend([
            Comparison::number(Simulated, what("points without drops"), points, errors.points, "").why(
                "Where the exploration lands relative to the edge decides how many of its steps are drops; one \
                 core is overloaded by the first weight, 1/30, already.",
            ),
            Comparison::bound(Simulated, what("error of degree 2"), fits, error, "%").why(format!(
                "A queue has a pole at its capacity and a parabola has none (Plimsoll's curve: {:.0} %); the \
                 paper judges by eye, at the measured points.",
                100.0 * errors.ours
            )),
        ]);
    }
    found
}
