//! Forwarders that follow others with another configuration.

use plimsoll_edge::{Forwarder, config};

use crate::bad::{one, request, rig};
use crate::packet::{DROP, PASS, REDIRECT, ip4, udp, vxlan};
use crate::rig::{CLIENT, privileged, until};

#[test]
fn an_appended_node_changes_no_flow_and_one_in_between_renumbers_none() {
    if !privileged() {
        return;
    }
    let mut rig = rig("forward");
    let known = one(&rig, &request());
    assert_eq!(known.verdict, REDIRECT);
    let added = config::Node {
        name: "n3".to_owned(),
        address: "10.3.0.13".parse().expect("an address"),
        ..rig.config.nodes[0].clone()
    };
    rig.stop_forwarder();
    rig.config.nodes.push(added.clone());
    rig.start_forwarder();
    // Only an answer that agrees names reasons and no problem.
    until("n1 agrees", || {
        let status = rig.status();
        status.nodes.first().is_some_and(|node| {
            node.state == "serving" && node.problem.is_none() && !node.reasons.is_empty()
        })
    });
    assert_eq!(one(&rig, &request()).packet, known.packet);
    rig.stop_forwarder();
    rig.config.nodes = vec![added, rig.config.nodes[0].clone()];
    rig.start_forwarder();
    until("n1 disagrees", || {
        let problem = rig.status().nodes.get(1).and_then(|node| node.problem.clone());
        problem.is_some_and(|problem| problem.contains("place in the list"))
    });
    assert_eq!(one(&rig, &request()).packet, known.packet, "with the number that its node knows");
    // As before: the same node agrees again, and new flows are taken.
    rig.stop_forwarder();
    rig.config.nodes.remove(0);
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    assert_eq!(one(&rig, &request()).packet, known.packet);
}

#[test]
fn a_second_forwarder_changes_nothing_of_the_first() {
    if !privileged() {
        return;
    }
    let rig = rig("forward");
    let mut other = rig.config.clone();
    other.unmatched = config::Unmatched::Drop;
    other.nodes[0].name = "n9".to_owned();
    let second = rig.net.inside("fwd", || Forwarder::start(&other).map(drop)).expect("a thread");
    let error = second.expect_err("one is there").to_string();
    assert!(error.contains("edge.sock"), "{error}");
    let unmatched = ip4(CLIENT, "192.0.2.1", 17, 0, &udp(1, 2, b""));
    assert_eq!(one(&rig, &unmatched).verdict, PASS, "as the first one has it");
    assert_eq!(one(&rig, &request()).verdict, REDIRECT);
}

#[test]
fn a_node_that_died_between_two_forwarders_is_taken_out_and_not_trusted_for_ever() {
    if !privileged() {
        return;
    }
    let mut rig = rig("forward");
    assert_eq!(one(&rig, &request()).verdict, REDIRECT);
    rig.stop_forwarder();
    rig.stop_node("n1");
    // Not even its MAC address is known any more.
    rig.net.run("n1", "ip link set eth0 down").expect("down");
    rig.net.run("fwd", "ip neigh flush dev eth0").expect("forgotten");
    rig.start_forwarder();
    until("its flows are not sent there", || one(&rig, &request()).verdict == DROP);
    let returned = vxlan("10.3.0.11", "10.3.0.1", 4096, [4, 1, 0, 0], &request()[12..]);
    assert_ne!(one(&rig, &returned).verdict, DROP, "it is still a node");
    rig.stop_forwarder();
    let node = &mut rig.config.nodes[0];
    (node.name, node.address) = ("n3".to_owned(), "10.3.0.13".parse().expect("an address"));
    rig.start_forwarder();
    assert_eq!(one(&rig, &returned).verdict, DROP, "another node has its number");
}
