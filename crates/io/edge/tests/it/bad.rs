//! Packets that nobody should send, and those that are rare, by test runs of the programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_edge::{Node, Ran};

use crate::packet::{DROP, PASS, REDIRECT, VXLAN, ip4, ip6, sum, udp, vxlan};
use crate::rig::{CLIENT, Rig, SERVER, privileged, until};

pub const SECTION: &str = "
  unmatched: UNMATCHED
  flows: { limit: 1000, idle: 60s }
  services: [ { name: inspect, match: [ { destination: \"10.2.0.0/24\" }, { destination: \"fd02::/64\" } ], chain: [ { xdp: counter } ] } ]
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0], services: [inspect] }
";

pub fn rig(unmatched: &str) -> Rig {
    let mut rig = Rig::new(&SECTION.replace("UNMATCHED", unmatched));
    rig.start_node("n1");
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    // The first slots are written with the next step.
    until("slots are filled", || rig.status().places.iter().any(|place| place.weight > 0.0));
    rig
}

pub fn run(rig: &Rig, packets: &[Vec<u8>]) -> Vec<Ran> {
    run_by(rig, "eth0", packets)
}

/// As if they came in by this interface.
fn run_by(rig: &Rig, interface: &str, packets: &[Vec<u8>]) -> Vec<Ran> {
    let handle = rig.forwarder.as_ref().expect("it runs");
    rig.net
        .inside("fwd", || {
            let links = plimsoll_l4::network::links().expect("links");
            let index = links.iter().find(|link| link.name == interface).expect("there").index;
            packets.iter().map(|packet| handle.run_packet(packet, index).expect("runs")).collect()
        })
        .expect("a thread")
}

pub fn one(rig: &Rig, packet: &[u8]) -> Ran {
    run(rig, &[packet.to_vec()]).remove(0)
}

/// Runs a packet, and waits until it is counted for this reason.
fn counted(rig: &Rig, packet: &[u8], verdict: u32, reason: &str) {
    let before = rig.status().reasons[reason];
    let ran = one(rig, packet);
    assert_eq!(ran.verdict, verdict, "{reason}");
    until(reason, || rig.status().reasons[reason] > before);
}

pub fn request() -> Vec<u8> {
    ip4(CLIENT, SERVER, 17, 0x4000, &udp(4000, 53, b"question"))
}

/// EtherType and packet, as they follow the inner addresses.
fn inner(packet: &[u8]) -> Vec<u8> {
    packet[12..].to_vec()
}

#[test]
fn malformed_and_contradictory_packets_are_counted_and_do_no_harm() {
    if !privileged() {
        return;
    }
    let rig = rig("forward");
    let known = one(&rig, &request());
    assert_eq!(known.verdict, REDIRECT);
    let mut long = request();
    long[16..18].copy_from_slice(&500u16.to_be_bytes());
    counted(&rig, &long, PASS, "malformed");
    let mut short_header = request();
    short_header[14] = 0x44;
    counted(&rig, &short_header, PASS, "malformed");
    counted(&rig, &request()[..36], PASS, "malformed");
    let good = inner(&request());
    let from_node = |vni, ids, inner: &[u8]| vxlan("10.3.0.11", "10.3.0.1", vni, ids, inner);
    counted(&rig, &from_node(4097, [4, 1, 0, 0], &good), PASS, "foreign_vni");
    counted(&rig, &vxlan("10.3.0.99", "10.3.0.1", 4096, [4, 1, 0, 0], &good), DROP, "unknown_node");
    counted(&rig, &from_node(4096, [4, 9, 0, 0], &good), DROP, "unknown_node");
    counted(&rig, &from_node(4096, [4, 200, 0, 0], &good), DROP, "unknown_node");
    counted(&rig, &from_node(4096, [4, 1, 0, 0], &[8]), DROP, "malformed");
    counted(&rig, &from_node(4096, [4, 1, 0, 0], &[8, 0, 0x45, 0, 0]), DROP, "malformed");
    counted(
        &rig,
        &from_node(4096, [1, 1, 0, 0], &[0x88, 0xb5, 8, 0, 0, 0, 1, 2]),
        DROP,
        "malformed",
    );
    counted(&rig, &from_node(4096, [4, 1, 0, 0], &[0x08, 0x06, 0, 1]), DROP, "malformed");
    // For the forwarder by any of its addresses, and for a node.
    for own in ["10.3.0.1", "10.1.0.1", "10.3.0.11"] {
        let nested = ip4("10.2.0.20", own, 17, 0, &udp(1, VXLAN, &[0; 20]));
        counted(&rig, &from_node(4096, [4, 1, 0, 0], &inner(&nested)), DROP, "nested");
    }
    let other = ip4("10.2.0.20", CLIENT, 17, 0, &udp(1, VXLAN, &[0; 20]));
    assert_ne!(one(&rig, &from_node(4096, [4, 1, 0, 0], &inner(&other))).verdict, DROP);
    // A node's address, forged by a machine behind another interface.
    let before = rig.status().reasons["unknown_node"];
    let returned = from_node(4096, [4, 1, 0, 0], &good);
    assert_ne!(one(&rig, &returned).verdict, DROP, "by the node's own interface");
    assert_eq!(run_by(&rig, "lo", &[returned]).remove(0).verdict, DROP);
    until("unknown_node", || rig.status().reasons["unknown_node"] > before);
    // Rewritten, of a flow that is not known.
    let mut teach = vec![0x88, 0xb5, 8, 0, 0, 0];
    teach.extend_from_slice(&[9; 16]);
    teach.extend_from_slice(&good[2..]);
    let before = rig.status().reasons["untaught"];
    one(&rig, &from_node(4096, [1, 1, 0, 0], &teach));
    until("untaught", || rig.status().reasons["untaught"] > before);
    let again = one(&rig, &request());
    assert_eq!(again.packet, known.packet, "the flow is where it was");
}

#[test]
fn packets_are_wrapped_with_ids_and_errors_follow_their_flow() {
    if !privileged() {
        return;
    }
    let rig = rig("drop");
    let packet = request();
    let ran = one(&rig, &packet);
    assert_eq!((ran.verdict, ran.packet.len()), (REDIRECT, packet.len() + 50));
    assert_eq!(sum(&ran.packet[14..34]), 0, "the outer header's checksum");
    assert_eq!(ran.packet[26..34], [10, 3, 0, 1, 10, 3, 0, 11]);
    assert_eq!(ran.packet[36..38], VXLAN.to_be_bytes());
    assert_eq!(ran.packet[46..49], [0, 0x10, 0], "VNI 4096");
    assert_eq!(ran.packet[56..62], [2, 0, 1, 0, 0, 0x50], "flags, server, core, service");
    assert_eq!(ran.packet[64..], packet[14..], "the packet itself is not changed");
    let reply = ip4(SERVER, CLIENT, 17, 0x4000, &udp(53, 4000, b"answer"));
    assert_eq!(
        one(&rig, &reply).packet[56..62],
        [2, 2, 1, 0, 0, 0x50],
        "a reply, to the same place"
    );
    // A router on the way tells the client's side of a packet of the flow.
    let mut error = vec![3, 1, 0, 0, 0, 0, 0, 0];
    error.extend_from_slice(&reply[14..]);
    let told = one(&rig, &ip4("10.1.0.77", SERVER, 1, 0, &error));
    assert_eq!((told.verdict, &told.packet[56..62]), (REDIRECT, &[2, 0, 1, 0, 0, 0x50][..]));
    let mut stray = vec![3, 1, 0, 0, 0, 0, 0, 0];
    stray.extend_from_slice(&ip4(SERVER, CLIENT, 17, 0, &udp(53, 4999, b""))[14..]);
    counted(&rig, &ip4("10.1.0.77", SERVER, 1, 0, &stray), PASS, "error_unknown");
    counted(&rig, &ip4(CLIENT, "192.0.2.1", 17, 0, &udp(1, 2, b"")), DROP, "unmatched");
    // Nor do those pass by the chain whose flow cannot be determined.
    let cut = |packet: Vec<u8>| packet[..36].to_vec();
    counted(&rig, &cut(request()), DROP, "malformed");
    counted(&rig, &request()[..30], DROP, "malformed");
    let mut long = request();
    long[16..18].copy_from_slice(&500u16.to_be_bytes());
    counted(&rig, &long, DROP, "malformed");
    let later = ip4("10.1.0.66", SERVER, 17, 0x0010, &[7; 64]);
    counted(&rig, &later, DROP, "fragment_unknown");
    let six = ip6("fd01::10", "fd02::20", 17, &udp(4000, 53, b"question"));
    counted(&rig, &six[..56], DROP, "malformed");
    for own in ["10.2.0.1", "10.3.0.11", "224.0.0.1", "169.254.1.1"] {
        let short = cut(ip4(CLIENT, own, 17, 0, &udp(1, 2, b"")));
        counted(&rig, &short, PASS, "malformed");
    }
    // What is for the forwarder or a node itself is the kernel's.
    for own in ["10.2.0.1", "10.3.0.11", "224.0.0.1"] {
        assert_eq!(one(&rig, &ip4(CLIENT, own, 17, 0, &udp(1, 2, b""))).verdict, PASS, "{own}");
    }
    let v6 = ip6("fd01::10", "fd02::20", 17, &udp(4000, 53, b"question"));
    let ran = one(&rig, &v6);
    assert_eq!((ran.verdict, &ran.packet[62..64]), (REDIRECT, &[0x86, 0xdd][..]));
}

#[test]
fn fragments_follow_the_first_one() {
    if !privileged() {
        return;
    }
    let rig = rig("forward");
    let later = ip4(CLIENT, SERVER, 17, 0x0010, &[7; 64]);
    counted(&rig, &later, PASS, "fragment_unknown");
    let first = one(&rig, &ip4(CLIENT, SERVER, 17, 0x2000, &udp(4100, 53, &[7; 120])));
    assert_eq!(first.verdict, REDIRECT);
    let ran = one(&rig, &later);
    assert_eq!((ran.verdict, &ran.packet[56..62]), (REDIRECT, &first.packet[56..62]));
    // IPv6: a fragment header, its offset 0 and then 16 bytes.
    let fragment = |offset_flags: u16, payload: &[u8]| {
        let mut bytes = vec![17, 0];
        bytes.extend_from_slice(&offset_flags.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 9]);
        bytes.extend_from_slice(payload);
        ip6("fd01::10", "fd02::20", 44, &bytes)
    };
    assert_eq!(one(&rig, &fragment(1, &udp(4100, 53, &[7; 32]))).verdict, REDIRECT);
    assert_eq!(one(&rig, &fragment(0x10, &[7; 32])).verdict, REDIRECT);
}

#[test]
fn senders_of_packets_that_do_not_fit_get_packet_too_big() {
    if !privileged() {
        return;
    }
    let rig = rig("forward");
    // The flow's first packet is small.
    assert_eq!(one(&rig, &ip4(CLIENT, SERVER, 17, 0x4000, &udp(4200, 53, b""))).verdict, REDIRECT);
    let big = one(&rig, &ip4(CLIENT, SERVER, 17, 0x4000, &udp(4200, 53, &[1; 1420])));
    assert_eq!(big.verdict, REDIRECT);
    let told = &big.packet;
    assert_eq!((told[23], told[34], told[35]), (1, 3, 4), "ICMP: fragmentation needed");
    assert_eq!(u16::from_be_bytes([told[40], told[41]]), 1430);
    assert_eq!(told[30..34], [10, 1, 0, 10], "to the client");
    assert_eq!((sum(&told[14..34]), sum(&told[34..])), (0, 0));
    assert_eq!(told[..6], [2, 0, 0, 0, 0, 2], "back by where it came from");
    let dropped = one(&rig, &ip4(CLIENT, SERVER, 17, 0, &udp(4200, 53, &[1; 1420])));
    assert_eq!(dropped.verdict, DROP, "it may be cut, but not by XDP");
    assert_eq!(one(&rig, &ip6("fd01::10", "fd02::20", 17, &udp(4200, 53, b""))).verdict, REDIRECT);
    let big = one(&rig, &ip6("fd01::10", "fd02::20", 17, &udp(4200, 53, &[1; 1420]))).packet;
    assert_eq!((big[20], big[54]), (58, 2), "ICMPv6: packet too big");
    assert_eq!(u32::from_be_bytes([big[58], big[59], big[60], big[61]]), 1406);
    let mut pseudo = big[22..54].to_vec();
    pseudo.extend_from_slice(&((big.len() - 54) as u32).to_be_bytes());
    pseudo.extend_from_slice(&[0, 0, 0, 58]);
    pseudo.extend_from_slice(&big[54..]);
    assert_eq!(sum(&pseudo), 0);
    until("they are counted", || rig.status().reasons["too_big"] >= 3);
}

#[test]
fn a_flood_fills_the_table_and_flows_that_are_there_stay() {
    if !privileged() {
        return;
    }
    let rig = rig("forward");
    let known = one(&rig, &request());
    let flood: Vec<Vec<u8>> =
        (0..1_500u16).map(|n| ip4("10.1.0.66", SERVER, 17, 0, &udp(10_000 + n, 9, b""))).collect();
    let ran = run(&rig, &flood);
    let refused = ran.iter().filter(|ran| ran.verdict == DROP).count();
    assert!(refused >= 400, "{refused} of 1500 beyond a limit of 1000");
    until("they are counted", || rig.status().reasons["full"] >= refused as u64);
    assert_eq!(one(&rig, &request()).packet, known.packet);
    until("the table is shown full", || rig.status().table.entries4 >= 900);
    // The flood was not answered: it is forgotten soon, and there is room again.
    let probe = ip4(CLIENT, SERVER, 17, 0x4000, &udp(4999, 53, b""));
    until("there is room again", || one(&rig, &probe).verdict == REDIRECT);
}

#[test]
fn a_node_takes_packets_from_its_forwarder_alone() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(&SECTION.replace("UNMATCHED", "forward"));
    let (config, stop) = (rig.config.clone(), Arc::new(AtomicBool::new(false)));
    let of = stop.clone();
    let running = rig.net.inside("n1", move || {
        std::thread::spawn(move || {
            let mut node = Node::start(&config, "n1").expect("a node");
            let packet = vxlan("10.3.0.1", "10.3.0.11", 4096, [0, 1, 0, 0], &inner(&request()));
            let early = node.run_packet(&packet).expect("runs").verdict;
            node.run(&of);
            let good = inner(&request());
            let cases: [(&str, Vec<u8>, u32); 8] = [
                (
                    "its forwarder's",
                    vxlan("10.3.0.1", "10.3.0.11", 4096, [0, 1, 0, 0], &good),
                    REDIRECT,
                ),
                ("stranger", vxlan("10.3.0.99", "10.3.0.11", 4096, [0, 1, 0, 0], &good), DROP),
                ("foreign_vni", vxlan("10.3.0.1", "10.3.0.11", 7, [0, 1, 0, 0], &good), PASS),
                ("unknown_ids", vxlan("10.3.0.1", "10.3.0.11", 4096, [0, 2, 0, 0], &good), DROP),
                ("unknown_ids", vxlan("10.3.0.1", "10.3.0.11", 4096, [0, 1, 0, 5], &good), DROP),
                ("no such core", vxlan("10.3.0.1", "10.3.0.11", 4096, [0, 1, 200, 0], &good), DROP),
                (
                    "malformed",
                    vxlan("10.3.0.1", "10.3.0.11", 4096, [0, 1, 0, 0], &good[..10]),
                    DROP,
                ),
                ("somebody else's", request(), PASS),
            ];
            let ran = cases.map(|(what, packet, expected)| {
                (what, node.run_packet(&packet).expect("runs").verdict, expected)
            });
            (early, ran, node.reasons().expect("read"))
        })
    });
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    stop.store(true, Ordering::Relaxed);
    let (early, ran, reasons) = running.expect("a thread").join().expect("no panic");
    assert_eq!(early, DROP, "nobody's before a forwarder has asked");
    for (what, verdict, expected) in ran {
        assert_eq!(verdict, expected, "{what}");
    }
    for name in ["stranger", "foreign_vni", "unknown_ids", "malformed"] {
        assert!(
            reasons.iter().any(|(reason, count)| reason == name && *count > 0),
            "{name}: {reasons:?}"
        );
    }
}

