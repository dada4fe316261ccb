//! Figure 14 (§6.2): three one-core backends of capacities 1, 0.8 and 0.6, CPU utilisation and latency.
//!
//! Weights by cores are 1:1:1, so weighted and unweighted methods are the same here, as in the paper.

use std::time::Duration;

use plimsoll_sim::BackendModel;

use super::baselines::{
    Both, Clients, Kind, Ran, Setting, Size, Weights, bars, compare_cuts, compare_means, cut,
    method, one, table,
};
use super::learned::{Cost, learn};
use crate::outcome::{Comparison, Outcome, Table, Verdict};
use crate::plot::{Axis, Lines, Plot};
use crate::{Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig14",
    paper: &super::PAPER,
    figure: "Figure 14",
    title: "Three backends of capacities 1, 0.8 and 0.6: CPU and latency",
    claim: "With noisy neighbours on two of three equal machines KLB evens out their CPU utilisation and \
            cuts latency by up to 37 % against round robin and 29 % against least connection.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: Duration::from_secs(170),
    takes_quick: Duration::from_secs(9),
    run,
};

const SPEEDS: [f64; 3] = [1.0, 0.8, 0.6];
/// Three cores bear shorter requests than thirty backends do.
const SERVICE_US: f64 = 15_000.0;
const THEIRS: [(&str, f64); 2] = [("roundrobin", 37.0), ("leastconn", 29.0)];
const LANES: [&str; 7] = [
    "roundrobin",
    "leastconn",
    "random(2)",
    "KLB",
    "Plimsoll roundrobin",
    "Plimsoll leastconn",
    "best static split",
];
const QUICK_LANES: [&str; 4] = ["roundrobin", "leastconn", "KLB", "Plimsoll leastconn"];

fn setting(seed: u64) -> Setting {
    let pool = SPEEDS.map(|speed| BackendModel { cores: 1, speed }).to_vec();
    let kind = |(i, speed): (usize, &f64)| Kind { label: format!("{speed}x"), backends: vec![i] };
    let kinds = SPEEDS.iter().enumerate().map(kind).collect();
    Setting { pool, kinds, service_us: SERVICE_US, load: 0.7, seed }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let setting = setting(context.seed);
    let both = Both::run(context, &setting, &LANES, &QUICK_LANES, 0.95)?;
    let kinds = &setting.kinds;
    let mut comparisons = Vec::new();
    for to in ["KLB", "Plimsoll leastconn"] {
        for (from, paper) in THEIRS {
            for pair in both.pairs(from, to) {
                comparisons.push(compare_cuts(kinds, pair, None, paper, WHY));
                comparisons.push(compare_means(pair));
            }
        }
    }
    let klb = both.lane("KLB").unwrap_or_else(|| both.sim("KLB", false));
    comparisons.push(evenness(klb));
    comparisons.push(evenness(both.sim("KLB", true)));
    let mut plots =
        bars("emulated", "Three unequal backends", kinds, &both.nearest_to_real(&LANES));
    let others = ["P2 by latency", "peak EWMA", "least_time", "ILP on CPU", "central queue"];
    let beside = ["roundrobin", "leastconn", "KLB"].iter().chain(&others);
    let simulated: Vec<_> = beside.map(|name| both.sim(name, true)).collect();
    plots.extend(bars("simulated", "Other methods, open clients", kinds, &simulated));
    let (sweep, plot) = sweep(context, &setting)?;
    plots.push(plot);
    let tables = vec![table(kinds, &both.rows), sweep];
    Ok(Outcome { tables, plots, comparisons, notes: both.notes(&setting) })
}

