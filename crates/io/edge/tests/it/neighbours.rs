//! Two nodes on one machine.

use plimsoll_edge::{Node, config};

use crate::rig::{Rig, privileged};

const RULES: &str = "table inet edge { chain forward { type filter hook forward priority 0; }; }";
const SECTION: &str = "
  services: [ { name: wall, match: { destination: \"10.2.0.0/24\" }, chain: [ { nftables: RULES } ] } ]
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0], services: [wall] }
";

#[test]
fn two_nodes_on_a_machine_have_cables_of_their_own() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::with_rules(SECTION, RULES);
    let second = config::Node {
        name: "n3".to_owned(),
        address: "10.4.0.13".parse().expect("an address"),
        ..rig.config.nodes[0].clone()
    };
    rig.config.nodes.push(second);
    rig.net
        .run("n1", "ip link add eth1 type veth peer name far && ip link set eth1 up && ip link set far up && ip addr add 10.4.0.13/24 dev eth1")
        .expect("a second interface");
    let cables = || {
        let links = plimsoll_l4::network::links().expect("links");
        links.into_iter().filter(|link| link.name.starts_with("pe")).count()
    };
    rig.net
        .inside("n1", || {
            let first = Node::start(&rig.config, "n1").expect("a node");
            assert_eq!(cables(), 2);
            let second = Node::start(&rig.config, "n3").expect("a node");
            assert_eq!(cables(), 4, "the first one keeps its own");
            drop(second);
            assert_eq!(cables(), 2);
            drop(first);
            assert_eq!(cables(), 0);
        })
        .expect("a thread");
}
