//! What keeps a forwarder or a node from working, and what to do about it. Changes nothing.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use plimsoll_l4::AttachMode;
use plimsoll_l4::network::{self, Link};
use serde_json::json;

use crate::config::{EdgeConfig, Node, Service, Unmatched};
use crate::control::Key;
use crate::forwarder::{Status, ask, attached, own_address};
use crate::kernel::links;
use crate::node::{not_authentic, uplink};
use crate::wire::{CABLE_MTU, GROWS};

/// An IP packet of Ethernet's usual size.
const WHOLE: u32 = 1_500;
/// Packets without one in return that make it worth a word.
const MANY: u64 = 1_000;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Not as good as it could be.
    Warning,
    /// Does not work so.
    Error,
}

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub level: Level,
    /// What was looked at.
    pub about: String,
    /// How it is.
    pub found: String,
    /// What to do; empty: nothing.
    pub advice: String,
}

fn finding(level: Level, about: &str, found: impl Into<String>, advice: &str) -> Finding {
    Finding { level, about: about.to_owned(), found: found.into(), advice: advice.to_owned() }
}

/// Looks at this machine: as a node where it has a node's address, else as the forwarder.
pub fn examine(config: &EdgeConfig) -> Vec<Finding> {
    let mut found = vec![key(config)];
    let own: Vec<IpAddr> = network::addresses()
        .map(|all| all.into_iter().map(|(address, _)| address).collect())
        .unwrap_or_default();
    let is_own = |node: &&Node| own.contains(&node.address.into());
    match config.nodes.iter().find(is_own) {
        Some(node) => {
            let uplink = uplink(node.address.into()).ok();
            found.extend(uplink.and_then(|link| native(&link, node.mode)));
            examine_node(config, node, &mut found);
        }
        None => examine_forwarder(config, &own, &mut found),
    }
    found
}

fn key(config: &EdgeConfig) -> Finding {
    match Key::load(&config.key) {
        Ok(_) => finding(
            Level::Ok,
            "key",
            format!("{} is readable by its owner alone", config.key.display()),
            "",
        ),
        Err(error) => finding(
            Level::Error,
            "key",
            error.to_string(),
            "`plimsoll edge key --config FILE` makes one; copy it to every node with mode 0600",
        ),
    }
}

fn forwards(about: &str) -> Finding {
    let on =
        fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|text| text.trim() == "1");
    if on {
        return finding(Level::Ok, about, "net.ipv4.ip_forward is 1", "");
    }
    finding(
        Level::Error,
        about,
        "net.ipv4.ip_forward is 0: the kernel does not give its routes to programs, and nothing is routed",
        "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
    )
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
        || Path::new("/usr/sbin").join(program).exists()
}

fn examine_node(config: &EdgeConfig, node: &Node, found: &mut Vec<Finding>) {
    found.push(finding(Level::Note, "role", format!("this machine is the node {}", node.name), ""));
    found.push(forwards("routing"));
    found.extend(questions(config, node));
    let missing: Vec<u32> = node
        .cpus
        .iter()
        .copied()
        .filter(|cpu| !Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists())
        .collect();
    found.push(if missing.is_empty() {
        finding(Level::Ok, "cpus", format!("{:?} are there", node.cpus), "")
    } else {
        finding(
            Level::Error,
            "cpus",
            format!("there is no CPU {missing:?}"),
            "correct cpus of this node",
        )
    });
    for service in &node.services {
        let Some(rules) = config.services[*service].nftables() else { continue };
        let name = &config.services[*service].name;
        let programs: Vec<&str> =
            ["nft", "ip", "ethtool"].into_iter().filter(|program| !is_there(program)).collect();
        if !programs.is_empty() {
            let what = format!("{} missing: {name} has a namespace", programs.join(", "));
            let advice = "install them (Debian: apt-get install nftables iproute2 ethtool)";
            found.push(finding(Level::Error, "programs", what, advice));
            continue;
        }
        let mut nft = Command::new("nft");
        let checked =
            nft.arg("-D").arg(format!("node={}", node.name)).arg("-c").arg("-f").arg(rules);
        match checked.output() {
            Ok(output) if output.status.success() => {
                let what = format!("{} is valid", rules.display());
                found.push(finding(Level::Ok, "rules", what, ""));
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                let what = format!("nft does not take {}: {said}", rules.display());
                found.push(finding(Level::Error, "rules", what, "correct the file"));
            }
            Err(error) => {
                found.push(finding(Level::Error, "rules", error.to_string(), "install nftables"))
            }
        }
        if !node.external.contains_key(service) {
            found.push(finding(
                Level::Note,
                "external",
                format!("{name} has no address of its own here: masquerade has none to give"),
                "set external: { SERVICE: [ADDRESS] } at the node, unless the rules name addresses themselves",
            ));
        }
    }
}

/// Whether the node that runs here has the forwarder's key.
fn questions(config: &EdgeConfig, node: &Node) -> Option<Finding> {
    let refused = not_authentic(config, &node.name)?;
    Some(if refused == 0 {
        finding(Level::Ok, "key", "every question was sealed with this key", "")
    } else {
        finding(
            Level::Warning,
            "key",
            format!("{refused} questions were not sealed with this key, and not answered"),
            "copy the forwarder's key file here, and restart the node; its log says who asked",
        )
    })
}

