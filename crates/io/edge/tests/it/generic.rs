//! A node behind an interface that takes no native XDP.

use plimsoll_edge::Node;
use plimsoll_edge::doctor::{Level, examine};
use plimsoll_l4::AttachMode;

use crate::live::{Echo, client, exchange};
use crate::rig::{CLIENT, Rig, SERVER, privileged};

const RULES: &str = "table inet edge {
    chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; iifname \"lan\" accept; }
    chain postrouting { type nat hook postrouting priority 100; oifname \"wan\" masquerade; }
}
";
const SECTION: &str = "
  services:
    - { name: nat, match: { destination: \"10.2.0.0/24\", protocol: udp, ports: 7000 }, chain: [ { nftables: RULES }, { xdp: counter } ] }
    - { name: inspect, match: { destination: \"10.2.0.0/24\" }, chain: [ { xdp: counter } ] }
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0], services: [nat, inspect], external: { nat: [\"203.0.113.1\"] } }
";

#[test]
fn a_node_without_native_xdp_serves_in_generic_mode() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::with_rules(SECTION, RULES);
    rig.net
        .run("n1", "ip link add link eth0 name mv0 type macvlan mode bridge && ip link set mv0 up && ip addr flush dev eth0 && ip addr add 10.3.0.11/24 dev mv0 && ip route add 10.1.0.0/24 dev mv0 && ip route add 10.2.0.0/24 dev mv0 && sysctl -qw net.ipv4.conf.mv0.rp_filter=0 net.ipv4.conf.mv0.send_redirects=0")
        .expect("a macvlan");
    let refused = rig.net.inside("n1", || Node::start(&rig.config, "n1").map(drop));
    let why = refused.expect("a thread").expect_err("it takes none").to_string();
    assert!(why.starts_with("mv0: ") && why.contains("mode: generic"), "{why}");
    let refused = |rig: &Rig| {
        let found = rig.net.inside("n1", || examine(&rig.config)).expect("a thread");
        found.into_iter().find(|one| one.about == "mv0").map(|one| one.level)
    };
    assert_eq!(refused(&rig), Some(Level::Error));
    rig.config.nodes[0].mode = AttachMode::Generic;
    assert_eq!(refused(&rig), None);
    rig.start_node("n1");
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    let socket = client(&rig, &format!("{CLIENT}:0"));
    for (port, seen) in [(7001, CLIENT), (7000, "203.0.113.1")] {
        let to = format!("{SERVER}:{port}");
        let _echo = Echo::start(&rig, &to);
        let from = exchange(&socket, &to, "a question");
        assert!(from.starts_with(&format!("{seen}:")), "{from}");
    }
}
