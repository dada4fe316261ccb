//! Where replies go while routes change under real connections, with the daemon and without.

use std::time::{Duration, Instant};

use crate::daemon::{Daemon, PATIENCE};
use crate::rig::privileged;
use crate::rig::service::{Service, all_stay};

/// Waits until replies of the service's family go as expected.
fn wait_for(daemon: &Daemon<'_>, v6: bool, field: &str, value: &str) {
    let began = Instant::now();
    loop {
        let told = daemon.status()["replies"][usize::from(v6)].clone();
        if told[field] == value {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "no {field}: {value} in {told}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn routes_asked(daemon: &Daemon<'_>) -> u64 {
    daemon.status()["vips"][0]["routes_asked"].as_u64().expect("a number")
}

/// Clients are behind the default route, at an address that is on none of the balancer's links.
fn far_clients(v6: bool) -> Service {
    let service = Service::new(2, 2, v6);
    let (cli, lb) = if v6 {
        (
            "ip addr add 2001:db8:7::7/128 dev lo nodad && \
             ip -6 route add fd00:9::9 via fd00:1::1 src 2001:db8:7::7",
            "ip -6 route add default via fd00:1::2",
        )
    } else {
        (
            "ip addr add 203.0.113.7/32 dev lo && ip route add 10.0.9.9 via 10.0.1.1 src 203.0.113.7",
            "ip route add default via 10.0.1.2",
        )
    };
    service.net.exec("cli", cli);
    service.net.exec("lb", lb);
    service
}

fn replies_follow_routes(v6: bool) {
    let service = far_clients(v6);
    let mut daemon = Daemon::started(&service, &["s1", "s2"]);
    wait_for(&daemon, v6, "by", "default_route");
    let mut connections = service.opened(6);
    let before = routes_asked(&daemon);
    connections.extend(service.opened(6));
    all_stay(&mut connections, "by the default route");
    assert_eq!(routes_asked(&daemon), before, "nobody was asked");

    let (gateway, family) = if v6 { ("fd00:1::2", "-6") } else { ("10.0.1.2", "-4") };
    let mac = "02:00:00:00:77:02";
    service.net.exec("cli", &format!("ip link set c0 address {mac}"));
    // As the kernel would have it from the router's announcement.
    service.net.exec("lb", &format!("ip neigh replace {gateway} lladdr {mac} dev lbc"));
    wait_for(&daemon, v6, "mac", mac);
    all_stay(&mut connections, "by the router's new address");
    assert_eq!(routes_asked(&daemon), before, "nobody was asked");

    service.net.exec("lb", &format!("ip {family} rule add to {gateway} lookup main"));
    wait_for(&daemon, v6, "why", "rules");
    all_stay(&mut connections, "by rules");
    assert!(routes_asked(&daemon) >= before + 12, "for every reply");
    service.net.exec("lb", &format!("ip {family} rule del to {gateway}"));
    wait_for(&daemon, v6, "by", "default_route");

    daemon.kill();
    wait_for(&daemon, v6, "why", "expired");
    let before = routes_asked(&daemon);
    all_stay(&mut connections, "without a daemon");
    assert!(routes_asked(&daemon) >= before + 12, "for every reply");
}

#[test]
fn replies_follow_routes_by_ipv4() {
    if privileged() {
        replies_follow_routes(false);
    }
}

#[test]
fn replies_follow_routes_by_ipv6() {
    if privileged() {
        replies_follow_routes(true);
    }
}
