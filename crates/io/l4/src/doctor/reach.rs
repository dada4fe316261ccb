//! How clients' packets reach a balancer (docs/l4.md), as far as its own machine shows it, and where those go
//! that come past the program.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

use netlink_packet_route::route::RouteType;

use super::interfaces::rp_filter;
use super::local::{Machine, forwards};
use super::{Finding, interface_sysctl};
use crate::config::L4Config;
use crate::network;
use crate::status::status;

/// What the kernel does with a packet to a VIP that the program leaves to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leads {
    /// The address is this machine's.
    Here,
    /// No route leads on, or one that refuses (`unreachable`, `blackhole`, `prohibit`).
    Nowhere,
    /// It goes round in this machine.
    Loopback,
    /// By an interface that drops what is sent by it.
    Sink(u32),
    /// Out of an interface, to a router or to whoever is on the link.
    Out { ifindex: u32, gateway: Option<IpAddr> },
}

/// All VIPs' addresses.
pub fn examine(config: &L4Config, machine: &Machine) -> Vec<Finding> {
    let proxied = network::proxied().unwrap_or_default();
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for vip in &config.vips {
        let address = vip.address.ip();
        if !seen.insert(address) {
            continue;
        }
        let about = format!("{} {address}", vip.name);
        let leads = match leads(address, machine) {
            Ok(leads) => leads,
            Err(error) => {
                let finding = Finding::new("vip_route", &about, "it says where packets go");
                findings.push(finding.warn(format!("unknown: {error}"), "ip route get"));
                continue;
            }
        };
        let on = proxied.iter().filter(|(of, _)| *of == address).map(|(_, index)| *index);
        let asked: Vec<u32> = on.collect();
        let vip = Reached { config, machine, address, leads, asked: &asked };
        findings.push(vip.reached(&about, || came(config, address)));
        findings.extend(vip.past_the_program(&about));
    }
    findings
}

fn leads(to: IpAddr, machine: &Machine) -> io::Result<Leads> {
    let message = match network::looked_up(to, None) {
        Ok(message) => message,
        // `unreachable` or no route, `prohibit`, `blackhole`.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::PermissionDenied
                    | ErrorKind::InvalidInput
            ) =>
        {
            return Ok(Leads::Nowhere);
        }
        Err(error) => return Err(error),
    };
    if message.header.kind == RouteType::Local {
        return Ok(Leads::Here);
    }
    let Some(route) = network::next_hop(&message) else { return Ok(Leads::Nowhere) };
    Ok(match machine.name(route.ifindex) {
        "lo" => Leads::Loopback,
        _ if machine.sinks.contains(&route.ifindex) => Leads::Sink(route.ifindex),
        _ => Leads::Out { ifindex: route.ifindex, gateway: route.gateway },
    })
}

/// Clients' packets to an address so far; `None` where no balancer has run.
fn came(config: &L4Config, address: IpAddr) -> Option<u64> {
    let status = status(&config.pin_dir).ok()?;
    let vips = status.vips.iter().filter(|vip| vip.address.is_some_and(|at| at.ip() == address));
    Some(vips.flat_map(|vip| &vip.backends).map(|backend| backend.packets_in).sum())
}

/// What is known of a VIP's address.
struct Reached<'a> {
    config: &'a L4Config,
    machine: &'a Machine,
    address: IpAddr,
    leads: Leads,
    /// Interfaces for which the kernel is configured to answer for it; 0 is any.
    asked: &'a [u32],
}

