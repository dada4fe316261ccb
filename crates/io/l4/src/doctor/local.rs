//! This machine's interfaces, addresses and routes; and what its addresses must be to serve.

use std::io::Result;
use std::net::IpAddr;
use std::path::PathBuf;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage, LinkXdp};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteMetric};

use super::{Finding, Role, family, interface_sysctl, sysctl};
use crate::agent::{agent_dir, attached_agents};
use crate::config::L4Config;
use crate::keys::OTHERS;
use crate::network::{self, Link};

/// RTAX_FEATURE_TCP_USEC_TS.
const USEC_TIMESTAMPS: u32 = 1 << 4;
/// The kinds of interfaces that send nothing.
const SINKS: [LinkInfo; 2] = [LinkInfo::Kind(InfoKind::Dummy), LinkInfo::Kind(InfoKind::Ifb)];

/// What the kernel knows of this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its interfaces.
    pub links: Vec<Link>,
    /// Addresses, each with the index of its interface.
    pub addresses: Vec<(IpAddr, u32)>,
    /// The XDP program on an interface, by index.
    pub xdp: Vec<(u32, u32)>,
    /// Interfaces that drop whatever is sent by them (dummy, ifb), by index.
    pub sinks: Vec<u32>,
    /// Routes whose connections count microseconds.
    pub usec_routes: usize,
}

impl Machine {
    /// Asks the kernel.
    pub fn look() -> Result<Machine> {
        let mut machine = Machine {
            links: network::links()?,
            addresses: addresses()?,
            xdp: Vec::new(),
            sinks: Vec::new(),
            usec_routes: 0,
        };
        for answer in network::ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), true)? {
            let RouteNetlinkMessage::NewLink(message) = answer else { continue };
            let index = message.header.index;
            for attribute in &message.attributes {
                match attribute {
                    LinkAttribute::Xdp(all) => {
                        let id = all.iter().find_map(|one| match one {
                            LinkXdp::ProgId(id) => Some(*id),
                            _ => None,
                        });
                        machine.xdp.extend(id.map(|id| (index, id)));
                    }
                    LinkAttribute::LinkInfo(infos)
                        if infos.iter().any(|info| SINKS.contains(info)) =>
                    {
                        machine.sinks.push(index);
                    }
                    _ => {}
                }
            }
        }
        for answer in network::ask(RouteNetlinkMessage::GetRoute(RouteMessage::default()), true)? {
            let RouteNetlinkMessage::NewRoute(message) = answer else { continue };
            machine.usec_routes += usize::from(counts_usec(&message));
        }
        Ok(machine)
    }

    /// Whether an address is this machine's.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }

    /// An interface by name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The name of an interface; empty where there is none of this index.
    pub fn name(&self, index: u32) -> &str {
        self.links.iter().find(|link| link.index == index).map_or("", |link| &link.name)
    }

    /// The interface that has an address.
    pub fn link_of(&self, address: IpAddr) -> Option<&Link> {
        let (_, index) = self.addresses.iter().find(|(own, _)| *own == address)?;
        self.links.iter().find(|link| link.index == *index)
    }
}

fn counts_usec(route: &RouteMessage) -> bool {
    route.attributes.iter().any(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => metrics.iter().any(
            |metric| matches!(metric, RouteMetric::Features(bits) if bits & USEC_TIMESTAMPS != 0),
        ),
        _ => false,
    })
}

fn addresses() -> Result<Vec<(IpAddr, u32)>> {
    let mut found = Vec::new();
    for answer in network::ask(RouteNetlinkMessage::GetAddress(AddressMessage::default()), true)? {
        let RouteNetlinkMessage::NewAddress(message) = answer else { continue };
        let index = message.header.index;
        // IFA_LOCAL is the machine's own where IFA_ADDRESS is the peer's.
        let own = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(ip) => Some(*ip),
            _ => None,
        });
        let any = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        });
        found.extend(own.or(any).map(|ip| (ip, index)));
    }
    Ok(found)
}

