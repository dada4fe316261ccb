//! Table 1 (§2.1): a hash of the 5-tuple over three backends of which one has 60 % capacity.
//!
//! Real: HAProxy's `balance hash` on the source port of connections that serve one request each, the one
//! part of the 5-tuple in which clients of one machine differ. Simulated: a hash of all five.

use std::time::Duration;

use plimsoll_lanes::Family;
use plimsoll_model::Nanos;
use plimsoll_policy::{Policy, Request};
use rand::RngCore;

use super::trio::rig::{Rig, Setup};
use super::trio::{self, NAMES, Seen, clients_for, others};
use crate::Provenance::Emulated;
use crate::lanes::wait;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Bars, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-table1",
    paper: &super::PAPER,
    figure: "Table 1",
    title: "A hash of the 5-tuple, one of three backends at 60 % capacity",
    claim: "A hash splits equally: the slow backend runs at 84 % CPU and 7.18 ms, the others at 51 % and \
            5.00 ms.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: Duration::from_secs(155),
    takes_quick: Duration::from_secs(9),
    run,
};

/// CPU and milliseconds of the slow backend and of the others.
const THEIRS: [(f64, f64); 2] = [(0.84, 7.18), (0.51, 5.00)];

/// Hashes addresses, ports and protocol of one new connection per request, from eight client machines.
struct FiveTuple {
    connections: u64,
    backends: u64,
}

/// As the paper's.
const CLIENT_MACHINES: u64 = 8;
/// Ports that a system hands out to clients.
const PORTS: u64 = 28_232;
const FIRST_PORT: u64 = 32_768;

impl Policy for FiveTuple {
    fn set_weights(&mut self, weights: &[u32]) {
        self.backends = weights.len() as u64;
    }

