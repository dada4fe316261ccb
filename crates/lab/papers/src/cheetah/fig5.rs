//! Figure 5 (§5.1): what a packet costs under balancers with and without state.
//!
//! The programs run on packets made in the kernel (`BPF_PROG_TEST_RUN`, `crates/lab/l4bench`), in turns;
//! the cost of making a packet is measured alone and subtracted. Only ratios compare with the paper, whose
//! cycles are those of a user-space switch on another machine.

use std::time::Duration;

use plimsoll_l4::Policy;
use plimsoll_l4bench::{
    Case, Cost, Replies, Rig, SERVERS, established, first_packets, legs, measure, tables,
    without_state,
};
use plimsoll_testbed::net::{Namespaces, requirements};

use crate::Provenance::Measured;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Bars, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cheetah-fig5",
    paper: &super::PAPER,
    figure: "Figure 5",
    title: "Cost of a packet",
    claim: "The cookie costs almost what the cheapest hash costs, and a fifth of what a connection table costs.",
    provenance: &[Provenance::Measured],
    takes: Duration::from_secs(60),
    takes_quick: Duration::from_secs(6),
    run,
};

/// Cycles a packet at full load, from the CSV file that the authors publish with their experiments.
const THEIRS: [(&str, f64); 6] = [
    ("stateless Cheetah", 63.0),
    ("hash by the NIC (RSS)", 56.0),
    ("hash in software (DPDK)", 76.0),
    ("stateful Cheetah", 119.0),
    ("Beamer", 159.0),
    ("connection table (cuckoo)", 309.0),
];

const COOKIE: &str = "client to server";
const REPLY: &str = "server to client";
const HASH: &str = "hash, no cookie";
const CHAIN: &str = "hash, daisy chain";
const TABLE: &str = "LRU table, hit";
const METHODS: [&str; 5] = [COOKIE, REPLY, HASH, CHAIN, TABLE];

/// The number of flows that ratios are taken at.
const FLOWS: u64 = 1 << 16;

/// What of ours stands beside which of theirs, and why they may differ.
const BESIDE: [(&str, &str, &str); 3] = [
    (
        HASH,
        "hash in software (DPDK)",
        "Theirs is compared with a cookie whose hash the network card computes; both of ours compute \
         their hash, and the cookie's adds the restored timestamp and its checksum, which the paper leaves \
         to the servers.",
    ),
    (
        CHAIN,
        "Beamer",
        "Theirs encapsulates every packet and looks into a larger table; ours is the least that daisy \
         chaining needs, one more look-up.",
    ),
    (
        TABLE,
        "connection table (cuckoo)",
        "Theirs is one table for each core in user space, ours the kernel's LRU hash map, shared by all \
         cores, whose entries leave the cache at this number of flows.",
    ),
];

fn run(context: &Context) -> Result<Outcome, Failure> {
    requirements()?;
    let (rounds, repeat) = context.pick((1, 30_000), (9, 300_000));
    let flows: &[u64] = context.pick(&[1, FLOWS], &[1, FLOWS, 1 << 20]);
    let mut cases: Vec<Case> =
        established().into_iter().chain(without_state()).chain(tables()).collect();
    cases.retain(|case| METHODS.contains(&case.title.as_str()));
    for case in &mut cases {
        case.flows = flows.to_vec();
    }
    let costs = measured(context, Policy::Maglev, &cases, rounds, repeat, (0.0, 0.6))?;
    let mut first = Vec::new();
    let policies = [
        ("round_robin", Policy::RoundRobin),
        ("maglev", Policy::Maglev),
        ("power_of_two", Policy::PowerOfTwo),
    ];
    for (index, (name, policy)) in policies.into_iter().take(context.pick(1, 3)).enumerate() {
        let mut cases = first_packets(name);
        for case in &mut cases {
            // Those of which none comes twice.
            case.flows = case.flows.split_off(case.flows.len() - 1);
        }
        let from = 0.6 + 0.13 * index as f64;
        first.extend(measured(context, policy, &cases, rounds, repeat, (from, from + 0.13))?);
    }
    let notes = vec![
        format!(
            "{SERVERS} servers, {rounds} rounds of {repeat} packets a line; nanoseconds of thread CPU time, the \
             difference of the minima and of the medians of the rounds. Ratios are of the minima at 65,536 \
             flows. The authors' figures are at full load."
        ),
        "Cycles are not shown: a virtual machine has no honest counter of them.".to_owned(),
        "The cookie is measured with the timestamp restored by the balancer. Stateful Cheetah and hashing by \
         the network card are not built here."
            .to_owned(),
        "All programs share the look-up of the VIP, the rewrite, the counters and the redirect; the connection \
         table holds 2 Mi entries. IPv6, options walked and other policies: `cargo run --release -p plimsoll-l4bench \
         --example ns_per_packet`."
            .to_owned(),
    ];
    let tables = vec![table(&costs)?, first_table(&first)?];
    let plots = vec![ratios(&costs), over_flows(&costs)];
    Ok(Outcome { tables, plots, comparisons: comparisons(&costs, &first), notes })
}

