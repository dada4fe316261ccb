//! Figure 8 (§9): the same on servers as unequal as in Table 4.

use std::time::Duration;

use super::figure::{Figure, by_repetition, ends, mean};
use super::lane::Task;
use super::method::named;
use super::pool::Sizes;
use super::sweep::{self, Measured, Plan, Point, mean_of};
use crate::cells::Cells;
use crate::comparison::Bound;
use crate::outcome::Outcome;
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "haproxy-fig8",
    paper: &super::PAPER,
    figure: "Figure 8, Table 4",
    title: "Methods over the rate, servers of 4, 8, 16, 32 and 48 cores",
    claim: "static-rr goes with roundrobin and random with leastconn, and random's response time at 20,000 tasks \
            per 60 s is 63.75 % lower on servers that are alike.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: Duration::from_secs(75 * 60),
    takes_quick: Duration::from_secs(22),
    run,
};

const JUDGED: f64 = 20_000.0;
const FIGURE: Figure = Figure {
    experiment: EXPERIMENT.name,
    name: "fig8",
    sizes: Sizes::Heterogeneous,
    tasks: &[5_000.0, 10_000.0, 15_000.0, 17_500.0, 20_000.0],
    quick: &[JUDGED],
};

fn run(context: &Context) -> Result<Outcome, Failure> {
    FIGURE.run(context, judge)
}

fn judge(
    context: &Context,
    cells: &mut Cells,
    measured: &Measured,
    part: (f64, f64),
) -> Result<Vec<Comparison>, Failure> {
    let random = [named("random")];
    let plan = Plan { sizes: Sizes::Homogeneous, methods: &random, tasks: &[JUDGED] };
    let alike = sweep::on(context, cells, measured.pool, plan, part)?;
    let mut all = by_repetition(&measured.points, comparisons);
    all.push(lower(measured, &alike.points));
    Ok(all)
}

fn lower(measured: &Measured, alike: &[Point]) -> Comparison {
    let random = |points| mean(points, "random", Task::Get, JUDGED);
    let ours = 100.0 * (1.0 - random(alike) / random(&measured.points));
    let what = format!(
        "{}: how much lower random's mean is on servers that are alike, 20,000 tasks per 60 s, GET",
        measured.pool.title()
    );
    let paper = (63.75, Tolerance::Absolute(10.0));
    Comparison::number(measured.pool.provenance(), what, paper, ours, "%")
        .fitted("the scale, by which 20,000 tasks in equal parts nearly fill four cores")
        .why("How near to its capacity the smallest server was in the study is not known.")
}

fn comparisons(points: &[Point]) -> Vec<Comparison> {
    let Some(first) = points.first() else { return Vec::new() };
    let (from, tier) = (first.pool.provenance(), first.pool.title());
    let at = |method, task| mean(points, method, task, JUDGED);
    let bound = |what: &str, paper: (&str, Bound), ours: f64, why: &str| {
        let what = format!("{tier}, 20,000 tasks per 60 s: {what}");
        Comparison::bound(from, what, paper, ours, "×").why(why)
    };
    let apart = |a, b| {
        let (a, b): (f64, f64) = (at(a, Task::Get), at(b, Task::Get));
        (a / b).max(b / a)
    };
    let (turns, _) = ends(points, &["static-rr", "roundrobin"], Task::Get, JUDGED);
    let (_, counting) = ends(points, &["random", "leastconn"], Task::Get, JUDGED);
    let late = mean_of(points, "uri", Task::Post, JUDGED, |seen| seen.late);
    vec![
        bound(
            "the greater of static-rr and roundrobin over the other, GET",
            ("they do alike", Bound::AtMost(1.25)),
            apart("static-rr", "roundrobin"),
            "Both give equal parts; near the capacity of the smallest server a mean scatters.",
        ),
        bound(
            "the greater of random and leastconn over the other, GET",
            ("they do alike", Bound::AtMost(1.25)),
            apart("random", "leastconn"),
            "random compares two servers where leastconn compares all five.",
        ),
        bound(
            "the better of static-rr and roundrobin over the worse of random and leastconn, GET",
            ("the two pairs separate", Bound::AtLeast(1.1)),
            turns / counting,
            "The pair that counts requests spares the small servers; at low load there is nothing to count.",
        ),
        bound(
            "part of the POSTs after the deadline, uri",
            ("uri meets the deadline but for 17.5k", Bound::AtMost(0.05)),
            late.map_or(f64::NAN, |(late, _)| late),
            "Which server the comments hash to is chance: the smallest misses it, the largest does not. See \
             haproxy-namings.",
        ),
    ]
}
