//! Every method at one capacity ratio: simulated all, emulated where HAProxy has the method or Plimsoll
//! steers it.

use std::time::Duration;

use plimsoll_lanes::Family;
use plimsoll_policy::PolicyKind;
use plimsoll_sim::{Arena, integer_weights};

use super::rig::{Mark, Rig, Setup, wait};
use super::sweep::simulate;
use super::{BackendSeen, Seen, arena};
use crate::knapsack::learned::{Cost, learn};
use crate::outcome::Table;
use crate::plot::{Axis, Bars, Plot};
use crate::{Context, Failure, Provenance};

/// The paper's example (§2.1.2).
pub const RATIO: f64 = 0.6;
/// What an administrator would set who knew the capacities.
const BY_CAPACITY: [u32; 3] = [5, 5, 3];
/// What one knows who counts cores.
const BY_CORES: [u32; 3] = [1, 1, 1];
/// A daemon has learned a pool of three by then.
const LEARNING: Duration = Duration::from_secs(45);
const MEASURED: Duration = Duration::from_secs(25);
/// A round of the paper's exploration (§6.1), seconds.
const ROUND_S: f64 = 10.0;

/// One method.
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// The same within the width of a bar.
    pub short: &'static str,
    /// With real HAProxy; nothing where it has no such method.
    pub emulated: Option<Seen>,
    /// In simulated time; nothing where only the real controller tells the weights.
    pub simulated: Option<Seen>,
}

