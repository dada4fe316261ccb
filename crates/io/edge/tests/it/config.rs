//! The section `edge`, as it is read.

use std::time::Duration;

use plimsoll_config::Document;
use plimsoll_edge::config::{EdgeConfig, Element, Function, Protocol, Unmatched};
use plimsoll_feedback::BalancerKind;

use crate::rig::parse;

const WHOLE: &str = r#"edge:
  interfaces: [ { name: eth0, mode: native } ]
  vni: 4096
  policy: water_fill
  interval: 10ms
  flows: { limit: 1000000, idle: 5m }
  scale: { up: 0.95, down: 0.60, hold: 10s }
  unmatched: forward
  services:
    - { name: cgnat, match: { destination: "0.0.0.0/0", protocol: udp }, chain: [ { nftables: ./cgnat.nft }, { xdp: counter } ] }
  nodes:
    - { name: n1, address: "10.0.3.1", cpus: [0], services: [cgnat] }
    - { name: n2, address: "10.0.3.2", cpus: [1], services: [cgnat], standby: true }
  socket: /run/plimsoll/edge.sock
  metrics: { listen: "127.0.0.1:7403" }
"#;

fn errors(text: &str) -> Vec<String> {
    let document = Document::parse("e.yaml", text).expect("YAML");
    let read = document.read(|cursor| {
        let fields = cursor.fields(&["edge"])?;
        fields.required("edge", "the section", EdgeConfig::read)
    });
    read.expect_err("wrong").iter().map(ToString::to_string).collect()
}

#[test]
fn the_whole_section_is_read() {
    let config = parse(WHOLE);
    assert_eq!((config.vni, config.policy), (4096, BalancerKind::WaterFill));
    assert_eq!(
        (config.interval, config.unmatched),
        (Duration::from_millis(10), Unmatched::Forward)
    );
    assert_eq!(config.flows.idle, Duration::from_secs(300));
    let service = &config.services[0];
    assert_eq!(service.matches[0].protocol, Protocol::Udp);
    assert_eq!(service.chain[1], Element::Xdp(Function::Counter));
    assert_eq!((config.nodes[0].standby, config.nodes[1].standby), (false, true));
    assert_eq!(config.metrics.expect("given").port(), 7403);
}

#[test]
fn a_policy_has_its_own_interval_where_none_is_given() {
    for &policy in BalancerKind::ALL {
        let given = format!("policy: {policy}");
        let config = parse(&WHOLE.replace("policy: water_fill\n  interval: 10ms", &given));
        let slow = ["pid", "pid_literal", "monitor"].contains(&policy.to_string().as_str());
        let ms = if slow { 30 } else { 10 };
        assert_eq!(
            (config.policy, config.interval),
            (policy, Duration::from_millis(ms)),
            "{policy}: as docs/edge-policies.md has it"
        );
    }
}

#[test]
fn every_problem_is_reported_with_its_place() {
    let bad = WHOLE
        .replace("vni: 4096", "vni: 0")
        .replace("water_fill", "best")
        .replace("down: 0.60", "down: 0.99")
        .replace("0.0.0.0/0", "10.0.0.1/8")
        .replace("xdp: counter", "xdp: count")
        .replace("services: [cgnat], standby", "services: [nat], standby")
        .replace("10.0.3.2", "10.0.3.1")
        .replace("socket:", "sockets:");
    let found = errors(&bad);
    let expected = [
        "e.yaml:3:8: edge.vni: expected a whole number from 1",
        "e.yaml:4:11: edge.policy: expected water_fill or pid",
        "e.yaml:7:10: edge.scale: expected down below up",
        "e.yaml:10:44: edge.services[0].match.destination: expected a network such as",
        "e.yaml:10:118: edge.services[0].chain[1].xdp: expected counter",
        "e.yaml:13:28: edge.nodes[1].address: expected an address that nothing else has",
        "e.yaml:14:3: edge.sockets: unknown key; did you mean \"socket\"?",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
    }
}

#[test]
fn services_and_nodes_must_fit_each_other() {
    let unused = WHOLE.replace(
        "  nodes:",
        "    - { name: other, match: { protocol: tcp }, chain: [ { xdp: counter } ] }\n  nodes:",
    );
    assert!(errors(&unused)[0].contains("no node runs the service \"other\""));
    let standbys = WHOLE.replace("services: [cgnat] }", "services: [cgnat], standby: true }");
    assert!(errors(&standbys)[0].contains("every node is a standby"));
    let unknown = WHOLE.replace("services: [cgnat], standby", "services: [nat], standby");
    assert!(errors(&unknown)[0].contains("no service is called \"nat\""));
    let twice = WHOLE.replace("{ xdp: counter }", "{ nftables: other.nft }");
    assert!(errors(&twice)[0].contains("expected nftables once in a chain"));
}