fn examine_forwarder(config: &EdgeConfig, own: &[IpAddr], found: &mut Vec<Finding>) {
    found.push(finding(
        Level::Note,
        "role",
        "this machine has no node's address: it is the forwarder",
        "",
    ));
    let links = links().unwrap_or_default();
    let all: Vec<&Link> = links.values().collect();
    let routes = config.nodes.iter().map(|node| network::route(node.address.into(), &all));
    let towards: Vec<u32> = routes.flatten().flatten().map(|route| route.ifindex).collect();
    for interface in &config.interfaces {
        let link = links.get(&interface.name);
        found.extend(link.and_then(|link| native(link, interface.mode)));
        found.push(match link {
            None => finding(
                Level::Error,
                &interface.name,
                "there is no such interface",
                "correct edge.interfaces",
            ),
            Some(link) if towards.contains(&link.index) => mtu(config, link),
            Some(link) => finding(Level::Ok, &link.name, "it is there", ""),
        });
    }
    found.push(match own_address(config) {
        Ok(address) => finding(Level::Ok, "nodes", format!("all are reached from {address}"), ""),
        Err(error) => finding(Level::Error, "nodes", error.to_string(), "add routes to the nodes"),
    });
    if config.unmatched == Unmatched::Forward {
        found.push(forwards("routing"));
    }
    found.extend(config.services.iter().filter_map(|service| outsiders(config, service)));
    for (address, node) in config
        .nodes
        .iter()
        .flat_map(|node| node.external.values().flatten().map(move |one| (one, node)))
    {
        if own.contains(address) {
            found.push(finding(
                Level::Error,
                "external",
                format!("{address} of the node {} is an address of this machine: replies would end here", node.name),
                "remove it from this machine; routers must send it here by a route",
            ));
        }
    }
    if let Ok(value) = ask(&config.socket, &json!("status"))
        && let Ok(status) = serde_json::from_value::<Status>(value)
    {
        examine_running(config, &status, found);
    } else {
        examine_left(&attached(config), found);
    }
}

/// An interface that does not take the program in this mode.
fn native(link: &Link, mode: AttachMode) -> Option<Finding> {
    let refuses = mode == AttachMode::Native
        && network::takes_native(link.index).is_ok_and(|takes| takes == Some(false));
    let advice = "set mode: generic there, or use another interface";
    let found = "its driver takes no native XDP";
    refuses.then(|| finding(Level::Error, &link.name, found, advice))
}

/// What the network towards nodes takes.
fn mtu(config: &EdgeConfig, link: &Link) -> Finding {
    let fits = GROWS.map(|grows| link.mtu.saturating_sub(grows));
    if link.mtu < WHOLE + GROWS[1] {
        let found = format!(
            "MTU {}: packets over {} bytes (IPv6: {}) do not fit; their senders get an ICMP error, but those of IPv4 without \"don't fragment\", as UDP may be, are dropped",
            link.mtu, fits[0], fits[1]
        );
        let advice = "an MTU of 1594 or more between forwarder and nodes";
        return finding(Level::Warning, &link.name, found, advice);
    }
    let has_namespace = config.services.iter().any(|service| service.nftables().is_some());
    if has_namespace && fits[0] > CABLE_MTU {
        let found = format!(
            "MTU {}: namespaces of services take packets of up to {CABLE_MTU} bytes; senders of longer ones get an ICMP error, but those of IPv4 without \"don't fragment\" are dropped",
            link.mtu
        );
        return finding(Level::Note, &link.name, found, "");
    }
    finding(Level::Ok, &link.name, format!("MTU {}: whole packets of Ethernet fit", link.mtu), "")
}

/// Whether flows that outsiders begin pass a service's rules as if clients began them, or go round them.
fn outsiders(config: &EdgeConfig, service: &Service) -> Option<Finding> {
    service.nftables()?;
    let (found, advice) = if service.matches.iter().any(|one| one.source.is_none()) {
        (
            "matches flows from anywhere: whoever begins one is its `lan`, outsiders too",
            "give every match the clients' networks as its source, and set unmatched: drop",
        )
    } else if config.unmatched == Unmatched::Forward {
        (
            "flows that outsiders begin are not its own: they are routed past its rules",
            "set unmatched: drop, unless outsiders may begin flows",
        )
    } else {
        return None;
    };
    Some(finding(Level::Warning, &service.name, found, advice))
}

/// What a forwarder that has ended left at work.
fn examine_left(attached: &[String], found: &mut Vec<Finding>) {
    if attached.is_empty() {
        return;
    }
    found.push(finding(
        Level::Warning,
        "forwarder",
        format!(
            "no forwarder runs, and its program is on {}: new flows go by the last weights, and packets for a node that fails are lost",
            attached.join(", ")
        ),
        "start `plimsoll edge run`; or `plimsoll edge detach`: packets are routed as without Plimsoll, flows are forgotten",
    ));
}

/// What only shows with traffic: whether the way back leads by here.
fn examine_running(config: &EdgeConfig, status: &Status, found: &mut Vec<Finding>) {
    for node in &status.nodes {
        let advice = match node.state.as_str() {
            "down" => {
                "start `plimsoll edge node run` there; where it runs, `plimsoll doctor` there says whether it has another key"
            }
            "differs" => "it runs: copy this configuration there, drain it, and restart it",
            _ => continue,
        };
        let why = node.problem.clone().unwrap_or_default();
        found.push(finding(Level::Error, &node.name, format!("{}: {why}", node.state), advice));
    }
    for service in config.services.iter().filter(|service| service.nftables().is_some()) {
        let of = || status.places.iter().filter(|place| place.service == service.name);
        let (packets, replies) = of()
            .fold((0, 0), |(packets, replies), one| (packets + one.packets, replies + one.replies));
        if packets >= MANY && replies == 0 {
            found.push(finding(
                Level::Error,
                "return traffic",
                format!("{} was sent {packets} packets, and none of them was a reply", service.name),
                "the external addresses of its nodes must be routed to the forwarder, see docs/edge.md",
            ));
        } else if packets > 0 {
            let what = format!("{}: {replies} of {packets} packets are replies", service.name);
            found.push(finding(Level::Ok, "return traffic", what, ""));
        }
    }
}
