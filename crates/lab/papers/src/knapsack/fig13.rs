//! Figure 13 (§6.2): the same thirty backends with weights in proportion to cores, latency by type.
//!
//! The paper's four-core backends carry less than four times a one-core one, its eight-core ones (another
//! series) more than their neighbours; how much is not told. Ours have cores of speed 0.8 and 1.15; what a
//! split by the true curves cuts is shown over a range of the former.

use std::time::Duration;

use super::baselines::{
    Both, Clients, Ran, Setting, Size, Weights, bars, compare_cuts, compare_means, cut, method,
    one, table,
};
use crate::outcome::{Outcome, Table};
use crate::plot::{Axis, Lines, Plot};
use crate::{Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig13",
    paper: &super::PAPER,
    figure: "Figure 13",
    title: "Thirty unequal backends with weights by cores: latency by type",
    claim: "Where four-core backends scale worse than their cores, KLB cuts their latency by 42 % against \
            round robin and by 36 % against least connection, both weighted by cores.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: Duration::from_secs(170),
    takes_quick: Duration::from_secs(9),
    run,
};

const SPEED_OF_FOUR: f64 = 0.8;
const SPEED_OF_EIGHT: f64 = 1.15;
/// The place of the four-core type among the types.
const FOUR: usize = 2;
const WRR: &str = "roundrobin by cores";
const WLC: &str = "leastconn by cores";
/// Paper's cut on the four-core type, percent.
const THEIRS: [(&str, f64); 2] = [(WRR, 42.0), (WLC, 36.2)];

const LANES: [&str; 7] = [
    WRR,
    WLC,
    "random(2) by cores",
    "KLB",
    "Plimsoll roundrobin",
    "Plimsoll leastconn",
    "best static split",
];
const QUICK_LANES: [&str; 4] = [WRR, WLC, "KLB", "Plimsoll leastconn"];

fn run(context: &Context) -> Result<Outcome, Failure> {
    let setting = Setting::table3(SPEED_OF_FOUR, SPEED_OF_EIGHT, context.seed);
    let both = Both::run(context, &setting, &LANES, &QUICK_LANES, 0.95)?;
    let kinds = &setting.kinds;
    let mut comparisons = Vec::new();
    for to in ["KLB", "Plimsoll leastconn"] {
        for (from, paper) in THEIRS {
            for pair in both.pairs(from, to) {
                comparisons.push(compare_cuts(kinds, pair, Some(FOUR), paper, WHY));
                comparisons.push(compare_means(pair));
            }
        }
    }
    let mut plots =
        bars("emulated", "Thirty backends, weights by cores", kinds, &both.nearest_to_real(&LANES));
    let others = ["P2 by latency by cores", "peak EWMA by cores", "least_time by cores"];
    let beside = [WLC, "KLB", "best static split"]
        .iter()
        .chain(&others)
        .chain(&["ILP on CPU", "central queue"]);
    let simulated: Vec<_> = beside.map(|name| both.sim(name, true)).collect();
    plots.extend(bars("simulated", "Other methods, open clients", kinds, &simulated));
    let (sweep, plot) = sweep(context)?;
    plots.push(plot);
    let tables = vec![table(kinds, &both.rows), sweep];
    Ok(Outcome { tables, plots, comparisons, notes: both.notes(&setting) })
}

/// The cut of the best static split on the four-core type over the speed of its cores, open clients.
fn sweep(context: &Context) -> Result<(Table, Plot), Failure> {
    let mut table = Table::new(
        "speeds",
        "Cut by the best static split of the four-core type's latency, open clients",
        &[
            ("speed", "of one-core backends"),
            ("against_wrr_percent", "%"),
            ("against_wlc_percent", "%"),
        ],
    );
    let size = Size::of(context);
    let mut lines = THEIRS.map(|(name, _)| (name, Vec::new()));
    let speeds: &[f64] =
        if context.quick { &[0.75, 1.0] } else { &[0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0] };
    for (i, &speed) in speeds.iter().enumerate() {
        let what = format!("simulated: four-core backends of speed {speed}");
        context.progress(0.95 + 0.05 * i as f64 / speeds.len() as f64, &what)?;
        let setting = Setting::table3(speed, SPEED_OF_EIGHT, context.seed);
        let [wrr, wlc] = cuts(&setting, size)?;
        table.row(Provenance::Simulated, [speed, wrr, wlc].map(Into::into));
        lines[0].1.push((speed, wrr));
        lines[1].1.push((speed, wlc));
    }
    let ends = [speeds[0], speeds[speeds.len() - 1]];
    let ours = lines.map(|(name, points)| {
        Lines::new(&format!("against {name}"), Provenance::Simulated, points)
    });
    let theirs = THEIRS.map(|(name, percent)| {
        let points = ends.map(|speed| (speed, percent)).to_vec();
        Lines::new(&format!("paper, against {name}"), Provenance::Reported, points)
    });
    let plot = Plot::lines(
        "speeds",
        "What the best static split cuts off the four-core type's latency",
        Axis::linear("speed of its cores (one-core backends: 1)"),
        Axis::linear("cut (%)"),
        ours.into_iter().chain(theirs).collect(),
    );
    Ok((table, plot))
}

/// Against both, percent.
fn cuts(setting: &Setting, size: Size) -> Result<[f64; 2], Failure> {
    let arena = setting.arena(size.requests);
    let shares = plimsoll_sim::static_shares(&arena)?;
    let of = |name: &str| -> Result<Ran, Failure> {
        let method = method(name);
        let weights = match method.weights {
            Weights::Cores => setting.pool.iter().map(|b| b.cores).collect(),
            _ => plimsoll_sim::integer_weights(&shares, 256),
        };
        one(setting, &arena, method, &weights, Clients::Open)
    };
    let four = |ran: Ran| Ran { kinds: vec![ran.kinds[FOUR]], ..ran };
    let best = four(of("best static split")?);
    let kinds = &setting.kinds[FOUR..=FOUR];
    let against = |name: &str| Ok::<f64, Failure>(cut(kinds, &four(of(name)?), &best).percent);
    Ok([against(WRR)?, against(WLC)?])
}

const WHY: &str = "The paper does not tell how much worse its four-core backends scale, of which the cut is \
                   a matter (plot over their speed); HAProxy's leastconn counts requests in flight and \
                   relieves slow backends by itself; and the unweighted sum that KLB minimises fills the \
                   two eight-core backends, one latency each, before it spares the others.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_four_cores_scale_the_more_is_cut() {
        let size = Size { requests: 60_000, learn_s: 0.0, round_s: 20.0 };
        let at = |speed| cuts(&Setting::table3(speed, SPEED_OF_EIGHT, 2), size).unwrap();
        let (worse, better) = (at(0.75), at(1.0));
        assert!(worse[0] > better[0] + 15.0, "{worse:?} {better:?}");
    }
}
