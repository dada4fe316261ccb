//! Every balancer that a lane may have serves by the policy that it was given.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use plimsoll_lanes::{
    Balancers, Envoy, Family, LaneError, Nginx, PATIENCE, Peer, Proxy, Server, find_envoy,
};
use plimsoll_testbed::load::{self, Arrivals, Asked, LoadReport, LoadSpec, Target};
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};

fn servers() -> (Testbed, Vec<Server>) {
    let backend =
        |name: &str| BackendSpec::new(name, Service::deterministic(Duration::from_millis(1)));
    let backends = ["s1", "s2"].map(backend).into();
    let bed = Testbed::start(TestbedSpec { admin: None, backends }).unwrap();
    let server = |((name, address), weight): (&(String, SocketAddr), u32)| Server {
        name: name.clone(),
        address: *address,
        weight,
    };
    let servers = bed.addresses().iter().zip([1, 3]).map(server).collect();
    (bed, servers)
}

/// So many that no part of them is off by chance: all bounds below are six standard deviations and more away.
const ENOUGH: u64 = 1_000;

/// One client that waits for each answer: nothing is in flight when a server is picked, so that picks do not depend on how
/// fast this machine is.
fn load(address: SocketAddr) -> LoadReport {
    let target = Target::resolve(&format!("http://{address}/")).unwrap();
    let mut spec = LoadSpec::poisson(target, 400.0, 6 * PATIENCE);
    (spec.arrivals, spec.concurrency) = (Arrivals::Closed, Some(1));
    (spec.timeout, spec.seed) = (PATIENCE, 1);
    let page = |i| Asked { path: format!("/page-{i}/?id={i}"), ..Asked::default() };
    // As many as requests, so that a hash of the page is nearly as even as a draw.
    spec.mix = (0..1_000).map(page).collect();
    let clients = load::start(spec).unwrap();
    while !clients.wait(Duration::from_millis(20)) {
        if clients.snapshot().is_some_and(|so_far| so_far.total.requests >= ENOUGH) {
            clients.stop();
        }
    }
    clients.join().unwrap()
}

/// The part of the requests that the second server had, none of which may have failed.
fn second(name: &str, report: &LoadReport) -> f64 {
    let total = report.total.requests;
    assert!(total >= ENOUGH && report.total.errors == 0, "{name}: {:?}", report.first_error);
    report.by_backend.get("s2").map_or(0, |s2| s2.requests) as f64 / total as f64
}

/// Nothing where the program is missing.
fn installed<T>(what: &str, started: Result<T, LaneError>) -> Option<T> {
    match started {
        Err(why @ (LaneError::NotInstalled { .. } | LaneError::NoPlimsoll { .. })) => {
            eprintln!("skipped: {what}: {why}");
            None
        }
        started => Some(started.unwrap_or_else(|error| panic!("{what}: {error}"))),
    }
}

/// In turns by weight: of some hundred requests one or two more or less.
const TURNS: Range<f64> = 0.735..0.765;
/// Drawn, or by hash, of some hundred pages.
const BY_CHANCE: Range<f64> = 0.62..0.88;

#[test]
fn weights_and_policies_are_kept_by_each_that_is_installed() {
    let family = Family::start().unwrap();
    let (_bed, servers) = servers();
    let check = |what: &str, report: &LoadReport, expected: Range<f64>| {
        let part = second(what, report);
        assert!(expected.contains(&part), "{what}: {part} of weight 3/4, expected {expected:?}");
    };
    for (i, line) in ["", "least_conn;"].into_iter().enumerate() {
        let started = Nginx::start(&family, &format!("nginx{i}"), line, &servers, PATIENCE);
        let Some(nginx) = installed("nginx", started) else { break };
        check(&format!("nginx {line}"), &load(nginx.address()), TURNS);
    }
    for (policy, expected) in [
        ("ROUND_ROBIN", TURNS),
        // Of unequal weights that are turns as well, shortened by what is in flight.
        ("LEAST_REQUEST", TURNS),
        // It ignores weights.
        ("RANDOM", 0.4..0.6),
        ("RING_HASH", BY_CHANCE),
        ("MAGLEV", BY_CHANCE),
    ] {
        let started = Envoy::start(&family, &format!("envoy-{policy}"), policy, &servers, PATIENCE);
        let Some(envoy) = installed("Envoy", started) else { break };
        check(&format!("Envoy {policy}"), &load(envoy.address()), expected);
    }
    for (policy, expected) in [
        ("round_robin", TURNS),
        // Idle, the one of the greater weight has the fewest per weight.
        ("least_connections", 0.99..1.01),
        // Of two that are idle the second draw, as in the paper: the one of the lesser weight, mostly.
        ("bloc", 0.15..0.35),
        // It learns that both are as fast, whatever their weights.
        ("expected_delay", 0.25..0.73),
    ] {
        let started = Proxy::start(&family, &format!("proxy-{policy}"), policy, &servers, PATIENCE);
        let Some(proxy) = installed("our proxy", started) else { break };
        check(&format!("our proxy, {policy}"), &load(proxy.address()), expected);
    }
}

#[test]
fn each_of_two_envoys_of_one_process_serves() {
    let family = Family::start().unwrap();
    let (_bed, servers) = servers();
    let Some(program) = find_envoy(None) else {
        return eprintln!("skipped: there is no envoy in PATH");
    };
    for peer in [Peer::EnvoyLeastRequest, Peer::EnvoyAdaptive] {
        let started = Balancers::start(&family, peer.name(), (peer, 2), &servers, Some(&program));
        let mut both = started.unwrap_or_else(|error| panic!("{}: {error}", peer.name()));
        for address in both.addresses().to_vec() {
            let report = load(address);
            if peer == Peer::EnvoyLeastRequest {
                let part = second(peer.name(), &report);
                assert!(TURNS.contains(&part), "{}: {part} of weight 3/4", peer.name());
                continue;
            }
            // However few it lets in while it measures how fast the servers are, one at a time is not too many.
            second(peer.name(), &report);
        }
        both.check().unwrap();
    }
}
