//! Nanoseconds per packet of the program, by `BPF_PROG_TEST_RUN`, beside a balancer with a connection
//! table: `cargo run --release -p plimsoll-l4 --example ns_per_packet [ROUNDS] [REPEAT]`, as root.
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
    title: &'static str,
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
    let case = |title, preamble, program, packet, field_at, from_servers| Case {
        title,
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

fn table() -> Vec<Case> {
    let syn = |client, vip| packet(client, vip, SYN, syn_options(1, 0));
    let ack = |client, vip| packet(client, vip, ACK, timestamps(1, 2));
    let case = |title, preamble, program, packet, fill, flows: &[u64]| Case {
        title,
        preamble,
        program,
        packet,
        field_at: 0,
        from_servers: false,
        flows: flows.to_vec(),
        fill,
    };
    let (four, six) = ("10.0.0.1:1", "[fd00::1]:1");
    let (syn4, syn6) = (syn(four, VIP), syn(six, VIP6));
    vec![
        case(
            "LRU table, hit",
            "plain_v4_preamble",
            "plain_v4_table",
            ack(four, VIP),
            Some(("plain_v4_table", syn4.clone())),
            &FLOWS,
        ),
        case(
            "LRU table, hit, IPv6",
            "plain_v6_preamble",
            "plain_v6_table",
            ack(six, VIP6),
            Some(("plain_v6_table", syn6.clone())),
            &FLOWS,
        ),
        case(
            "LRU table, insert",
            "plain_v4_preamble",
            "plain_v4_table",
            syn4,
            None,
            &[1, 1 << 16, 1 << 20, ENDLESS],
        ),
        case(
            "LRU table, insert, IPv6",
            "plain_v6_preamble",
            "plain_v6_table",
            syn6,
            None,
            &[ENDLESS],
        ),
    ]
}

fn first(title: &'static str, six: bool) -> Case {
    let (preamble, program, client, vip) = if six {
        ("plain_v6_preamble", "plain_v6_balancer", "[fd00::1]:1", VIP6)
    } else {
        ("plain_v4_preamble", "plain_v4_balancer", "10.0.0.1:1", VIP)
    };
    let packet = packet(client, vip, SYN, syn_options(1, 0));
    let flows = vec![1, 1 << 16, 1 << 20, ENDLESS];
    Case { title, preamble, program, packet, field_at: 0, from_servers: false, flows, fill: None }
}

/// Measurements of a case at a number of flows.
#[derive(Default)]
struct Measured {
    preamble: Vec<f64>,
    program: Vec<f64>,
}

/// All cases on one rig, in turns.
fn measure(rig: &Rig, cases: &[Case], rounds: u32, repeat: u32) {
    let mut load = Load::on(&rig.balancer);
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
            let settings = Settings {
                turn,
                flows: *flows,
                servers: u32::from(SERVERS),
                field_at: case.field_at,
            };
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
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (rounds, repeat) = (arguments.next().unwrap_or(9), arguments.next().unwrap_or(1 << 20));
    println!("ns per packet, {SERVERS} servers, {rounds} rounds of {repeat} packets");
    println!("{:<36} {:>8} {:>8} {:>8} {:>12}", "", "flows", "min", "median", "preamble min");
    let policies = [
        ("first packet, round_robin", Policy::RoundRobin),
        ("first packet, weighted_round_robin", Policy::WeightedRoundRobin),
        ("first packet, power_of_two", Policy::PowerOfTwo),
        ("first packet, least_connections", Policy::LeastConnections),
        ("first packet, hash", Policy::Hash),
        ("first packet, awrr", Policy::Awrr),
    ];
    {
        let rig = Rig::new(Policy::Maglev, SERVERS, Replies::Uplink);
        let mut cases = straight();
        cases.extend(table());
        cases.push(first("first packet, maglev", false));
        cases.push(first("first packet, maglev, IPv6", true));
        measure(&rig, &cases, rounds, repeat);
    }
    for (title, policy) in policies {
        let rig = Rig::new(policy, SERVERS, Replies::Uplink);
        measure(&rig, &[first(title, false)], rounds, repeat);
    }
    let rig = Rig::new(Policy::Maglev, SERVERS, Replies::Routes);
    let mut replies: Vec<Case> = straight().into_iter().filter(|case| case.from_servers).collect();
    for case in &mut replies {
        case.title = "server to client, kernel's routes";
    }
    measure(&rig, &replies, rounds, repeat);
}
