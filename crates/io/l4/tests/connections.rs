//! Real connections through real kernels' stacks: they stay where they are while servers come and go.

mod rig;

use std::collections::BTreeMap;

use plimsoll_l4::{BackendState, Load, Policy, Why, status};
use rig::service::{Connection, Service, all_stay};
use rig::{keys, privileged};

fn by_server(connections: &[Connection]) -> BTreeMap<&str, usize> {
    let mut count = BTreeMap::new();
    for connection in connections {
        *count.entry(connection.server.as_str()).or_insert(0) += 1;
    }
    count
}

fn servers_come_and_go(v6: bool) {
    let service = Service::new(4, 2, v6);
    let config = service.config(Policy::RoundRobin, &["s1", "s2", "s3"]);
    let mut balancer = service.balance(&config);
    let mut connections = service.opened(60);
    // Two CPUs take turns by themselves, so a few may differ.
    assert!(by_server(&connections).values().all(|&n| (15..=25).contains(&n)));
    all_stay(&mut connections, "at rest");

    for (names, when) in [
        (&["s1", "s3"][..], "s2 drains"),
        (&["s4", "s3", "s1"], "s4 joins, the order changes"),
        (&["s4"], "only the newest takes new ones"),
        (&["s1", "s2", "s3", "s4"], "all are back"),
    ] {
        service.apply(&mut balancer, &service.config(Policy::RoundRobin, names));
        all_stay(&mut connections, when);
        let mut more = service.opened(12);
        assert!(more.iter().all(|one| names.contains(&one.server.as_str())), "{when}");
        all_stay(&mut more, when);
        connections.extend(more);
    }
    for policy in [
        Policy::Maglev,
        Policy::Hash,
        Policy::PowerOfTwo,
        Policy::LeastConnections,
        Policy::WeightedRoundRobin,
        Policy::Awrr(Load::Connections),
    ] {
        service.apply(&mut balancer, &service.config(policy, &["s1", "s2", "s3", "s4"]));
        let mut more = service.opened(20);
        all_stay(&mut more, "under another policy");
        assert!(by_server(&more).len() > 1, "{policy:?}");
        all_stay(&mut connections, "under another policy");
    }

    // What the kernel counted is what happened, and nothing went another way.
    let seen = status(&service.net.pins()).expect("status");
    let new: u64 = seen.vips[0].backends.iter().map(|one| one.new_connections).sum();
    assert_eq!(new, 60 + 48 + 120);
    for (reason, count) in &seen.vips[0].fallbacks {
        assert_eq!(*count, 0, "{reason}");
    }
    assert!(seen.vips[0].backends.iter().all(|one| one.clock_known && one.packets_out > 0));
    service.no_echo_was_wrong();
    service.net.leave();
}

#[test]
fn ipv4_connections_stay_while_servers_come_and_go() {
    if privileged() {
        servers_come_and_go(false);
    }
}

#[test]
fn ipv6_connections_stay_while_servers_come_and_go() {
    if privileged() {
        servers_come_and_go(true);
    }
}

#[test]
fn a_daemon_that_starts_over_loses_no_connection_and_no_count() {
    if !privileged() {
        return;
    }
    let service = Service::new(3, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1", "s2", "s3"]);
    let balancer = service.balance(&config);
    let mut connections = service.opened(30);
    let before = status(&service.net.pins()).expect("status");
    drop(balancer);
    all_stay(&mut connections, "without a daemon");
    connections.extend(service.opened(6));

    // The next one is configured otherwise, and knows of s2 from the maps alone.
    let fewer = service.config(Policy::Maglev, &["s3", "s1"]);
    let mut next = service.balance(&fewer);
    all_stay(&mut connections, "after a restart");
    let after = status(&service.net.pins()).expect("status");
    for (was, is) in before.vips[0].backends.iter().zip(&after.vips[0].backends) {
        assert_eq!((&was.name, was.id), (&is.name, is.id));
        assert!(is.packets_in > was.packets_in && is.new_connections >= was.new_connections);
    }
    assert!(service.opened(9).iter().all(|one| one.server != "s2"));
    next.set_keys(keys()).expect("the same keys");
    all_stay(&mut connections, "at the end");
    service.net.leave();
}

#[test]
fn a_server_that_is_down_resets_its_connections_quickly() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    let mut balancer = service.balance(&config);
    let mut connections = service.opened(10);
    config.vips[0].backends[0].state = BackendState::Down;
    service.apply(&mut balancer, &config);
    let began = std::time::Instant::now();
    for connection in &mut connections {
        match connection.server.as_str() {
            "s1" => assert!(connection.ask().expect_err("reset").contains("reset")),
            _ => assert_eq!(connection.ask().as_deref(), Ok("s2")),
        }
    }
    assert!(began.elapsed() < rig::service::PATIENCE, "told, not left to time out");
    service.net.leave();
}

#[test]
fn a_service_can_be_renamed_and_one_that_drained_is_forgotten() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    config.drain = std::time::Duration::ZERO;
    let mut balancer = service.balance(&config);
    service.opened(4);
    config.vips[0].name = "store".to_owned();
    service.apply(&mut balancer, &config);
    balancer.refresh().expect("forgets");
    let mut connections = service.opened(4);
    all_stay(&mut connections, "under the new name");
    let seen = status(&service.net.pins()).expect("status");
    let names: Vec<&str> = seen.vips.iter().map(|vip| vip.name.as_str()).collect();
    assert_eq!(names, ["store"], "the old one has drained");
    service.net.leave();
}

fn within_a_vrf(v6: bool) {
    let service = Service::new(2, 2, v6);
    let vrf = "ip link add red type vrf table 77 2>/dev/null || echo none";
    if service.net.exec("lb", vrf).stdout.starts_with(b"none") {
        eprintln!("skipped: this kernel has no VRF");
        return;
    }
    // An interface that becomes a part of one loses its IPv6 addresses.
    service.net.exec(
        "lb",
        "sh -c 'set -e; ip link set red up
        for leg in lbc.1 lb1.2 lb2.3; do
            ip link set ${leg%.*} master red
            ip addr replace fd00:${leg#*.}::1/64 dev ${leg%.*} nodad
        done'",
    );
    let mut balancer = service.balance(&service.config(Policy::RoundRobin, &["s1", "s2"]));
    let mut connections = service.opened(8);
    assert_eq!(by_server(&connections).len(), 2);
    balancer.refresh().expect("refreshes");
    all_stay(&mut connections, "within a VRF");
    let seen = status(&service.net.pins()).expect("status");
    let replies = &seen.replies[usize::from(v6)];
    // Which table it is hangs on the interface that a reply comes in by.
    assert_eq!((replies.why, replies.remembered), (Some(Why::Rules), false));
    assert!(seen.vips[0].routes_asked >= 16, "{seen:?}");
    assert_eq!(seen.vips[0].fallbacks["no_route"], 0, "{seen:?}");
    service.net.leave();
}

#[test]
fn ipv4_connections_go_on_within_a_vrf() {
    if privileged() {
        within_a_vrf(false);
    }
}

#[test]
fn ipv6_connections_go_on_within_a_vrf() {
    if privileged() {
        within_a_vrf(true);
    }
}
