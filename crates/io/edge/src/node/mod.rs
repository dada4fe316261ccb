//! A datapath node: takes packets out of their VXLAN, runs its services on their cores, and says what that cost.

mod busy;
mod calibrate;
mod namespace;
mod service;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aya::maps::{Array, DevMap, Map, MapData, PerCpuArray, PerCpuValues, ProgramArray};
use aya::{Ebpf, EbpfLoader};
use plimsoll_l4::network::{self, Link};
use plimsoll_l4::xdp::Ran;
use plimsoll_l4::{Mac, prepare};
use tracing::{info, warn};

use crate::config::EdgeConfig;
use crate::control::{Answer, Ask, Followed, Key, MOST_BYTES, PlaceReport, agreement, draw};
use crate::error::EdgeError;
use crate::kernel::{self, array, per_cpu};
use crate::wire::vni_word;
use service::Service;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/node.bpf.o"));

/// Maps that a node's programs and its services' share.
const SHARED: [&str; 4] = ["node", "node_reasons", "service_counts", "uplinks"];
/// `enum node_reason` of bpf/node.h.
const REASONS: [&str; 9] = [
    "malformed",
    "foreign_vni",
    "stranger",
    "unknown_ids",
    "no_mark",
    "route_asked",
    "forwarder_route",
    "ttl",
    "not_authentic",
];
/// The place in [`REASONS`] of questions that are not sealed with the node's key.
const NOT_AUTHENTIC: u32 = 8;
/// How often the log has a word on them.
const COMPLAINS: Duration = Duration::from_secs(10);
/// `struct node_config`.
const CONFIG_BYTES: usize = 40;
const BLINK: Duration = Duration::from_millis(100);
/// How often the way to the forwarder is looked at.
const LOOKED: Duration = Duration::from_secs(1);

/// Where a node's maps are pinned while it runs.
pub fn node_dir(config: &EdgeConfig, name: &str) -> PathBuf {
    config.pin_dir.join(format!("node-{name}"))
}

/// Questions that a node which runs on this machine has refused, for they are not sealed with its key.
pub(crate) fn not_authentic(config: &EdgeConfig, name: &str) -> Option<u64> {
    let path = node_dir(config, name).join("maps/node_reasons");
    let map = Map::from_map_data(MapData::from_pin(path).ok()?).ok()?;
    let reasons: PerCpuArray<_, u64> = map.try_into().ok()?;
    Some(reasons.get(&NOT_AUTHENTIC, 0).ok()?.iter().sum())
}

/// A node that runs: until it is dropped.
pub struct Node {
    key: Key,
    boot: u64,
    agreement: String,
    server: u8,
    /// Of programs and maps: what is dropped first is detached first.
    ebpf: Ebpf,
    map: Array<MapData, [u8; CONFIG_BYTES]>,
    counts: PerCpuArray<MapData, [u64; 4]>,
    reasons: PerCpuArray<MapData, u64>,
    services: Vec<Service>,
    _uplinks: DevMap<MapData>,
    _programs: ProgramArray<MapData>,
    uplink: Link,
    settings: Settings,
    socket: UdpSocket,
    began: Instant,
    followed: Followed,
    complained: Option<Instant>,
    dir: PathBuf,
}

/// `struct node_config`.
#[derive(Clone, Copy, Debug)]
struct Settings {
    vni: u32,
    address: [u8; 4],
    forwarder: [u8; 4],
    server: u32,
    uplink: u32,
    mac: Mac,
    forwarder_mac: Mac,
    calibrating: bool,
}

