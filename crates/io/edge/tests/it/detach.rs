//! Programs that stay at interfaces, and how they are taken off.

use plimsoll_edge::config::Interface;
use plimsoll_edge::doctor::{Level, examine};
use plimsoll_edge::{EdgeError, detach};
use plimsoll_l4::AttachMode;
use plimsoll_l4::network::Link;

use crate::bad::rig;
use crate::rig::{Rig, privileged, until};

fn link(rig: &Rig, interface: &str) -> Link {
    let links = rig.net.inside("fwd", plimsoll_l4::network::links).expect("a thread");
    let mut links = links.expect("links").into_iter();
    links.find(|link| link.name == interface).expect("there")
}

/// Whether the forwarder's interface has a program.
fn has_program(rig: &Rig, interface: &str) -> bool {
    !link(rig, interface).programs.is_empty()
}

fn detached(rig: &Rig) -> Result<(), EdgeError> {
    detach(&rig.config.pin_dir, &rig.config.socket)
}

fn warnings(rig: &Rig) -> Vec<String> {
    let found = rig.net.inside("fwd", || examine(&rig.config)).expect("a thread");
    let warnings = found.into_iter().filter(|one| one.level == Level::Warning);
    warnings.map(|one| format!("{}; {}", one.found, one.advice)).collect()
}

#[test]
fn a_program_is_taken_off_where_it_is_not_configured_and_by_detach() {
    if !privileged() {
        return;
    }
    let mut rig = rig("forward");
    rig.net.run("fwd", "ip link add spare type veth peer name other").expect("a cable");
    rig.stop_forwarder();
    let spare = Interface { name: "spare".to_owned(), mode: AttachMode::Generic };
    rig.config.interfaces.push(spare);
    rig.start_forwarder();
    assert!(has_program(&rig, "eth0") && has_program(&rig, "spare"));
    let is_left = |text: &String| text.contains("no forwarder runs");
    assert!(!warnings(&rig).iter().any(is_left), "it runs");
    rig.stop_forwarder();
    rig.config.interfaces.pop();
    rig.start_forwarder();
    // The kernel takes a moment to let a link go.
    until("the program is off", || !has_program(&rig, "spare"));
    assert!(has_program(&rig, "eth0"));
    let refused = detached(&rig).expect_err("it runs").to_string();
    assert!(refused.contains("stop it first"), "{refused}");
    rig.stop_forwarder();
    assert!(has_program(&rig, "eth0"), "packets go on");
    let warned = warnings(&rig);
    let left = warned.iter().find(|text| is_left(text)).unwrap_or_else(|| panic!("{warned:?}"));
    assert!(left.contains("eth0") && left.contains("plimsoll edge detach"), "{left}");
    detached(&rig).expect("taken off");
    until("the program is off", || !has_program(&rig, "eth0"));
    assert!(!warnings(&rig).iter().any(is_left), "nothing is left");
    detached(&rig).expect("as it was");
}

#[test]
fn another_mode_holds_from_the_next_start_on() {
    if !privileged() {
        return;
    }
    let mut rig = rig("forward");
    for mode in [AttachMode::Generic, AttachMode::Native] {
        rig.stop_forwarder();
        rig.config.interfaces[0].mode = mode;
        rig.start_forwarder();
        assert_eq!(link(&rig, "eth0").xdp, Some(mode));
    }
}
