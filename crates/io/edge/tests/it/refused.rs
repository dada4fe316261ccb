//! Nodes that do not get along with their forwarder: another key, another configuration.

use plimsoll_edge::Key;
use plimsoll_edge::doctor::{Finding, examine};

use crate::bad::SECTION;
use crate::rig::{Rig, privileged, until};

fn found(rig: &Rig, namespace: &'static str) -> Vec<Finding> {
    rig.net.inside(namespace, || examine(&rig.config)).expect("a thread")
}

fn rig() -> Rig {
    Rig::new(&SECTION.replace("UNMATCHED", "forward"))
}

#[test]
fn a_node_with_another_key_counts_and_its_doctor_says_so() {
    if !privileged() {
        return;
    }
    let mut rig = rig();
    rig.start_node("n1");
    let of_key = |rig: &Rig| {
        found(rig, "n1")
            .into_iter()
            .filter(|one| one.about == "key")
            .map(|one| one.found)
            .next_back()
    };
    assert!(of_key(&rig).is_some_and(|text| text.contains("every question")));
    rig.config.key = rig.net.dir().join("other.key");
    Key::create(&rig.config.key).expect("a key");
    rig.start_forwarder();
    until("it is told", || of_key(&rig).is_some_and(|text| text.contains("not sealed")));
    until("the forwarder names it", || {
        let node = rig.status().nodes.first().and_then(|node| node.problem.clone());
        node.is_some_and(|problem| problem.contains("another key"))
    });
}

#[test]
fn a_node_with_another_configuration_differs_and_is_not_down() {
    if !privileged() {
        return;
    }
    let mut rig = rig();
    rig.start_node("n1");
    rig.config.vni += 1;
    rig.start_forwarder();
    let state = |rig: &Rig| rig.status().nodes.first().map(|node| node.state.clone());
    until("it differs", || state(&rig).as_deref() == Some("differs"));
    let about = found(&rig, "fwd").into_iter().find(|one| one.about == "n1").expect("named");
    assert!(about.found.starts_with("differs: ") && about.found.contains("vni"), "{about:?}");
    assert!(about.advice.contains("copy this configuration"), "{about:?}");
    rig.stop_node("n1");
    until("it is down", || state(&rig).as_deref() == Some("down"));
    let about = found(&rig, "fwd").into_iter().find(|one| one.about == "n1").expect("named");
    assert!(about.advice.starts_with("start `plimsoll edge node run`"), "{about:?}");
}
