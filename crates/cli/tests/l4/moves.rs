//! Clients that the kernel's routes lead to, and not the default route's next hop: what is remembered of those
//! routes is followed as they change, under real connections. Packets by a way that is no more are lost, so that
//! only what changes back or is followed is answered.

use std::time::{Duration, Instant};

use crate::daemon::{Daemon, PATIENCE};
use crate::replies::routes_asked;
use crate::rig::privileged;
use crate::rig::service::{Connection, Service, all_stay};

/// A family's addresses.
struct Family {
    v6: bool,
    /// `ip`'s name for it.
    ip: &'static str,
    /// The clients on the balancer's link, and on its second one.
    near: [&'static str; 2],
    /// One behind them.
    far: &'static str,
    /// Of an address.
    bits: u8,
}

const FOUR: Family = Family {
    v6: false,
    ip: "ip -4",
    near: ["10.0.1.2", "10.0.77.2"],
    far: "203.0.113.7",
    bits: 32,
};
const SIX: Family = Family {
    v6: true,
    ip: "ip -6",
    near: ["fd00:1::2", "fd00:77::2"],
    far: "2001:db8:7::7",
    bits: 128,
};

/// A service whose clients have a second link with the balancer, and its daemon.
fn site(family: &Family) -> Service {
    let service = Service::new(2, 2, family.v6);
    service.net.cable(
        ("lb", "lbd", "02:00:00:00:77:01", "10.0.77.1/24"),
        ("cli", "c1", "02:00:00:00:77:02", "10.0.77.2/24"),
    );
    service.net.exec("lb", "ip addr add fd00:77::1/64 dev lbd nodad");
    service.net.exec(
        "cli",
        "ip addr add fd00:77::2/64 dev c1 nodad && ethtool -K c1 tx off gro on && \
         sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.c0.rp_filter=0 \
         net.ipv4.conf.c1.rp_filter=0",
    );
    service
}

fn started(service: &Service) -> Daemon<'_> {
    let mut daemon = Daemon::of(service, &["s1", "s2"]);
    daemon.change("{ name: lbc,", "{ name: lbd }, { name: lbc,");
    daemon.start();
    daemon
}

impl Family {
    /// Clients from an address that is on none of the balancer's links, by a router that is either end.
    fn clients_are_far(&self, service: &Service) {
        let Family { ip, far, bits, .. } = self;
        let vip = service.vip.ip();
        let (gateway, ready) = if self.v6 { ("fd00:1::1", "nodad") } else { ("10.0.1.1", "") };
        service.net.exec(
            "cli",
            &format!(
                "ip addr add {far}/{bits} dev lo {ready} && {ip} route add {vip} via {gateway} src {far}"
            ),
        );
    }

    /// A route of those clients.
    fn route(&self, service: &Service, how: &str) {
        let Family { ip, far, bits, .. } = self;
        service.net.exec("lb", &format!("{ip} route replace {far}/{bits} {how}"));
    }

    fn via(&self, link: usize) -> String {
        format!("via {} dev {}", self.near[link], ["lbc", "lbd"][link])
    }

    fn status(&self, daemon: &Daemon<'_>) -> serde_json::Value {
        daemon.status()["replies"][usize::from(self.v6)].clone()
    }

