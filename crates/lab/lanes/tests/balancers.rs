//! Every balancer that a lane may have serves by the policy that it was given.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_lanes::{
    Balancers, Envoy, Family, LaneError, Nginx, PATIENCE, Peer, Proxy, Server, find_envoy,
};
use plimsoll_testbed::load::{self, Asked, LoadReport, LoadSpec, Target};
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

fn load(address: SocketAddr) -> LoadReport {
    let target = Target::resolve(&format!("http://{address}/")).unwrap();
    let mut spec = LoadSpec::poisson(target, 400.0, Duration::from_secs(1));
    (spec.timeout, spec.seed) = (PATIENCE, 1);
    let page = |i| Asked { path: format!("/page-{i}/?id={i}"), ..Asked::default() };
    spec.mix = (0..50).map(page).collect();
    load::start(spec).unwrap().join().unwrap()
}

/// The part of the requests that the second server had, of which nobody may have failed.
fn second(name: &str, report: &LoadReport) -> f64 {
    let total = report.total.requests;
    assert!(total > 200 && report.total.errors == 0, "{name}: {:?}", report.first_error);
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

#[test]
fn weights_and_policies_are_kept_by_each_that_is_installed() {
    let family = Family::start().unwrap();
    let (_bed, servers) = servers();
    for (i, line) in ["", "least_conn;"].into_iter().enumerate() {
        let started = Nginx::start(&family, &format!("nginx{i}"), line, &servers, PATIENCE);
        let Some(nginx) = installed("nginx", started) else { break };
        let part = second("nginx", &load(nginx.address()));
        assert!((0.6..0.9).contains(&part), "nginx {line}: {part} of weight 3/4");
    }
    for policy in ["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM", "RING_HASH", "MAGLEV"] {
        let started = Envoy::start(&family, &format!("envoy-{policy}"), policy, &servers, PATIENCE);
        let Some(envoy) = installed("Envoy", started) else { break };
        let part = second(policy, &load(envoy.address()));
        // Envoy's RANDOM ignores weights. Fifty pages by hash are luck; all else is weight and some load.
        let expected = if policy == "RANDOM" { 0.35..0.65 } else { 0.5..0.95 };
        assert!(expected.contains(&part), "Envoy {policy}: {part} of weight 3/4");
    }
    for policy in ["expected_delay", "least_connections", "round_robin", "bloc"] {
        let started = Proxy::start(&family, &format!("proxy-{policy}"), policy, &servers, PATIENCE);
        let Some(proxy) = installed("our proxy", started) else { break };
        let part = second(policy, &load(proxy.address()));
        // Without ingresses nobody gives bloc chips: it goes where it has not been for longest, whatever the weights.
        let expected = if policy == "bloc" { 0.35..0.65 } else { 0.5..0.95 };
        assert!(expected.contains(&part), "our proxy, {policy}: {part} of weight 3/4");
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
                assert!((0.5..0.95).contains(&part), "{}: {part} of weight 3/4", peer.name());
                continue;
            }
            // While it measures how fast the servers are it lets in few at a time, and says so.
            let (total, why) = (&report.total, report.first_error.as_deref());
            assert!(total.requests > 200 && total.errors < total.requests / 2, "{why:?}");
            assert!([None, Some("status 503")].contains(&why), "{why:?}");
        }
        both.check().unwrap();
    }
}
