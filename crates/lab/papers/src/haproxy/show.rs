//! Tables and plots that the figures share.

use std::time::Duration;

use plimsoll_lanes::{half_width, mean};
use plimsoll_real::Ratio;

use super::lane::{Seen, Task};
use super::method::Method;
use super::servers::Scale;
use super::sweep::{Point, mean_of, values};
use crate::outcome::{Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Failure, Provenance};

/// Every lane, a row per task type and repetition.
pub fn table(name: &str, title: &str, points: &[Point]) -> Result<Table, Failure> {
    let mut table = Table::empty(name, title);
    for p in points {
        row!(table, p.pool.provenance(), {
            servers: p.pool.title();
            method: p.method.name;
            tasks_per_60_s: p.tasks, "the paper's rate";
            rate_rps: p.rate_rps, "requests/s here";
            repetition: p.round + 1;
            task: p.task.name();
            requests: p.seen.requests as f64;
            errors: p.seen.errors as f64;
            mean_ms: p.seen.mean_ms, "ms";
            p99_ms: p.seen.p99_ms, "ms";
            late: p.seen.late, "part after the deadline";
        })?;
    }
    Ok(table)
}

/// Every method at every rate: means over the repetitions, with 95 % intervals.
pub fn summary(name: &str, title: &str, points: &[Point]) -> Result<Table, Failure> {
    let mut table = Table::empty(name, title);
    let mut shown: Vec<(f64, &str, Task)> = Vec::new();
    for p in points {
        let key = (p.tasks, p.method.name, p.task);
        if shown.contains(&key) {
            continue;
        }
        shown.push(key);
        let all = |value: fn(&Seen) -> f64| values(points, p.method.name, p.task, p.tasks, value);
        let mean = |value| mean(&all(value));
        let means = all(|seen| seen.mean_ms);
        let turns = values(points, "roundrobin", p.task, p.tasks, |seen| seen.mean_ms);
        let pairs: Vec<(f64, f64)> = means.iter().copied().zip(turns).collect();
        let ratio = Ratio::of(&pairs).filter(|ratio| ratio.value.is_finite());
        row!(table, p.pool.provenance(), {
            tasks_per_60_s: p.tasks, "the paper's rate";
            method: p.method.name;
            task: p.task.name();
            repetitions: means.len();
            mean_ms: mean(|seen| seen.mean_ms), "ms";
            interval_ms: half_width(&means), "± ms, 95 %";
            p99_ms: mean(|seen| seen.p99_ms), "ms, mean over repetitions";
            late: mean(|seen| seen.late), "part after the deadline";
            unanswered: mean(|seen| seen.errors as f64 / (seen.requests.max(1)) as f64), "part";
            over_roundrobin: ratio.map(|ratio| ratio.value), "× its mean, repetitions in pairs";
            low: ratio.and_then(|ratio| ratio.low), "95 %";
            high: ratio.and_then(|ratio| ratio.high), "95 %";
        })?;
    }
    Ok(table)
}

/// CPU that each request costs, where it was measured.
pub fn costs(scale: &Scale) -> Result<Table, Failure> {
    let title = "CPU that each request of the site costs, alone on the smallest instance";
    let mut table = Table::empty("costs", title);
    for (task, what, cpu_ms) in &scale.costs {
        row!(table, Provenance::Measured, {
            task: task.as_str();
            what: what.as_str();
            cpu_ms: *cpu_ms, "ms";
        })?;
    }
    Ok(table)
}

/// Response time of one task type over the rate, a line per method, and the deadline; `limit` is a line as well.
pub fn plot(
    name: &str,
    title: &str,
    points: &[Point],
    methods: &[Method],
    task: Task,
    deadline: Duration,
    limit: Option<Vec<(f64, f64)>>,
) -> Option<Plot> {
    let provenance = points.first()?.pool.provenance();
    let mut tasks: Vec<f64> = points.iter().map(|p| p.tasks).collect();
    tasks.sort_by(f64::total_cmp);
    tasks.dedup();
    let line = |method: &Method| {
        let at = |&x: &f64| Some((x, mean_of(points, method.name, task, x, |seen| seen.mean_ms)?));
        let found = tasks.iter().filter_map(at).filter(|(_, (mean, _))| mean.is_finite());
        let found: Vec<(f64, (f64, f64))> = found.collect();
        let errors = found.iter().map(|(_, (_, error))| *error).collect();
        let means = found.iter().map(|(x, (mean, _))| (*x, *mean)).collect();
        Lines::new(method.name, provenance, means).errors(errors)
    };
    let mut lines: Vec<Lines> = methods.iter().map(line).filter(|l| !l.points.is_empty()).collect();
    let ms = deadline.as_secs_f64() * 1e3;
    let (first, last) = (*tasks.first()?, *tasks.last()?);
    lines.push(Lines::new("deadline", Provenance::Reported, vec![(first, ms), (last, ms)]));
    if let Some(limit) = limit {
        lines.push(Lines::new("central queue (limit)", Provenance::Simulated, limit));
    }
    let (x, y) =
        (Axis::linear("tasks per 60 s, the paper's"), Axis::log("mean response time (ms)"));
    Some(Plot::lines(name, title, x, y, lines))
}
