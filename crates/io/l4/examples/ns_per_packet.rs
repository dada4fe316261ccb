//! Nanoseconds per packet of the program, by `BPF_PROG_TEST_RUN`, beside a balancer with a connection
//! table: `cargo run --release -p plimsoll-l4 --example ns_per_packet [ROUNDS] [REPEAT] [TITLE...]`, as
//! root. Titles choose the lines that contain one of them.
//!
//! A preamble restores the packet and makes it another flow's; its own cost is measured alone, in the
//! same round, and subtracted. All programs take turns in every round. Shown: the difference of the
//! minima, and of the medians.

mod support;

use plimsoll_l4::{Policy, REASONS};
use support::rig::packet::{ACK, SYN, Segment, option, syn_options, timestamps};
use support::rig::privileged;
use support::{
    CLIENT_LEG_MAC, Load, Replies, Rig, Settings, VIP, VIP6, min_and_median, server_mac,
};

const SERVERS: u8 = 16;
const FLOWS: [u64; 3] = [1, 1 << 16, 1 << 20];
/// So many that none comes twice.
const ENDLESS: u64 = 1 << 37;
const REDIRECT: u32 = 4;

/// One line of the table.
struct Case {
    title: String,
    preamble: &'static str,
    program: &'static str,
    packet: Vec<u8>,
    field_at: u32,
    from_servers: bool,
    flows: Vec<u64>,
    /// Fills the connection table first.
    fill: Option<(&'static str, Vec<u8>)>,
}

/// Client → server unless `from_servers`; 64 bytes of payload or none, as an ACK has.
fn packet(client: &str, vip: &str, flags: u8, options: Vec<u8>) -> Vec<u8> {
    let mut segment = Segment::new(client, vip, flags, options);
    segment.payload = vec![0; 64];
    segment.bytes()
}

fn reply(client: &str, vip: &str) -> Vec<u8> {
    let mut segment = Segment::new(vip, client, ACK, timestamps(1, 2));
    segment.to_mac = CLIENT_LEG_MAC;
    segment.from_mac = server_mac(1);
    segment.payload = vec![0; 64];
    segment.bytes()
}

fn straight() -> Vec<Case> {
    let case = |title: &str, preamble, program, packet, field_at, from_servers| Case {
        title: title.to_owned(),
        preamble,
        program,
        packet,
        field_at,
        from_servers,
        flows: FLOWS.to_vec(),
        fill: None,
    };
    let (four, six) = ("10.0.0.1:1", "[fd00::1]:1");
    // The upper half of TSecr, and of TSval, from the start of the packet.
    let (echo4, value4) = (34 + 28, 34 + 24);
    let (echo6, value6) = (54 + 28, 54 + 24);
    let ack = |client, vip| packet(client, vip, ACK, timestamps(1, 2));
    let mut odd = vec![1, 3, 3, 7, 1];
    odd.extend(option(1, 2));
    odd.push(0);
    let slow = packet(four, VIP, ACK, odd);
    vec![
        case(
            "client to server",
            "established_v4_preamble",
            "established_v4_balancer",
            ack(four, VIP),
            echo4,
            false,
        ),
        case(
            "server to client",
            "reply_v4_preamble",
            "reply_v4_balancer",
            reply(four, VIP),
            value4,
            true,
        ),
        case(
            "client to server, IPv6",
            "established_v6_preamble",
            "established_v6_balancer",
            ack(six, VIP6),
            echo6,
            false,
        ),
        case(
            "server to client, IPv6",
            "reply_v6_preamble",
            "reply_v6_balancer",
            reply(six, VIP6),
            value6,
            true,
        ),
        case(
            "client to server, slow options",
            "established_v4_preamble",
            "established_v4_balancer",
            slow,
            34 + 31,
            false,
        ),
        case(
            "client to server, no timestamp",
            "plain_v4_preamble",
            "plain_v4_balancer",
            packet(four, VIP, ACK, vec![]),
            0,
            false,
        ),
    ]
}

/// Packets of connections that the table holds.
fn hits() -> Vec<Case> {
    let case = |title: &str, preamble, program, client, vip| Case {
        title: title.to_owned(),
        preamble,
        program,
        packet: packet(client, vip, ACK, timestamps(1, 2)),
        field_at: 0,
        from_servers: false,
        flows: FLOWS.to_vec(),
        fill: Some((program, packet(client, vip, SYN, syn_options(1, 0)))),
    };
    vec![
        case("LRU table, hit", "plain_v4_preamble", "plain_v4_table", "10.0.0.1:1", VIP),
        case("LRU table, hit, IPv6", "plain_v6_preamble", "plain_v6_table", "[fd00::1]:1", VIP6),
    ]
}

/// First packets that enter the table, their servers chosen as the first packets beside them.
fn inserts(policy: &str) -> Vec<Case> {
    let of = |case: Case, program, title: &str| Case {
        title: format!("LRU table, insert, {policy}{title}"),
        program,
        ..case
    };
    let mut cases = vec![of(first(String::new(), false), "plain_v4_table", "")];
    if policy == "maglev" {
        cases.push(of(first(String::new(), true), "plain_v6_table", ", IPv6"));
    }
    cases
}

fn first(title: String, six: bool) -> Case {
    let (preamble, program, client, vip) = if six {
        ("plain_v6_preamble", "plain_v6_balancer", "[fd00::1]:1", VIP6)
    } else {
        ("plain_v4_preamble", "plain_v4_balancer", "10.0.0.1:1", VIP)
    };
    let packet = packet(client, vip, SYN, syn_options(1, 0));
    let flows = vec![1 << 16, 1 << 20, ENDLESS];
    Case { title, preamble, program, packet, field_at: 0, from_servers: false, flows, fill: None }
}

/// Measurements of a case at a number of flows.
#[derive(Default)]
struct Measured {
    preamble: Vec<f64>,
    program: Vec<f64>,
}

fn settings(case: &Case, flows: u64, turn: u64) -> Settings {
    Settings { turn, flows, servers: u32::from(SERVERS), field_at: case.field_at }
}

/// All cases on one rig, in turns.
fn measure(rig: &Rig, cases: &[Case], rounds: u32, repeat: u32) {
    let mut load = Load::on(&rig.balancer);
    // A server's clock is known once it was heard: before anybody is measured.
    for case in cases.iter().filter(|case| case.from_servers) {
        load.set(settings(case, 1 << 16, 0));
        load.run(case.program, &case.packet, rig.servers, 1 << 10);
    }
    let before = rig.reasons();
    let points: Vec<(&Case, u64)> =
        cases.iter().flat_map(|case| case.flows.iter().map(move |flows| (case, *flows))).collect();
    let mut measured: Vec<Measured> = points.iter().map(|_| Measured::default()).collect();
    let mut missed = 0;
    for round in 0..=rounds {
        for ((case, flows), into) in points.iter().zip(&mut measured) {
            let ifindex = if case.from_servers { rig.servers } else { rig.clients };
            // Flows that must be new are, in every round.
            let turn = if *flows == ENDLESS { (u64::from(round) + 1) << 30 } else { 0 };
            let settings = settings(case, *flows, turn);
            if let Some((name, syn)) = &case.fill {
                load.set(settings);
                load.run(name, syn, ifindex, *flows as u32);
            }
            load.set(settings);
            let (_, preamble) = load.run(case.preamble, &case.packet, ifindex, repeat);
            load.set(settings);
            let (verdict, program) = load.run(case.program, &case.packet, ifindex, repeat);
            missed += load.missed();
            assert_eq!(verdict, REDIRECT, "{}", case.title);
            // The first round warms up.
            if round > 0 {
                into.preamble.push(preamble);
                into.program.push(program);
            }
        }
    }
    for ((case, flows), one) in points.iter().zip(&measured) {
        let (least, middle) = min_and_median(&one.program);
        let (least_before, middle_before) = min_and_median(&one.preamble);
        let flows = if *flows == ENDLESS { "all new".to_owned() } else { flows.to_string() };
        println!(
            "{:<36} {flows:>8} {:>8.1} {:>8.1} {:>12.1}",
            case.title,
            least - least_before,
            middle - middle_before,
            least_before
        );
    }
    let after = rig.reasons();
    for (name, (before, after)) in REASONS.iter().zip(before.iter().zip(after)) {
        if after > *before {
            println!("  counted {name}: {}", after - before);
        }
    }
    if missed > 0 {
        println!("  not in the table: {missed}");
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
    let run = |policy, replies, mut cases: Vec<Case>| {
        cases.retain(|case| titles.is_empty() || titles.iter().any(|one| case.title.contains(one)));
        if !cases.is_empty() {
            measure(&Rig::new(policy, SERVERS, replies), &cases, rounds, repeat);
        }
    };
    let mut cases = straight();
    cases.extend(hits());
    run(Policy::Maglev, Replies::Uplink, cases);
    let policies = [
        ("maglev", Policy::Maglev),
        ("round_robin", Policy::RoundRobin),
        ("weighted_round_robin", Policy::WeightedRoundRobin),
        ("power_of_two", Policy::PowerOfTwo),
        ("least_connections", Policy::LeastConnections),
        ("hash", Policy::Hash),
        ("awrr", Policy::Awrr),
    ];
    for (name, policy) in policies {
        let mut cases = vec![first(format!("first packet, {name}"), false)];
        if policy == Policy::Maglev {
            cases.push(first(format!("first packet, {name}, IPv6"), true));
        }
        cases.extend(inserts(name));
        run(policy, Replies::Uplink, cases);
    }
    let mut replies: Vec<Case> = straight().into_iter().filter(|case| case.from_servers).collect();
    for case in &mut replies {
        case.title += ", kernel's routes";
    }
    run(Policy::Maglev, Replies::Routes, replies);
}