    /// Waits until answers of the kernel's routes are remembered, or no longer.
    fn until_remembered(&self, daemon: &Daemon<'_>, is: bool) {
        let began = Instant::now();
        while self.status(daemon)["remembered"] != is {
            assert!(began.elapsed() < PATIENCE, "{}", self.status(daemon));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Packets that came in by an interface of the clients.
fn received(service: &Service, interface: &str) -> u64 {
    let told = service.net.exec("cli", "cat /proc/net/dev").stdout;
    let told = String::from_utf8_lossy(&told);
    let mut lines = told.lines().filter_map(|line| line.trim().split_once(':'));
    let (_, counts) = lines.find(|(name, _)| *name == interface).expect("there");
    counts.split_whitespace().nth(1).expect("bytes, packets").parse().expect("a number")
}

/// All are answered all along, and soon the answers come in by this interface of the clients: the daemon hears
/// of a change a moment after it is made, and an interface counts what it took in a moment after it has
/// delivered it.
fn answers_come_by(service: &Service, connections: &mut [Connection], interface: &str, when: &str) {
    let began = Instant::now();
    loop {
        let before = received(service, interface);
        all_stay(connections, when);
        std::thread::sleep(Duration::from_millis(20));
        let came = received(service, interface) - before;
        if came >= connections.len() as u64 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{when}: {came} by {interface}");
    }
}

fn asked_for_all(daemon: &Daemon<'_>, connections: &mut [Connection], when: &str) {
    let before = routes_asked(daemon);
    all_stay(connections, when);
    let asked = routes_asked(daemon) - before;
    assert!(asked >= connections.len() as u64, "{when}: {asked}");
}

fn a_client_on_the_link_moves(family: &Family) {
    let service = site(family);
    let daemon = started(&service);
    family.until_remembered(&daemon, true);
    let mut connections = service.opened(6);
    answers_come_by(&service, &mut connections, "c0", "at first");

    // It says so when it asks for its router: no other machine tells the balancer.
    service.net.exec("cli", "ip link set c0 address 02:00:00:00:01:99");
    answers_come_by(&service, &mut connections, "c0", "by another MAC address");
    connections.extend(service.opened(4));

    // Its address goes to another link, where the balancer has to look for it.
    let Family { ip, near: [near, _], bits, .. } = family;
    if family.v6 {
        // Linux answers neighbour discovery by the link alone that has the address.
        service.net.exec("cli", &format!("ip addr add {near}/{bits} dev c1 nodad"));
    }
    service.net.exec("lb", &format!("{ip} route add {near}/{bits} dev lbd"));
    answers_come_by(&service, &mut connections, "c1", "by another link");
    service.net.exec("lb", &format!("{ip} route del {near}/{bits} dev lbd"));
    answers_come_by(&service, &mut connections, "c0", "back by the first");
    family.until_remembered(&daemon, true);
}

fn a_route_of_clients_changes(family: &Family) {
    let service = site(family);
    family.clients_are_far(&service);
    family.route(&service, &family.via(0));
    let daemon = started(&service);
    family.until_remembered(&daemon, true);
    let mut connections = service.opened(6);
    answers_come_by(&service, &mut connections, "c0", "by the first router");
    family.route(&service, &family.via(1));
    answers_come_by(&service, &mut connections, "c1", "by the second");
    connections.extend(service.opened(2));
    // The kernel takes the route away with the link.
    let Family { ip, far, bits, .. } = family;
    service
        .net
        .exec("lb", &format!("{ip} route append {far}/{bits} {} metric 2000", family.via(0)));
    service.net.exec("lb", "ip link set lbd down");
    answers_come_by(&service, &mut connections, "c0", "by the dearer route");
    family.until_remembered(&daemon, true);

    // Where the kernel may not forward, its routes hold for nothing.
    let setting = if family.v6 { "ipv6" } else { "ipv4" };
    service.net.exec("lb", &format!("sysctl -qw net.{setting}.conf.lbd.forwarding=0"));
    family.until_remembered(&daemon, false);
    asked_for_all(&daemon, &mut connections, "without forwarding on one interface");
    service.net.exec("lb", &format!("sysctl -qw net.{setting}.conf.lbd.forwarding=1"));
    family.until_remembered(&daemon, true);
}

fn several_next_hops_are_asked_for(family: &Family) {
    let service = site(family);
    family.clients_are_far(&service);
    family.route(&service, &family.via(0));
    let daemon = started(&service);
    family.until_remembered(&daemon, true);
    let mut connections = service.opened(6);

    let both = format!("nexthop {} nexthop {}", family.via(0), family.via(1));
    family.route(&service, &both);
    family.until_remembered(&daemon, false);
    asked_for_all(&daemon, &mut connections, "by two next hops");
    connections.extend(service.opened(2));
    family.route(&service, &family.via(0));
    family.until_remembered(&daemon, true);
    all_stay(&mut connections, "by one");

    // Next-hop objects change under a route that does not.
    let Family { ip, .. } = family;
    let object = |how: &str, link| {
        service.net.exec("lb", &format!("{ip} nexthop {how} id 7 {}", family.via(link)));
    };
    object("add", 0);
    family.route(&service, "nhid 7");
    family.until_remembered(&daemon, false);
    asked_for_all(&daemon, &mut connections, "by an object");
    object("replace", 1);
    answers_come_by(&service, &mut connections, "c1", "by what the object became");
    family.route(&service, &family.via(0));
    family.until_remembered(&daemon, true);
    answers_come_by(&service, &mut connections, "c0", "by one again");
}

#[test]
fn what_leaves_by_an_interface_that_a_reload_drops_is_the_kernels() {
    if !privileged() {
        return;
    }
    let service = site(&FOUR);
    FOUR.clients_are_far(&service);
    FOUR.route(&service, &FOUR.via(1));
    let daemon = started(&service);
    let no_route =
        || daemon.status()["vips"][0]["fallbacks"]["no_route"].as_u64().expect("a number");
    let mut connections = service.opened(6);
    FOUR.until_remembered(&daemon, true);
    answers_come_by(&service, &mut connections, "c1", "by a route of their own");
    let before = no_route();
    answers_come_by(&service, &mut connections, "c1", "by what is remembered");
    assert_eq!(no_route(), before);

    daemon.change("{ name: lbd }, ", "");
    daemon.settle();
    answers_come_by(&service, &mut connections, "c1", "by the kernel");
    assert!(no_route() >= before + 6, "{} {before}", no_route());
    connections.extend(service.opened(2));
    all_stay(&mut connections, "with new ones");
}

#[test]
fn a_client_on_the_link_moves_by_ipv4() {
    if privileged() {
        a_client_on_the_link_moves(&FOUR);
    }
}

#[test]
fn a_client_on_the_link_moves_by_ipv6() {
    if privileged() {
        a_client_on_the_link_moves(&SIX);
    }
}

#[test]
fn a_route_of_clients_changes_by_ipv4() {
    if privileged() {
        a_route_of_clients_changes(&FOUR);
    }
}

#[test]
fn a_route_of_clients_changes_by_ipv6() {
    if privileged() {
        a_route_of_clients_changes(&SIX);
    }
}

#[test]
fn several_next_hops_are_asked_for_by_ipv4() {
    if privileged() {
        several_next_hops_are_asked_for(&FOUR);
    }
}

#[test]
fn several_next_hops_are_asked_for_by_ipv6() {
    if privileged() {
        several_next_hops_are_asked_for(&SIX);
    }
}