/// A method's name in full and for a bar, the policy that simulates it, HAProxy's `balance`, weights, and whether Plimsoll
/// steers it.
type Plan = (&'static str, &'static str, Option<PolicyKind>, Option<&'static str>, [u32; 3], bool);

const PLANS: [Plan; 11] = [
    ("roundrobin", "RR", Some(PolicyKind::RoundRobin), Some("roundrobin"), BY_CORES, false),
    ("leastconn", "LC", Some(PolicyKind::LeastconnHaproxy), Some("leastconn"), BY_CORES, false),
    ("random(2)", "R2", Some(PolicyKind::PowerOfN), Some("random(2)"), BY_CORES, false),
    (
        "roundrobin ∝ capacity",
        "RR∝",
        Some(PolicyKind::RoundRobin),
        Some("roundrobin"),
        BY_CAPACITY,
        false,
    ),
    (
        "leastconn ∝ capacity",
        "LC∝",
        Some(PolicyKind::LeastconnHaproxy),
        Some("leastconn"),
        BY_CAPACITY,
        false,
    ),
    (
        "random(2) ∝ capacity",
        "R2∝",
        Some(PolicyKind::PowerOfN),
        Some("random(2)"),
        BY_CAPACITY,
        false,
    ),
    ("P2 by latency", "P2-lat", Some(PolicyKind::PowerOfNLatency), None, BY_CORES, false),
    ("peak-EWMA", "EWMA", Some(PolicyKind::PeakEwma), None, BY_CORES, false),
    ("least_time", "LT", Some(PolicyKind::LeastTime), None, BY_CORES, false),
    ("Plimsoll, roundrobin", "P-RR", None, Some("roundrobin"), BY_CORES, true),
    ("Plimsoll, leastconn", "P-LC", None, Some("leastconn"), BY_CORES, true),
];

/// Runs all, the emulated ones side by side; those only in a full run, since a daemon needs its time to
/// learn. `done` is the part of the run at which this begins.
///
/// # Errors
/// When a part does not start or ends, or the run is interrupted.
pub fn run(context: &Context, clients: u32, done: f64) -> Result<Vec<Method>, Failure> {
    let mut emulated =
        if context.quick { PLANS.map(|_| None) } else { emulate(context, clients, done)? };
    let mut methods = Vec::new();
    for (i, (name, short, policy, _, weights, _)) in PLANS.into_iter().enumerate() {
        context.check()?;
        let simulated = policy.map(|p| simulate(p, weights, RATIO, clients, context.seed));
        let simulated = simulated.transpose()?;
        methods.push(Method { name, short, emulated: emulated[i].take(), simulated });
    }
    let split = best_split(context, clients)?;
    for (name, short, cost) in [
        ("ILP on latency", "I-lat", Cost::Latency),
        ("ILP on connections", "I-conn", Cost::Connections),
        ("ILP on CPU", "I-CPU", Cost::Cpu),
    ] {
        let seen = by_ilp(cost, split.rps, clients, context)?;
        methods.push(Method { name, short, emulated: None, simulated: Some(seen) });
    }
    methods.push(Method {
        name: "best static split",
        short: "static",
        emulated: None,
        simulated: Some(split),
    });
    let central = Some(super::simulate(None, RATIO, clients, context.seed));
    methods.push(Method {
        name: "central queue (limit)",
        short: "limit",
        emulated: None,
        simulated: central,
    });
    Ok(methods)
}

fn emulate(
    context: &Context,
    clients: u32,
    done: f64,
) -> Result<[Option<Seen>; PLANS.len()], Failure> {
    let family = Family::start(&context.plimsoll)?;
    let mut rigs: [Option<Rig>; PLANS.len()] = PLANS.map(|_| None);
    for (i, (_, _, _, balance, weights, steered)) in PLANS.into_iter().enumerate() {
        let Some(balance) = balance else { continue };
        let name = format!("method-{i}");
        let setup = Setup {
            name,
            balance,
            weights,
            ratio: RATIO,
            clients,
            fresh_connections: false,
            steered,
        };
        context.check()?;
        rigs[i] = Some(Rig::start(context, &family, &setup)?);
    }
    let learned = done + (1.0 - done) * 0.65;
    wait(context, LEARNING, (done, learned), "Plimsoll learns, beside the other methods")?;
    let marks: Vec<Option<Mark>> = rigs
        .iter_mut()
        .map(|rig| rig.as_mut().map(Rig::mark).transpose())
        .collect::<Result<_, _>>()?;
    wait(context, MEASURED, (learned, 1.0), "all methods side by side")?;
    let mut seen = PLANS.map(|_| None);
    for ((seen, rig), mark) in seen.iter_mut().zip(&mut rigs).zip(&marks) {
        if let (Some(rig), Some(mark)) = (rig, mark) {
            *seen = Some(rig.since(mark)?);
        }
    }
    Ok(seen)
}

/// The paper's exploration and ILP at this rate, its weights under round robin.
fn by_ilp(cost: Cost, rate_rps: f64, clients: u32, context: &Context) -> Result<Seen, Failure> {
    let arena = Arena { rate_rps, ..arena(RATIO, 1, context.seed) };
    let shares = learn(&arena, ROUND_S)?.shares(cost)?;
    let mut weights = [0; 3];
    weights.iter_mut().zip(integer_weights(&shares, 256)).for_each(|(to, weight)| *to = weight);
    simulate(PolicyKind::RoundRobin, weights, RATIO, clients, context.seed)
}

/// Round robin with the third's weight that serves these clients best, by trial.
fn best_split(context: &Context, clients: u32) -> Result<Seen, Failure> {
    let mut best: Option<Seen> = None;
    for weight in (0..=100).step_by(5) {
        context.check()?;
        let weights = [100, 100, weight];
        let seen = simulate(PolicyKind::RoundRobin, weights, RATIO, clients, context.seed)?;
        if best.is_none_or(|b| seen.mean_ms < b.mean_ms) {
            best = Some(seen);
        }
    }
    best.ok_or_else(|| Failure::Other("no split was tried".to_owned()))
}

/// One row per method and provenance.
pub fn table(methods: &[Method]) -> Table {
    let mut table = Table::new(
        "methods",
        "Every method, the third backend at 60 % of the others' capacity",
        &[
            ("method", ""),
            ("in_the_plot", ""),
            ("mean_ms", "ms"),
            ("high_cpu_percent", "%"),
            ("low_cpu_percent", "%"),
            ("high_latency_ms", "ms"),
            ("low_latency_ms", "ms"),
            ("low_share_percent", "% of requests"),
            ("total_rps", "requests/s"),
        ],
    );
    for method in methods {
        let both =
            [(Provenance::Emulated, &method.emulated), (Provenance::Simulated, &method.simulated)];
        for (provenance, seen) in both {
            let Some(seen) = seen else { continue };
            let (high, low): (BackendSeen, BackendSeen) = (seen.high(), seen.low());
            let numbers = [
                seen.mean_ms,
                100.0 * high.cpu,
                100.0 * low.cpu,
                high.latency_ms,
                low.latency_ms,
                100.0 * low.share,
                seen.rps,
            ];
            let name = [method.name.into(), method.short.into()];
            table.row(provenance, name.into_iter().chain(numbers.map(Into::into)));
        }
    }
    table
}

/// Mean latency by method.
pub fn plot(methods: &[Method]) -> Plot {
    let bars = |seen: fn(&Method) -> Option<Seen>| -> Vec<Option<f64>> {
        methods.iter().map(|m| seen(m).map(|s| s.mean_ms)).collect()
    };
    let mut series = vec![Bars::new("mean", Provenance::Simulated, bars(|m| m.simulated))];
    if methods.iter().any(|m| m.emulated.is_some()) {
        series.insert(0, Bars::new("mean", Provenance::Emulated, bars(|m| m.emulated)));
    }
    Plot::bars(
        "methods",
        "Mean latency by method, third backend at 60 %",
        "method",
        Axis::linear("mean latency (ms)"),
        methods.iter().map(|m| m.short.to_owned()).collect(),
        series,
    )
}
