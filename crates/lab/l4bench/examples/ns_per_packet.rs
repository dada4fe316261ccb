//! Nanoseconds per packet of the program, by `BPF_PROG_TEST_RUN`, beside balancers that keep a connection
//! table, or nothing and no cookie either: `cargo run --release -p plimsoll-l4bench --example ns_per_packet
//! [ROUNDS] [REPEAT] [TITLE...]`, as root. Titles choose the lines that contain one of them. How it is
//! measured: `src/cost.rs`.

#[path = "../../../io/l4/tests/support/mod.rs"]
mod support;

use plimsoll_l4::{Load, Policy};
use plimsoll_l4bench::{
    BenchError, Case, Replies, SERVERS, established, first_packets, first_packets_v6, measure,
    replies, replies_apart, tables, without_state,
};
use support::Rig;
use support::rig::privileged;

/// The clients of all cases have a route of their own.
const OWN_ROUTES: &str = "set -e
    for hop in 10.0.1.9 fd00:1::9; do ip neigh replace $hop lladdr 02:00:00:00:01:09 dev lbc; done
    ip route add 10.0.0.0/10 via 10.0.1.9; ip route add 10.64.0.0/10 via 10.0.1.9
    ip -6 route add fd00::/64 via fd00:1::9";

fn print(rig: &mut Rig, cases: &[Case], rounds: u32, repeat: u32) {
    let told = |_| Ok::<(), BenchError>(());
    let measured = measure(rig, cases, rounds, repeat, told).expect("measures");
    for cost in &measured.costs {
        let flows = cost.flows.map_or("all new".to_owned(), |flows| flows.to_string());
        println!(
            "{:<36} {flows:>8} {:>8.1} {:>8.1} {:>12.1}",
            cost.title, cost.min_ns, cost.median_ns, cost.preamble_min_ns
        );
    }
    for (name, count) in &measured.reasons {
        println!("  counted {name}: {count}");
    }
    if measured.missed > 0 {
        println!("  not in the table: {}", measured.missed);
    }
}

fn main() {
    if !privileged() {
        return;
    }
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |otherwise: u32| arguments.next().map_or(otherwise, |text| text.parse().expect("a number"));
    let (rounds, repeat) = (number(9), number(1 << 20));
    let titles: Vec<String> = arguments.collect();
    println!("ns per packet, {SERVERS} servers, {rounds} rounds of {repeat} packets");
    println!("{:<36} {:>8} {:>8} {:>8} {:>12}", "", "flows", "min", "median", "preamble min");
    let is_chosen =
        |case: &Case| titles.is_empty() || titles.iter().any(|one| case.title.contains(one));
    let run_with = |policy, replies, script: &str, mut cases: Vec<Case>| {
        cases.retain(is_chosen);
        if !cases.is_empty() {
            let mut rig = Rig::new(policy, SERVERS, replies);
            rig.net.exec("lb", script);
            print(&mut rig, &cases, rounds, repeat);
        }
    };
    let run = |policy, replies, cases| run_with(policy, replies, "true", cases);
    let mut cases = established();
    cases.extend(without_state());
    cases.extend(tables());
    run(Policy::Maglev, Replies::Uplink, cases);
    for (name, policy) in [
        ("maglev", Policy::Maglev),
        ("round_robin", Policy::RoundRobin),
        ("weighted_round_robin", Policy::WeightedRoundRobin),
        ("power_of_two", Policy::PowerOfTwo),
        ("least_connections", Policy::LeastConnections),
        ("hash", Policy::Hash),
        ("awrr", Policy::Awrr(Load::Connections)),
    ] {
        let mut cases = first_packets(name);
        if policy == Policy::Maglev {
            cases.extend(first_packets_v6(name));
        }
        run(policy, Replies::Uplink, cases);
    }
    run(Policy::Maglev, Replies::DefaultRoute, replies("default route"));
    run(Policy::Maglev, Replies::Asked, replies("routes asked"));
    // Up to 64 clients, which the program remembers; and each flow of another client.
    run_with(Policy::Maglev, Replies::DefaultRoute, OWN_ROUTES, replies("another route"));
    run_with(Policy::Maglev, Replies::DefaultRoute, OWN_ROUTES, replies_apart("clients apart"));
    for clients in [4096, 262_144] {
        let mut cases = replies_apart(&format!("clients apart, room {clients}"));
        cases.retain(is_chosen);
        if !cases.is_empty() {
            let mut rig = Rig::with_room(Policy::Maglev, SERVERS, Replies::DefaultRoute, clients);
            rig.net.exec("lb", OWN_ROUTES);
            print(&mut rig, &cases, rounds, repeat);
        }
    }
}
