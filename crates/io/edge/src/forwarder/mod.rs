//! The forwarder: loads the program, asks nodes, and steers new flows where there is room.

mod carry;
mod kernel;
mod nodes;
mod places;
mod reason;
mod socket;
mod status;
mod sweep;
mod table;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_feedback::{Counts, CpuModel, Scale, ScaleAction, Shape, Slots, Steering};
use plimsoll_l4::network;
use plimsoll_l4::xdp::Ran;
use plimsoll_model::Nanos;
use tracing::{info, warn};

use crate::config::{EdgeConfig, Flows};
use crate::control::{Key, draw};
use crate::error::EdgeError;
use crate::kernel::links;
#[cfg(feature = "bench")]
pub(crate) use kernel::load_object;
use kernel::{Kernel, Programs};
use nodes::Nodes;
use places::Places;
pub use socket::ask;
pub use status::{NodeStatus, PlaceStatus, Status, TableStatus, Where};

/// Slots of a service: weights of a quarter of a percent.
const SLOTS: usize = 256;
/// How often nodes are asked.
const ASKED: Duration = Duration::from_millis(100);
/// How often the network is looked at: next hops of nodes, own addresses.
const LOOKED: Duration = Duration::from_secs(1);
/// How often what is reported is brought up to date.
const SHOWN: Duration = Duration::from_millis(500);

const FORWARDER: &str = "forwarder";

/// Where a forwarder's programs and maps are pinned.
pub fn forwarder_dir(config: &EdgeConfig) -> PathBuf {
    config.pin_dir.join(FORWARDER)
}

/// Interfaces that have a forwarder's program, whether it runs or not.
pub(crate) fn attached(config: &EdgeConfig) -> Vec<String> {
    let pins = forwarder_dir(config);
    let mut names = plimsoll_l4::pinned_links(&pins);
    names.retain(|name| plimsoll_l4::is_link_on(&pins, name));
    names.sort();
    names
}

/// Takes the program of a forwarder that has ended off all interfaces, and forgets its flows: packets are routed as
/// without Plimsoll.
///
/// # Errors
/// When a forwarder answers at the socket, or something cannot be removed.
pub fn detach(pin_dir: &Path, socket: &Path) -> Result<(), EdgeError> {
    if UnixStream::connect(socket).is_ok() {
        let running = format!("a forwarder answers at {}: stop it first", socket.display());
        return Err(EdgeError::Asked(running));
    }
    Ok(plimsoll_l4::detach(&pin_dir.join(FORWARDER))?)
}

