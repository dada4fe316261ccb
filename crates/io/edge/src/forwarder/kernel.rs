//! The forwarder's program and its pinned maps: the Rust side of `bpf/forwarder.h`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::{Array, DevMap, HashMap, MapData, PerCpuArray};
use aya::{Ebpf, EbpfError, EbpfLoader};
use plimsoll_feedback::Ages;
use plimsoll_l4::network::Link;
use plimsoll_l4::xdp::Ran;
use plimsoll_l4::{AttachMode, detach_interface, pinned_links, prepare, tick_ms_q20};
use tracing::info;

use super::carry::{self, Carry};
use super::reason::REASONS;
use super::table::Table;
use crate::config::{EdgeConfig, Interface, Match, Protocol, Unmatched};
use crate::error::EdgeError;
use crate::kernel::{self, array, per_cpu};
use crate::wire::{WRAP_BYTES, Wrap, vni_word};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/forwarder.bpf.o"));

/// `FORWARDER_LAYOUT`.
const LAYOUT: u32 = 1;
const MAPS: [&str; 17] = [
    "config",
    "rules",
    "slots",
    "targets",
    "counts",
    "servers",
    "reasons",
    "turns",
    "ports",
    "meta",
    "closed",
    "names",
    "flows4",
    "flows6",
    "fragments",
    "own",
    "parse_room",
];
const PROGRAMS: [&str; 3] = ["forwarder", "sweep", "read_clock"];
const MAX_PORTS: u32 = 64;
const MAX_RULES: u32 = 256;
const MAX_SLOTS: usize = 512;
const SLOTS_BYTES: usize = 4 + 2 * MAX_SLOTS;
const RULE_BYTES: usize = 80;
const TARGET_BYTES: usize = 128;
const NAME_BYTES: usize = 128;
const CONFIG_BYTES: usize = 32;

/// What was counted for a place, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) old: u64,
    pub(super) aging: u64,
    pub(super) opened: u64,
    pub(super) replies: u64,
}

/// A place as the program has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) wrap: Wrap,
    pub(super) port: u32,
    pub(super) live: bool,
    pub(super) mtu: u32,
}

/// What a walk through the flow table found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swept {
    pub(super) removed: u32,
    pub(super) entries4: u32,
    pub(super) entries6: u32,
    pub(super) answered: u32,
}

/// The loaded programs: shared with the thread that sweeps.
#[derive(Clone)]
pub(super) struct Programs(Arc<Mutex<Ebpf>>);

impl Programs {
    fn lock(&self) -> MutexGuard<'_, Ebpf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the data path on a packet.
    pub(super) fn run(&self, packet: &[u8], ifindex: u32) -> Result<Ran, EdgeError> {
        let mut ebpf = self.lock();
        kernel::run(kernel::program(&mut ebpf, "forwarder")?, "forwarder", packet, Some(ifindex))
    }

    /// Removes flows that are idle for so many seconds; those with packets one way alone after fewer.
    pub(super) fn sweep(&self, idle_s: u32, unanswered_s: u32) -> Result<Swept, EdgeError> {
        let mut packet = [0; 64];
        packet[..4].copy_from_slice(&idle_s.to_ne_bytes());
        packet[4..8].copy_from_slice(&unanswered_s.to_ne_bytes());
        let mut ebpf = self.lock();
        let ran = kernel::run(kernel::program(&mut ebpf, "sweep")?, "sweep", &packet, None)?;
        let word = |at: usize| word(&ran.packet, at * 4);
        Ok(Swept { removed: word(2), entries4: word(3), entries6: word(4), answered: word(5) })
    }

    pub(super) fn now_ms(&self) -> Result<u64, EdgeError> {
        let mut ebpf = self.lock();
        let ran =
            kernel::run(kernel::program(&mut ebpf, "read_clock")?, "read_clock", &[0; 64], None)?;
        Ok(u64::from_ne_bytes(ran.packet[..8].try_into().expect("eight bytes")))
    }

    fn attach(&self, link: &Link, mode: AttachMode, pins: &Path) -> Result<(), EdgeError> {
        kernel::attach(kernel::program(&mut self.lock(), "forwarder")?, link, mode, pins)
    }
}

