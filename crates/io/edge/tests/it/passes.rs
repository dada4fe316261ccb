//! What else passes chains: IPv6 behind a NAT, echoes, errors about flows, fragments.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use plimsoll_edge::ask;
use rustix::net::{AddressFamily, SocketType, ipproto};
use serde_json::{Value, json};

use crate::live::{Echo, client, exchange};
use crate::rig::{CLIENT, Rig, SERVER, privileged, until};

const RULES: &str = "
table inet edge {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname \"lan\" ct state new accept
    }
    chain postrouting {
        type nat hook postrouting priority 100;
        oifname \"wan\" masquerade
    }
}
";
const SECTION: &str = "
  services:
    - { name: inspect, match: { destination: \"10.2.0.0/24\", protocol: udp, ports: 7001 }, chain: [ { xdp: counter }, { xdp: { work: 2us } } ] }
    - { name: nat, match: [ { destination: \"10.2.0.0/24\" }, { destination: \"fd02::/64\" } ], chain: [ { xdp: counter }, { nftables: RULES }, { xdp: counter } ] }
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0, 1], services: [inspect, nat], external: { nat: [\"203.0.113.1\", \"2001:db8::1\"] } }
";

fn serving() -> Option<Rig> {
    if !privileged() {
        return None;
    }
    let mut rig = Rig::with_rules(SECTION, RULES);
    rig.start_node("n1");
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    until("slots are filled", || rig.status().places.iter().all(|place| place.weight > 0.0));
    Some(rig)
}

fn place(rig: &Rig, flow: &str) -> Value {
    ask(&rig.config.socket, &json!({ "where": flow })).expect("an answer")
}

#[test]
fn ipv6_passes_a_nat() {
    let Some(rig) = serving() else { return };
    let to = "[fd02::20]:7000";
    let _echo = Echo::start(&rig, to);
    let socket = client(&rig, "[fd01::10]:0");
    let first = exchange(&socket, to, "first");
    assert!(first.starts_with("[2001:db8::1]:"), "{first}");
    assert_eq!(exchange(&socket, to, "again"), first);
    for side in [socket.local_addr().expect("bound").to_string(), first] {
        let found = place(&rig, &format!("udp:{side}-{to}"));
        assert!(found["rewritten"] == true && found["answered"] == true, "{side}: {found}");
    }
}

#[test]
fn echoes_pass_a_nat() {
    let Some(rig) = serving() else { return };
    let rules = "table inet seen { chain in { type filter hook input priority 0; ip saddr 203.0.113.1 icmp type echo-request counter; ip6 saddr 2001:db8::1 icmpv6 type echo-request counter; }; }";
    rig.net.run("server", &format!("nft '{rules}'")).expect("counted");
    rig.net.set_sysctl("client", "net.ipv4.ping_group_range", "0 0").expect("allowed");
    let v4 = (AddressFamily::INET, ipproto::ICMP, 8);
    let v6 = (AddressFamily::INET6, ipproto::ICMPV6, 128);
    for (to, (family, protocol, request)) in [(SERVER, v4), ("fd02::20", v6)] {
        let made = || rustix::net::socket(family, SocketType::DGRAM, Some(protocol));
        let socket = rig.net.inside("client", made).expect("a thread").expect("for echoes");
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
        let to = (to.parse::<IpAddr>().expect("an address"), 0);
        // The kernel fills in checksum and id.
        let question = [&[request, 0, 0, 0, 0, 0, 0, 1], &b"echo?"[..]].concat();
        until("an echo is answered", || {
            socket.send_to(&question, to).expect("sent");
            let mut buffer = [0; 64];
            let heard = socket.recv_from(&mut buffer);
            heard.is_ok_and(|(bytes, from)| from.ip() == to.0 && buffer[8..bytes] == question[8..])
        });
    }
    let mut list = std::process::Command::new("nft");
    let seen = rig.net.output("server", list.args(["list", "table", "inet", "seen"])).expect("nft");
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(seen.contains("203.0.113.1") && !seen.contains("packets 0 "), "by its address: {seen}");
}

#[test]
fn errors_about_a_flow_pass_its_nat() {
    let Some(rig) = serving() else { return };
    for (from, to) in [
        (format!("{CLIENT}:0"), format!("{SERVER}:9")),
        ("[fd01::10]:0".to_owned(), "[fd02::20]:9".to_owned()),
    ] {
        let socket = client(&rig, &from);
        socket.connect(&to).expect("connected");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
        // Nobody listens there, and the server says so, about the packet that it saw.
        until("the client hears that", || {
            let sent = socket.send(b"anybody?").map(drop);
            let heard = socket.recv(&mut [0; 64]).map(drop);
            [sent, heard]
                .into_iter()
                .filter_map(Result::err)
                .any(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
    }
}

#[test]
fn fragments_pass_chains() {
    let Some(rig) = serving() else { return };
    for end in ["client", "server"] {
        rig.net.run(end, "ip link set eth0 mtu 1300").expect("set");
    }
    // Two fragments each way.
    let text = "fragment ".repeat(200);
    for (to, seen) in [
        (format!("{SERVER}:7000"), "203.0.113.1:"),
        (format!("{SERVER}:7001"), "10.1.0.10:"),
        ("[fd02::20]:7000".to_owned(), "[2001:db8::1]:"),
    ] {
        let _echo = Echo::start(&rig, &to);
        let own =
            if to.starts_with('[') { "[fd01::10]:0".to_owned() } else { format!("{CLIENT}:0") };
        let from = exchange(&client(&rig, &own), &to, &text);
        assert!(from.starts_with(seen), "{to}: {from}");
    }
}