/// The cases on a balancer of this policy, in namespaces of its own; `part` of the run's progress is theirs.
fn measured(
    context: &Context,
    policy: Policy,
    cases: &[Case],
    rounds: u32,
    repeat: u32,
    part: (f64, f64),
) -> Result<Vec<Cost>, Failure> {
    let net = Namespaces::new(&["lb", "out"])?;
    net.run("lb", &legs(&net.full("out")))?;
    net.inside("lb", || {
        let mut rig = Rig::new(net.pins(), policy, SERVERS, Replies::Uplink)?;
        let tell = |round| {
            let done = f64::from(round) / f64::from(rounds + 1);
            context.progress(part.0 + (part.1 - part.0) * done, &format!("round {round}"))
        };
        measure(&mut rig, cases, rounds, repeat, tell).map(|measured| measured.costs)
    })?
}

fn at(costs: &[Cost], title: &str, flows: u64) -> f64 {
    let found = costs.iter().find(|cost| cost.title == title && cost.flows == Some(flows));
    found.map_or(f64::NAN, |cost| cost.min_ns)
}

fn ratio(costs: &[Cost], title: &str) -> f64 {
    at(costs, title, FLOWS) / at(costs, COOKIE, FLOWS)
}

fn theirs(name: &str) -> f64 {
    let of = |name: &str| THEIRS.iter().find(|(one, _)| *one == name).map_or(f64::NAN, |one| one.1);
    of(name) / of(THEIRS[0].0)
}

fn table(costs: &[Cost]) -> Result<Table, Failure> {
    let mut table = Table::empty("established", "Packets of established connections");
    for cost in costs {
        let flows = cost.flows.unwrap_or_default();
        row!(table, Provenance::Measured, {
            method: cost.title.as_str();
            flows: flows;
            min_ns: cost.min_ns, "ns a packet";
            median_ns: cost.median_ns, "ns a packet";
            cycles: (), "a packet";
            ratio: cost.min_ns / at(costs, COOKIE, flows), "to the cookie's";
        })?;
    }
    for (name, cycles) in THEIRS {
        row!(table, Provenance::Reported, {
            method: name;
            cycles: cycles;
            ratio: theirs(name);
        })?;
    }
    Ok(table)
}

fn first_table(costs: &[Cost]) -> Result<Table, Failure> {
    let mut table = Table::empty("first", "SYNs, none of a flow that was there before");
    for cost in costs {
        row!(table, Provenance::Measured, {
            method: cost.title.as_str();
            min_ns: cost.min_ns, "ns a packet";
            median_ns: cost.median_ns, "ns a packet";
        })?;
    }
    Ok(table)
}

fn ratios(costs: &[Cost]) -> Plot {
    let ours = [1.0].into_iter().chain(BESIDE.map(|(ours, ..)| ratio(costs, ours)));
    let paper = [1.0].into_iter().chain(BESIDE.map(|(_, name, _)| theirs(name)));
    let words = ["cookie", "hash", "daisy chain", "connection table"];
    Plot::bars(
        "ratios",
        "Cost of a packet, the cookie's being 1",
        "",
        Axis::linear("cost to the cookie's"),
        words.map(str::to_owned).to_vec(),
        vec![
            Bars::new("ours, 65,536 flows", Provenance::Measured, ours.map(Some).collect()),
            Bars::new("paper", Provenance::Reported, paper.map(Some).collect()).like(0),
        ],
    )
}

fn over_flows(costs: &[Cost]) -> Plot {
    let line = |title: &str| {
        let of = costs.iter().filter(|cost| cost.title == title);
        let points = of.map(|cost| (cost.flows.unwrap_or_default() as f64, cost.min_ns)).collect();
        Lines::new(title, Provenance::Measured, points)
    };
    Plot::lines(
        "flows",
        "Cost of a packet over the number of connections",
        Axis::log("connections"),
        Axis::linear("ns a packet").from_to(0.0, 400.0),
        METHODS.map(line).to_vec(),
    )
}

fn comparisons(costs: &[Cost], first: &[Cost]) -> Vec<Comparison> {
    let mut all: Vec<Comparison> = Vec::new();
    for (ours, name, why) in BESIDE {
        let (what, paper) =
            (format!("{name}, to the cookie"), (theirs(name), Tolerance::Part(0.25)));
        let unit = "times the cycles, or the time";
        all.push(Comparison::number(Measured, what, paper, ratio(costs, ours), unit).why(why));
    }
    let new = |title: &str| {
        first.iter().find(|cost| cost.title == title).map_or(f64::NAN, |cost| cost.min_ns)
    };
    let (entry, first) = (new("LRU table, insert, round_robin"), new("SYN, round_robin"));
    all.push(
        Comparison::silent(
            Measured,
            "a new entry of a connection table, to a SYN without one (round_robin)",
            "not shown",
            entry / first,
            "times the time",
        )
        .why("The paper's figure is of all packets of its load together."),
    );
    all
}
