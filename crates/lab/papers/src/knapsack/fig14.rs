//! Figure 14 (§6.2): three one-core backends of capacities 1, 0.8 and 0.6, CPU utilisation and latency.
//!
//! Weights by cores are 1:1:1, so the paper's weighted methods are the unweighted ones here. Our weighted ones
//! have weights by capacity, which an administrator cannot know of noisy neighbours.

use std::time::Duration;

use plimsoll_sim::BackendModel;

use super::baselines::{Both, Coming, Kind, Ran, Setting, Sweep, UNWEIGHTED};
use crate::outcome::Outcome;
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig14",
    paper: &super::PAPER,
    figure: "Figure 14",
    title: "Three backends of capacities 1, 0.8 and 0.6: CPU and latency",
    claim: "With noisy neighbours on two of three equal machines KLB evens out their CPU utilisation and \
            cuts latency by up to 37 % against round robin and 29 % against least connection.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: Duration::from_secs(70),
    takes_quick: Duration::from_secs(5),
    run,
};

const SPEEDS: [f64; 3] = [1.0, 0.8, 0.6];
const BY_CAPACITY: [u32; 3] = [5, 4, 3];
/// Three cores bear shorter requests than thirty backends do.
const SERVICE_US: f64 = 15_000.0;
const THEIRS: [(&str, f64); 2] = [("roundrobin", 37.0), ("leastconn", 29.0)];
const LOADS: Sweep = Sweep {
    file: "loads",
    title: "Greatest cut by KLB of a backend's latency, open clients",
    column: ("load", "part of the capacity"),
    axis: "load (part of the capacity)",
    to: "KLB",
    from: THEIRS,
    kind: None,
    rounds: 10.0,
};

fn setting(seed: u64) -> Setting {
    let pool = SPEEDS.map(|speed| BackendModel { cores: 1, speed }).to_vec();
    let kind = |(i, speed): (usize, &f64)| Kind { label: format!("{speed}x"), backends: vec![i] };
    let kinds = SPEEDS.iter().enumerate().map(kind).collect();
    let (service_us, load, clients) = (SERVICE_US, 0.7, Coming::Both);
    let administrator = BY_CAPACITY.to_vec();
    Setting { pool, kinds, service_us, load, administrator, clients, seed }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let setting = setting(context.seed);
    let both = Both::run(context, setting.clone(), (0.0, 0.95))?;
    let mut outcome = both.outcome("Three unequal backends", &UNWEIGHTED)?;
    for to in ["KLB", "Plimsoll leastconn"] {
        let pairs = THEIRS.map(|(from, paper)| (from, to, paper));
        outcome.comparisons.extend(both.cuts(&pairs, None, WHY));
    }
    let klb = both.lane("KLB").unwrap_or_else(|| both.sim("KLB", false));
    outcome.comparisons.push(evenness(klb));
    outcome.comparisons.push(evenness(both.sim("KLB", true)));
    let loads: &[f64] = if context.quick { &[0.5, 0.6] } else { &[0.4, 0.5, 0.55, 0.6, 0.65, 0.7] };
    let (table, plot) = LOADS.run(context, loads, |load| setting.at_load(load), (0.95, 1.0))?;
    outcome.tables.push(table);
    outcome.plots.push(plot);
    Ok(outcome)
}

/// The paper found the same CPU utilisation on all three.
fn evenness(ran: &Ran) -> Comparison {
    let of = |f: fn(f64, f64) -> f64, from: f64| {
        ran.kinds.iter().map(|k| 100.0 * k.utilisation).fold(from, f)
    };
    let spread = of(f64::max, 0.0) - of(f64::min, 100.0);
    let what = format!("spread of CPU under KLB ({} clients)", ran.clients.name());
    let paper = ("uniform", Bound::AtMost(10.0));
    Comparison::bound(ran.provenance, what, paper, spread, "points").why(
        "The least sum of latencies is not even in CPU: a slow core's requests take longer at the same \
         utilisation, so it is given less; ten weights per backend and curves of degree two through rounds of \
         ten seconds add to that.",
    )
}

const WHY: &str = "The paper does not give the load of this pool, how its clients send, or how its service \
                   times scatter; the cut grows steeply with the load, as the plot over it shows. With \
                   few closed clients least connection keeps all cores busy, so what KLB cuts off the \
                   slowest it adds elsewhere.";

#[cfg(test)]
mod tests {
    use super::super::baselines::Size;
    use super::*;

    #[test]
    fn more_is_cut_at_a_higher_load() {
        let size = Size { requests: 60_000, learn_s: 0.0, round_s: 10.0 };
        let at = |load| LOADS.cuts(&setting(2).at_load(load), size).unwrap();
        let (low, high) = (at(0.4), at(0.68));
        assert!(high[0] > low[0] + 15.0, "{low:?} {high:?}");
    }
}
