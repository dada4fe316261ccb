//! More flows than the table holds, all of them forged.

use plimsoll_edge::bench::Bench;

use crate::bad::one;
use crate::packet::{DROP, REDIRECT, ip4, udp};
use crate::rig::{CLIENT, Rig, SERVER, privileged, until};

/// Forged flows, unless `PLIMSOLL_EDGE_FLOOD` says otherwise.
const FLOOD: u32 = 400_000;
const LIMIT: u32 = 50_000;
const ESTABLISHED: u16 = 500;
const SECTION: &str = "
  flows: { limit: 50000, idle: 1h }
  services: [ { name: inspect, match: { destination: \"10.2.0.0/24\" }, chain: [ { xdp: counter } ] } ]
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0, 1], services: [inspect] }
";

/// A flow's packet and the answer to it.
fn both_ways(port: u16) -> [Vec<u8>; 2] {
    [
        ip4(CLIENT, SERVER, 17, 0x4000, &udp(port, 53, b"question")),
        ip4(SERVER, CLIENT, 17, 0x4000, &udp(53, port, b"answer")),
    ]
}

#[test]
fn a_flood_of_forged_flows_leaves_those_that_are_there_where_they_are() {
    if !privileged() {
        return;
    }
    let asked = std::env::var("PLIMSOLL_EDGE_FLOOD").ok().and_then(|text| text.parse().ok());
    let flood: u32 = asked.unwrap_or(FLOOD);
    let mut rig = Rig::new(SECTION);
    rig.start_node("n1");
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    until("slots are filled", || rig.status().places.iter().all(|place| place.weight > 0.0));
    let place = |port: u16| {
        both_ways(port).map(|packet| {
            let ran = one(&rig, &packet);
            assert_eq!(ran.verdict, REDIRECT, "port {port}");
            ran.packet
        })
    };
    let known: Vec<[Vec<u8>; 2]> = (0..ESTABLISHED).map(|port| place(5_000 + port)).collect();
    let forged = ip4(CLIENT, SERVER, 17, 0, &udp(4_000, 53, &[0; 32]));
    rig.net
        .inside("fwd", || {
            let links = plimsoll_l4::network::links().expect("links");
            let eth0 = links.iter().find(|link| link.name == "eth0").expect("there").index;
            let mut bench = Bench::on(&rig.config).expect("loads");
            bench.flood(&forged, eth0, 1 << 26, flood).expect("runs");
        })
        .expect("a thread");
    // Many times what the table holds: most of them found no room, and none took another's.
    until("refused flows are counted", || rig.status().reasons["full"] > 0);
    until("the table is shown", || rig.status().table.entries4 > 0);
    let status = rig.status();
    assert!(status.table.entries4 <= LIMIT, "{:?}", status.table);
    let mut opened: u64 = 0;
    until("all are counted", || {
        let status = rig.status();
        opened = status.places.iter().map(|place| place.opened).sum();
        opened + status.reasons["full"] == u64::from(flood) + u64::from(ESTABLISHED)
    });
    for (port, known) in known.iter().enumerate() {
        assert_eq!(&place(5_000 + port as u16), known, "it is where it was");
    }
    assert_eq!(rig.status().reasons["rehomed"], 0);
    // A new flow is dropped while there is no room, and taken when the flood is forgotten.
    let fresh = &both_ways(4_999)[0];
    let mut dropped = 0;
    until("there is room again", || {
        let verdict = one(&rig, fresh).verdict;
        dropped += u32::from(verdict == DROP);
        verdict == REDIRECT
    });
    let full = rig.status().reasons["full"];
    eprintln!(
        "{flood} forged flows: {opened} taken, {full} refused; a new one was dropped {dropped} times before it had room"
    );
}
