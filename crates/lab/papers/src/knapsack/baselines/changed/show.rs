use super::Through;
use crate::outcome::{Table, row};
use crate::plot::{Axis, Bars, Plot};
use crate::{Failure, Provenance};

/// One row per method and source. `what` names the change.
pub fn table(all: &[(&str, Vec<Through>)]) -> Result<Table, Failure> {
    let mut table = Table::empty("methods", "Every method through the change: what clients see");
    for (what, rows) in all {
        for row in rows {
            let best = rows.iter().find(|other| {
                other.method.name == "best static split" && other.provenance == row.provenance
            });
            let best = best.filter(|_| row.provenance == Provenance::Simulated);
            let over = best.and_then(|best| Some(row.later_ms? / best.later_ms?));
            let overload = row.overload.map(|yes| if yes { "yes" } else { "no" });
            row!(table, row.provenance, {
                change: *what;
                method: row.method.name;
                in_the_plot: row.method.short;
                before_ms: row.before_ms, "ms, clients' mean";
                first_10s_ms: row.first_ms, "ms, clients' mean";
                later_ms: row.later_ms, "ms, clients' mean";
                later_over_best: over, "over the best static split, told at once";
                lost: row.lost, "requests";
                overload: overload;
            })?;
        }
    }
    Ok(table)
}

/// What a reader of the table must know.
pub fn notes() -> Vec<String> {
    [
        "Methods through the change: nobody tells them of it. Those with weights keep them, but for the dead, \
         which the balancer's health check takes out after 5 s (simulated; a real HAProxy retries and \
         redispatches). Simulated, the best static split is told at once and packed anew; emulated, it keeps \
         the weights of before.",
        "The ILPs and KLB have the weights that they learned before the change. Methods that HAProxy lacks are \
         simulated only.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Clients' mean before and after, of all that are not overloaded.
pub fn before_and_after(file: &str, title: &str, rows: &[Through]) -> Vec<Plot> {
    let plot = |provenance: Provenance| {
        let shown: Vec<&Through> = rows
            .iter()
            .filter(|row| row.provenance == provenance && row.overload != Some(true))
            .collect();
        let bars = |name: &str, value: fn(&Through) -> Option<f64>| {
            Bars::new(name, provenance, shown.iter().map(|row| value(row)).collect())
        };
        let names = shown.iter().map(|row| row.method.short.to_owned()).collect();
        let series = vec![bars("before", |r| r.before_ms), bars("settled", |r| r.later_ms)];
        let file = format!("{file}-{}", provenance.name());
        let y = Axis::linear("clients' mean (ms)");
        Plot::bars(&file, &format!("{title}, {provenance}"), "method", y, names, series)
    };
    [Provenance::Simulated, Provenance::Emulated].map(plot).to_vec()
}
