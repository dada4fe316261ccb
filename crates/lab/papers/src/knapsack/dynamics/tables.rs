//! The tables that Figures 16 and 17 have in common.

use plimsoll_model::Objective;
use plimsoll_pack::PackError;

use super::quiet::Quiet;
use super::seen::{Seen, groups};
use super::{Disturbance, GROUPS, Steering, method_name, optimum};
use crate::outcome::{Table, row};
use crate::plot::{Axis, Lines, Mark, Plot};
use crate::{Failure, Provenance};

/// One row per run.
pub fn runs(runs: &[Seen], best_ms: impl Fn(Disturbance) -> Option<f64>) -> Result<Table, Failure> {
    let mut table =
        Table::empty("runs", "When it was noticed, when new weights came, and what clients saw");
    for seen in runs {
        let r = &seen.reaction;
        let best = best_ms(seen.what).filter(|_| seen.provenance == Provenance::Simulated);
        row!(table, seen.provenance, {
            change: seen.what.name();
            method: method_name(seen.method);
            steering: seen.steering.name();
            seed: seen.seed;
            first_noticed_s: r.first_s, "s after the change";
            all_noticed_s: r.all_s, "s after the change";
            requests_until_noticed: r.requests, "requests per backend concerned";
            new_plan_s: r.planned_s, "s after the change";
            false_alarms: r.false_alarms;
            before_ms: seen.before_ms, "ms, clients' mean";
            first_10s_ms: seen.first_ms, "ms, clients' mean";
            later_ms: seen.later_ms, "ms, clients' mean";
            best_static_split_ms: best, "ms, simulated";
            later_over_best: best.map(|best| seen.later_ms / best);
            lost: seen.lost, "requests";
            busiest: seen.busiest, "part of its capacity";
        })?;
    }
    Ok(table)
}

/// Cumulative weights by type before and after: the mean over runs alike, and of the best splits.
pub fn weights(runs: &[Seen], whats: &[Disturbance]) -> Result<Table, Failure> {
    let title =
        "Cumulative parts of the traffic by type before and after (under round robin: weights)";
    let mut table = Table::empty("weights", title);
    let mut rows =
        |what: Disturbance, method: &str, steering: &str, from, groups: Vec<(f64, f64)>| {
            GROUPS.iter().zip(groups).try_for_each(|((name, _), (before, after))| {
                row!(table, from, {
                    change: what.name();
                    method: method;
                    steering: steering;
                    backends: name;
                    before: before, "part of the traffic";
                    after: after, "part of the traffic";
                    change_absolute: after - before, "part of the traffic";
                    change_percent: 100.0 * (after / before - 1.0), "%";
                })
            })
        };
    let mut done: Vec<(Disturbance, &str, Steering, Provenance)> = Vec::new();
    for seen in runs {
        let key = (seen.what, method_name(seen.method), seen.steering, seen.provenance);
        if !done.contains(&key) {
            done.push(key);
            rows(
                seen.what,
                key.1,
                seen.steering.name(),
                seen.provenance,
                groups(alike(runs, seen)),
            )?;
        }
    }
    for &what in whats {
        for (steering, objective) in BEST {
            rows(what, "", steering, Provenance::Simulated, best_groups(what, objective)?)?;
        }
    }
    Ok(table)
}

/// The best splits that are shown.
pub const BEST: [(&str, Objective); 2] = [
    ("best split for the mean client", Objective::Traffic),
    ("best split by the paper's objective", Objective::Sum),
];

/// Before and after by group in the best split.
pub fn best_groups(what: Disturbance, objective: Objective) -> Result<Vec<(f64, f64)>, PackError> {
    let (before, after) = (optimum::before(objective)?, optimum::after(what, objective)?);
    let sum = |shares: &[f64], range: &std::ops::Range<usize>| shares[range.clone()].iter().sum();
    Ok(GROUPS.iter().map(|(_, range)| (sum(&before, range), sum(&after, range))).collect())
}

/// The runs that differ from this one in their seed alone.
pub fn alike<'a>(runs: &'a [Seen], like: &Seen) -> impl Iterator<Item = &'a Seen> + Clone {
    let key = (like.what, like.method, like.steering, like.provenance);
    runs.iter().filter(move |s| (s.what, s.method, s.steering, s.provenance) == key)
}

/// False alarms while nothing happens.
pub fn quiet(runs: &[Quiet]) -> Result<Table, Failure> {
    let mut table = Table::empty("quiet", "Changes reported while there is none (roundrobin)");
    for q in runs {
        row!(table, Provenance::Simulated, {
            steering: q.steering.name();
            simulated_hours: q.hours, "h";
            false_alarms: q.false_alarms;
            false_alarms_per_hour: q.false_alarms as f64 / q.hours, "1/h";
            plans: q.plans;
            steady_at_the_end: if q.steady { "yes" } else { "no" };
        })?;
    }
    Ok(table)
}

/// Clients' mean by second around the change, one line per run that is picked.
pub fn latencies(name: &str, title: &str, runs: &[&Seen], until_s: f64) -> Plot {
    let line = |seen: &&Seen| {
        let near = |(at, _): &&(f64, f64)| (-20.0..=until_s).contains(at);
        let points = seen.series.iter().filter(near).copied().collect();
        let label = format!("{} ({})", seen.steering.name(), method_name(seen.method));
        Lines::new(&label, seen.provenance, points).drawn(Mark::Line)
    };
    let (x, y) = (Axis::linear("time since the change (s)"), Axis::log("clients' mean (ms)"));
    Plot::lines(name, title, x, y, runs.iter().map(line).collect())
}
