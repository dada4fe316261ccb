//! The section `edge` of the configuration: types, defaults, and how it is read.

mod service;
mod topology;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_config::{Cursor, Once};
use plimsoll_feedback::{BalancerKind, ScaleSettings};
use plimsoll_l4::AttachMode;

pub use service::{Cidr, Element, Function, Match, Protocol, Service};
pub use topology::Node;

/// Where `plimsoll edge status` asks when nothing else is said.
pub const SOCKET: &str = "/run/plimsoll/edge.sock";
/// Where things are pinned unless the configuration says otherwise.
pub const PIN_DIR: &str = "/sys/fs/bpf/plimsoll/edge";
/// The key of control between forwarder and nodes.
pub const KEY_FILE: &str = "/etc/plimsoll/edge.key";
/// Where nodes are asked for their load (UDP).
pub const CONTROL_PORT: u16 = 7404;
/// Services and nodes at the most: numbers in the kernel's tables.
pub const MOST_SERVICES: usize = 64;
/// Nodes, too; number 0 is unused.
pub const MOST_NODES: usize = 63;
/// Places (node, core, service) at the most.
pub const MOST_PLACES: usize = 4096;

/// What becomes of new flows that no service matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmatched {
    /// Routed by the kernel, as without Plimsoll.
    Forward,
    /// Dropped.
    Drop,
}

/// An interface that packets come in by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// How the program is attached.
    pub mode: AttachMode,
}

/// How many flows are known, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Entries of each address family; a flow behind a NAT takes two.
    pub limit: u32,
    /// A flow without packets for so long is forgotten; the nodes' conntrack is set to forget no later.
    pub idle: Duration,
}

impl Default for Flows {
    fn default() -> Self {
        Flows { limit: 1_000_000, idle: Duration::from_secs(300) }
    }
}

/// The whole section.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeConfig {
    /// Of the forwarder.
    pub interfaces: Vec<Interface>,
    /// VXLAN network identifier.
    pub vni: u32,
    /// How weights are set.
    pub policy: BalancerKind,
    /// How often.
    pub interval: Duration,
    /// The flow table.
    pub flows: Flows,
    /// When standbys join and leave.
    pub scale: ScaleSettings,
    /// What becomes of flows that no service matches.
    pub unmatched: Unmatched,
    /// The first that matches counts.
    pub services: Vec<Service>,
    /// Where they run.
    pub nodes: Vec<Node>,
    /// The Unix socket that answers `plimsoll edge status`.
    pub socket: PathBuf,
    /// Where `/metrics` is served; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// The key file of control between forwarder and nodes.
    pub key: PathBuf,
    /// The UDP port where nodes are asked.
    pub control_port: u16,
    /// Where programs and maps are pinned.
    pub pin_dir: PathBuf,
}

const KEYS: &[&str] = &[
    "interfaces",
    "vni",
    "policy",
    "interval",
    "flows",
    "scale",
    "unmatched",
    "services",
    "nodes",
    "socket",
    "metrics",
    "control",
    "pin_dir",
];

impl EdgeConfig {
    /// Reads the section.
    pub fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(KEYS)?;
        let interfaces = fields.required("interfaces", "a list such as [ { name: eth0 } ]", |c| {
            let mut names = Once::default();
            all(c, "a list of interfaces", |c| interface(c, &mut names))
        });
        let vni = fields.or("vni", 4096, |c| c.integer(1..=(1 << 24) - 1).map(|n| n as u32));
        let policy = fields.or("policy", BalancerKind::default(), |c| {
            let choices: Vec<_> =
                BalancerKind::ALL.iter().map(|kind| (kind.name(), *kind)).collect();
            c.one_of(&choices)
        });
        let second = Duration::from_secs(1);
        let interval =
            fields.optional("interval", |c| c.duration(Duration::from_millis(1)..=second));
        let flows = fields.or("flows", Flows::default(), flows);
        let scale = fields.or("scale", ScaleSettings::default(), scale);
        let unmatched = fields.or("unmatched", Unmatched::Forward, |c| {
            c.one_of(&[("forward", Unmatched::Forward), ("drop", Unmatched::Drop)])
        });
        let services = fields.required("services", "a list of services", |c| {
            let mut names = Once::default();
            at_most(c, MOST_SERVICES, "services", |c| Service::read(c, &mut names))
        });
        let names: Option<Vec<String>> =
            services.as_ref().map(|all| all.iter().map(|one| one.name.clone()).collect());
        let nodes = fields.required("nodes", "a list of nodes", |c| {
            let mut taken = topology::Taken::default();
            at_most(c, MOST_NODES, "nodes", |c| Node::read(c, &mut taken, names.as_deref()))
        });
        let socket = fields.or("socket", PathBuf::from(SOCKET), Cursor::unix_path);
        let metrics = fields.optional("metrics", |c| {
            let what = "an address and port such as \"127.0.0.1:7403\"";
            c.fields(&["listen"])?.required("listen", what, Cursor::listen)
        });
        let control = fields.or("control", (PathBuf::from(KEY_FILE), CONTROL_PORT), control);
        let pin_dir = fields
            .or("pin_dir", PathBuf::from(PIN_DIR), |c| c.text("a directory").map(PathBuf::from));
        let (policy, (key, control_port)) = (policy?, control?);
        let config = EdgeConfig {
            interfaces: interfaces?,
            vni: vni?,
            policy,
            interval: interval?.unwrap_or(policy.interval()),
            flows: flows?,
            scale: scale?,
            unmatched: unmatched?,
            services: services?,
            nodes: nodes?,
            socket: socket?,
            metrics: metrics?,
            key,
            control_port,
            pin_dir: pin_dir?,
        };
        let nodes = fields.get("nodes").unwrap_or(cursor);
        config.check(nodes).then_some(config)
    }

    /// What holds among several keys; what does not is reported at the nodes.
    fn check(&self, nodes: &Cursor<'_>) -> bool {
        let mut good = true;
        for (index, service) in self.services.iter().enumerate() {
            if !self.nodes.iter().any(|node| node.services.contains(&index)) {
                good = false;
                let name = &service.name;
                nodes.problem::<()>(format!("no node runs the service {name:?}"));
            }
        }
        if self.nodes.iter().all(|node| node.standby) {
            good = false;
            nodes.problem::<()>("every node is a standby; expected one that is not");
        }
        let places: usize =
            self.nodes.iter().map(|node| node.cpus.len() * node.services.len()).sum();
        if places > MOST_PLACES {
            good = false;
            nodes.problem::<()>(format!(
                "{places} places (nodes × cores × services); expected at most {MOST_PLACES}"
            ));
        }
        good
    }

    /// Cores of the node that has most.
    pub fn most_cores(&self) -> usize {
        self.nodes.iter().map(|node| node.cpus.len()).max().unwrap_or(0)
    }
}