/// What the threads of a forwarder and its clients share.
#[derive(Debug, Default)]
struct Shared {
    status: Mutex<Status>,
    table: Mutex<TableStatus>,
    /// Nodes that are to be drained, or not any more.
    drains: Mutex<Vec<(usize, bool)>>,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A forwarder on its way: what it steers goes on by itself when it ends, for programs and maps are pinned.
pub struct Forwarder {
    config: EdgeConfig,
    kernel: Kernel,
    places: Places,
    nodes: Nodes,
    model: CpuModel,
    steering: Steering,
    scale: Scale,
    slots: Vec<Slots>,
    shared: Arc<Shared>,
    listener: UnixListener,
    began: Instant,
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Forwarder {
    /// Loads the program onto what is pinned, fills its tables and attaches it. Nodes serve when they have answered.
    ///
    /// # Errors
    /// Without root, a key, or a route to the nodes; when another forwarder answers at the socket, of which nothing is
    /// changed then; or when the kernel refuses.
    pub fn start(config: &EdgeConfig) -> Result<Forwarder, EdgeError> {
        let key = Key::load(&config.key)?;
        let address = own_address(config)?;
        // First of all: where another forwarder answers, nothing of it is touched.
        let listener = socket::bind(&config.socket)?;
        let mut kernel = Kernel::load(&forwarder_dir(config), config.flows.limit)?;
        let shape = Shape {
            servers: config.nodes.len(),
            cores: config.most_cores(),
            services: config.services.len(),
        };
        let places = Places::of(config, shape, &mut kernel)?;
        kernel.set_rules(config, address)?;
        let links = links()?;
        for (port, interface) in config.interfaces.iter().enumerate() {
            let missing = || EdgeError::Interface {
                name: interface.name.clone(),
                error: "it is not there; expected an interface of this machine".to_owned(),
            };
            let link = links.get(&interface.name).ok_or_else(missing)?;
            kernel.set_port(port as u32, link.index)?;
        }
        let socket =
            UdpSocket::bind((address, 0)).map_err(EdgeError::system("open a UDP socket"))?;
        socket.set_nonblocking(true).map_err(EdgeError::system("set a socket"))?;
        let was_live = places.live_nodes(&kernel)?;
        let nodes = Nodes::new(config, key, (draw(), address), socket, &was_live);
        let mut forwarder = Forwarder {
            config: config.clone(),
            kernel,
            places,
            nodes,
            model: CpuModel::new(shape),
            steering: Steering::new(shape, config.policy),
            scale: Scale::new(config.scale)
                .map_err(|error| EdgeError::Config(error.to_string()))?,
            slots: (0..config.services.len())
                .map(|_| Slots::new(SLOTS, shape.all_cores()))
                .collect(),
            shared: Arc::default(),
            listener,
            began: Instant::now(),
        };
        forwarder.look(address)?;
        let named = config.interfaces.iter().map(|one| (&links[&one.name], one.mode));
        forwarder.kernel.attach(&named.collect::<Vec<_>>())?;
        forwarder.kernel.leave_others(&config.interfaces)?;
        Ok(forwarder)
    }

    /// Starts its threads: until the handle is stopped.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn spawn(mut self) -> Result<Handle, EdgeError> {
        let shared = self.shared.clone();
        let listener =
            self.listener.try_clone().map_err(EdgeError::system("share the Unix socket"))?;
        let names: Vec<String> = self.config.nodes.iter().map(|node| node.name.clone()).collect();
        let lookup = socket::Lookup::of(&mut self);
        let programs = self.kernel.programs.clone();
        let flows = Flows { limit: self.kernel.limit, ..self.config.flows };
        let path = programs.clone();
        let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map_err(EdgeError::system("start a thread"))
        };
        let mut threads = Vec::new();
        let of = shared.clone();
        threads.push(thread("sweep", Box::new(move || sweep::run(&programs, flows, &of)))?);
        let of = shared.clone();
        threads.push(thread(
            "socket",
            Box::new(move || socket::serve(&listener, &names, lookup, &of)),
        )?);
        threads.push(thread("steer", Box::new(move || self.steer()))?);
        Ok(Handle { shared, threads, programs: path })
    }