impl Settings {
    fn to_bytes(self) -> [u8; CONFIG_BYTES] {
        let mut bytes = [0; CONFIG_BYTES];
        bytes[..4].copy_from_slice(&vni_word(self.vni));
        bytes[4..8].copy_from_slice(&self.address);
        bytes[8..12].copy_from_slice(&self.forwarder);
        bytes[12..16].copy_from_slice(&self.server.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.uplink.to_ne_bytes());
        bytes[24..30].copy_from_slice(&self.mac);
        bytes[30..36].copy_from_slice(&self.forwarder_mac);
        bytes[36..40].copy_from_slice(&u32::from(self.calibrating).to_ne_bytes());
        bytes
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Node {
    /// Loads the programs, makes the namespaces, measures what packets cost, and attaches. Packets are taken when a
    /// forwarder has asked.
    ///
    /// # Errors
    /// When the configuration has no such node, or its address is not this machine's; without root, a key, or the
    /// commands `ip`, `ethtool` and `nft`; when the kernel refuses.
    pub fn start(config: &EdgeConfig, name: &str) -> Result<Node, EdgeError> {
        let index = config.nodes.iter().position(|node| node.name == name).ok_or_else(|| {
            let names: Vec<&str> = config.nodes.iter().map(|node| node.name.as_str()).collect();
            EdgeError::Config(format!(
                "no node is called {name:?}; expected one of {}",
                names.join(", ")
            ))
        })?;
        let spec = &config.nodes[index];
        let key = Key::load(&config.key)?;
        let uplink = uplink(spec.address.into())?;
        let socket = UdpSocket::bind((spec.address, config.control_port)).map_err(
            EdgeError::system(format!("listen on {}:{} (UDP)", spec.address, config.control_port)),
        )?;
        socket.set_read_timeout(Some(BLINK)).map_err(EdgeError::system("set a socket"))?;
        let dir = node_dir(config, name);
        // What a node that was killed has left: nothing of it is used again.
        let _ = std::fs::remove_dir_all(&dir);
        prepare(&dir)?;
        let mut loader = EbpfLoader::new();
        for map in SHARED {
            loader.map_pin_path(map, dir.join("maps").join(map));
        }
        let mut ebpf = loader.load(OBJECT).map_err(EdgeError::kernel("the node"))?;
        kernel::load_all(&mut ebpf, &["deparse"])?;
        let mut uplinks: DevMap<MapData> = ebpf
            .take_map("uplinks")
            .ok_or_else(|| kernel::absent("uplinks"))?
            .try_into()
            .map_err(EdgeError::kernel("uplinks"))?;
        uplinks.set(0, uplink.index, None, 0).map_err(EdgeError::kernel("uplinks"))?;
        let settings = Settings {
            vni: config.vni,
            address: spec.address.octets(),
            forwarder: [0; 4],
            server: index as u32 + 1,
            uplink: uplink.index,
            mac: uplink.mac,
            forwarder_mac: [0; 6],
            calibrating: true,
        };
        let mut map: Array<_, [u8; CONFIG_BYTES]> = array(&mut ebpf, "node")?;
        map.set(0, settings.to_bytes(), 0).map_err(EdgeError::kernel("node"))?;
        let counts = per_cpu(&mut ebpf, "service_counts")?;
        let reasons = per_cpu(&mut ebpf, "node_reasons")?;
        let mut programs: ProgramArray<MapData> = ebpf
            .take_map("services")
            .ok_or_else(|| kernel::absent("services"))?
            .try_into()
            .map_err(EdgeError::kernel("services"))?;
        let mut services = Vec::new();
        for number in &spec.services {
            let service = Service::start(config, spec, *number, &dir, &uplink)?;
            programs
                .set(*number as u32, service.receive()?, 0)
                .map_err(EdgeError::kernel("services"))?;
            services.push(service);
        }
        let mut node = Node {
            key,
            boot: draw(),
            agreement: agreement(config, index),
            server: index as u8 + 1,
            ebpf,
            map,
            counts,
            reasons,
            services,
            _uplinks: uplinks,
            _programs: programs,
            uplink,
            settings,
            socket,
            began: Instant::now(),
            followed: Followed::default(),
            complained: None,
            dir,
        };
        node.calibrate()?;
        node.settings.calibrating = false;
        node.write()?;
        kernel::attach_while_it_runs(&mut node.ebpf, "deparse", &node.uplink, spec.mode)?;
        Ok(node)
    }

    fn calibrate(&mut self) -> Result<(), EdgeError> {
        for service in &mut self.services {
            service.calibrate(self.uplink.index, &self.counts)?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), EdgeError> {
        self.map.set(0, self.settings.to_bytes(), 0).map_err(EdgeError::kernel("node"))
    }

    /// Answers forwarders until `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool) {
        let mut buffer = vec![0; MOST_BYTES];
        let mut looked = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if looked.elapsed() >= LOOKED {
                looked = Instant::now();
                if let Err(error) = self.look() {
                    warn!("cannot look for the way to the forwarder: {error}");
                }
            }
            let Ok((bytes, from)) = self.socket.recv_from(&mut buffer) else { continue };
            let Some(ask) = self.key.open::<Ask>(&buffer[..bytes]) else {
                self.refuse(from);
                continue;
            };
            if let Err(error) = self.answer(&ask, from) {
                warn!("cannot answer {from}: {error}");
            }
        }
    }

    /// A sender without the key is not answered, but counted.
    fn refuse(&mut self, from: SocketAddr) {
        let counted = self.reasons.get(&NOT_AUTHENTIC, 0).and_then(|values| {
            let mut values = values.to_vec();
            values[0] += 1;
            self.reasons.set(NOT_AUTHENTIC, PerCpuValues::try_from(values)?, 0)
        });
        if self.complained.is_none_or(|last| last.elapsed() >= COMPLAINS) {
            self.complained = Some(Instant::now());
            let error = counted.err().map(tracing::field::display);
            warn!(%from, error, "a question that is not sealed with this node's key: not answered");
        }
    }

    fn answer(&mut self, ask: &Ask, from: SocketAddr) -> Result<(), EdgeError> {
        if self.followed.take(ask, self.boot, &self.agreement) {
            info!(forwarder = %ask.address, "takes packets");
            self.look()?;
        }
        let answer = Answer {
            forwarder: ask.forwarder,
            sequence: ask.sequence,
            node: self.boot,
            agreement: self.agreement.clone(),
            clock_ns: self.began.elapsed().as_nanos() as u64,
            places: self.reports()?,
            reasons: self.reasons()?,
        };
        let sealed = self.key.seal(&answer);
        self.socket.send_to(&sealed, from).map_err(EdgeError::system("answer"))?;
        Ok(())
    }

    fn reports(&mut self) -> Result<Vec<PlaceReport>, EdgeError> {
        let mut reports = Vec::new();
        for service in &mut self.services {
            reports.extend(service.report(&self.counts)?);
        }
        Ok(reports)
    }

    /// Packets that were not handed to a service, by reason.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn reasons(&self) -> Result<Vec<(String, u64)>, EdgeError> {
        let count = |(at, name): (usize, &&str)| {
            let values =
                self.reasons.get(&(at as u32), 0).map_err(EdgeError::kernel("node_reasons"))?;
            Ok(((*name).to_owned(), values.iter().sum()))
        };
        REASONS.iter().enumerate().map(count).collect()
    }