fn interface(cursor: &Cursor<'_>, names: &mut Once<String>) -> Option<Interface> {
    let fields = cursor.fields(&["name", "mode"])?;
    let name = fields.required("name", "an interface", |c| {
        let what = "an interface's name of 1 to 15 bytes";
        let name = c.text_if(what, |name| (1..=15).contains(&name.len()))?.to_owned();
        names.take(name.clone(), c, "an interface that is not named before")?;
        Some(name)
    });
    let mode = fields.or("mode", AttachMode::Native, mode);
    Some(Interface { name: name?, mode: mode? })
}

fn mode(cursor: &Cursor<'_>) -> Option<AttachMode> {
    cursor.one_of(&[("native", AttachMode::Native), ("generic", AttachMode::Generic)])
}

fn flows(cursor: &Cursor<'_>) -> Option<Flows> {
    let (fields, default) = (cursor.fields(&["limit", "idle"])?, Flows::default());
    let limit =
        fields.or("limit", default.limit, |c| c.integer(1_000..=100_000_000).map(|n| n as u32));
    let (least, most) = (Duration::from_secs(2), Duration::from_secs(7 * 24 * 3600));
    let idle = fields.or("idle", default.idle, |c| c.duration(least..=most));
    Some(Flows { limit: limit?, idle: idle? })
}

fn scale(cursor: &Cursor<'_>) -> Option<ScaleSettings> {
    let (fields, default) = (cursor.fields(&["up", "down", "hold"])?, ScaleSettings::default());
    let up = fields.or("up", default.up, |c| c.number(0.05..=2.0));
    let down = fields.or("down", default.down, |c| c.number(0.01..=2.0));
    let most = Duration::from_secs(24 * 3600);
    let hold = fields.or("hold", default.hold, |c| c.duration(Duration::from_millis(100)..=most));
    let settings = ScaleSettings { up: up?, down: down?, hold: hold? };
    if settings.down >= settings.up {
        let ScaleSettings { up, down, .. } = settings;
        return cursor.problem(format!("expected down below up, found down {down} and up {up}"));
    }
    Some(settings)
}

fn control(cursor: &Cursor<'_>) -> Option<(PathBuf, u16)> {
    let fields = cursor.fields(&["key", "port"])?;
    let key = fields.or("key", PathBuf::from(KEY_FILE), |c| c.text("a file").map(PathBuf::from));
    let port = fields.or("port", CONTROL_PORT, |c| c.integer(1..=65_535).map(|n| n as u16));
    Some((key?, port?))
}

/// A name that can stand in a label of metrics and in a command.
fn name(cursor: &Cursor<'_>, most: usize) -> Option<String> {
    let valid = |name: &str| {
        (1..=most).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let what = format!("a name of up to {most} letters, digits, - _ and .");
    cursor.text_if(&what, valid).map(str::to_owned)
}

/// Every item of a list; all bad ones are reported.
fn all<T>(
    cursor: &Cursor<'_>,
    what: &str,
    read: impl FnMut(&Cursor<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let items = cursor.items(what)?;
    if items.is_empty() {
        return cursor.expected(format!("{what}, with at least one"));
    }
    let read: Vec<Option<T>> = items.iter().map(read).collect();
    read.into_iter().collect()
}

fn at_most<T>(
    cursor: &Cursor<'_>,
    most: usize,
    what: &str,
    read: impl FnMut(&Cursor<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let read = all(cursor, &format!("a list of {what}"), read)?;
    if read.len() > most {
        return cursor.problem(format!("{} {what}; expected at most {most}", read.len()));
    }
    Some(read)
}
