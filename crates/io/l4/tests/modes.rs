//! Connections whose servers push go on while interfaces change the mode of XDP: the kernel takes one mode at a time,
//! and a reply that left without the program would have no cookie.

mod rig;

use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_l4::{AttachMode, L4Config, Policy};
use rig::privileged;
use rig::service::{Connection, Service};

const CLIENTS: usize = 45;

fn in_mode(config: &L4Config, mode: AttachMode) -> L4Config {
    let mut config = config.clone();
    config.interfaces.iter_mut().for_each(|interface| interface.mode = mode);
    config
}

/// Packets that the balancer's kernel forwarded itself: without a cookie.
fn forwarded(service: &Service) -> u64 {
    let counters = service.net.exec("lb", "cat /proc/net/snmp /proc/net/snmp6").stdout;
    let counters = String::from_utf8_lossy(&counters).into_owned();
    let mut v4 = counters.lines().filter(|line| line.starts_with("Ip: "));
    let (names, counts) = (v4.next().expect("names"), v4.next().expect("counts"));
    let mut pairs = names.split(' ').zip(counts.split(' '));
    let v4 = pairs.find(|(name, _)| *name == "ForwDatagrams").expect("a counter").1;
    let v6 = counters.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams"));
    [v4, v6.expect("a counter")]
        .map(|count| count.trim().parse::<u64>().expect("a number"))
        .iter()
        .sum()
}

fn connections_go_on(v6: bool) {
    let service = Service::new(3, 2, v6);
    let config = service.config(Policy::RoundRobin, &["s1", "s2", "s3"]);
    for interface in &config.interfaces {
        service.net.exec("lb", &format!("ethtool -K {} gro off gso off tso off", interface.name));
    }
    let mut balancer = service.balance(&config);
    let mut clients = service.opened(CLIENTS);
    clients.iter_mut().for_each(Connection::ask_to_rush);
    service.push.store(true, Ordering::Relaxed);
    let before = forwarded(&service);
    for mode in [AttachMode::Generic, AttachMode::Native, AttachMode::Generic] {
        std::thread::sleep(Duration::from_millis(200));
        service.apply(&mut balancer, &in_mode(&config, mode));
    }
    std::thread::sleep(Duration::from_millis(500));
    service.push.store(false, Ordering::Relaxed);
    let stays = |client: &mut Connection| {
        client.ask_after_pushing().is_ok_and(|server| server == client.server)
    };
    let broken = clients.iter_mut().map(stays).filter(|stays| !stays).count();
    assert_eq!(broken, 0, "of {CLIENTS} connections");
    // Whether one that is hit breaks depends on its server's clock.
    assert_eq!(forwarded(&service) - before, 0, "replies left without a cookie");
    let shown = service.net.exec("lb", "ip link show lb1").stdout;
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(shown.contains("xdpgeneric"), "{shown}");
    drop(balancer);
    service.net.leave();
}

#[test]
fn pushing_connections_go_on_while_the_mode_changes() {
    if privileged() {
        connections_go_on(false);
    }
}

#[test]
fn pushing_ipv6_connections_go_on_while_the_mode_changes() {
    if privileged() {
        connections_go_on(true);
    }
}