/// All addresses of this machine, in the caller's network namespace.
///
/// # Errors
/// When the kernel does not answer.
pub fn local_addresses() -> Result<Vec<IpAddr>> {
    Ok(addresses()?.into_iter().map(|(address, _)| address).collect())
}

/// The index of the interface that has an address; `None` where none has.
///
/// # Errors
/// When the kernel does not answer.
pub fn interface_of(address: IpAddr) -> Result<Option<u32>> {
    Ok(addresses()?.into_iter().find(|(own, _)| *own == address).map(|(_, index)| index))
}

pub fn examine(config: &L4Config, role: Role, machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![usec(machine), key_file(config, role)];
    for vip in &config.vips {
        let about = format!("{} {}", vip.name, vip.address.ip());
        match role {
            Role::Balancer => findings.push(vip_on_balancer(&about, vip.address.ip(), machine)),
            Role::Server { .. } if vip.backends.iter().any(|one| machine.has(one.address)) => {
                findings.extend(vip_on_server(&about, vip.address.ip(), machine));
            }
            Role::Server { .. } => {}
        }
    }
    if let Role::Server { agent } = role {
        findings.push(timestamps(agent, sysctl("net.ipv4.tcp_timestamps")));
        findings.push(keep_alive(config, sysctl("net.ipv4.tcp_keepalive_time")));
        if agent {
            findings.push(agent_runs(agent_dir(config)));
        }
    }
    findings
}

fn usec(machine: &Machine) -> Finding {
    let why = "timestamps in microseconds wrap their lower half in 65 ms: no cookie survives that";
    let finding = Finding::new("tcp_usec_ts", "routes", why);
    match machine.usec_routes {
        0 => finding.ok("no route has it"),
        n => finding.fail(
            format!("{n} routes have it"),
            "ip route change … without `features tcp_usec_ts`",
        ),
    }
}

fn key_file(config: &L4Config, role: Role) -> Finding {
    let path = &config.cookie.key_file;
    let why = "cookies are written and read with its secrets, the same on balancers and agents";
    let finding = Finding::new("key_file", &path.display().to_string(), why);
    let needed = matches!(role, Role::Server { agent: true });
    let mode = std::fs::metadata(path).map(|found| {
        use std::os::unix::fs::PermissionsExt;
        found.permissions().mode() & OTHERS
    });
    match mode {
        Ok(0) => finding.ok("there, and only its owner reads it"),
        Ok(_) => finding.fail("others can read it: the daemon refuses it", "chmod 600"),
        Err(_) if needed => finding.fail("not there", "copy the balancers' file here"),
        Err(_) if role == Role::Balancer => {
            finding.ok("not there yet: `plimsoll l4 run` makes one; other balancers need a copy")
        }
        Err(_) => finding.ok("not there, and a server without an agent needs none"),
    }
}

fn vip_on_balancer(about: &str, vip: IpAddr, machine: &Machine) -> Finding {
    let why = "what the program leaves to the kernel must not be answered by the balancer itself";
    let finding = Finding::new("vip_address", about, why);
    match machine.link_of(vip) {
        None => finding.ok("not one of this machine's addresses"),
        Some(link) => finding.warn(
            format!("this machine has it on {}", link.name),
            "remove it, and let clients' routers reach it by a route",
        ),
    }
}

fn vip_on_server(about: &str, vip: IpAddr, machine: &Machine) -> Vec<Finding> {
    let why = "packets arrive with the VIP as their destination, and are answered from it";
    let finding = Finding::new("vip_address", about, why);
    let Some(link) = machine.link_of(vip) else {
        let bits = if vip.is_ipv4() { 32 } else { 128 };
        let advice = format!("ip address add {vip}/{bits} dev lo");
        return vec![finding.fail("none of this machine's addresses", advice)];
    };
    let mut findings = vec![finding.ok(format!("on {}", link.name))];
    if vip.is_ipv4() {
        findings.push(answers_arp(about, sysctl("net.ipv4.conf.all.arp_ignore"), link, machine));
    }
    findings
}