#[test]
fn what_is_changed_at_random_gets_a_verdict() {
    if !privileged() {
        return;
    }
    let rig = rig("forward");
    let good = inner(&request());
    let seeds = [
        request(),
        ip6("fd01::10", "fd02::20", 17, &udp(4000, 53, b"question")),
        vxlan("10.3.0.11", "10.3.0.1", 4096, [4, 1, 0, 0], &good),
        ip4(
            CLIENT,
            SERVER,
            1,
            0,
            &[vec![3, 4, 0, 0, 0, 0, 0, 0], request()[14..].to_vec()].concat(),
        ),
        ip6(
            "fd01::10",
            "fd02::20",
            0,
            &[vec![44, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 9], udp(1, 2, b"")].concat(),
        ),
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let packets: Vec<Vec<u8>> = (0..3_000)
        .map(|n| {
            let mut packet = seeds[n % seeds.len()].clone();
            for _ in 0..=draw(4) {
                let at = 12 + draw(packet.len() - 12);
                packet[at] = draw(256) as u8;
            }
            let length = 14 + draw(packet.len() - 13);
            if draw(3) == 0 {
                packet.truncate(length);
            }
            packet
        })
        .collect();
    for (packet, ran) in packets.iter().zip(run(&rig, &packets)) {
        assert!([DROP, PASS, REDIRECT].contains(&ran.verdict), "{packet:?}: {}", ran.verdict);
    }
    assert_eq!(one(&rig, &request()).verdict, REDIRECT, "it goes on");
}
