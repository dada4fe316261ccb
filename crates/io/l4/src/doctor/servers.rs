//! The servers as seen from a balancer: reachable on the link, and with timestamps that can be restored.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::local::{Machine, idle_limit};
use super::probe::{Stamps, probe};
use super::{Finding, Role};
use crate::config::{Backend, BackendState, L4Config};
use crate::network::{self, Link, Neighbour};
use crate::place::known;

pub fn examine(config: &L4Config, role: Role, machine: &Machine) -> Vec<Finding> {
    if role != Role::Balancer {
        return Vec::new();
    }
    let neighbours = network::neighbours().unwrap_or_default();
    let mut findings = vec![idle(config)];
    let mut seen = BTreeSet::new();
    for vip in &config.vips {
        for backend in &vip.backends {
            let about = format!("{}/{}", vip.name, backend.name);
            let server = SocketAddr::new(backend.address, vip.address.port());
            if backend.address == vip.address.ip() {
                let finding =
                    Finding::new("backend", &about, "a server is found by its own address");
                findings
                    .push(finding.fail("it has the VIP's", "its own address; the VIP goes on lo"));
                continue;
            }
            findings.push(on_link(&about, backend, config, machine, &neighbours));
            if backend.state != BackendState::Down && seen.insert(server) {
                findings.push(stamps(&about, server, backend.agent));
            }
        }
    }
    findings
}

fn idle(config: &L4Config) -> Finding {
    let why = "a connection that is silent for longer may be taken for an old one (PAWS) and stall";
    let finding = Finding::new("idle_limit", "l4.cookie.version_bits", why);
    let (seconds, words) = idle_limit(config);
    let bits = config.cookie.layout.version_bits();
    let mut finding =
        finding.ok(format!("{bits} version bits: connections may be silent for {words}"));
    finding.advice =
        format!("keep-alives on servers or clients every {} s where connections idle", seconds / 2);
    finding
}

fn on_link(
    about: &str,
    backend: &Backend,
    config: &L4Config,
    machine: &Machine,
    neighbours: &[Neighbour],
) -> Finding {
    let why = "packets reach a server by its MAC address, on a link of l4.interfaces";
    let finding = Finding::new("backend", about, why);
    let address = backend.address;
    let named = |link: &&Link| config.interfaces.iter().any(|one| one.name == link.name);
    let links: Vec<&Link> = machine.links.iter().filter(named).collect();
    let route = match network::route(address, &links) {
        Ok(Some(route)) => route,
        Ok(None) => return finding.fail(format!("no route to {address}"), "add one"),
        Err(error) => return finding.fail(error.to_string(), ""),
    };
    if let Some(gateway) = route.gateway {
        let found = format!("{address} is behind the router {gateway}");
        return finding.fail(found, "direct forwarding needs servers on the link");
    }
    let name = machine.name(route.ifindex);
    if config.interfaces.iter().all(|interface| interface.name != name) {
        return finding.fail(format!("{address} is reached by {name}"), "name it in l4.interfaces");
    }
    match (backend.mac, known(neighbours, address, route.ifindex)) {
        (Some(mac), Some(other)) if mac != other.mac => finding.fail(
            format!("mac {} in the configuration, {} on the link", text(mac), text(other.mac)),
            "correct it, or leave it out",
        ),
        (None, None) => {
            // For the next time; refused without CAP_NET_ADMIN.
            let _ = network::use_neighbour(address, route.ifindex);
            finding.warn(
                format!("{address} on {name}: no MAC address in the neighbour table yet"),
                "is it up? It gets no connections until it answers",
            )
        }
        _ => finding.ok(format!("{address} on {name}")),
    }
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn stamps(about: &str, server: SocketAddr, agent: bool) -> Finding {
    let why = "cookies travel in TCP timestamps, whose upper half must be restored to the bit";
    let finding = Finding::new("tcp_timestamps", about, why);
    let advice = "on the server: sysctl -w net.ipv4.tcp_timestamps=2";
    match probe(server) {
        Err(error) => finding.warn(format!("cannot probe: {error}"), "run as root"),
        Ok(Stamps::OneClock) => finding.ok(format!("{server}: one clock for all connections (2)")),
        Ok(Stamps::Random) if agent => finding
            .ok(format!("{server}: an offset for each connection (1), which its agent knows")),
        Ok(Stamps::Random) => finding.fail(
            format!("{server}: a random offset for each connection (1)"),
            format!("{advice}, or run its agent: `plimsoll l4 agent run`, agent: true"),
        ),
        Ok(Stamps::Absent) => finding.fail(format!("{server}: no timestamps (0)"), advice),
        Ok(Stamps::Microseconds) => finding.fail(
            format!("{server}: timestamps in microseconds"),
            "on the server: routes without `features tcp_usec_ts`",
        ),
        Ok(Stamps::NoAnswer) => finding.warn(
            format!("{server} does not answer: its timestamps are not known"),
            "let the service listen on the server's own address, too, or run doctor on the server",
        ),
    }
}
