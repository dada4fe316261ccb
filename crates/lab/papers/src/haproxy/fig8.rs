//! Figure 8 (§9): the same on servers as unequal as in Table 4.

use std::time::Duration;

use plimsoll_lanes::PATIENCE;

use super::figure::{Figure, by_repetition, ends, ends_by, has_rate, mean, over_spreading};
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
    takes: Duration::from_secs(95 * 60),
    takes_quick: Duration::from_secs(26),
    run,
};

const JUDGED: f64 = 20_000.0;
/// The one rate at which the study's uri misses its deadline.
const MISSED: f64 = 17_500.0;
/// Why uri suits one type of task.
const HASHED: &str = "The comments have one server, the five pages those that they hash to: chance decides which suits.";
const FIGURE: Figure = Figure {
    experiment: EXPERIMENT.name,
    name: "fig8",
    sizes: Sizes::Heterogeneous,
    tasks: &[5_000.0, 10_000.0, 15_000.0, MISSED, 20_000.0],
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
    let mut all = by_repetition(&measured.points, comparisons);
    if has_rate(&measured.points, JUDGED) {
        let random = [named("random")];
        let plan = Plan { sizes: Sizes::Homogeneous, methods: &random, tasks: &[JUDGED] };
        let alike = sweep::on(context, cells, measured.pool, plan, part)?;
        all.push(lower(measured, &alike.points));
    }
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

fn comparisons(all: &[Point], points: &[Point]) -> Vec<Comparison> {
    let mut said = at_judged(all, points);
    for (those, at) in [
        (met as fn(f64) -> bool, "at the figure's other rates"),
        (|tasks| tasks == MISSED, "at 17,500 tasks per 60 s"),
    ] {
        if points.iter().any(|p| those(p.tasks)) {
            said.push(uri_late(all, points, at, those));
        }
    }
    said
}

/// What is said of the rate at which the methods are told apart.
fn at_judged(all: &[Point], points: &[Point]) -> Vec<Comparison> {
    let Some(first) = points.iter().find(|p| p.tasks == JUDGED) else { return Vec::new() };
    let (from, tier) = (first.pool.provenance(), first.pool.title());
    let at = |method, task| mean(points, method, task, JUDGED);
    let bound = |what: &str, paper: (&str, Bound), ours: f64, why: &str| {
        let what = format!("{tier}, 20,000 tasks per 60 s: {what}");
        Comparison::bound(from, what, paper, ours, "×").why(why)
    };
    let get = |name| at(name, Task::Get);
    let (better_turns, worse_turns) = ends(all, &["static-rr", "roundrobin"], Task::Get, JUDGED);
    let (better_counting, worse_counting) = ends(all, &["random", "leastconn"], Task::Get, JUDGED);
    // GET and POST; and which of them is better and worse for the method.
    let both = |name| {
        let here = over_spreading(points, name, JUDGED);
        let (better, worse) =
            ends_by(&[0, 1], |task: usize| over_spreading(all, name, JUDGED)[task]);
        (here[better], here[worse])
    };
    let (uri, source) = (both("uri"), both("source"));
    let source = bound(
        "the worse task type of source over its better one, each over the four that spread",
        ("robust to the type", Bound::AtMost(1.25)),
        source.1 / source.0,
        "One server has both types.",
    );
    let patience_ms = PATIENCE.as_secs_f64() * 1e3;
    let gave_up = Task::ALL.iter().all(|&task| at("source", task) > 0.99 * patience_ms);
    let source = if gave_up {
        source.incomparable("Nearly nobody was answered: all wait as long as they are willing to.")
    } else {
        source
    };
    vec![
        bound(
            "the greater of static-rr and roundrobin over the other, GET",
            ("they do alike", Bound::AtMost(1.25)),
            get(worse_turns) / get(better_turns),
            "Both give equal parts; near the capacity of the smallest server a mean scatters.",
        ),
        bound(
            "the greater of random and leastconn over the other, GET",
            ("they do alike", Bound::AtMost(1.25)),
            get(worse_counting) / get(better_counting),
            "random compares two servers where leastconn compares all five; behind quotas both of the two can be \
             many times slower, where the study's had fewer cores.",
        ),
        bound(
            "the better of static-rr and roundrobin over the worse of random and leastconn, GET",
            ("the two pairs separate", Bound::AtLeast(1.1)),
            get(better_turns) / get(worse_counting),
            "The pair that counts requests spares the small servers; at low load there is nothing to count. A quota \
             makes a server slower where the study's had fewer cores.",
        ),
        bound(
            "the better task type of uri over the four that spread",
            ("well for one type", Bound::AtMost(1.0)),
            uri.0,
            HASHED,
        ),
        bound(
            "the worse task type of uri over the four that spread",
            ("poorly for the other", Bound::AtLeast(1.0)),
            uri.1,
            HASHED,
        ),
        bound(
            "uri over the four that spread, geometric mean of GET and POST",
            ("what looks at the request does better on unequal servers", Bound::AtMost(1.0)),
            (uri.0 * uri.1).sqrt(),
            "A hash knows what is asked for, but neither what it costs nor how large a server is.",
        ),
        source,
        bound(
            "source over random, GET",
            ("robust at the cost of response time", Bound::AtLeast(1.1)),
            at("source", Task::Get) / at("random", Task::Get),
            "Clients of one address have one server of the five.",
        ),
    ]
}

/// The rates of the figure at which the study's uri meets its deadline.
fn met(tasks: f64) -> bool {
    FIGURE.tasks.contains(&tasks) && tasks != MISSED
}

/// The part of uri's POSTs that misses the deadline, at the worst of these rates.
fn uri_late(all: &[Point], points: &[Point], at: &str, those: fn(f64) -> bool) -> Comparison {
    let (from, tier) = (points[0].pool.provenance(), points[0].pool.title());
    let late = |points: &[Point], tasks| {
        mean_of(points, "uri", Task::Post, tasks, |seen| seen.late)
            .map_or(f64::NAN, |(late, _)| late)
    };
    let rates: Vec<f64> = all.iter().map(|p| p.tasks).filter(|tasks| those(*tasks)).collect();
    let (_, worst) = ends_by(&rates, |tasks| late(all, tasks));
    let worst = late(points, worst);
    let paper = if those(MISSED) {
        ("uri misses the deadline", Bound::AtLeast(0.05))
    } else {
        ("uri meets the deadline", Bound::AtMost(0.05))
    };
    let what = format!("{tier}: part of the POSTs after the deadline, uri, {at}");
    Comparison::bound(from, what, paper, worst, "").why(
        "Which server the comments hash to is chance: a small one misses the deadline, a large one does not. See \
         haproxy-namings.",
    )
}

#[cfg(test)]
mod tests {
    use super::super::figure::{points_of, verdicts};
    use super::*;

    /// What is said of these means of GETs and POSTs at a rate; those above 3 s are late.
    fn said(means: impl Fn(&str, f64) -> [f64; 2]) -> Vec<&'static str> {
        let points = points_of(&[JUDGED, MISSED], means);
        verdicts(comparisons(&points, &points))
    }

    #[test]
    fn the_studys_figure_agrees_with_itself() {
        let paper = |name: &str, tasks: f64| match name {
            "uri" if tasks == MISSED => [50.0, 9_000.0],
            "uri" => [50.0, 300.0],
            "source" => [400.0, 440.0],
            "static-rr" | "roundrobin" => [300.0, 310.0],
            _ => [100.0, 110.0],
        };
        assert_eq!(said(paper), ["agrees"; 10]);
    }

    #[test]
    fn each_statement_can_fail() {
        let opposite = |name: &str, tasks: f64| match name {
            "uri" if tasks == MISSED => [100.0, 110.0],
            "uri" => [3_500.0, 3_850.0],
            "source" => [40.0, 440.0],
            "static-rr" => [50.0, 110.0],
            "random" => [200.0, 220.0],
            _ => [100.0, 110.0],
        };
        // No type can be well served where both are badly served.
        let mut all = ["differs"; 10];
        all[4] = "agrees";
        assert_eq!(said(opposite), all);
        let uri_well = |name: &str, _| if name == "uri" { [50.0, 60.0] } else { [100.0, 110.0] };
        assert_eq!(said(uri_well)[4], "differs");
    }
}
