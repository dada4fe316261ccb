//! Summary of the runs of one change: least and greatest values, and how many runs reached the targets.

use std::fmt;

/// A change of a backend is detected within this many seconds or requests, whichever is later.
const SEEN_WITHIN: (f64, usize) = (5.0, 150);
/// New weights come within this many seconds.
const PLANNED_WITHIN_S: f64 = 5.0;
/// Clients wait at most this many times as long as under the oracle's split.
const MEAN_WITHIN: f64 = 1.1;

/// One run.
pub struct Row {
    /// Seconds until the change was recorded, and requests that the backend was given by then.
    pub seen: Option<(f64, usize)>,
    /// Seconds until the first new weights; after a change of traffic, that were made for more than half of it.
    pub plan_s: Option<f64>,
    /// Changes that were recorded of backends that had not changed.
    pub false_alarms: usize,
    /// Clients' mean over that of the oracle.
    pub mean: f64,
    /// The same with the weights of before.
    pub frozen: f64,
    /// By which part clients waited longer than with the weights of before, and its standard error.
    pub worse: (f64, f64),
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:6.1}  {:8}  {:6.1}  {:5}  {:11.3}  {:13.3}  {:+.4} ± {:.4}",
            self.seen.map_or(f64::NAN, |(seconds, _)| seconds),
            self.seen.map_or(0, |(_, requests)| requests),
            self.plan_s.unwrap_or(f64::NAN),
            self.false_alarms,
            self.mean,
            self.frozen,
            self.worse.0,
            self.worse.1
        )
    }
}

/// Prints it.
pub fn print(rows: &[Row]) {
    let count = |of: fn(&Row) -> bool| rows.iter().filter(|row| of(row)).count();
    let in_time = |row: &Row| {
        row.seen.is_some_and(|(s, requests)| s <= SEEN_WITHIN.0 || requests <= SEEN_WITHIN.1)
    };
    println!(
        "  {} runs. seen {} in {} s, {} requests, {} in time ({} s or {} requests)",
        rows.len(),
        count(|row| row.seen.is_some()),
        range(rows, |row| Some(row.seen?.0), 1),
        range(rows, |row| Some(row.seen?.1 as f64), 0),
        count(in_time),
        SEEN_WITHIN.0,
        SEEN_WITHIN.1,
    );
    println!(
        "  new weights after {} s, {} within {PLANNED_WITHIN_S} s; false alarms {}",
        range(rows, |row| row.plan_s, 1),
        count(|row| row.plan_s.is_some_and(|s| s <= PLANNED_WITHIN_S)),
        rows.iter().map(|row| row.false_alarms).sum::<usize>(),
    );
    let (mean, error) = geometric_mean(rows.iter().map(|row| row.mean));
    println!(
        "  mean/oracle {}, geometric mean {mean:.3} ± {error:.3}, {} above {MEAN_WITHIN}; frozen/oracle {}; {} worse \
         than frozen, at most {:.1} %, {} of them by more than two standard errors",
        range(rows, |row| Some(row.mean), 3),
        count(|row| row.mean > MEAN_WITHIN),
        range(rows, |row| Some(row.frozen), 3),
        count(|row| row.mean > row.frozen),
        rows.iter().map(|row| 100.0 * (row.mean / row.frozen - 1.0)).fold(0.0, f64::max),
        count(|row| row.mean > row.frozen && row.worse.0 > 2.0 * row.worse.1),
    );
}

/// "0.9-1.5", or "nothing".
fn range(rows: &[Row], value: impl Fn(&Row) -> Option<f64>, digits: usize) -> String {
    let values = || rows.iter().filter_map(&value);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if least > most {
        return "nothing".to_owned();
    }
    format!("{least:.digits$}-{most:.digits$}")
}

/// With its standard error.
fn geometric_mean(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean.exp(), mean.exp() * (variance / n).sqrt())
}