pub(super) struct Kernel {
    pub(super) programs: Programs,
    pub(super) pins: PathBuf,
    config: Array<MapData, [u8; CONFIG_BYTES]>,
    rules: Array<MapData, [u8; RULE_BYTES]>,
    slots: Array<MapData, [u8; SLOTS_BYTES]>,
    targets: Array<MapData, [u8; TARGET_BYTES]>,
    counts: PerCpuArray<MapData, [u64; 8]>,
    servers: Array<MapData, [u8; 8]>,
    reasons: PerCpuArray<MapData, u64>,
    ports: DevMap<MapData>,
    closed: Array<MapData, u64>,
    names: Array<MapData, [u8; NAME_BYTES]>,
    /// For whoever looks flows up: taken once.
    pub(super) table: Option<Table>,
    /// Entries that the flow table takes, of each address family.
    pub(super) limit: u32,
    /// The table of another size that this one is to take the place of.
    carry: Option<Carry>,
    own: HashMap<MapData, [u8; 20], u32>,
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl Kernel {
    /// Loads the programs onto the maps pinned in a directory; makes those that are missing.
    pub(super) fn load(pins: &Path, limit: u32) -> Result<Kernel, EdgeError> {
        prepare(pins)?;
        let maps = pins.join("maps");
        if maps.join("meta").exists() {
            let meta = MapData::from_pin(maps.join("meta")).map_err(EdgeError::kernel("meta"))?;
            let meta: Array<_, u32> = aya::maps::Map::from_map_data(meta)
                .map_err(EdgeError::kernel("meta"))?
                .try_into()
                .map_err(EdgeError::kernel("meta"))?;
            let found = meta.get(&0, 0).map_err(EdgeError::kernel("meta"))?;
            // 0: a start that was killed before it said so.
            if found != 0 && found != LAYOUT {
                return Err(EdgeError::Pinned { path: pins.to_owned(), found, expected: LAYOUT });
            }
        }
        let replaces = carry::set_aside(&maps, limit)?;
        let mut ebpf =
            load_object(OBJECT, &maps, limit, &[]).map_err(EdgeError::kernel("the forwarder"))?;
        kernel::load_all(&mut ebpf, &PROGRAMS)?;
        let mut meta: Array<_, u32> = array(&mut ebpf, "meta")?;
        meta.set(0, LAYOUT, 0).map_err(EdgeError::kernel("meta"))?;
        macro_rules! taken {
            ($name:literal) => {
                ebpf.take_map($name)
                    .ok_or_else(|| kernel::absent($name))?
                    .try_into()
                    .map_err(EdgeError::kernel($name))?
            };
        }
        let (flows4, flows6) = (taken!("flows4"), taken!("flows6"));
        let mut kernel = Kernel {
            pins: pins.to_owned(),
            config: array(&mut ebpf, "config")?,
            rules: array(&mut ebpf, "rules")?,
            slots: array(&mut ebpf, "slots")?,
            targets: array(&mut ebpf, "targets")?,
            counts: per_cpu(&mut ebpf, "counts")?,
            servers: array(&mut ebpf, "servers")?,
            reasons: per_cpu(&mut ebpf, "reasons")?,
            ports: taken!("ports"),
            closed: array(&mut ebpf, "closed")?,
            names: array(&mut ebpf, "names")?,
            own: taken!("own"),
            table: None,
            limit: carry::entries(&maps)?[0],
            carry: if replaces { Some(Carry::start(&maps)?) } else { None },
            programs: Programs(Arc::new(Mutex::new(ebpf))),
        };
        let programs = kernel.programs.clone();
        kernel.table = Some(Table { flows4, flows6, programs });
        Ok(kernel)
    }

    /// Puts the data path onto interfaces. Where its flow table takes the place of one of another size, flows that are
    /// there are in it before their packets are, and new ones wait.
    pub(super) fn attach(&mut self, links: &[(&Link, AttachMode)]) -> Result<(), EdgeError> {
        let Some(mut carry) = self.carry.take() else { return self.attach_all(links) };
        let before = self.config_bytes()?;
        for service in 0..crate::config::MOST_SERVICES {
            self.set_slots(service, &[])?;
        }
        let done =
            carry.run(false).and_then(|()| self.attach_all(links)).and_then(|()| carry.run(true));
        self.set_config(before)?;
        done.and_then(|()| carry.end(self.limit))
    }

    /// Takes the data path off interfaces that are not configured any more.
    pub(super) fn leave_others(&mut self, configured: &[Interface]) -> Result<(), EdgeError> {
        for name in pinned_links(&self.pins) {
            if !configured.iter().any(|one| one.name == name) {
                detach_interface(&self.pins, &name);
                info!(interface = name, "not configured any more: the program is taken off");
            }
        }
        // Ports beyond those that are configured lead nowhere.
        (configured.len() as u32..MAX_PORTS).try_for_each(|port| self.set_port(port, 0))
    }

    fn attach_all(&self, links: &[(&Link, AttachMode)]) -> Result<(), EdgeError> {
        links.iter().try_for_each(|(link, mode)| self.programs.attach(link, *mode, &self.pins))
    }

    fn config_bytes(&self) -> Result<[u8; CONFIG_BYTES], EdgeError> {
        self.config.get(&0, 0).map_err(EdgeError::kernel("config"))
    }

    fn set_config(&mut self, bytes: [u8; CONFIG_BYTES]) -> Result<(), EdgeError> {
        self.config.set(0, bytes, 0).map_err(EdgeError::kernel("config"))
    }

    /// Writes which packets are whose, then flips over to that.
    pub(super) fn set_rules(
        &mut self,
        config: &EdgeConfig,
        address: Ipv4Addr,
    ) -> Result<(), EdgeError> {
        let mut bytes = self.config_bytes()?;
        let half = 1 - (word(&bytes, 12) & 1);
        let mut many = 0;
        for (service, of) in config.services.iter().enumerate() {
            for rule in &of.matches {
                for v4 in [true, false].into_iter().filter(|v4| rule.is_for(*v4)) {
                    if many == MAX_RULES {
                        let what = format!("services have more than {MAX_RULES} matches");
                        return Err(EdgeError::Config(what));
                    }
                    let place = half * MAX_RULES + many;
                    self.rules
                        .set(place, rule_bytes(rule, service, v4), 0)
                        .map_err(EdgeError::kernel("rules"))?;
                    many += 1;
                }
            }
        }
        bytes[..4].copy_from_slice(&vni_word(config.vni));
        bytes[4..8].copy_from_slice(&address.octets());
        let drops = u32::from(config.unmatched == Unmatched::Drop);
        bytes[8..12].copy_from_slice(&drops.to_ne_bytes());
        bytes[12..16].copy_from_slice(&half.to_ne_bytes());
        let at = 16 + 4 * half as usize;
        bytes[at..at + 4].copy_from_slice(&many.to_ne_bytes());
        self.set_config(bytes)
    }

    /// Writes a service's slots, then flips over to them. None: no new flow of the service is taken.
    pub(super) fn set_slots(&mut self, service: usize, slots: &[u16]) -> Result<(), EdgeError> {
        let mut bytes = self.config_bytes()?;
        let mut halves = u64::from_ne_bytes(bytes[24..32].try_into().expect("eight bytes"));
        let half = 1 - (halves >> service & 1);
        let mut list = [0; SLOTS_BYTES];
        let slots = &slots[..slots.len().min(MAX_SLOTS)];
        list[..4].copy_from_slice(&(slots.len() as u32).to_ne_bytes());
        for (place, slot) in list[4..].as_chunks_mut::<2>().0.iter_mut().zip(slots) {
            *place = slot.to_ne_bytes();
        }
        let place = service as u32 * 2 + half as u32;
        self.slots.set(place, list, 0).map_err(EdgeError::kernel("slots"))?;
        halves ^= 1 << service;
        bytes[24..32].copy_from_slice(&halves.to_ne_bytes());
        self.set_config(bytes)
    }

    pub(super) fn set_target(&mut self, number: u32, target: &Target) -> Result<(), EdgeError> {
        let mut bytes = [0; TARGET_BYTES];
        bytes[..WRAP_BYTES].copy_from_slice(&target.wrap.to_bytes());
        for (at, value) in [(64, target.port), (68, u32::from(target.live)), (72, target.mtu)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        self.targets.set(number, bytes, 0).map_err(EdgeError::kernel("targets"))
    }

    /// Whether packets were sent to a place, as whoever was here before left it.
    pub(super) fn is_live(&self, number: u32) -> Result<bool, EdgeError> {
        let bytes = self.targets.get(&number, 0).map_err(EdgeError::kernel("targets"))?;
        Ok(word(&bytes, 68) != 0)
    }

    /// Whether a place that is sent packets has other numbers, or another VNI, than these.
    pub(super) fn has_other_ids(&self, number: u32, wrap: &Wrap) -> Result<bool, EdgeError> {
        let bytes = self.targets.get(&number, 0).map_err(EdgeError::kernel("targets"))?;
        // From the VNI on.
        Ok(word(&bytes, 68) != 0 && bytes[46..WRAP_BYTES] != wrap.to_bytes()[46..])
    }

    /// Takes a place out, whatever it is; its flows are sent elsewhere.
    pub(super) fn kill_target(&mut self, number: u32) -> Result<(), EdgeError> {
        let mut bytes = self.targets.get(&number, 0).map_err(EdgeError::kernel("targets"))?;
        bytes[68..72].copy_from_slice(&0u32.to_ne_bytes());
        self.targets.set(number, bytes, 0).map_err(EdgeError::kernel("targets"))
    }

    /// Whose packets are taken as a node's: its address, and the interface (its index) that they come in by.
    pub(super) fn set_server(
        &mut self,
        server: u8,
        of: Option<(Ipv4Addr, u32)>,
    ) -> Result<(), EdgeError> {
        let mut bytes = [0; 8];
        if let Some((address, ifindex)) = of {
            bytes[..4].copy_from_slice(&address.octets());
            bytes[4..].copy_from_slice(&ifindex.to_ne_bytes());
        }
        self.servers.set(u32::from(server), bytes, 0).map_err(EdgeError::kernel("servers"))
    }

    /// Takes trust from addresses that are no node's any more; number 1 is the first node's.
    pub(super) fn forget_servers(&mut self, nodes: &[Ipv4Addr]) -> Result<(), EdgeError> {
        for server in 1..=crate::config::MOST_NODES {
            let number = server as u32;
            let held = self.servers.get(&number, 0).map_err(EdgeError::kernel("servers"))?;
            if nodes.get(server - 1).is_none_or(|node| node.octets() != held[..4]) {
                self.set_server(server as u8, None)?;
            }
        }
        Ok(())
    }

    pub(super) fn set_port(&mut self, port: u32, ifindex: u32) -> Result<(), EdgeError> {
        self.ports.set(port, ifindex, None, 0).map_err(EdgeError::kernel("ports"))
    }

    /// Addresses that are never a service's.
    pub(super) fn set_own(&mut self, addresses: &[IpAddr]) -> Result<(), EdgeError> {
        let key = |address: &IpAddr| {
            let mut key = [0; 20];
            match address {
                IpAddr::V4(v4) => key[..4].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => key[..16].copy_from_slice(&v6.octets()),
            }
            let family = if address.is_ipv4() { 4u32 } else { 6 };
            key[16..].copy_from_slice(&family.to_ne_bytes());
            key
        };
        let wanted: Vec<[u8; 20]> = addresses.iter().map(key).collect();
        let held: Vec<[u8; 20]> = self.own.keys().filter_map(Result::ok).collect();
        for gone in held.iter().filter(|key| !wanted.contains(key)) {
            let _ = self.own.remove(gone);
        }
        for new in wanted.iter().filter(|key| !held.contains(key)) {
            self.own.insert(new, 1, 0).map_err(EdgeError::kernel("own"))?;
        }
        Ok(())
    }

    pub(super) fn count(&self, number: u32) -> Result<Count, EdgeError> {
        let [packets, bytes, old, opened, replies, aging, ..] =
            kernel::sum(&self.counts, number, "counts")?;
        Ok(Count { packets, bytes, old, aging, opened, replies })
    }

    /// Flows of a place that ended.
    pub(super) fn closed(&self, number: u32) -> Result<u64, EdgeError> {
        self.closed.get(&number, 0).map_err(EdgeError::kernel("closed"))
    }

    pub(super) fn reasons(&self) -> Result<BTreeMap<String, u64>, EdgeError> {
        let count = |(at, name): (usize, &&str)| {
            let values = self.reasons.get(&(at as u32), 0).map_err(EdgeError::kernel("reasons"))?;
            Ok(((*name).to_owned(), values.iter().sum()))
        };
        REASONS.iter().enumerate().map(count).collect()
    }

    /// Numbers for places by their names: those that have one keep it, so that flows stay where they are.
    pub(super) fn number(&mut self, wanted: &[String]) -> Result<Vec<u32>, EdgeError> {
        let most = crate::config::MOST_PLACES as u32;
        let mut held = BTreeMap::new();
        let mut free = Vec::new();
        for number in 0..most {
            let bytes = self.names.get(&number, 0).map_err(EdgeError::kernel("names"))?;
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
            match String::from_utf8_lossy(&bytes[..end]).into_owned() {
                name if name.is_empty() => free.push(number),
                name => drop(held.insert(name, number)),
            }
        }
        // Places of before whose flows have ended may be used anew, last of all.
        for (name, number) in &held {
            if !wanted.contains(name) {
                self.kill_target(*number)?;
                free.push(*number);
            }
        }
        let mut free = free.into_iter();
        let mut numbers = Vec::with_capacity(wanted.len());
        for name in wanted {
            let number = match held.get(name) {
                Some(number) => *number,
                None => free.next().expect("no more places than numbers"),
            };
            let mut bytes = [0; NAME_BYTES];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            self.names.set(number, bytes, 0).map_err(EdgeError::kernel("names"))?;
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// An object with the forwarder's maps, and `more`, onto those that are pinned in a directory; flows are split by age as
/// the policies have it.
pub(crate) fn load_object(
    object: &[u8],
    maps: &Path,
    limit: u32,
    more: &[&'static str],
) -> Result<Ebpf, EbpfError> {
    let (tick, ages) = (tick_ms_q20(), Ages::default());
    let (aging, old) = (ages.aging.as_millis() as u32, ages.old.as_millis() as u32);
    let heavy = heavy(&ages);
    let mut loader = EbpfLoader::new();
    for name in MAPS.iter().chain(more) {
        loader.map_pin_path(name, maps.join(name));
    }
    loader
        .map_max_entries("flows4", limit)
        .map_max_entries("flows6", limit)
        .override_global("tick_ms_q20", &tick, true)
        .override_global("aging_ms", &aging, true)
        .override_global("old_ms", &old, true)
        .override_global("heavy", &heavy, true)
        .load(object)
}

/// Packets after which a flow is old. Where they were more than an entry counts to, no flow would ever be.
fn heavy(ages: &Ages) -> u16 {
    u16::try_from(ages.heavy).expect("an entry counts to 65,535 packets")
}

fn rule_bytes(rule: &Match, service: usize, v4: bool) -> [u8; RULE_BYTES] {
    let mut bytes = [0; RULE_BYTES];
    for (at, cidr) in [(0, rule.source), (32, rule.destination)] {
        if let Some(cidr) = cidr {
            let (address, mask) = cidr.words();
            bytes[at..at + 16].copy_from_slice(&address);
            bytes[at + 16..at + 32].copy_from_slice(&mask);
        }
    }
    bytes[64..68].copy_from_slice(&(service as u32).to_ne_bytes());
    let (low, high) = rule.ports.unwrap_or((0, 0));
    bytes[68..70].copy_from_slice(&low.to_ne_bytes());
    bytes[70..72].copy_from_slice(&high.to_ne_bytes());
    bytes[72] = if v4 { 4 } else { 6 };
    bytes[73] = match (rule.protocol, v4) {
        (Protocol::Any, _) => 0,
        (Protocol::Tcp, _) => 6,
        (Protocol::Udp, _) => 17,
        (Protocol::Icmp, true) => 1,
        (Protocol::Icmp, false) => 58,
    };
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_count_as_far_as_old_flows() {
        assert_eq!(u32::from(heavy(&Ages::default())), Ages::default().heavy);
    }
}
