//! The methods (§4): our policies against HAProxy's own picks, on the same stream of requests.
//!
//! A HAProxy of one thread gets one request after the other, each on a connection of its own; which server
//! has it is compared with what our policy picks. Methods that look at what is in flight (leastconn, first
//! with `maxconn`, bounded hashing) get requests that stay open and end in another order, and each end is
//! waited for in HAProxy's own counters. `random` is left out: its generator is HAProxy's own.

mod cases;
mod live;
mod stream;

use std::time::Duration;

use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Bars, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

pub use cases::{CASES, Case};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "haproxy-picks",
    paper: &super::PAPER,
    figure: "§4",
    title: "HAProxy's methods against our policies, pick by pick",
    claim: "HAProxy has random, first, leastconn, source, roundrobin, static-rr, uri, hdr, rdp-cookie and \
            url_param.",
    provenance: &[Provenance::Measured],
    takes: Duration::from_secs(300),
    takes_quick: Duration::from_secs(7),
    run,
};

/// What came of one method.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Its name.
    pub name: &'static str,
    /// Requests sent.
    pub requests: u64,
    /// Of which HAProxy and our policy picked the same server.
    pub identical: u64,
    /// The first of which they did not: its number, HAProxy's server and ours.
    pub first_apart: Option<(u64, usize, Option<usize>)>,
    /// How many servers had a request.
    pub servers_used: usize,
}

/// Sends so many requests of each method to a real HAProxy, and picks for the same ones. `told` hears of
/// each method before it begins, and may end the run.
///
/// # Errors
/// When there is no HAProxy, it does not do as it should, or `told` says so.
pub fn compare_picks(
    seed: u64,
    requests: u64,
    cases: &[Case],
    mut told: impl FnMut(usize, &'static str) -> Result<(), Failure>,
) -> Result<Vec<Compared>, Failure> {
    let live = live::Live::start(cases)?;
    let mut all = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        told(i, case.name)?;
        all.push(live.compare(i, case, seed, requests)?);
    }
    Ok(all)
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let requests = context.pick(200, 10_000);
    let all = compare_picks(context.seed, requests, CASES, |i, name| {
        context.progress(i as f64 / CASES.len() as f64, name)
    })?;
    let mut table =
        Table::empty("picks", "Picks that a real HAProxy and our policy have in common");
    for (case, seen) in CASES.iter().zip(&all) {
        let apart = seen.first_apart.map_or_else(String::new, |(at, theirs, ours)| {
            format!("request {at}: HAProxy s{theirs}, ours {ours:?}")
        });
        row!(table, Provenance::Measured, {
            method: case.name;
            policy: case.kind.name();
            requests: seen.requests as f64;
            identical: seen.identical as f64;
            servers_used: seen.servers_used as f64;
            first_apart: apart;
        })?;
    }
    let names = all.iter().map(|seen| seen.name.to_owned()).collect();
    let share = |seen: &Compared| Some(100.0 * seen.identical as f64 / seen.requests as f64);
    let bars = Bars::new("identical", Provenance::Measured, all.iter().map(share).collect());
    let comparison = |seen: &Compared| {
        let what = format!("picks identical to HAProxy's: {}", seen.name);
        let all = (seen.requests as f64, Tolerance::Absolute(0.0));
        let ours = seen.identical as f64;
        Comparison::number(Provenance::Measured, what, all, ours, "requests").why(
            "The column of the paper is the number of requests: all picks must be the same. See first_apart.",
        )
    };
    let (x, y) = ("method", Axis::linear("identical (%)").from_to(0.0, 100.0));
    Ok(Outcome {
        tables: vec![table],
        plots: vec![Plot::bars("picks", "Picks in common with HAProxy", x, y, names, vec![bars])],
        comparisons: all.iter().map(comparison).collect(),
        notes: vec![
            "One thread (nbthread 1): with several, HAProxy's own order of picks depends on their timing."
                .to_owned(),
            "random(N) is left out: what it draws is its own. rdp-cookie is tried in mode tcp, the only one \
             in which it applies."
                .to_owned(),
        ],
    })
}
