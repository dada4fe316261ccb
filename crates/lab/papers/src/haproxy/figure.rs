//! What Figures 7 and 8 share: the same sweep on each pool that was chosen, its tables, plots and notes.

use std::time::Duration;

use super::lane::{Seen, Task};
use super::method::{Method, STUDY, all};
use super::pool::{SERVICE, Sizes, limit_wait_ms, work_ms};
use super::servers::chosen;
use super::show;
use super::sweep::{self, Measured, Plan, Point, mean_of};
use crate::cells::Cells;
use crate::outcome::{Outcome, Table, row};
use crate::{Comparison, Context, Failure, Provenance, ServerPool};

/// One of the two.
pub struct Figure {
    /// The experiment's name, for what is kept of it.
    pub experiment: &'static str,
    /// What files are called after.
    pub name: &'static str,
    /// The servers.
    pub sizes: Sizes<'static>,
    /// The paper's rates, tasks per 60 s.
    pub tasks: &'static [f64],
    /// That of a quick run.
    pub quick: &'static [f64],
}

/// Holds one pool's points against the paper's statements; progress goes over the part that it is given.
pub type Judge =
    fn(&Context, &mut Cells, &Measured, (f64, f64)) -> Result<Vec<Comparison>, Failure>;

/// The study's eight on WordPress, where a lane takes a minute; everything elsewhere.
pub fn methods(pool: ServerPool) -> Vec<Method> {
    match pool {
        ServerPool::Emulated | ServerPool::Real => all(),
        ServerPool::Wordpress => STUDY.to_vec(),
    }
}

impl Figure {
    /// Runs it on every pool that was chosen. `judge` holds one pool's points against the paper's statements; it may
    /// run more.
    ///
    /// # Errors
    /// When a pool does not run.
    pub fn run(&self, context: &Context, judge: Judge) -> Result<Outcome, Failure> {
        let pools = chosen(context)?;
        let mut cells = Cells::open(context, self.experiment)?;
        let mut outcome = Outcome::default();
        for (i, &pool) in pools.iter().enumerate() {
            let at = |part: f64| (i as f64 + part) / pools.len() as f64;
            let methods = methods(pool);
            let tasks = context.chosen(&context.options.tasks, self.quick, self.tasks);
            let plan = Plan { sizes: self.sizes, methods: &methods, tasks };
            let measured = sweep::on(context, &mut cells, pool, plan, (at(0.0), at(0.95)))?;
            self.add(context, &mut outcome, &measured)?;
            let judged = judge(context, &mut cells, &measured, (at(0.95), at(1.0)))?;
            if judged.is_empty() {
                let none = "No statement of the study is about these rates.";
                outcome.notes.push(format!("{}: {none}", pool.title()));
            }
            outcome.comparisons.extend(judged);
        }
        if cells.found() > 0 {
            outcome.notes.push(format!(
                "{} of the cells were measured before the run was started again.",
                cells.found()
            ));
        }
        Ok(outcome)
    }

    /// Tables, plots and notes of one pool.
    fn add(
        &self,
        context: &Context,
        outcome: &mut Outcome,
        measured: &Measured,
    ) -> Result<(), Failure> {
        let Measured { pool, points, .. } = measured;
        let title = format!("{}, {}", pool.title(), self.sizes.name());
        let name = pool.name();
        let summary =
            show::summary(&format!("{name}-summary"), &format!("Methods on {title}"), points)?;
        outcome.tables.push(summary);
        let lanes = format!("Every lane: {title}");
        outcome.tables.push(show::table(name, &lanes, points)?);
        let limit = match pool {
            ServerPool::Emulated => self.limit(context, outcome, points)?,
            _ => Vec::new(),
        };
        for task in Task::ALL {
            let name = format!("{}-{name}-{}", self.name, task.name().to_lowercase());
            let title = format!("{}: {title}", task.name());
            let methods = methods(*pool);
            let limit = limit.iter().map(|(tasks, wait_ms)| (*tasks, wait_ms + work_ms(task)));
            let limit = Some(limit.collect::<Vec<_>>()).filter(|limit| !limit.is_empty());
            let drawn = show::plot(&name, &title, points, &methods, task, pool.deadline(), limit);
            outcome.plots.extend(drawn);
        }
        if !measured.scale.costs.is_empty() {
            outcome.tables.push(show::costs(&measured.scale)?);
        }
        self.note(outcome, measured);
        Ok(())
    }