    /// Where the forwarder is, by now.
    fn look(&mut self) -> Result<(), EdgeError> {
        let Some(forwarder) = self.followed.address() else { return Ok(()) };
        let route = network::route(forwarder.into(), &[&self.uplink])
            .map_err(EdgeError::system("ask for the route to the forwarder"))?;
        let next = route.and_then(|route| route.gateway).unwrap_or(forwarder.into());
        let neighbours = network::neighbours().map_err(EdgeError::system("list neighbours"))?;
        let known =
            neighbours.iter().find(|one| one.address == next && one.ifindex == self.uplink.index);
        if known.is_none_or(|one| one.stale) {
            let _ = network::use_neighbour(next, self.uplink.index);
        }
        let Some(known) = known else { return Ok(()) };
        let (was, octets) = (self.settings.to_bytes(), forwarder.octets());
        (self.settings.forwarder, self.settings.forwarder_mac) = (octets, known.mac);
        if self.settings.to_bytes() != was {
            self.write()?;
        }
        Ok(())
    }

    /// Runs the deparser on a packet, as if it came in by the interface towards the forwarder.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn run_packet(&mut self, packet: &[u8]) -> Result<Ran, EdgeError> {
        let program = kernel::program(&mut self.ebpf, "deparse")?;
        kernel::run(program, "deparse", packet, Some(self.uplink.index))
    }

    /// The names of its services' namespaces, to look into them (`ip netns exec NAME nft list ruleset`).
    pub fn namespaces(&self) -> Vec<String> {
        self.services.iter().filter_map(Service::namespace).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The interface that has a node's address.
pub(crate) fn uplink(address: IpAddr) -> Result<Link, EdgeError> {
    let own = network::addresses().map_err(EdgeError::system("list addresses"))?;
    let missing = || {
        EdgeError::Config(format!("{address} is no address of this machine; expected the node's"))
    };
    let (_, index) = own.iter().find(|(one, _)| *one == address).ok_or_else(missing)?;
    let links = network::links().map_err(EdgeError::system("list interfaces"))?;
    links.into_iter().find(|link| link.index == *index).ok_or_else(missing)
}
