//! Figure 13 (§6.2): the same thirty backends with weights in proportion to cores, latency by type.
//!
//! The paper's four-core backends carry less than four times a one-core one, its eight-core ones (another
//! series) more than their neighbours; how much is not reported, nor how many clients there are. Its two cuts
//! tell: round robin's and least connection's latencies are nearly the same on the four-core type, which
//! they are only where clients wait for their answers and are about twice as many as the cores, so that all
//! queues are long under either. Ours are two per core, 16 for each of the paper's eight client machines,
//! and the four-core backends have cores of speed 0.95. What is cut is shown over both, too.

use std::time::Duration;

use super::baselines::{Both, Coming, Setting, Sweep};
use crate::outcome::Outcome;
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
    takes: Duration::from_secs(125),
    takes_quick: Duration::from_secs(10),
    run,
};

const SPEED_OF_FOUR: f64 = 0.95;
const SPEED_OF_EIGHT: f64 = 1.15;
/// Two per core.
const CLIENTS: u32 = 128;
/// All cores are busy: longer requests, so that the machine has capacity for two lanes.
const SERVICE_US: f64 = 100_000.0;
/// The place of the four-core type among the types.
const FOUR: usize = 2;
const WRR: &str = "weighted roundrobin";
const WLC: &str = "weighted leastconn";
/// Paper's cut on the four-core type, percent.
const THEIRS: [(&str, f64); 2] = [(WRR, 42.0), (WLC, 36.2)];

/// What the plots show.
const SHOWN: [&str; 14] = [
    WRR,
    WLC,
    "weighted random(2)",
    "weighted P2 by latency",
    "weighted peak EWMA",
    "weighted least_time",
    "weighted Prequal",
    "ILP on CPU",
    "KLB",
    "Plimsoll roundrobin",
    "Plimsoll leastconn",
    "Plimsoll expected delay",
    "best static split",
    "central queue",
];

const SPEEDS: Sweep = Sweep {
    file: "speeds",
    title: "Cut by the best static split of the four-core type's latency, open clients",
    column: ("speed", "of one-core backends"),
    axis: "speed of its cores (one-core backends: 1)",
    to: "best static split",
    from: THEIRS,
    kind: Some(FOUR),
    rounds: 1.0,
};

const MORE_CLIENTS: Sweep = Sweep {
    file: "clients",
    title: "Cut by KLB of the four-core type's latency, closed clients",
    column: ("clients", ""),
    axis: "clients, each of which waits for its answer (64 cores)",
    to: "KLB",
    ..SPEEDS
};

/// With so many closed clients, four-core backends of this speed.
fn setting(speed: f64, clients: u32, seed: u64) -> Setting {
    let open = Setting::table3(speed, SPEED_OF_EIGHT, seed);
    Setting { clients: Coming::Closed(clients), service_us: SERVICE_US, ..open }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let setting_of = |clients| setting(SPEED_OF_FOUR, clients, context.seed);
    let both = Both::run(context, setting_of(CLIENTS), (0.0, 0.9))?;
    let mut outcome = both.outcome("Thirty backends, weights by cores", &SHOWN)?;
    for to in ["KLB", "Plimsoll leastconn"] {
        let pairs = THEIRS.map(|(from, paper)| (from, to, paper));
        let cuts = both.cuts(&pairs, Some(FOUR), WHY);
        outcome.comparisons.extend(cuts.into_iter().map(|cut| cut.fitted(FITTED)));
    }
    let speeds: &[f64] =
        if context.quick { &[0.75, 1.0] } else { &[0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0] };
    let at = |speed| Setting::table3(speed, SPEED_OF_EIGHT, context.seed);
    let clients: &[f64] =
        context.pick(&[64.0, 128.0], &[48.0, 64.0, 80.0, 96.0, 112.0, 128.0, 144.0]);
    for (table, plot) in [
        SPEEDS.run(context, speeds, at, (0.9, 0.95))?,
        MORE_CLIENTS.run(context, clients, |n| setting_of(n as u32), (0.95, 1.0))?,
    ] {
        outcome.tables.push(table);
        outcome.plots.push(plot);
    }
    Ok(outcome)
}

/// Both were chosen so that the two cuts are as near to each other as the paper's.
const FITTED: &str = "cores of speed 0.95 in the four-core type, and two clients per core";
const WHY: &str = "The cut is a matter of how many clients there are and of how much worse four-core backends \
                   scale, neither of which the paper gives (tables over both). With fewer clients, or open \
                   ones at 70 % of the capacity, HAProxy's leastconn relieves slow backends by itself: it \
                   counts requests in flight, and there is nothing left to cut. KLB's weights scatter with the noise \
                   of its measurements (another --seed); where it cuts more it has \
                   moved more to the eight-core backends than the paper's: the unweighted sum of latencies \
                   fills those two first.";

#[cfg(test)]
mod tests {
    use super::super::baselines::Size;
    use super::*;

    #[test]
    fn the_worse_four_cores_scale_the_more_is_cut() {
        let size = Size { requests: 60_000, learn_s: 0.0, round_s: 20.0 };
        let at = |speed| SPEEDS.cuts(&Setting::table3(speed, SPEED_OF_EIGHT, 2), size).unwrap();
        let (worse, better) = (at(0.75), at(1.0));
        assert!(worse[0] > better[0] + 15.0, "{worse:?} {better:?}");
    }

    #[test]
    fn two_clients_per_core_make_both_baselines_alike_and_one_does_not() {
        let size = Size { requests: 60_000, learn_s: 0.0, round_s: 10.0 };
        let cuts = |clients| -> [f64; 2] {
            let seeds = [1, 2, 3].map(|seed| setting(SPEED_OF_FOUR, clients, seed));
            let all = seeds.map(|setting| MORE_CLIENTS.cuts(&setting, size).unwrap());
            [0, 1].map(|i| all.iter().map(|cuts| cuts[i]).sum::<f64>() / 3.0)
        };
        let (two, one) = (cuts(CLIENTS), cuts(CLIENTS / 2));
        assert!(two[0] > 30.0 && (two[0] - two[1]).abs() < 8.0, "{two:?}");
        assert!(one[0] < 15.0, "{one:?}");
    }
}
