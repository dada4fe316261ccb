//! Figure 7 (§8): eight methods over the rate, on servers that are alike.

use std::time::Duration;

use super::lane::{Seen, Task};
use super::method::{BESIDE, Method, STUDY};
use super::pool::{SERVICE, Sizes, limit_ms};
use super::show;
use super::sweep::{self, Plan, Point, mean_of, on_emulated, on_wordpress, wordpress_dir};
use crate::comparison::Bound;
use crate::outcome::{Outcome, Table, row};
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
    takes: Duration::from_secs(55 * 60),
    takes_quick: Duration::from_secs(14),
    run,
};

/// The study does not state its deadline: ten times the mean work of a request, emulated.
pub const DEADLINE: Duration = SERVICE.saturating_mul(10);
/// And on WordPress the three seconds that it cites for clients.
pub const WORDPRESS_DEADLINE: Duration = Duration::from_secs(3);

const TASKS: [f64; 5] = [10_000.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0];
const QUICK: [f64; 1] = [JUDGED];
/// The rate at which the study sees differences first.
const JUDGED: f64 = 60_000.0;
/// Those that the study stacks.
const ALIKE: [&str; 4] = ["random", "leastconn", "static-rr", "roundrobin"];

/// All methods of a figure.
pub fn all() -> Vec<Method> {
    STUDY.iter().chain(BESIDE).copied().collect()
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let methods = all();
    let tasks: &[f64] = context.pick(&QUICK, &TASKS);
    let plan = Plan { sizes: Sizes::Homogeneous, methods: &methods, tasks };
    let site = wordpress_dir();
    let half = if site.is_some() { 0.4 } else { 1.0 };
    let points = on_emulated(context, plan, DEADLINE, (0.0, half))?;
    let mut outcome = outcome(context, "fig7", plan, &points, DEADLINE)?;
    outcome.comparisons = comparisons(&points);
    if let Some(dir) = site {
        let real = on_wordpress(context, &dir, plan, WORDPRESS_DEADLINE, (half, 1.0))?;
        add_wordpress(&mut outcome, "fig7", plan, &real)?;
        outcome.comparisons.extend(comparisons(&real.points));
    }
    Ok(outcome)
}

/// Tables, plots and notes of emulated lanes.
pub fn outcome(
    context: &Context,
    name: &str,
    plan: Plan,
    points: &[Point],
    deadline: Duration,
) -> Result<Outcome, Failure> {
    let requests = context.pick(20_000, 500_000);
    let mut limits = Table::empty("limit", "A central queue that feeds the fastest free core");
    let mut limit = Vec::new();
    for p in points.iter().filter(|p| p.method == STUDY[0] && p.round == 0 && p.task == Task::Get) {
        let ms = limit_ms(plan.sizes, p.rate_rps, requests, context.seed);
        limit.push((p.tasks, ms));
        row!(limits, Provenance::Simulated, {
            tasks_per_60_s: p.tasks, "the paper's rate";
            rate_rps: p.rate_rps, "requests/s here";
            mean_ms: ms, "ms";
        })?;
    }
    let title = format!("{} servers, emulated", plan.sizes.name());
    let plots = Task::ALL.iter().filter_map(|&task| {
        let name = format!("{name}-{}", task.name().to_lowercase());
        let title = format!("{}: {title}", task.name());
        show::plot(&name, &title, points, plan.methods, task, deadline, Some(limit.clone()))
    });
    let scale = points.first().map_or(0.0, |p| p.rate_rps * 60.0 / p.tasks);
    Ok(Outcome {
        plots: plots.collect(),
        tables: vec![show::table("lanes", &format!("Methods on {title}"), points)?, limits],
        comparisons: Vec::new(),
        notes: vec![
            format!(
                "Scale: a task of the paper is {scale:.3} requests here. 80,000 tasks per 60 s on 5×16 cores \
                 are taken for {:.0} % of what the cores can do, and emulated servers have a quarter of the \
                 paper's cores and {} ms of exponential work in the mean.",
                100.0 * sweep::FULL,
                SERVICE.as_millis()
            ),
            format!(
                "The study does not state its deadline; the line is at {} ms, ten times the mean work, and \
                 `late` counts against it.",
                deadline.as_millis()
            ),
            "All clients have one address, as the study's one virtual machine of clients had, so source sends \
             everything to one server. GETs are of five paths; the five POSTs are comments, which WordPress \
             takes at one path, so uri sends all of them to one server."
                .to_owned(),
            "A request that is not answered within 10 s counts with these 10 s.".to_owned(),
        ],
    })
}