/// The paper found the same CPU utilisation on all three.
fn evenness(ran: &Ran) -> Comparison {
    let of = |f: fn(f64, f64) -> f64, from: f64| {
        ran.kinds.iter().map(|k| 100.0 * k.utilisation).fold(from, f)
    };
    let spread = of(f64::max, 0.0) - of(f64::min, 100.0);
    let verdict = if spread <= 10.0 { Verdict::Agrees } else { Verdict::Differs };
    let why = "The least sum of latencies is not even in CPU: a slow core's requests take longer at the \
               same utilisation, so it is given less; ten weights per backend and curves of degree two through \
               rounds of ten seconds add to that.";
    Comparison {
        what: format!("spread of CPU under KLB ({} clients)", ran.clients.name()),
        paper: "uniform".into(),
        ours: format!("{spread:.0} points").into(),
        unit: String::new(),
        verdict,
        provenance: ran.provenance,
        why: if verdict == Verdict::Agrees { String::new() } else { why.to_owned() },
    }
}

/// KLB's greatest cut over the load, with open clients.
fn sweep(context: &Context, setting: &Setting) -> Result<(Table, Plot), Failure> {
    let mut table = Table::new(
        "loads",
        "Greatest cut by KLB of a backend's latency, open clients",
        &[
            ("load", "part of the capacity"),
            ("against_rr_percent", "%"),
            ("against_lc_percent", "%"),
        ],
    );
    let size = Size::of(context);
    let mut lines = THEIRS.map(|(name, _)| (name, Vec::new()));
    let loads: &[f64] = if context.quick { &[0.5, 0.6] } else { &[0.4, 0.5, 0.55, 0.6, 0.65, 0.7] };
    for (i, &load) in loads.iter().enumerate() {
        let what = format!("simulated: load {load}");
        context.progress(0.95 + 0.05 * i as f64 / loads.len() as f64, &what)?;
        let [rr, lc] = cuts(&setting.at_load(load), size)?;
        table.row(Provenance::Simulated, [load, rr, lc].map(Into::into));
        lines[0].1.push((load, rr));
        lines[1].1.push((load, lc));
    }
    let ends = [loads[0], loads[loads.len() - 1]];
    let ours = lines.map(|(name, points)| {
        Lines::new(&format!("against {name}"), Provenance::Simulated, points)
    });
    let theirs = THEIRS.map(|(name, percent)| {
        let points = ends.map(|load| (load, percent)).to_vec();
        Lines::new(&format!("paper, against {name}"), Provenance::Reported, points)
    });
    let plot = Plot::lines(
        "loads",
        "What KLB cuts off a backend's latency at most",
        Axis::linear("load (part of the capacity)"),
        Axis::linear("cut (%)"),
        ours.into_iter().chain(theirs).collect(),
    );
    Ok((table, plot))
}

/// Against both, percent.
fn cuts(setting: &Setting, size: Size) -> Result<[f64; 2], Failure> {
    let arena = setting.arena(size.requests);
    let shares = learn(&arena, 10.0 * size.round_s)?.shares(Cost::Latency)?;
    let of = |name: &str| -> Result<Ran, Failure> {
        let method = method(name);
        let weights = match method.weights {
            Weights::Equal => vec![1; setting.pool.len()],
            _ => plimsoll_sim::integer_weights(&shares, 256),
        };
        one(setting, &arena, method, &weights, Clients::Open)
    };
    let klb = of("KLB")?;
    let against = |name: &str| Ok::<f64, Failure>(cut(&setting.kinds, &of(name)?, &klb).percent);
    Ok([against("roundrobin")?, against("leastconn")?])
}

const WHY: &str = "The paper does not tell the load of this pool, how its clients send, or how its service \
                   times scatter; the cut grows steeply with the load, as the plot over it shows. With \
                   few closed clients least connection keeps all cores busy, so what KLB cuts off the \
                   slowest it adds elsewhere.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_cut_at_a_higher_load() {
        let size = Size { requests: 60_000, learn_s: 0.0, round_s: 10.0 };
        let at = |load| cuts(&setting(2).at_load(load), size).unwrap();
        let (low, high) = (at(0.4), at(0.68));
        assert!(high[0] > low[0] + 15.0, "{low:?} {high:?}");
    }
}