    /// How long requests wait in a central queue, simulated: the limit.
    fn limit(
        &self,
        context: &Context,
        outcome: &mut Outcome,
        points: &[Point],
    ) -> Result<Vec<(f64, f64)>, Failure> {
        let requests = context.pick(20_000, 500_000);
        let mut limits = Table::empty("limit", "A central queue that feeds the fastest free core");
        let mut limit = Vec::new();
        let once = |p: &&Point| p.method == STUDY[0] && p.round == 0 && p.task == Task::Get;
        for p in points.iter().filter(once) {
            let wait_ms = limit_wait_ms(self.sizes, p.rate_rps, requests, context.seed);
            limit.push((p.tasks, wait_ms));
            row!(limits, Provenance::Simulated, {
                tasks_per_60_s: p.tasks, "the paper's rate";
                rate_rps: p.rate_rps, "requests/s here";
                get_ms: wait_ms + work_ms(Task::Get), "ms";
                post_ms: wait_ms + work_ms(Task::Post), "ms";
            })?;
        }
        outcome.tables.push(limits);
        Ok(limit)
    }

    fn note(&self, outcome: &mut Outcome, measured: &Measured) {
        let Measured { pool, scale, left_out, .. } = measured;
        outcome.notes.push(scale_note(*pool, self.sizes, scale.smallest_rps));
        outcome
            .notes
            .extend(left_out.iter().map(|why| format!("{}: left out: {why}", pool.title())));
        outcome.notes.push(format!(
            "{}: the study does not state its deadline; the line is at {} ms{}, and `late` counts against it.",
            pool.title(),
            pool.deadline().as_millis(),
            if *pool == ServerPool::Emulated { ", ten times the mean work" } else { "" }
        ));
        let clients = "All clients have one address, as the study's one virtual machine of clients had, so source \
                       sends everything to one server. The ids that url_param hashes, 1 to 5, fall on five different servers. GETs are of five paths; the five POSTs are comments, which \
                       WordPress takes at one path, so uri sends all of them to one server. A request that is \
                       refused, answered wrongly or not within 10 s counts with 10 s.";
        if !outcome.notes.iter().any(|note| note == clients) {
            outcome.notes.push(clients.to_owned());
        }
    }
}

/// The scale, printed with every run.
pub fn scale_note(pool: ServerPool, sizes: Sizes, core_rps: f64) -> String {
    let per_task = 60.0 * sweep::rate_rps(pool, sizes, core_rps, 1.0);
    let full = 100.0 * sweep::FULL;
    let core = match pool {
        ServerPool::Emulated => {
            format!(
                "a core serves {core_rps:.1} requests/s, of {} ms in the mean",
                SERVICE.as_millis()
            )
        }
        _ => format!(
            "a core of the smallest server serves {core_rps:.1} requests/s of this mix, measured before"
        ),
    };
    let quarter = match (pool, sizes) {
        (ServerPool::Emulated, Sizes::Homogeneous | Sizes::Heterogeneous) => {
            ", a quarter of the study's"
        }
        _ => "",
    };
    format!(
        "Scale, {}, {}: a task of the paper is {per_task:.4} requests here. 80,000 tasks per 60 s on 5×16 cores are taken \
         for {full:.0} % of what the cores can do; {core}, and all servers together have {:.1} cores{quarter}.",
        pool.title(),
        sizes.name(),
        pool.total_cores(sizes)
    )
}

/// What the paper says, held against points: those that were measured decide which method is the least or the greatest,
/// those of the second argument how far these are apart. Chosen anew in each repetition, two that do alike would always
/// differ, by chance.
pub type Compare = fn(&[Point], &[Point]) -> Vec<Comparison>;

/// The paper's statements held against all points, and what each repetition alone would say: where they do not decide
/// it, there is no verdict.
pub fn by_repetition(points: &[Point], compare: Compare) -> Vec<Comparison> {
    let all = compare(points, points);
    let last = points.iter().map(|p| p.round).max().unwrap_or(0);
    if last == 0 {
        return all;
    }
    let alone =
        |round| -> Vec<Point> { points.iter().filter(|p| p.round == round).cloned().collect() };
    let rounds: Vec<Vec<Comparison>> =
        (0..=last).map(|round| compare(points, &alone(round))).collect();
    let decided = |(i, one): (usize, Comparison)| {
        let alone: Vec<&Comparison> = rounds.iter().filter_map(|round| round.get(i)).collect();
        one.decided_by(&alone)
    };
    all.into_iter().enumerate().map(decided).collect()
}