impl Reached<'_> {
    fn reached(&self, about: &str, came: impl FnOnce() -> Option<u64>) -> Finding {
        let why =
            "a balancer announces nothing itself: the network must send the VIP's packets to it";
        let finding = Finding::new("vip_reached", about, why);
        if self.leads == Leads::Here {
            return finding.ok("its own address, for which it answers");
        }
        if !self.asked.is_empty() {
            return self.answered(finding);
        }
        let address = self.address;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let ways = format!(
            "a route {address}/{bits} via this balancer on the router in front, set there or announced from here by \
             BGP; or, on one link with the clients, `ip neigh add proxy {address} dev DEV` (docs/l4.md)"
        );
        match came() {
            Some(0) => {
                let mut found = "no packet of a client has come yet".to_owned();
                if let Leads::Out { ifindex, gateway: None } = self.leads {
                    let name = self.machine.name(ifindex);
                    found += &format!(", and whoever asks for it on {name}'s link gets no answer");
                }
                finding.warn(found, format!("unless this is a standby: {ways}"))
            }
            Some(packets) => finding.ok(format!("by the network's routes: {packets} packets came")),
            None => finding.ok(format!("not answered for here; it needs {ways}")),
        }
    }

    /// Whether the kernel answers as configured.
    fn answered(&self, finding: Finding) -> Finding {
        let (mut well, mut faults) = (Vec::new(), Vec::new());
        let any = self.config.interfaces.iter().map(|one| one.name.as_str());
        let names: Vec<&str> = match self.asked.contains(&0) {
            true => any.collect(),
            false => self.asked.iter().map(|index| self.machine.name(*index)).collect(),
        };
        for name in names {
            match self.fault(name) {
                None => well.push(name),
                Some((what, advice)) => faults.push((format!("on {name}, {what}"), advice)),
            }
        }
        match faults.into_iter().next() {
            Some((found, advice)) if well.is_empty() => {
                finding.warn(format!("a proxy entry that gets no packets: {found}"), advice)
            }
            _ => finding.ok(format!("answered for on {} (proxy)", well.join(", "))),
        }
    }

    /// Why a proxy entry for an interface does not bring packets to the program there, and what to do.
    fn fault(&self, name: &str) -> Option<(String, String)> {
        let Reached { address, leads, .. } = *self;
        if self.config.interfaces.iter().all(|one| one.name != name) {
            let what = "where no program is: l4.interfaces does not name it".to_owned();
            return Some((what, format!("name {name} in l4.interfaces")));
        }
        if forwards(name, address) == Some(false) {
            let key =
                if address.is_ipv4() { "ipv4.ip_forward" } else { "ipv6.conf.all.forwarding" };
            let what = "which does not forward: Linux answers for nobody else there".to_owned();
            return Some((what, format!("sysctl -w net.{key}=1")));
        }
        if address.is_ipv6() {
            let on = |of| interface_sysctl("ipv6", of, "proxy_ndp").is_some_and(|value| value != 0);
            let off = !on(name) && !on("all");
            let key = format!("net.ipv6.conf.{name}.proxy_ndp");
            return off.then(|| (format!("{key} is 0"), format!("sysctl -w {key}=1")));
        }
        let found = match leads {
            Leads::Nowhere => "no route leads to it".to_owned(),
            Leads::Out { ifindex, .. } if self.machine.name(ifindex) == name => {
                "its own route leaves there".to_owned()
            }
            _ => return None,
        };
        let what = format!("{found}: Linux answers ARP for what another interface leads to");
        Some((what, format!("ip route add {address} dev lo, in place of another for {address}")))
    }

    /// Where that goes which the program does not see.
    fn past_the_program(&self, about: &str) -> Option<Finding> {
        let why = "what comes past the program (VLAN-tagged; all, while none is attached) goes where the \
                   kernel's routes lead: back to the router, round and round";
        let finding = Finding::new("vip_route", about, why);
        let Reached { machine, address, .. } = *self;
        Some(match self.leads {
            Leads::Here => return None,
            Leads::Nowhere => {
                let names = self.config.interfaces.iter().map(|one| one.name.as_str());
                match names.into_iter().find(|name| address.is_ipv4() && rp_filter(name) == 2) {
                    // `fib_validate_source` takes no source that no route leads to, not even loosely.
                    Some(name) => finding.warn(
                        format!(
                            "leads nowhere, and rp_filter of {name} is 2: replies that the program leaves to the \
                             kernel are dropped"
                        ),
                        format!(
                            "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{name}.rp_filter=0, or ip route \
                             replace {address} dev lo"
                        ),
                    ),
                    None => finding.ok("leads nowhere: what comes past the program ends here"),
                }
            }
            Leads::Loopback => {
                finding.ok("by lo: what comes past the program ends in this machine")
            }
            Leads::Sink(index) => {
                let name = machine.name(index);
                finding.ok(format!("by {name}, where what comes past the program ends"))
            }
            Leads::Out { ifindex, gateway: None } => {
                finding.ok(format!("onto {}'s link, to no router", machine.name(ifindex)))
            }
            Leads::Out { ifindex, gateway: Some(gateway) } => {
                let found = format!("out of {}, via {gateway}", machine.name(ifindex));
                let names = self.config.interfaces.iter().map(|one| one.name.as_str());
                if names.into_iter().all(|name| forwards(name, address) != Some(true)) {
                    return Some(finding.ok(format!("{found}, but nothing is forwarded")));
                }
                // Linux answers ARP for no address that no route leads to.
                let way = match address.is_ipv4() && !self.asked.is_empty() {
                    true => format!("ip route add {address} dev lo"),
                    false => format!("ip route add unreachable {address}"),
                };
                finding.warn(found, way)
            }
        })
    }
}
