//! The interfaces: which programs are on them, how large packets may be, which offloads get in the way, and what the
//! kernel does with what the program leaves to it.

use std::collections::BTreeSet;
use std::path::Path;

use aya::programs::loaded_programs;

use super::local::{Machine, forwards};
use super::{Finding, Role, ethtool, interface_sysctl, sysctl};
use crate::config::{AttachMode, L4Config, UplinkMode};
use crate::network::Link;
use crate::program::link_pin;

/// A packet must fit a page with what native XDP keeps beside it.
pub(crate) const NATIVE_MTU: u32 = 3498;

/// Without a configuration: every interface that has a hardware address.
pub fn examine_all(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for link in machine.links.iter().filter(|link| link.mac != [0; 6]) {
        findings.push(other_program(link, machine, None));
        findings.extend(offloads(link, None, false));
        findings.push(reverse_path(link, false));
    }
    findings
}

pub fn examine(config: &L4Config, role: Role, machine: &Machine) -> Vec<Finding> {
    match role {
        Role::Balancer => of_balancer(config, machine),
        Role::Server { .. } => {
            let backends = config.vips.iter().flat_map(|vip| &vip.backends);
            let own: BTreeSet<&str> = backends
                .filter_map(|backend| machine.link_of(backend.address))
                .map(|link| link.name.as_str())
                .collect();
            let mut findings = Vec::new();
            for link in own.into_iter().filter_map(|name| machine.link(name)) {
                findings.extend(offloads(link, None, true));
                findings.push(reverse_path(link, true));
            }
            findings
        }
    }
}

fn of_balancer(config: &L4Config, machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for interface in &config.interfaces {
        let finding = Finding::new("interface", &interface.name, "the program is attached to it");
        let Some(link) = machine.link(&interface.name) else {
            let known: Vec<_> = machine.links.iter().map(|link| link.name.as_str()).collect();
            findings.push(finding.fail("not there", format!("one of {}", known.join(", "))));
            continue;
        };
        findings.push(finding.ok(format!("index {}, MTU {}", link.index, link.mtu)));
        findings.push(other_program(link, machine, Some(&config.pin_dir)));
        findings.extend(offloads(link, Some(interface.mode), false));
        findings.push(reverse_path(link, false));
        findings.extend(forwarding(config, link));
    }
    findings.push(mtus(config, machine));
    findings
}

/// Ours is the one whose link is pinned where the balancer pins.
fn other_program(link: &Link, machine: &Machine, pins: Option<&Path>) -> Finding {
    let why = "an interface takes one XDP program; Plimsoll never removes another's";
    let finding = Finding::new("xdp", &link.name, why);
    let Some((_, id)) = machine.xdp.iter().find(|(index, _)| *index == link.index) else {
        return finding.ok("no program is attached");
    };
    let loaded = loaded_programs().flatten().find(|program| program.id() == *id);
    let name = loaded.and_then(|one| one.name_as_str().map(str::to_owned)).unwrap_or_default();
    let pinned = pins.is_some_and(|dir| link_pin(dir, &link.name).exists());
    if name == "balancer" && (pinned || pins.is_none()) {
        return finding.ok(format!("Plimsoll's own (program {id})"));
    }
    finding.fail(
        format!("another program is attached: {name} (id {id})"),
        format!("find its owner (bpftool net), or: ip link set {} xdp off", link.name),
    )
}

/// What the offloads of an interface do to packets that a program rewrites or redirects.
fn offloads(link: &Link, mode: Option<AttachMode>, server: bool) -> Vec<Finding> {
    let active = match ethtool::active(link.index) {
        Ok(active) => active,
        Err(error) => {
            let finding = Finding::new("offloads", &link.name, "they decide what XDP sees");
            return vec![finding.warn(format!("unknown: {error}"), "look with ethtool -k")];
        }
    };
    let mut findings = Vec::new();
    if link.veth {
        findings.push(veth_gro(link, &active, server));
        findings.push(veth_checksums(link, &active));
    }
    if let Some(mode) = mode {
        findings.push(aggregated(link, mode, &active));
    }
    findings
}

fn veth_gro(link: &Link, active: &BTreeSet<String>, server: bool) -> Finding {
    let why = "a veth takes redirected packets only when GRO (or an XDP program) is on at that end";
    let finding = Finding::new("veth_gro", &link.name, why);
    let advice = format!("ethtool -K {} gro on", link.name);
    match (active.contains("rx-gro"), server) {
        (true, _) => finding.ok("GRO is on"),
        (false, true) => {
            finding.fail("GRO is off: what a balancer redirects to it is dropped", advice)
        }
        (false, false) => finding.warn("GRO is off", advice),
    }
}

