//! Figure 8 (§9): the same on servers as unequal as in Table 4.

use std::time::Duration;

use super::fig7::{DEADLINE, WORDPRESS_DEADLINE, add_wordpress, all, ends, mean, outcome};
use super::lane::Task;
use super::method::named;
use super::pool::Sizes;
use super::sweep::{Plan, Point, mean_of, on_emulated, on_wordpress, wordpress_dir};
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
    takes: Duration::from_secs(55 * 60),
    takes_quick: Duration::from_secs(16),
    run,
};

const TASKS: [f64; 5] = [5_000.0, 10_000.0, 15_000.0, 17_500.0, 20_000.0];
const QUICK: [f64; 1] = [JUDGED];
const JUDGED: f64 = 20_000.0;

fn run(context: &Context) -> Result<Outcome, Failure> {
    let methods = all();
    let tasks: &[f64] = context.pick(&QUICK, &TASKS);
    let plan = Plan { sizes: Sizes::Heterogeneous, methods: &methods, tasks };
    let site = wordpress_dir();
    let (most, half) = if site.is_some() { (0.35, 0.4) } else { (0.95, 1.0) };
    let points = on_emulated(context, plan, DEADLINE, (0.0, most))?;
    let random = [named("random")];
    let alike = Plan { sizes: Sizes::Homogeneous, methods: &random, tasks: &[JUDGED] };
    let alike = on_emulated(context, alike, DEADLINE, (most, half))?;
    let mut outcome = outcome(context, "fig8", plan, &points, DEADLINE)?;
    outcome.comparisons = comparisons(&points);
    outcome.comparisons.push(lower(&points, &alike));
    if let Some(dir) = site {
        let real = on_wordpress(context, &dir, plan, WORDPRESS_DEADLINE, (half, 1.0))?;
        add_wordpress(&mut outcome, "fig8", plan, &real)?;
        outcome.comparisons.extend(comparisons(&real.points));
    }
    Ok(outcome)
}

fn lower(points: &[Point], alike: &[Point]) -> Comparison {
    let random = |points| mean(points, "random", Task::Get, JUDGED);
    let ours = 100.0 * (1.0 - random(alike) / random(points));
    let what =
        "how much lower random's mean is on servers that are alike, 20,000 tasks per 60 s, GET";
    let paper = (63.75, Tolerance::Absolute(10.0));
    Comparison::number(Provenance::Emulated, what, paper, ours, "%")
        .fitted("the scale, by which 20,000 tasks in equal parts nearly fill four cores")
        .why("How near to its capacity the smallest server was in the study is not known.")
}

fn comparisons(points: &[Point]) -> Vec<Comparison> {
    let Some(first) = points.first() else { return Vec::new() };
    let (from, tier) = (first.provenance, first.tier);
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
            "Which server has the comments is hash luck: the smallest misses it, the largest does not. See \
             haproxy-namings.",
        ),
    ]
}
