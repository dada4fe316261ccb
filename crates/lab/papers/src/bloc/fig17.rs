//! Figure 17 (§6.9): responses and losses over the capacity that backends are given.

use std::time::Duration;

use super::cluster::Cluster;
use super::show::{Case, Ran, holds, notes, run_all, table};
use super::ways::{ALL, Door, bloc};
use crate::outcome::Outcome;
use crate::plot::{Axis, Lines, Plot};
use crate::{Context, Experiment, Failure, Provenance};

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
    let others = ALL.map(|way| Case::new("", way, cluster));
    let all = run_all(context, swept.into_iter().chain(others).collect())?;
    let (swept, lc) = (&all[..CAPACITIES.len()], &all[CAPACITIES.len()]);
    let least = swept.iter().zip(CAPACITIES).min_by(|a, b| a.0.range().total_cmp(&b.0.range()));
    let best = least.map_or(0, |(_, capacity)| capacity);
    let falls = swept.windows(2).all(|pair| pair[1].lost() <= pair[0].lost() + 0.5);
    let last = &swept[CAPACITIES.len() - 1];
    let comparisons = vec![
        holds(
            "the capacity of the least range",
            "10",
            format!("{best}"),
            (9..=11).contains(&best),
            "Below 100 users / 10 backends a lower capacity makes responses shorter and alike, for those who \
             are served; the others are refused, which the range does not show.",
        ),
        holds(
            "requests lost as the capacity grows",
            "fewer and fewer",
            format!(
                "{:.0} % at 4, {:.1} % at 10, {:.2} % at 20",
                swept[0].lost(),
                swept[4].lost(),
                last.lost()
            ),
            falls,
            "A short run.",
        ),
        holds(
            "range at a capacity of 20 beside least connections",
            "as bad",
            format!("{:.2} beside {:.2} s", last.range(), lc.range()),
            last.range() > 0.6 * lc.range(),
            "Chips steer requests away from long queues before they are full.",
        ),
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
