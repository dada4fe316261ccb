//! Figure 7 (§8): eight methods over the rate, on servers that are alike.

use std::time::Duration;

use super::figure::{Figure, SPREADING, by_repetition, ends, ends_by, mean};
use super::lane::Task;
use super::method::STUDY;
use super::pool::Sizes;
use super::sweep::{Measured, Point};
use crate::cells::Cells;
use crate::comparison::Bound;
use crate::outcome::Outcome;
use crate::{Comparison, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "haproxy-fig7",
    paper: &super::PAPER,
    figure: "Figure 7",
    title: "Methods over the rate, servers alike",
    claim: "uri is best on GET and worst on POST, first and source are worse on GET, and random, leastconn, \
            static-rr and roundrobin do alike.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: Duration::from_secs(95 * 60),
    takes_quick: Duration::from_secs(23),
    run,
};

/// The rate at which the study sees differences first.
const JUDGED: f64 = 60_000.0;
/// Where first and source have one server that is full, and not yet so overloaded that all give up.
const APART: f64 = 20_000.0;
const FIGURE: Figure = Figure {
    experiment: EXPERIMENT.name,
    name: "fig7",
    sizes: Sizes::Homogeneous,
    tasks: &[10_000.0, APART, 40_000.0, JUDGED, 80_000.0],
    quick: &[JUDGED],
};
fn run(context: &Context) -> Result<Outcome, Failure> {
    FIGURE.run(context, judge)
}

fn judge(
    _: &Context,
    _: &mut Cells,
    measured: &Measured,
    _: (f64, f64),
) -> Result<Vec<Comparison>, Failure> {
    Ok(by_repetition(&measured.points, comparisons))
}

fn comparisons(all: &[Point], points: &[Point]) -> Vec<Comparison> {
    first_and_source(all, points).into_iter().chain(at_judged(all, points)).collect()
}

/// The two that send everything to one server, where it is not yet so overloaded that all give up.
fn first_and_source(all: &[Point], points: &[Point]) -> Option<Comparison> {
    let found = points.iter().find(|p| p.tasks == APART)?;
    let tier = found.pool.title();
    let (less, greater) = ends(all, &["first", "source"], Task::Get, APART);
    let one = Comparison::bound(
        found.pool.provenance(),
        format!(
            "{tier}, 20,000 tasks per 60 s: the greater of first and source over the other, GET"
        ),
        ("they are drawn as one line", Bound::AtMost(1.25)),
        mean(points, greater, Task::Get, APART) / mean(points, less, Task::Get, APART),
        "×",
    );
    Some(one.why(
        "Without maxconn first has one server, and source has one for clients of one address.",
    ))
}

