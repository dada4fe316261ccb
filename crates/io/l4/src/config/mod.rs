//! The `l4` section of a configuration: what the balancer is to do, and what concerns its daemon or the servers.

mod read;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_cookie::Layout;
use serde::Serialize;

use crate::layout::Mac;

/// Where things are pinned unless the configuration says otherwise.
pub const PIN_DIR: &str = "/sys/fs/bpf/plimsoll/l4";

/// The whole section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// For the kernel's tables.
    pub balancer: L4Config,
    /// Where a controller reaches the daemon; none: nowhere.
    pub socket: Option<Socket>,
    /// Where metrics are served; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// For the servers' agents.
    pub agent: AgentSection,
}

/// Where a controller reaches the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// A Unix socket.
    pub path: PathBuf,
    /// Who may write to it: the file's permissions.
    pub mode: u32,
}

/// What a server's agent needs beside the balancers' configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSection {
    /// Where packets come in and replies leave; empty: the interfaces with the backends' addresses.
    pub interfaces: Vec<String>,
    /// Where `GET /v1/load` is answered; none: nowhere.
    pub listen: Option<SocketAddr>,
}

/// What the balancer is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L4Config {
    /// Where the program is attached; packets leave by these only.
    pub interfaces: Vec<Interface>,
    /// The services.
    pub vips: Vec<Vip>,
    /// How cookies are made.
    pub cookie: CookieConfig,
    /// Where replies go.
    pub uplink: UplinkMode,
    /// Sizes of the kernel's tables, fixed when they are first made.
    pub limits: Limits,
    /// Where programs, maps and links are pinned: a directory in bpffs.
    pub pin_dir: PathBuf,
    /// How long a server that is no longer named serves its connections before they are stale.
    pub drain: Duration,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// How the program is attached.
    pub mode: AttachMode,
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachMode {
    /// By the driver, before the kernel allocates anything for the packet.
    Native,
    /// By the kernel, for drivers without XDP: an order of magnitude slower.
    Generic,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vip {
    /// Its name: counters go by it.
    pub name: String,
    /// What clients connect to.
    pub address: SocketAddr,
    /// Which server gets a SYN.
    pub policy: Policy,
    /// How long a server that joins or returns is given less load under `least_connections`; zero: not at all.
    pub slow_start: Duration,
    /// The servers.
    pub backends: Vec<Backend>,
}

/// Which server gets a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// In turn, whatever their weights.
    RoundRobin,
    /// In turn, as often as their weights say.
    WeightedRoundRobin,
    /// The less loaded of two drawn by weight.
    PowerOfTwo,
    /// The one with the fewest open connections a unit of weight.
    LeastConnections,
    /// By hash of the connection.
    Hash,
    /// By hash of the connection, with few moves when servers change.
    Maglev,
    /// In turn, by weights that follow the servers' load (Cheetah, §4.1).
    Awrr(Load),
}

/// What `awrr` takes for a server's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Open connections, as counted here.
    Connections,
    /// The busy part of its CPUs, as its agent tells.
    Cpu,
}

impl Policy {
    /// As it is written in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round_robin",
            Policy::WeightedRoundRobin => "weighted_round_robin",
            Policy::PowerOfTwo => "power_of_two",
            Policy::LeastConnections => "least_connections",
            Policy::Hash => "hash",
            Policy::Maglev => "maglev",
            Policy::Awrr(_) => "awrr",
        }
    }

    /// Whether a controller may set its weights: `round_robin` has none, and `awrr` sets its own.
    pub fn takes_weights(self) -> bool {
        !matches!(self, Policy::RoundRobin | Policy::Awrr(_))
    }
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name: its cookie's id and its counters go by it.
    pub name: String,
    /// Its own address, by which it is found on the network; it also holds the VIP's.
    pub address: IpAddr,
    /// Its MAC address; without it, the neighbour table's.
    pub mac: Option<Mac>,
    /// Its share of the SYNs.
    pub weight: u16,
    /// Its id in cookies; to be set where several balancers serve one VIP.
    pub id: Option<u16>,
    /// What it takes.
    pub state: BackendState,
    /// Whether its own agent writes and restores timestamps, so that replies need not pass the balancer.
    pub agent: bool,
}

/// What a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendState {
    /// New connections too.
    Up,
    /// Only those it has.
    Draining,
    /// None: the balancer resets its connections.
    Down,
}

/// How cookies are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieConfig {
    /// How the timestamp is shared out.
    pub layout: Layout,
    /// Where the secrets are kept; balancers of one VIP need the same.
    pub key_file: PathBuf,
    /// How often the salt changes; at least twice the time a connection may be silent.
    pub rotate: Option<Duration>,
}

/// Where replies go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UplinkMode {
    /// To the next hop of the kernel's default route, where that stands for all routes.
    #[default]
    Auto,
    /// Where the kernel's routes lead, which are asked for every reply.
    Ask,
    /// To one next hop, all of them.
    Fixed(Uplink),
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The interface towards it.
    pub interface: String,
    /// Its address, looked up among the neighbours when no MAC address is given.
    pub gateway: Option<IpAddr>,
    /// Its MAC address.
    pub mac: Option<Mac>,
}

/// Sizes of the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Services at most.
    pub vips: u32,
    /// Servers of a service at most, those included that drain.
    pub backends: u32,
    /// Fragmented packets remembered at a time.
    pub fragments: u32,
    /// Clients to which each CPU remembers the next hop; `None`: as many as the tables have room for that there are,
    /// [`Limits::CLIENTS`] in new ones.
    pub clients: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { vips: 16, backends: 255, fragments: 1024, clients: None }
    }
}

impl Limits {
    /// Clients to which each CPU remembers the next hop, unless the configuration says otherwise.
    pub const CLIENTS: u32 = 16_384;

    /// Places for clients: a power of two, so that a shift finds one, and not so few that it shifts by all bits.
    pub fn client_places(&self) -> Option<u32> {
        self.clients.map(|clients| clients.max(2).next_power_of_two())
    }

    /// Ids of a service: a power of two, with id 0 no server's.
    pub fn stride(&self) -> u32 {
        (self.backends + 1).next_power_of_two()
    }
}
