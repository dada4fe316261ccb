//! Lines and the table that the figures made of trials share.

use super::trial::{Named, Trial};
use crate::outcome::Table;
use crate::plot::Lines;
use crate::{Cell, Provenance};

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
