//! Clients that leave while their servers push: Linux answers what comes for no socket by a RST without
//! timestamps, so without a cookie, and that must reach the connection's own server, or its socket stays until
//! retransmissions end, after a quarter of an hour.

mod rig;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use aya::maps::{Array, Map, MapData};
use plimsoll_l4::{Policy, status};
use rig::privileged;
use rig::service::{Connection, PATIENCE, Service};

const SERVERS: [&str; 5] = ["s1", "s2", "s3", "s4", "s5"];
const CLIENTS: usize = 40;

/// Clients that have asked their servers to push.
fn subscribed(service: &Service) -> Vec<Connection> {
    let mut clients = service.opened(CLIENTS);
    clients.iter_mut().for_each(Connection::ask_to_push);
    assert_eq!(service.open_sockets(), (CLIENTS, 0));
    clients
}

/// Has the balancer forget all SYNs, as other connections' do in time.
fn forget_first_packets(service: &Service) {
    let pinned = MapData::from_pin(service.net.pins().join("maps/connections")).expect("pinned");
    let mut last: Array<_, [u64; 512]> =
        Map::from_map_data(pinned).expect("a map").try_into().expect("an array");
    for row in 0..last.len() {
        last.set(row, [0; 512], 0).expect("written");
    }
}

/// The servers push, and no socket is left of it.
fn pushing_ends_every_socket(service: &Service) {
    service.push.store(true, Ordering::Relaxed);
    let began = Instant::now();
    while service.open_sockets() != (0, 0) {
        let left = service.open_sockets();
        let seen = status(&service.net.pins()).expect("status");
        assert!(began.elapsed() < PATIENCE, "established, CLOSE-WAIT: {left:?} {:?}", seen.vips);
        std::thread::sleep(Duration::from_millis(50));
    }
    let seen = status(&service.net.pins()).expect("status");
    assert!(seen.vips[0].fallbacks["no_timestamp"] > 0, "no RST came without timestamps: {seen:?}");
}

fn clients_that_close(v6: bool, forget: bool) {
    let service = Service::new(SERVERS.len(), 2, v6);
    let balancer = service.balance(&service.config(Policy::RoundRobin, &SERVERS));
    let clients = subscribed(&service);
    if forget {
        forget_first_packets(&service);
    }
    drop(clients);
    pushing_ends_every_socket(&service);
    drop(balancer);
    service.net.leave();
}

#[test]
fn rst_without_timestamps_reaches_the_server_of_its_connection() {
    if privileged() {
        clients_that_close(false, false);
    }
}

#[test]
fn rst_without_timestamps_reaches_the_server_of_its_ipv6_connection() {
    if privileged() {
        clients_that_close(true, false);
    }
}

#[test]
fn rst_reaches_its_server_though_the_syn_is_long_forgotten() {
    if privileged() {
        clients_that_close(false, true);
    }
}

#[test]
fn rst_of_a_client_that_vanished_without_a_fin_reaches_its_server() {
    if !privileged() {
        return;
    }
    let service = Service::new(SERVERS.len(), 2, false);
    let balancer = service.balance(&service.config(Policy::RoundRobin, &SERVERS));
    let clients = subscribed(&service);
    forget_first_packets(&service);
    // Nothing of their end leaves their host, as when it is switched off.
    service.net.exec("cli", "ip route add blackhole 10.0.9.9");
    clients.into_iter().for_each(Connection::abort);
    service.net.exec("cli", "ip route del blackhole 10.0.9.9");
    // A delayed acknowledgment of a server may have been answered already.
    assert!(service.open_sockets().0 > 0);
    pushing_ends_every_socket(&service);
    drop(balancer);
    service.net.leave();
}
