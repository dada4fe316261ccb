//! Lines and the table that the figures made of trials share.

use super::trial::{Named, Trial};
use crate::outcome::{Table, row};
use crate::plot::Lines;
use crate::{Failure, Provenance};

/// A line for each policy, through these points of its trials.
pub fn lines(all: &[Trial], policies: &[Named], point: fn(&Trial) -> (f64, f64)) -> Vec<Lines> {
    let line = |(name, _): &Named| {
        let points = all.iter().filter(|one| one.policy == *name).map(point).collect();
        Lines::new(name, Provenance::Emulated, points)
    };
    policies.iter().map(line).collect()
}

/// What policies did, a row each.
pub fn trials(name: &str, title: &str, all: &[Trial]) -> Result<Table, Failure> {
    let mut table = Table::empty(name, title);
    for one in all {
        let total = &one.report.total;
        row!(table, Provenance::Emulated, {
            policy: one.policy;
            servers: one.servers;
            load: one.load, "of capacity";
            requests: total.requests;
            errors: total.errors;
            mean_ms: total.mean_ms, "ms";
            p50_ms: total.p50_ms, "ms";
            p99_ms: total.p99_ms, "ms";
            variance: one.variance, "of the servers' load over the whole time";
            variance_by_second: one.variance_by_second, "of the servers' load in a second, mean";
            late_p99_us: one.report.start_lateness_p99_us, "µs, of the generator";
        })?;
    }
    Ok(table)
}