    fn pick(&mut self, _: &Request<'_>, _: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let client = self.connections % CLIENT_MACHINES;
        self.connections += 1;
        let port = FIRST_PORT + rng.next_u64() % PORTS;
        let (source, service, tcp) = (0x0A00_0010 + client, 0x0A00_0001_u64, 6);
        let tuple = [source, port, service, 80, tcp];
        let hash = tuple.iter().fold(0, |hash, part| mix(hash ^ part));
        usize::try_from(hash % self.backends).ok()
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let clients = clients_for(THEIRS[1].0, others::RATIO, context.seed);
    let emulated = emulate(context, clients)?;
    let tuples = Box::new(FiveTuple { connections: 0, backends: 3 });
    let hashed = trio::simulate(Some(tuples), others::RATIO, clients, context.seed);
    let rows = [
        ("hash of the source port", Provenance::Emulated, emulated),
        ("hash of the 5-tuple", Provenance::Simulated, hashed),
    ];
    let others = others::run(context, clients, (0.4, 1.0))?;
    let mut outcome = others.outcome("Third backend at 60 %", &others::SHOWN)?;
    outcome.tables.insert(0, table(&rows)?);
    outcome.plots.splice(0..0, plots(&rows));
    outcome.comparisons = compare(&emulated);
    outcome.notes.insert(
        0,
        format!(
            "{clients} clients, as many as keep the two fast backends nearest to the paper's 51 %; those of \
             the hash come on a new connection with every request. The paper's latencies are of requests \
             of a few milliseconds; ours take 30 ms, so that ratios are compared."
        ),
    );
    Ok(outcome)
}

fn emulate(context: &Context, clients: u32) -> Result<Seen, Failure> {
    let family = Family::start()?;
    let setup = Setup {
        name: "hash".to_owned(),
        balance: "hash src_port,xxh32",
        ratio: others::RATIO,
        clients,
        fresh_connections: true,
    };
    let mut rig = Rig::start(context, &family, &setup)?;
    let (settle, measured) = context.pick((1, 3), (3, 60));
    wait(context, Duration::from_secs(settle), (0.0, 0.02), "clients come", || Ok(()))?;
    let from = rig.mark()?;
    wait(context, Duration::from_secs(measured), (0.02, 0.4), "HAProxy hashes", || Ok(()))?;
    rig.since(&from)
}

fn table(rows: &[(&str, Provenance, Seen)]) -> Result<Table, Failure> {
    let title = "Each backend, the third at 60 % of the others' capacity";
    let mut table = Table::empty("backends", title);
    for (name, provenance, seen) in rows {
        for (backend, of) in NAMES.into_iter().zip(&seen.backends) {
            row!(table, *provenance, {
                method: name;
                backend: backend;
                cpu_percent: 100.0 * of.cpu, "%";
                latency_ms: of.latency_ms, "ms";
                share_percent: 100.0 * of.share, "% of requests";
                mean_ms: seen.mean_ms, "ms, all backends";
            })?;
        }
    }
    for (backend, (cpu, ms)) in ["lc", "hc"].into_iter().zip(THEIRS) {
        row!(table, Provenance::Reported, {
            method: "hash of the 5-tuple";
            backend: backend;
            cpu_percent: 100.0 * cpu;
            latency_ms: ms;
        })?;
    }
    Ok(table)
}

fn plots(rows: &[(&str, Provenance, Seen)]) -> Vec<Plot> {
    let categories = ["others", "third (60 %)"].map(str::to_owned).to_vec();
    let two = rows.iter().take(2);
    let cpu = |seen: &Seen| vec![Some(100.0 * seen.high().cpu), Some(100.0 * seen.low().cpu)];
    let mut bars: Vec<Bars> =
        two.clone().map(|(name, from, seen)| Bars::new(name, *from, cpu(seen))).collect();
    let theirs = vec![Some(100.0 * THEIRS[1].0), Some(100.0 * THEIRS[0].0)];
    bars.push(Bars::new("paper", Provenance::Reported, theirs));
    let relative = |seen: &Seen| vec![Some(1.0), Some(seen.latency_ratio())];
    let mut ratios: Vec<Bars> =
        two.map(|(name, from, seen)| Bars::new(name, *from, relative(seen))).collect();
    let theirs = vec![Some(1.0), Some(THEIRS[0].1 / THEIRS[1].1)];
    ratios.push(Bars::new("paper", Provenance::Reported, theirs));
    let y = Axis::linear("busy part of the cores (%)");
    vec![
        Plot::bars(
            "cpu",
            "CPU under a hash of the 5-tuple",
            "backend",
            y,
            categories.clone(),
            bars,
        ),
        Plot::bars(
            "latency",
            "Latency under a hash of the 5-tuple",
            "backend",
            Axis::linear("latency over that of the others"),
            categories,
            ratios,
        ),
    ]
}

fn compare(seen: &Seen) -> Vec<Comparison> {
    let comparison = |what: &str, paper: f64, ours: f64, unit: &str, why: &str| {
        Comparison::number(Emulated, what, (paper, Tolerance::Part(0.1)), ours, unit).why(why)
    };
    let [(low_cpu, low_ms), (high_cpu, high_ms)] = THEIRS;
    vec![
        comparison(
            "CPU of the fast backends",
            100.0 * high_cpu,
            100.0 * seen.high().cpu,
            "%",
            "The number of clients is whole.",
        )
        .fitted("the number of clients, by simulation under round robin"),
        comparison(
            "CPU of the slow backend",
            100.0 * low_cpu,
            100.0 * seen.low().cpu,
            "%",
            "An equal split means 51 / 0.6 = 85 %; the rest is noise of the run.",
        ),
        comparison(
            "latency of the slow backend over that of the fast",
            low_ms / high_ms,
            seen.latency_ratio(),
            "",
            "Ours are queues in front of two cores: at 85 % of slower cores they wait several times as \
             long. 1.43 is less than the ratio of the cores' speeds alone, 1.67: the paper's antagonist \
             takes part of the CPU without slowing each request in proportion.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn a_hash_splits_equally_whatever_the_weights() {
        let mut hash = FiveTuple { connections: 0, backends: 3 };
        hash.set_weights(&[9, 1, 1]);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut counts = [0u32; 3];
        for _ in 0..90_000 {
            let picked = hash.pick(&Request::default(), Nanos(0), &mut rng);
            counts[picked.unwrap()] += 1;
        }
        assert!(counts.iter().all(|c| c.abs_diff(30_000) < 600), "{counts:?}");
    }
}
