//! Comparisons that the figures share.

use super::trial::{Named, Trial};
use crate::outcome::{Comparison, Table, Verdict};
use crate::plot::Lines;
use crate::{Cell, Provenance, Value};

/// A value of the paper beside ours, which is simulated; `why` is for where they differ.
pub fn compare(
    what: &str,
    paper: impl Into<Value>,
    ours: impl Into<Value>,
    unit: &str,
    verdict: Verdict,
    why: &str,
) -> Comparison {
    compare_from(Provenance::Simulated, what, paper, ours, unit, verdict, why)
}

/// The same from elsewhere.
pub fn compare_from(
    provenance: Provenance,
    what: &str,
    paper: impl Into<Value>,
    ours: impl Into<Value>,
    unit: &str,
    verdict: Verdict,
    why: &str,
) -> Comparison {
    Comparison {
        what: what.to_owned(),
        paper: paper.into(),
        ours: ours.into(),
        unit: unit.to_owned(),
        verdict,
        provenance,
        why: if verdict == Verdict::Agrees { String::new() } else { why.to_owned() },
    }
}

/// A line for each policy, through these points of its trials.
pub fn lines(all: &[Trial], policies: &[Named], point: fn(&Trial) -> (f64, f64)) -> Vec<Lines> {
    let line = |(name, _): &Named| {
        let points = all.iter().filter(|one| one.policy == *name).map(point).collect();
        Lines::new(name, Provenance::Emulated, points)
    };
    policies.iter().map(line).collect()
}

/// What policies did, a row each.
pub fn trials(name: &str, title: &str, all: &[Trial]) -> Table {
    let mut table = Table::new(
        name,
        title,
        &[
            ("policy", ""),
            ("servers", ""),
            ("load", "of capacity"),
            ("requests", ""),
            ("errors", ""),
            ("mean_ms", "ms"),
            ("p50_ms", "ms"),
            ("p99_ms", "ms"),
            ("variance", "of the servers' load over the whole time"),
            ("variance_by_second", "of the servers' load in a second, mean"),
            ("late_p99_us", "µs, of the generator"),
        ],
    );
    for one in all {
        let total = &one.report.total;
        let cells: [Cell; 11] = [
            one.policy.into(),
            one.servers.into(),
            one.load.into(),
            (total.requests as f64).into(),
            (total.errors as f64).into(),
            total.mean_ms.into(),
            total.p50_ms.into(),
            total.p99_ms.into(),
            one.variance.into(),
            one.variance_by_second.into(),
            (one.report.start_lateness_p99_us as f64).into(),
        ];
        table.row(Provenance::Emulated, cells);
    }
    table
}
