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
    let before = service.forwarded();
    for mode in [AttachMode::Generic, AttachMode::Native, AttachMode::Generic] {
        std::thread::sleep(Duration::from_millis(200));
        service.apply(&mut balancer, &in_mode(&config, mode));
    }
    std::thread::sleep(Duration::from_millis(500));
    service.push.store(false, Ordering::Relaxed);
    let broken = clients.iter_mut().filter_map(|client| client.stays().err()).count();
    assert_eq!(broken, 0, "of {CLIENTS} connections");
    // Whether one that is hit breaks depends on its server's clock.
    assert_eq!(service.forwarded() - before, 0, "replies left without a cookie");
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