    /// The loop: one step an interval.
    fn steer(mut self) {
        let interval = self.config.interval;
        let (mut next, mut last) = (Instant::now() + interval, Instant::now());
        let (mut asked, mut looked, mut shown) = (last, last, last);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if let Some(rest) = next.checked_duration_since(now) {
                std::thread::sleep(rest);
            }
            let now = Instant::now();
            // Late by more than a few: what was missed is not made up for.
            next = (next + interval).max(now);
            let seconds = (now - last).as_secs_f64();
            last = now;
            if let Err(error) = self.step(now, seconds) {
                warn!("a step failed: {error}");
            }
            if now.duration_since(asked) >= ASKED {
                asked = now;
                self.nodes.ask(now);
            }
            if now.duration_since(looked) >= LOOKED {
                looked = now;
                let done = own_address(&self.config).and_then(|address| self.look(address));
                if let Err(error) = done {
                    warn!("cannot look at the network: {error}");
                }
            }
            if now.duration_since(shown) >= SHOWN {
                let span = (now - shown).as_secs_f64();
                shown = now;
                self.show(span);
            }
        }
    }

    fn nanos(&self, now: Instant) -> Nanos {
        // The origin lies back far enough for windows that ended before the start.
        Nanos(10_000_000_000) + now.duration_since(self.began)
    }

    fn step(&mut self, now: Instant, seconds: f64) -> Result<(), EdgeError> {
        let at = self.nanos(now);
        self.places.read(&self.kernel)?;
        self.nodes.hear(now, at, &mut self.places, &mut self.model);
        for (node, drained) in lock(&self.shared.drains).drain(..) {
            self.nodes.drain(node, drained);
        }
        self.follow()?;
        let counts = Counts {
            seconds,
            old: &self.places.old,
            aging: &self.places.aging,
            new: &self.places.new,
        };
        self.steering.step(at, &counts, &self.model);
        self.places.add_predicted(&self.model);
        self.rescale(at);
        for service in 0..self.config.services.len() {
            let weights = self.steering.weights(service);
            let filled = self.slots[service].fill(weights);
            let slots: Vec<u16> = if filled {
                let table = self.slots[service].table().iter();
                table.map(|core| self.places.number_at(*core as usize, service)).collect()
            } else {
                Vec::new()
            };
            if filled || !self.places.is_empty(service) {
                self.kernel.set_slots(service, &slots)?;
                self.places.set_empty(service, !filled);
            }
        }
        Ok(())
    }

    /// Brings what the kernel and the policy know of nodes in line with how they are.
    fn follow(&mut self) -> Result<(), EdgeError> {
        self.places.write_agreed(&mut self.kernel)?;
        for (node, alive) in self.nodes.changes() {
            let name = &self.config.nodes[node].name;
            if alive {
                info!(node = name, "serves");
            } else {
                let flows = self.places.flows_of(node, &self.kernel)?;
                warn!(
                    node = name,
                    flows, "is down: its flows are sent to others, their state is lost"
                );
            }
            self.places.set_live(node, alive, &mut self.kernel)?;
        }
        let active: Vec<bool> = self.active();
        for (place, spec) in self.places.all() {
            let serves = self.nodes.may_serve(spec.server) && active[spec.server];
            self.steering.set_serves(place, serves);
        }
        Ok(())
    }

    /// By node: whether it is no standby, or an active one.
    fn active(&self) -> Vec<bool> {
        let standbys = self.standbys();
        let mut active: Vec<bool> = self.config.nodes.iter().map(|node| !node.standby).collect();
        for index in self.scale.active() {
            active[standbys[*index]] = true;
        }
        active
    }

    fn standbys(&self) -> Vec<usize> {
        let nodes = self.config.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.standby).map(|(index, _)| index).collect()
    }

    fn rescale(&mut self, now: Nanos) {
        let standbys = self.standbys();
        let cores_of = |node: usize| {
            if self.nodes.may_serve(node) { self.config.nodes[node].cpus.len() } else { 0 }
        };
        let regular = (0..self.config.nodes.len()).filter(|node| !self.config.nodes[*node].standby);
        let cores = regular.map(cores_of).sum();
        let held: Vec<usize> = standbys.iter().map(|node| cores_of(*node)).collect();
        match self.scale.step(now, self.steering.total(), cores, &held) {
            Some(ScaleAction::Activate(index)) => {
                let node = &self.config.nodes[standbys[index]].name;
                info!(node, load = self.steering.total(), cores, "standby activated");
            }
            Some(ScaleAction::Release(index)) => {
                let node = &self.config.nodes[standbys[index]].name;
                info!(node, load = self.steering.total(), cores, "standby given back");
            }
            None => {}
        }
    }

    /// Looks where nodes are on the network.
    fn look(&mut self, address: Ipv4Addr) -> Result<(), EdgeError> {
        let links = links()?;
        let ports: Vec<_> = self
            .config
            .interfaces
            .iter()
            .enumerate()
            .filter_map(|(port, one)| Some((port as u32, links.get(&one.name)?)))
            .collect();
        let neighbours = network::neighbours().map_err(EdgeError::system("list neighbours"))?;
        for (node, spec) in self.config.nodes.iter().enumerate() {
            let place = nodes::place_of(spec.address, &ports, &neighbours);
            match place {
                Ok(next) => {
                    self.nodes.set_problem(node, None);
                    let wrap = (address, self.config.vni);
                    self.places.set_next_hop(node, spec.address, next, wrap, &mut self.kernel)?;
                }
                Err(why) => self.nodes.set_problem(node, Some(why)),
            }
        }
        let own = network::addresses().map_err(EdgeError::system("list addresses"))?;
        let mut own: Vec<IpAddr> = own.into_iter().map(|(address, _)| address).collect();
        own.extend(self.config.nodes.iter().map(|node| IpAddr::from(node.address)));
        self.kernel.set_own(&own)
    }

    fn show(&mut self, span: f64) {
        let mut status = Status {
            policy: self.config.policy.name().to_owned(),
            interval_ms: self.config.interval.as_millis() as u64,
            table: *lock(&self.shared.table),
            nodes: self.nodes.status(&self.config, &self.active()),
            places: Vec::new(),
            reasons: self.kernel.reasons().unwrap_or_default(),
            refused_reports: self.nodes.refused().clone(),
        };
        status.table.limit = self.kernel.limit;
        match self.places.status(&self.config, &self.kernel, &self.steering, &self.model, span) {
            Ok((places, ended)) => (status.places, status.table.ended) = (places, ended),
            Err(error) => warn!("cannot read counters: {error}"),
        }
        *lock(&self.shared.status) = status;
    }
}