/// A machine that asks the link for the VIP must hear its router or the balancer, never a server.
fn answers_arp(about: &str, all: Option<u64>, link: &Link, machine: &Machine) -> Finding {
    let why = "a server that answers ARP for the VIP draws clients past the balancer";
    let finding = Finding::new("arp_ignore", about, why);
    let ignores = |other: &Link| {
        let own = interface_sysctl("ipv4", &other.name, "arp_ignore").unwrap_or(0);
        all.unwrap_or(0).max(own) > 0
    };
    // An interface that has no ARP of its own is asked through every other one.
    let open: Vec<&str> = machine
        .links
        .iter()
        .filter(|one| one.mac != [0; 6] && one.name != link.name && !ignores(one))
        .map(|one| one.name.as_str())
        .collect();
    match open.is_empty() {
        true => finding.ok("not answered on other interfaces"),
        false => finding.warn(
            format!("answered on {}", open.join(", ")),
            "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2, unless the \
             VIP is reached by a route only",
        ),
    }
}

fn timestamps(agent: bool, value: Option<u64>) -> Finding {
    let why = "cookies travel in TCP timestamps; with 1 every connection's clock has a random offset, \
               which the balancer cannot know";
    let finding = Finding::new("tcp_timestamps", "net.ipv4.tcp_timestamps", why);
    let advice = "sysctl -w net.ipv4.tcp_timestamps=2 (and in /etc/sysctl.d)";
    match value {
        Some(2) => finding.ok("2: no offset"),
        Some(1) if agent => finding.ok("1: the agent knows each connection's offset"),
        Some(0) => finding.fail("0: no timestamps, so no cookies", advice),
        Some(1) => finding.fail("1: a random offset for each connection", {
            format!("{advice}, or run the agent: `plimsoll l4 agent run`, agent: true")
        }),
        other => finding.warn(format!("{other:?}: not known"), advice),
    }
}

/// The idle limit of a layout in words.
pub fn idle_limit(config: &L4Config) -> (u64, String) {
    let seconds = config.cookie.layout.silence_limit_ms() / 1000;
    let words = match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{:.1} min", seconds as f64 / 60.0),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    };
    (seconds, words)
}

fn keep_alive(config: &L4Config, time_s: Option<u64>) -> Finding {
    let why = "a connection that is silent for longer may be taken for an old one (PAWS) and stall";
    let finding = Finding::new("keep_alive", "net.ipv4.tcp_keepalive_time", why);
    let (limit_s, words) = idle_limit(config);
    let found = |time: u64| format!("{time} s; connections may be silent for {words}");
    match time_s {
        Some(time) if time >= limit_s => finding.warn(
            found(time),
            format!(
                "sysctl -w net.ipv4.tcp_keepalive_time={} and SO_KEEPALIVE on connections that idle, \
                 or more l4.cookie.version_bits",
                limit_s / 2
            ),
        ),
        Some(time) => finding.ok(found(time)),
        None => finding.ok(format!("unknown; connections may be silent for {words}")),
    }
}

fn agent_runs(dir: PathBuf) -> Finding {
    let why = "balancers leave the timestamps of `agent: true` to the server";
    let finding = Finding::new("agent", &dir.display().to_string(), why);
    match attached_agents(&dir) {
        names if names.is_empty() => {
            finding.fail("its programs are on no interface", "plimsoll l4 agent run --config F")
        }
        names => finding.ok(format!("on {}", names.join(", "))),
    }
}

/// Whether replies can be routed from an interface.
pub fn forwards(interface: &str, address: IpAddr) -> Option<bool> {
    interface_sysctl(family(address), interface, "forwarding").map(|value| value != 0)
}
