//! Generic mode, which any driver takes: real connections through a balancer attached that way. Packets
//! must come one by one: without GRO on the balancer's interfaces.

mod rig;

use plimsoll_l4::{AttachMode, Policy, status};
use rig::privileged;
use rig::service::{Service, all_stay};

fn connections_stay(v6: bool) {
    let service = Service::new(3, 2, v6);
    let generic = |names: &[&str]| {
        let mut config = service.config(Policy::RoundRobin, names);
        for interface in &mut config.interfaces {
            interface.mode = AttachMode::Generic;
        }
        config
    };
    let config = generic(&["s1", "s2"]);
    for interface in &config.interfaces {
        service.net.exec("lb", &format!("ethtool -K {} gro off gso off tso off", interface.name));
    }
    let mut balancer = service.balance(&config);
    for interface in &config.interfaces {
        let shown = service.net.exec("lb", &format!("ip link show {}", interface.name)).stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(shown.contains("xdpgeneric"), "{shown}");
    }
    let mut connections = service.opened(40);
    all_stay(&mut connections, "at rest");
    for (names, when) in [
        (&["s2", "s3"][..], "s1 drains, s3 joins"),
        (&["s3"], "s2 drains, too"),
        (&["s1", "s2", "s3"], "all are back"),
    ] {
        service.apply(&mut balancer, &generic(names));
        all_stay(&mut connections, when);
        let more = service.opened(10);
        assert!(more.iter().all(|one| names.contains(&one.server.as_str())), "{when}");
        connections.extend(more);
    }
    all_stay(&mut connections, "at the end");

    let seen = status(&service.net.pins()).expect("status");
    assert!(seen.vips[0].backends.iter().all(|one| one.packets_in > 0 && one.packets_out > 0));
    for (reason, count) in &seen.vips[0].fallbacks {
        assert_eq!(*count, 0, "{reason}");
    }
    service.no_echo_was_wrong();
    service.net.leave();
}

#[test]
fn ipv4_connections_stay_in_generic_mode() {
    if privileged() {
        connections_stay(false);
    }
}

#[test]
fn ipv6_connections_stay_in_generic_mode() {
    if privileged() {
        connections_stay(true);
    }
}
