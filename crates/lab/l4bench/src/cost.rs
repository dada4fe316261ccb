//! Nanoseconds per packet: the program behind its preamble, less the preamble alone, in the same round.
//!
//! A preamble restores the packet and makes it another flow's; all cases take turns in every round, so
//! that what else the machine does falls on all of them. The difference of the minima is what the program
//! costs undisturbed; of the medians, what it costs here.

use crate::{BenchError, Load, Rig, Settings};
use plimsoll_l4::REASONS;

/// So many that none comes twice.
pub(super) const ENDLESS: u64 = 1 << 37;
const REDIRECT: u32 = crate::packet::REDIRECT;

/// One kind of packet, and the program it is given to.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is called.
    pub title: String,
    /// The preamble alone.
    pub preamble: &'static str,
    /// The same with the program behind it.
    pub program: &'static str,
    /// The packet.
    pub packet: Vec<u8>,
    /// Where in it the preamble writes the upper half of a timestamp.
    pub field_at: u32,
    /// Whether each flow has a client of its own.
    pub apart: bool,
    /// Whether it comes from a server.
    pub from_servers: bool,
    /// Measured with so many flows each.
    pub flows: Vec<u64>,
    /// A program, and the packet it gets for every flow before the case is measured: fills a table.
    pub fill: Option<(&'static str, Vec<u8>)>,
}

/// What a case costs with so many flows, in nanoseconds a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Of which case.
    pub title: String,
    /// Of packets; `None`: every packet begins a connection.
    pub flows: Option<u64>,
    /// Difference of the minima.
    pub min_ns: f64,
    /// Difference of the medians.
    pub median_ns: f64,
    /// The preamble's minimum, which is not in the others.
    pub preamble_min_ns: f64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// By case and number of flows, in their order.
    pub costs: Vec<Cost>,
    /// Packets that did not go straight, by reason.
    pub reasons: Vec<(&'static str, u64)>,
    /// Packets that were looked for in a table and not found.
    pub missed: u64,
}

#[derive(Default)]
struct Rounds {
    preamble: Vec<f64>,
    program: Vec<f64>,
}

/// All cases on one rig, in turns; each round is reported to `tell`, which may end it.
///
/// # Errors
/// When the kernel does not run a program, a program does not forward its packet, or `tell` fails.
pub fn measure<E: From<BenchError>>(
    rig: &mut Rig,
    cases: &[Case],
    rounds: u32,
    repeat: u32,
    mut tell: impl FnMut(u32) -> Result<(), E>,
) -> Result<Measured, E> {
    let mut load = Load::on(&rig.balancer)?;
    // A server's clock is known once it was heard: before anybody is measured.
    for case in cases.iter().filter(|case| case.from_servers) {
        load.set(settings(rig, case, 1 << 16, 0))?;
        load.run(case.program, &case.packet, rig.servers, 1 << 10)?;
    }
    let before = rig.reasons().map_err(BenchError::from)?;
    let points: Vec<(&Case, u64)> =
        cases.iter().flat_map(|case| case.flows.iter().map(move |flows| (case, *flows))).collect();
    let mut measured: Vec<Rounds> = points.iter().map(|_| Rounds::default()).collect();
    let mut missed = 0;
    for round in 0..=rounds {
        tell(round)?;
        for ((case, flows), into) in points.iter().zip(&mut measured) {
            // As a daemon does once a second.
            rig.balancer.refresh().map_err(BenchError::from)?;
            let (preamble, program) = once(&mut load, rig, case, *flows, round, repeat)?;
            missed += load.missed()?;
            // The first round warms up.
            if round > 0 {
                into.preamble.push(preamble);
                into.program.push(program);
            }
        }
    }
    let after = rig.reasons().map_err(BenchError::from)?;
    let counted = REASONS.iter().zip(before.iter().zip(after));
    let reasons = counted
        .filter(|(_, (before, after))| after > before)
        .map(|(name, (before, after))| (*name, after - before))
        .collect();
    let costs = points.iter().zip(&measured).map(|((case, flows), one)| cost(case, *flows, one));
    Ok(Measured { costs: costs.collect(), reasons, missed })
}

fn settings(rig: &Rig, case: &Case, flows: u64, turn: u64) -> Settings {
    let servers = rig.config.vips[0].backends.len() as u32;
    Settings { turn, flows, servers, field_at: case.field_at, apart: case.apart }
}

/// The preamble's cost, and that of preamble and program.
fn once(
    load: &mut Load,
    rig: &Rig,
    case: &Case,
    flows: u64,
    round: u32,
    repeat: u32,
) -> Result<(f64, f64), BenchError> {
    let ifindex = if case.from_servers { rig.servers } else { rig.clients };
    // Flows that must be new are, in every round.
    let turn = if flows == ENDLESS { (u64::from(round) + 1) << 30 } else { 0 };
    let settings = settings(rig, case, flows, turn);
    if let Some((name, syn)) = &case.fill {
        load.set(settings)?;
        load.run(name, syn, ifindex, flows as u32)?;
    }
    load.set(settings)?;
    let (_, preamble) = load.run(case.preamble, &case.packet, ifindex, repeat)?;
    load.set(settings)?;
    let (verdict, program) = load.run(case.program, &case.packet, ifindex, repeat)?;
    if verdict != REDIRECT {
        let error = format!("verdict {verdict}, expected {REDIRECT} (redirect)");
        return Err(BenchError::kernel(&case.title)(error));
    }
    Ok((preamble, program))
}

fn cost(case: &Case, flows: u64, rounds: &Rounds) -> Cost {
    let (least, middle) = min_and_median(&rounds.program);
    let (least_before, middle_before) = min_and_median(&rounds.preamble);
    Cost {
        title: case.title.clone(),
        flows: (flows != ENDLESS).then_some(flows),
        min_ns: least - least_before,
        median_ns: middle - middle_before,
        preamble_min_ns: least_before,
    }
}

/// The smallest and the middle one.
///
/// # Panics
/// When there is none.
pub fn min_and_median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2])
}
