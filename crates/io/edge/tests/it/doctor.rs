//! What doctor finds on a forwarder.

use plimsoll_edge::doctor::{Finding, Level, examine};

use crate::rig::{Rig, parse, privileged};

const GUARDED: &str = "edge:
  interfaces: [ { name: eth0 } ]
  unmatched: drop
  services: [ { name: wall, match: { source: \"10.1.0.0/24\" }, chain: [ { nftables: wall.nft } ] } ]
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0], services: [wall] }
";

fn about(text: &str, what: &str) -> Vec<Finding> {
    examine(&parse(text)).into_iter().filter(|one| one.about == what).collect()
}

#[test]
fn a_firewall_that_outsiders_pass_is_warned_of() {
    assert_eq!(about(GUARDED, "wall"), []);
    let open = about(&GUARDED.replace("{ source: \"10.1.0.0/24\" }", "{ protocol: udp }"), "wall");
    assert_eq!((open.len(), open[0].level), (1, Level::Warning));
    assert!(open[0].found.contains("outsiders too") && open[0].advice.contains("unmatched: drop"));
    let one_of_two = GUARDED.replace(
        "{ source: \"10.1.0.0/24\" }",
        "[ { source: \"10.1.0.0/24\" }, { destination: \"10.2.0.0/24\" } ]",
    );
    assert!(about(&one_of_two, "wall")[0].found.contains("outsiders too"));
    let forward = about(&GUARDED.replace("unmatched: drop", "unmatched: forward"), "wall");
    assert!(forward[0].found.contains("routed past its rules"), "{forward:?}");
    let counted = GUARDED.replace("nftables: wall.nft", "xdp: counter");
    assert_eq!(about(&counted.replace("unmatched: drop", "unmatched: forward"), "wall"), []);
}

#[test]
fn packets_that_do_not_fit_on_the_way_to_nodes_are_warned_of() {
    if !privileged() {
        return;
    }
    let section = GUARDED.split_once("unmatched").expect("a section").1;
    let mut rig = Rig::new(&format!("  unmatched{section}"));
    // Clients are behind another interface: theirs may be as it is.
    rig.net.run("fwd", "ip link add clients type veth peer name far").expect("a cable");
    let clients = plimsoll_edge::config::Interface {
        name: "clients".to_owned(),
        ..rig.config.interfaces[0].clone()
    };
    rig.config.interfaces.push(clients);
    let found = |interface: &str| {
        let all = rig.net.inside("fwd", || examine(&rig.config)).expect("a thread");
        let found = all.into_iter().find(|one| one.about == interface).expect("named");
        (found.level, found.found)
    };
    let (level, text) = found("eth0");
    assert!(level == Level::Warning && text.contains("are dropped"), "{text}");
    assert_eq!(found("clients").0, Level::Ok);
    for (mtu, expected) in [(1_594, Level::Ok), (3_568, Level::Ok), (9_000, Level::Note)] {
        rig.net.run("fwd", &format!("ip link set eth0 mtu {mtu}")).expect("set");
        let (level, text) = found("eth0");
        assert_eq!(level, expected, "{text}");
    }
}
