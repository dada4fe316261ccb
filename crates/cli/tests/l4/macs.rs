//! Servers whose MAC address changes under connections that they push on, as when a bond fails over or a virtual
//! machine moves: no segment may leave without a cookie until the balancer knows the new address.

use std::sync::atomic::Ordering;

use crate::daemon::Daemon;
use crate::rig::privileged;
use crate::rig::service::{Connection, Service};

const CLIENTS: usize = 15;
/// Two seconds of pushing: more than lie in a client's buffer.
const TICKS: usize = 40;

fn all_hear_their_server(clients: &mut [Connection], when: &str) {
    for client in clients {
        for _ in 0..TICKS {
            assert_eq!(client.hear().as_deref(), Ok("tick"), "{when}");
        }
    }
}

/// `silent`: the server asks for no address either, which would tell its own.
fn connections_survive(v6: bool, silent: bool) {
    let service = Service::new(2, 2, v6);
    let daemon = Daemon::started(&service, &["s1", "s2"]);
    let mut clients = service.opened(CLIENTS);
    clients.iter_mut().for_each(Connection::ask_to_push);
    service.push.store(true, Ordering::Relaxed);
    all_hear_their_server(&mut clients, "before");

    let keep = "ip neigh replace 10.0.2.1 lladdr 02:00:00:00:02:01 dev e0 nud permanent
        ip neigh replace fd00:2::1 lladdr 02:00:00:00:02:01 dev e0 nud permanent";
    let then = if silent { keep } else { "true" };
    let line = format!("sh -c 'ip link set e0 address 02:00:00:00:02:77\n{then}'");
    service.net.exec("s1", &line);
    all_hear_their_server(&mut clients, "after the MAC address changed");
    let status = daemon.status();
    assert_eq!(status["vips"][0]["backends"][0]["mac"], "02:00:00:00:02:77");
    assert_eq!(service.open_sockets(), (CLIENTS, 0));
}

#[test]
fn ipv4_connections_survive_a_server_that_changes_its_mac_address() {
    if privileged() {
        connections_survive(false, false);
    }
}

#[test]
fn ipv4_connections_survive_a_server_that_changes_its_mac_address_in_silence() {
    if privileged() {
        connections_survive(false, true);
    }
}

#[test]
fn ipv6_connections_survive_a_server_that_changes_its_mac_address() {
    if privileged() {
        connections_survive(true, false);
    }
}

#[test]
fn ipv6_connections_survive_a_server_that_changes_its_mac_address_in_silence() {
    if privileged() {
        connections_survive(true, true);
    }
}