/// What is said of the rate at which the methods are told apart.
fn at_judged(all: &[Point], points: &[Point]) -> Vec<Comparison> {
    let Some(first) = points.iter().find(|p| p.tasks == JUDGED) else { return Vec::new() };
    let (from, tier) = (first.pool.provenance(), first.pool.title());
    let at = |method, task| mean(points, method, task, JUDGED);
    let (get, post) = (|name| at(name, Task::Get), |name| at(name, Task::Post));
    let by_type = |points, name| {
        mean(points, name, Task::Get, JUDGED) / mean(points, name, Task::Post, JUDGED)
    };
    let others: Vec<&str> = STUDY.iter().map(|m| m.name).filter(|n| *n != "uri").collect();
    let rest: Vec<&str> = [&SPREADING[..], &["url_param"]].concat();
    let (best_other, _) = ends(all, &others, Task::Get, JUDGED);
    let (_, worst_other) = ends(all, &others, Task::Post, JUDGED);
    let (_, worst_rest) = ends(all, &rest, Task::Post, JUDGED);
    let (least_typed, most_typed) = ends_by(&SPREADING, |name| by_type(all, name));
    let (fastest, slowest) = ends(all, &SPREADING, Task::Get, JUDGED);
    let (better_single, _) = ends(all, &["first", "source"], Task::Get, JUDGED);
    let bound = |what: &str, paper: (&str, Bound), ours: f64, why: &str| {
        let what = format!("{tier}, 60,000 tasks per 60 s: {what}");
        Comparison::bound(from, what, paper, ours, "×").why(why)
    };
    let mut said = vec![
        bound(
            "mean of uri over that of the best other method, GET",
            ("uri is best", Bound::AtMost(1.0)),
            get("uri") / get(best_other),
            "Which of five servers five paths hash to is chance: see haproxy-namings for how often uri is best.",
        ),
        bound(
            "mean of uri over that of the worst other method, POST",
            ("uri is worst", Bound::AtLeast(1.0)),
            post("uri") / post(worst_other),
            "All comments have one path, and so one server; but first and source have one for all.",
        ),
        bound(
            "mean of uri over that of the worst method that uses all servers, POST",
            ("uri is worst", Bound::AtLeast(1.0)),
            post("uri") / post(worst_rest),
            "All comments have one path, and so one server; first and source, which have one for all, are left \
             out of the comparison.",
        ),
        bound(
            "GET over POST, the greatest of the four that spread over the least of them",
            ("robust to the type", Bound::AtMost(1.25)),
            by_type(points, most_typed) / by_type(points, least_typed),
            "What waits, waits for both types alike: the method that waits least shows most of what each type costs.",
        ),
        bound(
            "the better mean of first and source over the worst of the four that spread, GET",
            ("first and source are worse", Bound::AtLeast(1.0)),
            get(better_single) / get(slowest),
            "Without maxconn first has one server, and source has one for clients of one address.",
        ),
        bound(
            "greatest over least mean of random, leastconn, static-rr and roundrobin, GET",
            ("they do alike", Bound::AtMost(1.25)),
            get(slowest) / get(fastest),
            "The study draws one line for the four; a quarter apart is taken for alike. Near capacity \
             leastconn beats turns, which cannot see that a server is busy.",
        ),
    ];
    // Where the other methods were run as well.
    if ["random(1)", "random(5)", "leastconn"].into_iter().all(|name| get(name).is_finite()) {
        let (less, greater) = ends(all, &["random(5)", "leastconn"], Task::Get, JUDGED);
        said.push(bound(
            "the greater of random(5) and leastconn over the other, GET",
            ("it does as leastconn", Bound::AtMost(1.25)),
            get(greater) / get(less),
            "It compares all five, as leastconn does.",
        ));
        said.push(bound(
            "random(1) over random(5), GET",
            ("it nears leastconn as N grows", Bound::AtLeast(1.0)),
            get("random(1)") / get("random(5)"),
            "random(1) compares nothing.",
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::super::figure::{points_of, verdicts};
    use super::super::method::named;
    use super::*;

    /// What is said of these means of GETs and POSTs at the rate that is judged.
    fn said(means: impl Fn(&str) -> [f64; 2]) -> Vec<&'static str> {
        let points = points_of(&[APART, JUDGED], |name, _| means(name));
        verdicts(comparisons(&points, &points))
    }

    #[test]
    fn the_studys_figure_agrees_with_itself() {
        let paper = |name: &str| match name {
            "uri" => [50.0, 900.0],
            "first" | "source" => [400.0, 500.0],
            _ => [100.0, 110.0],
        };
        assert_eq!(said(paper), ["agrees"; 7]);
    }

    #[test]
    fn each_statement_can_fail() {
        let opposite = |name: &str| match name {
            "uri" => [200.0, 20.0],
            "first" => [50.0, 50.0],
            "random" => [400.0, 100.0],
            _ => [100.0, 110.0],
        };
        assert_eq!(said(opposite), ["differs"; 7]);
    }

    #[test]
    fn methods_that_do_alike_are_not_told_apart_by_which_was_slower_in_a_repetition() {
        let round = |round, random: f64, leastconn: f64| {
            let mut points = points_of(&[JUDGED], |name, _| match name {
                "random" => [random, 110.0],
                "leastconn" => [leastconn, 110.0],
                _ => [115.0, 110.0],
            });
            points.iter_mut().for_each(|p| p.round = round);
            points
        };
        // In each repetition the slower one takes 1.31 times as long as the faster one.
        let points: Vec<Point> = (0..6)
            .flat_map(|i| if i % 2 == 0 { round(i, 100.0, 131.0) } else { round(i, 131.0, 100.0) })
            .collect();
        let all = by_repetition(&points, comparisons);
        let alike = all.into_iter().filter(|one| one.what.contains("greatest over least mean"));
        assert_eq!(verdicts(alike.collect()), ["agrees"]);
    }

    #[test]
    fn random_of_more_servers_is_judged_where_it_was_run() {
        let with = |one: f64, five: f64| {
            let mut points = points_of(&[APART, JUDGED], |_, _| [100.0, 110.0]);
            for (name, mean_ms) in [("random(1)", one), ("random(5)", five)] {
                let at = points.iter().find(|p| p.tasks == JUDGED && p.task == Task::Get);
                let mut point = at.expect("judged").clone();
                (point.method, point.seen.mean_ms) = (named(name), mean_ms);
                points.push(point);
            }
            verdicts(comparisons(&points, &points)).split_off(7)
        };
        assert_eq!(with(300.0, 110.0), ["agrees"; 2]);
        assert_eq!(with(100.0, 130.0), ["differs"; 2]);
    }
}
