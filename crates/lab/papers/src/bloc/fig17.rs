//! Figure 17 (§6.9): responses and losses over the capacity that backends are given.

use std::time::Duration;

use super::cluster::Cluster;
use super::methods::{ALL, Door, bloc};
use super::show::{Case, Ran, notes, run_all, table};
use crate::Provenance::Simulated;
use crate::outcome::Outcome;
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig17",
    paper: &super::PAPER,
    figure: "Figure 17",
    title: "Range of responses and requests lost over BLOC's capacity",
    claim: "The range from the 10th to the 90th percentile is least at the best capacity and grows quickly \
            away from it; the higher the capacity, the fewer requests fail.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(4),
    takes_quick: Duration::from_secs(1),
    run,
};

const CAPACITIES: [u32; 9] = [4, 6, 8, 9, 10, 11, 12, 15, 20];

fn run(context: &Context) -> Result<Outcome, Failure> {
    let cluster = Cluster::new(context);
    let swept = CAPACITIES.map(|capacity| {
        Case::new(format!("{capacity}"), bloc("BLOC", Door::Static(capacity)), cluster)
    });
    let others = ALL.map(|method| Case::new("", method, cluster));
    let all = run_all(context, swept.into_iter().chain(others).collect())?;
    let (swept, lc) = (&all[..CAPACITIES.len()], &all[CAPACITIES.len()]);
    let least = swept.iter().zip(CAPACITIES).min_by(|a, b| a.0.range().total_cmp(&b.0.range()));
    let best = least.map_or(0, |(_, capacity)| capacity);
    let at = |capacity: u32| swept.iter().zip(CAPACITIES).find(|(_, c)| *c == capacity);
    let order =
        |what: &str, paper: &str, capacities: &[u32], value: fn(&Ran) -> f64, unit: &str| {
            let found = capacities.iter().filter_map(|&c| Some((c.to_string(), value(at(c)?.0))));
            let found: Vec<(String, f64)> = found.collect();
            let ours = found.iter().map(|(c, value)| (c.as_str(), *value));
            Comparison::order(Simulated, what, paper, ours, unit)
        };
    let lower = "Below 100 users / 10 backends a lower capacity makes responses shorter and alike, for those who are \
                 served; the others are refused, which the range does not show.";
    let grows = "grows away from the best capacity";
    let comparisons = vec![
        Comparison::number(
            Simulated,
            "the capacity of the least range",
            (10.0, Tolerance::Absolute(1.0)),
            f64::from(best),
            "requests",
        )
        .why(lower),
        order("range above a capacity of 10", grows, &[10, 12, 15, 20], Ran::range, "s")
            .why("Chips steer requests away from long queues before they are full."),
        order("range below a capacity of 10", grows, &[10, 8, 6, 4], Ran::range, "s").why(lower),
        order("requests lost by capacity", "fewer, the higher it is", &[20, 10, 4], Ran::lost, "%")
            .why("A short run."),
        Comparison::silent(
            Simulated,
            "range at a capacity of 20 over that of least connections",
            "not given",
            at(20).map_or(f64::NAN, |(ran, _)| ran.range() / lc.range()),
            "×",
        )
        .why("The paper shows BLOC alone."),
    ];
    let line = |label: &str, value: fn(&Ran) -> f64| {
        let points = swept.iter().zip(CAPACITIES).map(|(ran, c)| (f64::from(c), value(ran)));
        vec![Lines::new(label, Provenance::Simulated, points.collect())]
    };
    let x = || Axis::linear("capacity");
    let plots = vec![
        Plot::lines(
            "range",
            "p10 to p90",
            x(),
            Axis::linear("range (s)"),
            line("BLOC", Ran::range),
        ),
        Plot::lines(
            "lost",
            "Requests lost",
            x(),
            Axis::linear("requests (%)"),
            line("BLOC", Ran::lost),
        ),
    ];
    let tables = vec![table(("capacity", "requests"), &all)];
    Ok(Outcome { tables, plots, comparisons, notes: notes() })
}