/// The address by which nodes know the forwarder: that of its own end of the way to them.
pub(crate) fn own_address(config: &EdgeConfig) -> Result<Ipv4Addr, EdgeError> {
    let mut found: Option<(Ipv4Addr, &str)> = None;
    for node in &config.nodes {
        let towards = (node.address, config.control_port);
        let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .and_then(|socket| socket.connect(towards).map(|()| socket))
            .and_then(|socket| socket.local_addr());
        let what = format!("find the way to the node {} ({})", node.name, node.address);
        let IpAddr::V4(own) = probe.map_err(EdgeError::system(what))?.ip() else { continue };
        match found {
            Some((other, name)) if other != own => {
                return Err(EdgeError::Config(format!(
                    "the way to the node {name} begins at {other}, that to {} at {own}; expected one address for all nodes",
                    node.name
                )));
            }
            _ => found = Some((own, &node.name)),
        }
    }
    found.map(|(own, _)| own).ok_or_else(|| EdgeError::Config("expected a node".to_owned()))
}

/// A forwarder that runs.
pub struct Handle {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    programs: Programs,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Handle {
    /// How things are, no older than half a second.
    pub fn status(&self) -> Status {
        lock(&self.shared.status).clone()
    }

    /// For whoever only looks, such as metrics.
    pub fn watch(&self) -> impl Fn() -> Status + Clone + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || lock(&shared.status).clone()
    }

    /// Sends a node no new flows, or again; by its place in the configuration.
    pub fn drain(&self, node: usize, drained: bool) {
        lock(&self.shared.drains).push((node, drained));
    }

    /// Runs the data path on a packet, as if it came in by an interface of this thread's namespace
    /// (`BPF_PROG_TEST_RUN`): nothing is sent, but flows are opened and counted.
    ///
    /// # Errors
    /// When the kernel does not run it: a packet shorter than an Ethernet header, for one.
    pub fn run_packet(&self, packet: &[u8], ifindex: u32) -> Result<Ran, EdgeError> {
        self.programs.run(packet, ifindex)
    }

    /// Ends the threads. Packets go on as they did: programs and maps stay pinned.
    pub fn stop(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