/// The mean of a method, at this rate.
pub fn mean(points: &[Point], method: &str, task: Task, tasks: f64) -> f64 {
    let value: fn(&Seen) -> f64 = |seen| seen.mean_ms;
    mean_of(points, method, task, tasks, value).map_or(f64::NAN, |(mean, _)| mean)
}

/// Those that tell neither clients nor tasks apart: what the others are held against.
pub const SPREADING: [&str; 4] = ["random", "leastconn", "static-rr", "roundrobin"];

/// The mean of a method over the geometric mean of those that spread, GETs and POSTs: what of its response time is the
/// method's, and not the task's own cost.
pub fn over_spreading(points: &[Point], method: &str, tasks: f64) -> [f64; 2] {
    Task::ALL.map(|task| {
        let logs = SPREADING.map(|name| mean(points, name, task, tasks).ln());
        mean(points, method, task, tasks) / (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    })
}

/// Whether this rate was run: a quick run has one, and a person may choose others.
pub fn has_rate(points: &[Point], tasks: f64) -> bool {
    points.iter().any(|p| p.tasks == tasks)
}

/// Which of these methods have the least and the greatest mean.
pub fn ends<'a>(
    points: &[Point],
    methods: &[&'a str],
    task: Task,
    tasks: f64,
) -> (&'a str, &'a str) {
    ends_by(methods, |name| mean(points, name, task, tasks))
}

/// Which of these, at least one, have the least and the greatest value.
pub fn ends_by<T: Copy>(these: &[T], value: impl Fn(T) -> f64) -> (T, T) {
    let by = |a: &T, b: &T| value(*a).total_cmp(&value(*b));
    let known = || these.iter().copied().filter(|one| value(*one).is_finite());
    (known().min_by(by).unwrap_or(these[0]), known().max_by(by).unwrap_or(these[0]))
}

/// Ten times the mean work, emulated.
pub const DEADLINE: Duration = SERVICE.saturating_mul(10);

/// The verdicts of a full run, for tests.
#[cfg(test)]
pub fn verdicts(mut all: Vec<Comparison>) -> Vec<&'static str> {
    all.iter_mut().for_each(|one| one.judge(false));
    all.iter().map(|one| one.verdict().name()).collect()
}

/// One repetition of the study's methods on WordPress at these rates, for tests: `means` tells those of GETs and POSTs.
/// Where a mean is above the
/// deadline, all are late.
#[cfg(test)]
pub fn points_of(rates: &[f64], means: impl Fn(&str, f64) -> [f64; 2]) -> Vec<Point> {
    let pool = ServerPool::Wordpress;
    let mut points = Vec::new();
    for &tasks in rates {
        for &method in STUDY {
            for (task, mean_ms) in Task::ALL.into_iter().zip(means(method.name, tasks)) {
                let late = f64::from(mean_ms > pool.deadline().as_secs_f64() * 1e3);
                let seen = Seen { requests: 100, mean_ms, late, ..Seen::default() };
                points.push(Point { pool, method, tasks, rate_rps: 1.0, round: 0, task, seen });
            }
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Bound;

    fn greatest(_: &[Point], points: &[Point]) -> Vec<Comparison> {
        let most = points.iter().map(|p| p.seen.mean_ms).fold(f64::NAN, f64::max);
        let paper = ("fast", Bound::AtMost(25.0));
        vec![Comparison::bound(Provenance::Emulated, "the slowest", paper, most, "ms")]
    }

    #[test]
    fn what_each_repetition_says_stands_beside_what_all_say() {
        let point = |round, mean_ms| Point {
            pool: ServerPool::Emulated,
            method: STUDY[0],
            tasks: 1.0,
            rate_rps: 1.0,
            round,
            task: Task::Get,
            seen: Seen { mean_ms, ..Seen::default() },
        };
        let both = by_repetition(&[point(0, 10.0), point(1, 20.0)], greatest);
        assert_eq!(both[0].what, "the slowest (by repetition 10, 20; 95 % interval 0.173 to 1156)");
        let verdict = |means: [f64; 2]| {
            let points = [point(0, means[0]), point(1, means[1])];
            verdicts(by_repetition(&points, greatest))
        };
        assert_eq!(verdict([10.0, 20.0]), ["not comparable"], "25 lies within their interval");
        assert_eq!(
            (verdict([10.0, 10.1]), verdict([40.0, 40.1])),
            (vec!["agrees"], vec!["differs"])
        );
        assert_eq!(both[0].ours, 20.0.into());
        assert_eq!(by_repetition(&[point(0, 10.0)], greatest)[0].what, "the slowest");
    }
}