fn veth_checksums(link: &Link, active: &BTreeSet<String>) -> Finding {
    let why = "a veth that offloads checksums sends none; a program that changes the packet cannot mend \
               what is not there";
    let finding = Finding::new("veth_checksums", &link.name, why);
    let offloaded: Vec<&str> = active
        .iter()
        .map(String::as_str)
        .filter(|name| name.starts_with("tx-checksum-ip"))
        .collect();
    match offloaded.is_empty() {
        true => finding.ok("sent with every packet"),
        false => finding.warn(
            format!("{} is on", offloaded.join(", ")),
            format!("ethtool -K {} tx off, where its packets meet XDP at the other end", link.name),
        ),
    }
}

/// Segments that were put together are larger than any interface may send.
fn aggregated(link: &Link, mode: AttachMode, active: &BTreeSet<String>) -> Finding {
    let why = "segments aggregated before the program are too large to be forwarded, and dropped";
    let finding = Finding::new("aggregation", &link.name, why);
    // Native programs run before GRO; only what the hardware puts together reaches them.
    let bad: &[&str] = match mode {
        AttachMode::Native => &["rx-lro"],
        AttachMode::Generic => &["rx-lro", "rx-gro", "rx-gro-hw"],
    };
    let on: Vec<&str> = bad.iter().copied().filter(|name| active.contains(*name)).collect();
    match on.is_empty() {
        true => finding.ok("none before the program"),
        false => finding.fail(
            format!("{} is on", on.join(", ")),
            format!(
                "ethtool -K {} lro off{}",
                link.name,
                match mode {
                    AttachMode::Native => "",
                    AttachMode::Generic => " gro off, or mode: native",
                }
            ),
        ),
    }
}

fn reverse_path(link: &Link, server: bool) -> Finding {
    let why =
        "strict filtering drops what comes in by another interface than its answer would leave by";
    let finding = Finding::new("rp_filter", &link.name, why);
    let advice =
        format!("sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{}.rp_filter=2", link.name);
    match (rp_filter(&link.name), server) {
        (1, true) => {
            finding.fail("1, strict: clients' packets from the balancer are dropped", advice)
        }
        (1, false) => finding
            .warn("1, strict: replies that the program leaves to the kernel are dropped", advice),
        (value, _) => finding.ok(format!("{value}: not strict")),
    }
}

/// How sources are filtered: the larger of the two holds (Documentation/networking/ip-sysctl).
pub fn rp_filter(interface: &str) -> u64 {
    let all = sysctl("net.ipv4.conf.all.rp_filter").unwrap_or(0);
    all.max(interface_sysctl("ipv4", interface, "rp_filter").unwrap_or(0))
}

fn forwarding(config: &L4Config, link: &Link) -> Vec<Finding> {
    let why =
        "replies leave by the kernel's routes, which programs get only where forwarding is on";
    let mut findings = Vec::new();
    for v4 in [true, false] {
        let Some(vip) = config.vips.iter().find(|vip| vip.address.is_ipv4() == v4) else {
            continue;
        };
        let finding = Finding::new("ip_forward", &link.name, why);
        let family = if v4 { "ipv4" } else { "ipv6" };
        findings.push(match forwards(&link.name, vip.address.ip()) {
            _ if matches!(config.uplink, UplinkMode::Fixed(_)) => {
                finding.ok("not needed: l4.uplink names the next hop")
            }
            Some(true) => finding.ok(format!("{family}: on")),
            Some(false) => finding.fail(
                format!("{family}: off"),
                if v4 {
                    "sysctl -w net.ipv4.ip_forward=1, or l4.uplink"
                } else {
                    "sysctl -w net.ipv6.conf.all.forwarding=1, or l4.uplink"
                },
            ),
            None => finding.warn(format!("{family}: unknown"), "is the family enabled?"),
        });
    }
    findings
}

fn mtus(config: &L4Config, machine: &Machine) -> Finding {
    let why = "what comes in by one interface must fit every other; XDP sends no `too big`";
    let finding = Finding::new("mtu", "l4.interfaces", why);
    let named = config.interfaces.iter().filter_map(|one| Some((one, machine.link(&one.name)?)));
    let all: Vec<_> = named.map(|(one, link)| (one.mode, link.name.as_str(), link.mtu)).collect();
    let words =
        all.iter().map(|(_, name, mtu)| format!("{name} {mtu}")).collect::<Vec<_>>().join(", ");
    let sizes: BTreeSet<u32> = all.iter().map(|(.., mtu)| *mtu).collect();
    if all.iter().any(|(mode, _, mtu)| *mode == AttachMode::Native && *mtu > NATIVE_MTU) {
        return finding.fail(words, format!("at most {NATIVE_MTU} with mode: native"));
    }
    match sizes.len() {
        0 | 1 => finding.ok(words),
        _ => finding.fail(words, "the same MTU on all of them"),
    }
}