/// Adds what was measured on WordPress.
pub fn add_wordpress(
    outcome: &mut Outcome,
    name: &str,
    plan: Plan,
    real: &sweep::WordPress,
) -> Result<(), Failure> {
    let title = format!("WordPress on {} servers", plan.sizes.name());
    outcome.tables.push(show::table("wordpress", &format!("Methods: {title}"), &real.points)?);
    let mut costs =
        Table::empty("costs", "CPU that each request of the site costs, alone on an instance");
    for cost in &real.costs {
        row!(costs, Provenance::Measured, {
            task: cost.method;
            what: cost.what.as_str();
            cpu_ms: cost.cpu_ms, "ms";
        })?;
    }
    outcome.tables.push(costs);
    for task in Task::ALL {
        let name = format!("{name}-wordpress-{}", task.name().to_lowercase());
        let title = format!("{}: {title}", task.name());
        let drawn =
            show::plot(&name, &title, &real.points, plan.methods, task, WORDPRESS_DEADLINE, None);
        outcome.plots.extend(drawn);
    }
    outcome.notes.push(format!(
        "WordPress: a core serves {:.1} requests/s of this mix, measured before; instances have 1.2 cores \
         together, so that 80,000 tasks per 60 s on 5×16 cores are {:.1} requests/s here.",
        real.core_rps,
        sweep::FULL * 1.2 * real.core_rps
    ));
    Ok(())
}

/// The mean of a method, at this rate.
pub fn mean(points: &[Point], method: &str, task: Task, tasks: f64) -> f64 {
    let value: fn(&Seen) -> f64 = |seen| seen.mean_ms;
    mean_of(points, method, task, tasks, value).map_or(f64::NAN, |(mean, _)| mean)
}

/// The least and the greatest mean of these.
pub fn ends(points: &[Point], methods: &[&str], task: Task, tasks: f64) -> (f64, f64) {
    let means = methods.iter().map(|name| mean(points, name, task, tasks));
    means.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), m| (a.min(m), b.max(m)))
}

fn comparisons(points: &[Point]) -> Vec<Comparison> {
    let Some(first) = points.first() else { return Vec::new() };
    let (from, tier) = (first.provenance, first.tier);
    let others: Vec<&str> = STUDY.iter().map(|m| m.name).filter(|n| *n != "uri").collect();
    let at = |method, task| mean(points, method, task, JUDGED);
    let (least_get, _) = ends(points, &others, Task::Get, JUDGED);
    let rest: Vec<&str> = [&ALIKE[..], &["url_param"]].concat();
    let (_, most_post) = ends(points, &rest, Task::Post, JUDGED);
    let (_, rest_get) = ends(points, &ALIKE, Task::Get, JUDGED);
    let (worse_get, _) = ends(points, &["first", "source"], Task::Get, JUDGED);
    let (low, high) = ends(points, &ALIKE, Task::Get, JUDGED);
    let bound = |what: &str, paper: (&str, Bound), ours: f64, why: &str| {
        let what = format!("{tier}, 60,000 tasks per 60 s: {what}");
        Comparison::bound(from, what, paper, ours, "×").why(why)
    };
    vec![
        bound(
            "mean of uri over that of the best other method, GET",
            ("uri is best", Bound::AtMost(1.0)),
            at("uri", Task::Get) / least_get,
            "Five paths on five servers are hash luck: see haproxy-namings for how often uri is best.",
        ),
        bound(
            "mean of uri over that of the worst method that spreads, POST",
            ("uri is worst", Bound::AtLeast(1.0)),
            at("uri", Task::Post) / most_post,
            "All comments have one path, and so one server; first and source, which have one for all, are left \
             out of the comparison.",
        ),
        bound(
            "the better mean of first and source over the worst of the four that spread, GET",
            ("first and source are worse", Bound::AtLeast(1.0)),
            worse_get / rest_get,
            "Without maxconn first has one server, and source has one for clients of one address.",
        ),
        bound(
            "greatest over least mean of random, leastconn, static-rr and roundrobin, GET",
            ("they do alike", Bound::AtMost(1.25)),
            high / low,
            "The study draws one line for the four; a quarter apart is taken for alike. Near capacity \
             leastconn beats turns, which cannot see that a server is busy.",
        ),
    ]
}
