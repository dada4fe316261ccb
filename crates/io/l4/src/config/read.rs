//! Reads the `l4` section: from what was written to what is meant.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_config::{Cursor, Once};
use plimsoll_cookie::Layout;

use super::{
    AgentSection, AttachMode, Backend, BackendState, CookieConfig, Interface, L4Config, Limits,
    Load, PIN_DIR, Policy, Section, Socket, Uplink, UplinkMode, Vip,
};
use crate::layout::Mac;

const BPFFS: &str = "/sys/fs/bpf";
const KEY_FILE: &str = "/var/lib/plimsoll/l4.key";
/// Root alone.
const SOCKET_MODE: u32 = 0o600;
const DRAIN: Duration = Duration::from_secs(24 * 3600);
/// Long enough that a server that has none yet takes no more than a tenth of what the others have each second.
const SLOW_START: Duration = Duration::from_secs(10);
const SHORTEST_START: Duration = Duration::from_secs(2);
const LONGEST_START: Duration = Duration::from_secs(3600);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Section {
    /// Reads the section.
    pub fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&[
            "interfaces",
            "vips",
            "cookie",
            "uplink",
            "limits",
            "pin_dir",
            "drain",
            "socket",
            "metrics",
            "agent",
        ])?;
        let interfaces = fields.required("interfaces", "a list such as [ { name: eth0 } ]", |c| {
            all(c, "a list of at least one interface", interface)
        });
        let limits = fields.or("limits", Limits::default(), limits);
        let cookie = match fields.get("cookie") {
            Some(cursor) => cookie(cursor),
            None => Some(CookieConfig {
                layout: Layout::default(),
                key_file: PathBuf::from(KEY_FILE),
                rotate: None,
            }),
        };
        let agent = fields.or("agent", AgentSection::default(), agent);
        let mut taken = Taken::default();
        let vips = fields.required("vips", "a list of at least one service", |c| {
            all(c, "a list of at least one service", |c| vip(c, &mut taken))
        });
        let uplink = fields.or("uplink", UplinkMode::default(), uplink);
        let pin_dir = fields.or("pin_dir", PathBuf::from(PIN_DIR), pin_dir);
        let drain = fields.or("drain", DRAIN, |c| c.duration(Duration::from_secs(1)..=LONGEST));
        let socket = fields.optional("socket", socket);
        let metrics = fields.optional("metrics", |c| {
            let fields = c.fields(&["listen"])?;
            fields.required(
                "listen",
                "an address and port such as \"127.0.0.1:7401\"",
                Cursor::listen,
            )
        });
        if let (Some(vips), Some(agent), Some(at)) = (&vips, &agent, fields.get("vips")) {
            told(at, vips, agent.listen);
        }
        if let (Some(vips), Some(limits), Some(at)) = (&vips, &limits, fields.get("vips")) {
            within(at, vips, limits);
        }
        if let (Some(limits), Some(cookie)) = (&limits, &cookie) {
            told_apart(fields.get("limits").unwrap_or(cursor), limits, cookie.layout);
        }
        if let (Some(UplinkMode::Fixed(uplink)), Some(interfaces)) = (&uplink, &interfaces)
            && interfaces.iter().all(|interface| interface.name != uplink.interface)
        {
            cursor.expected::<()>("l4.uplink.interface to be one of l4.interfaces");
        }
        let balancer = L4Config {
            interfaces: interfaces?,
            vips: vips?,
            cookie: cookie?,
            uplink: uplink?,
            limits: limits?,
            pin_dir: pin_dir?,
            drain: drain?,
        };
        Some(Section { balancer, socket: socket?, metrics: metrics?, agent: agent? })
    }
}

/// Other programs' pins are in the root of the machine's bpffs.
fn pin_dir(cursor: &Cursor<'_>) -> Option<PathBuf> {
    let what = "a directory of its own in a bpffs, such as \"/sys/fs/bpf/plimsoll/l4\"";
    let is_own = |text: &str| {
        text.starts_with('/') && Path::new(text).components().ne(Path::new(BPFFS).components())
    };
    cursor.text_if(what, is_own).map(PathBuf::from)
}

fn agent(cursor: &Cursor<'_>) -> Option<AgentSection> {
    let fields = cursor.fields(&["interfaces", "listen"])?;
    let interfaces = fields.or("interfaces", Vec::new(), |c| {
        let items = c.items("a list of interfaces such as [ eth0 ]")?;
        let name = |item: &Cursor<'_>| item.text("an interface's name").map(str::to_owned);
        items.iter().map(name).collect()
    });
    let listen = fields.optional("listen", Cursor::listen);
    Some(AgentSection { interfaces: interfaces?, listen: listen? })
}

fn socket(cursor: &Cursor<'_>) -> Option<Socket> {
    let fields = cursor.fields(&["path", "mode"])?;
    let path = fields.required("path", "the path of a Unix socket", Cursor::unix_path);
    let mode = fields.or("mode", SOCKET_MODE, |c| {
        let what = "permissions such as \"0600\" or \"0660\"";
        let text = c.text(what)?;
        let octal = matches!(text.len(), 3 | 4) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        match u32::from_str_radix(text, 8) {
            // Who may not read and write cannot ask; who is anybody must not.
            Ok(mode) if octal && mode & 0o7117 == 0 && mode & 0o600 == 0o600 => Some(mode),
            _ => c.expected(what),
        }
    });
    Some(Socket { path: path?, mode: mode? })
}

/// What other services have taken already, and where.
#[derive(Default)]
struct Taken {
    names: Once<String>,
    addresses: Once<SocketAddr>,
}

/// Reports services that follow their servers' CPUs without agents that tell.
fn told(at: &Cursor<'_>, vips: &[Vip], listen: Option<SocketAddr>) {
    let items = at.items("a list").unwrap_or_default();
    for (vip, cursor) in vips.iter().zip(items) {
        if vip.policy != Policy::Awrr(Load::Cpu) {
            continue;
        }
        match listen {
            None => cursor.expected(
                "l4.agent.listen beside load: cpu, such as \"0.0.0.0:7402\", where every \
                 server's agent tells its load",
            ),
            Some(listen) if listen.ip().is_loopback() => cursor.expected(format!(
                "l4.agent.listen to be reached from here beside load: cpu; {listen} is not"
            )),
            Some(_) => Some(()),
        };
        for backend in vip.backends.iter().filter(|backend| !backend.agent) {
            cursor.expected::<()>(format!(
                "agent: true of every server beside load: cpu; {} has none",
                backend.name
            ));
        }
    }
}

/// Reports what exceeds the limits.
fn within(at: &Cursor<'_>, vips: &[Vip], limits: &Limits) {
    let highest = limits.stride() - 1;
    let items = at.items("a list").unwrap_or_default();
    for (vip, cursor) in vips.iter().zip(items) {
        if vip.backends.len() as u32 > limits.backends {
            cursor.expected::<()>(format!(
                "at most l4.limits.backends = {} servers, found {}",
                limits.backends,
                vip.backends.len()
            ));
        }
        let beyond = |id: Option<u16>| id.is_some_and(|id| u32::from(id) > highest);
        for backend in vip.backends.iter().filter(|backend| beyond(backend.id)) {
            cursor.expected::<()>(format!(
                "ids up to {highest}, as l4.limits.backends has it; {} has another",
                backend.name
            ));
        }
    }
    if vips.len() as u32 > limits.vips {
        at.expected::<()>(format!("at most l4.limits.vips = {} services", limits.vips));
    }
}

/// Reports more servers than cookies of this layout tell apart.
fn told_apart(at: &Cursor<'_>, limits: &Limits, layout: Layout) {
    let most = u32::from(layout.max_id().0);
    if limits.stride() - 1 > most {
        at.expected::<()>(format!(
            "l4.limits.backends of at most {most}, as cookies with {} version bits tell apart",
            layout.version_bits()
        ));
    }
}

/// A list of at least one thing, every one read so that all problems are reported.
fn all<T>(
    cursor: &Cursor<'_>,
    what: &str,
    read: impl FnMut(&Cursor<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let items = cursor.items(what)?;
    if items.is_empty() {
        return cursor.expected(what);
    }
    let read: Vec<Option<T>> = items.iter().map(read).collect();
    read.into_iter().collect()
}

fn interface(cursor: &Cursor<'_>) -> Option<Interface> {
    let fields = cursor.fields(&["name", "mode"])?;
    let name = fields.required("name", "an interface's name", |c| {
        // IFNAMSIZ, its ending zero included; a slash would lead out of the pins' directory.
        c.text_if("an interface's name of up to 15 letters", |text| {
            (1..16).contains(&text.len())
                && !text.contains(['/', ' '])
                && text != "."
                && text != ".."
        })
    });
    let mode = fields.or("mode", AttachMode::Native, |c| {
        c.one_of(&[("native", AttachMode::Native), ("generic", AttachMode::Generic)])
    });
    Some(Interface { name: name?.to_owned(), mode: mode? })
}

/// A name that no other has; `whose` says which others.
fn name(cursor: &Cursor<'_>, names: &mut Once<String>, whose: &str) -> Option<String> {
    let valid = |text: &str| (1..64).contains(&text.len()) && !text.contains(char::is_control);
    let name = cursor.text_if("a name of 1 to 63 letters", valid)?.to_owned();
    names.take(name.clone(), cursor, &format!("a name that no other {whose} has"))?;
    Some(name)
}

fn vip(cursor: &Cursor<'_>, taken: &mut Taken) -> Option<Vip> {
    let fields = cursor.fields(&[
        "name",
        "address",
        "protocol",
        "mode",
        "policy",
        "load",
        "slow_start",
        "forwarding",
        "backends",
    ])?;
    let name =
        fields.required("name", "the service's name", |c| name(c, &mut taken.names, "service"));
    let address = fields.required("address", "an address such as \"10.0.9.9:80\"", |c| {
        let text = c.text("an address and port such as \"10.0.9.9:80\" or \"[fd00::9]:80\"")?;
        let address = match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 && !is_one_machines(address.ip()) => {
                return c.expected(ONE_MACHINES);
            }
            Ok(address) if address.port() != 0 => address,
            _ => {
                return c.expected(
                    "an IP address and a port such as \"10.0.9.9:80\" or \"[fd00::9]:80\"",
                );
            }
        };
        taken.addresses.take(address, c, "an address that no other service has")?;
        Some(address)
    });
    let protocol = fields.or("protocol", (), |c| c.one_of(&[("tcp", ())]));
    let mode = fields.or("mode", (), |c| c.one_of(&[("stateless", ())]));
    let forwarding = fields.or("forwarding", (), |c| c.one_of(&[("direct", ())]));
    let policy = fields.or("policy", Policy::RoundRobin, |c| {
        c.one_of(&[
            ("round_robin", Policy::RoundRobin),
            ("weighted_round_robin", Policy::WeightedRoundRobin),
            ("power_of_two", Policy::PowerOfTwo),
            ("least_connections", Policy::LeastConnections),
            ("hash", Policy::Hash),
            ("maglev", Policy::Maglev),
            ("awrr", Policy::Awrr(Load::Connections)),
        ])
    });
    let load = fields
        .optional("load", |c| c.one_of(&[("connections", Load::Connections), ("cpu", Load::Cpu)]));
    let policy = policy.and_then(|policy| match (policy, load?, fields.get("load")) {
        (Policy::Awrr(_), Some(load), _) => Some(Policy::Awrr(load)),
        (_, Some(_), Some(at)) => at.expected("no load but beside policy: awrr"),
        (policy, ..) => Some(policy),
    });
    let slow_start = fields.or("slow_start", SLOW_START, |c| match policy {
        Some(policy) if policy != Policy::LeastConnections => {
            c.expected("no slow_start but beside policy: least_connections")
        }
        _ => slow_start(c),
    });
    let backends =
        fields.required("backends", "a list of at least one server", |c| backends(c, address));
    protocol.and(mode).and(forwarding)?;
    Some(Vip {
        name: name?,
        address: address?,
        policy: policy?,
        slow_start: slow_start?,
        backends: backends?,
    })
}

/// A part grows once a second: what is shorter than two would give no server less load.
fn slow_start(cursor: &Cursor<'_>) -> Option<Duration> {
    let span = cursor.duration(Duration::ZERO..=LONGEST_START)?;
    if span.is_zero() || span >= SHORTEST_START {
        return Some(span);
    }
    cursor.expected("0s, or a time from 2s to 1h")
}

/// What other servers of a service have taken already, and where.
#[derive(Default)]
struct Servers {
    names: Once<String>,
    addresses: Once<IpAddr>,
    macs: Once<Mac>,
    ids: Once<u64>,
}

/// The servers of the service at `vip`.
fn backends(cursor: &Cursor<'_>, vip: Option<SocketAddr>) -> Option<Vec<Backend>> {
    let mut taken = Servers::default();
    all(cursor, "a list of at least one server", |c| backend(c, vip, &mut taken))
}

fn backend(cursor: &Cursor<'_>, vip: Option<SocketAddr>, taken: &mut Servers) -> Option<Backend> {
    let fields = cursor.fields(&["name", "address", "mac", "weight", "id", "state", "agent"])?;
    let name =
        fields.required("name", "the server's name", |c| name(c, &mut taken.names, "server"));
    let address = fields.required("address", "the server's IP address", |c| {
        let address = server_address(c, vip)?;
        taken.addresses.take(address, c, "an address that no other server has")?;
        Some(address)
    });
    let mac = fields.optional("mac", |c| {
        let mac = mac(c)?;
        // A server is known by it when it replies.
        taken.macs.take(mac, c, "a MAC address that no other server has")?;
        Some(mac)
    });
    let id = fields.optional("id", |c| {
        let id = c.integer(1..=16_383)?;
        taken.ids.take(id, c, "an id that no other server has")?;
        Some(id)
    });
    let weight = fields.or("weight", 1, |c| c.integer(0..=65_535));
    let agent = fields.or("agent", false, Cursor::boolean);
    let state = fields.or("state", BackendState::Up, |c| {
        c.one_of(&[
            ("up", BackendState::Up),
            ("draining", BackendState::Draining),
            ("down", BackendState::Down),
        ])
    });
    Some(Backend {
        name: name?,
        address: address?,
        mac: mac?,
        weight: weight? as u16,
        id: id?.map(|id| id as u16),
        state: state?,
        agent: agent?,
    })
}

/// An address of the family of the service at `vip`, and not that service's own.
fn server_address(cursor: &Cursor<'_>, vip: Option<SocketAddr>) -> Option<IpAddr> {
    let address = ip(cursor)?;
    if !is_one_machines(address) {
        return cursor.expected(ONE_MACHINES);
    }
    match vip.map(|vip| vip.ip()) {
        Some(vip) if vip.is_ipv4() != address.is_ipv4() => {
            cursor.expected(format!("an address of the family of {vip}, the service's"))
        }
        Some(vip) if vip == address => cursor.expected(format!(
            "the server's own address; {vip} is the service's, which all servers hold"
        )),
        _ => Some(address),
    }
}

fn ip(cursor: &Cursor<'_>) -> Option<IpAddr> {
    let what = "an IP address such as \"10.0.2.2\"";
    match cursor.scalar(what)?.parse() {
        Ok(address) => Some(address),
        Err(_) => cursor.expected(what),
    }
}

const ONE_MACHINES: &str = "an address that one machine can have on a network: not 0.0.0.0, ::, a loopback, \
                            multicast or broadcast address, nor an IPv4 one written as IPv6";

fn is_one_machines(ip: IpAddr) -> bool {
    let everybodys = ip.is_unspecified() || ip.is_multicast() || ip.is_loopback();
    let written_otherwise = match ip {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    };
    !everybodys && !written_otherwise
}

fn mac(cursor: &Cursor<'_>) -> Option<Mac> {
    let what = "a MAC address such as \"02:00:00:00:02:02\", of one machine";
    let bytes: Vec<u8> = cursor
        .scalar(what)?
        .split(':')
        .filter_map(|two| (two.len() == 2).then(|| u8::from_str_radix(two, 16).ok()).flatten())
        .collect();
    match Mac::try_from(bytes) {
        // The lowest bit of the first byte marks groups.
        Ok(mac) if mac[0] & 1 == 0 && mac != [0; 6] => Some(mac),
        _ => cursor.expected(what),
    }
}

fn cookie(cursor: &Cursor<'_>) -> Option<CookieConfig> {
    let fields = cursor.fields(&["version_bits", "key_file", "rotate"])?;
    let layout = fields
        .or("version_bits", Layout::default(), |c| Layout::new(c.integer(1..=8)? as u32).ok());
    let key_file =
        fields.or("key_file", PathBuf::from(KEY_FILE), |c| c.text("a file").map(PathBuf::from));
    // A salt must outlive every connection that was silent since it was in force.
    let shortest = layout.unwrap_or_default().silence_limit_ms() * 2;
    let rotate =
        fields.optional("rotate", |c| c.duration(Duration::from_millis(shortest)..=LONGEST));
    Some(CookieConfig { layout: layout?, key_file: key_file?, rotate: rotate? })
}

fn uplink(cursor: &Cursor<'_>) -> Option<UplinkMode> {
    if cursor.is_scalar() {
        let asks = cursor.one_of(&[("auto", false), ("ask", true)])?;
        return Some(if asks { UplinkMode::Ask } else { UplinkMode::Auto });
    }
    let fields = cursor.fields(&["interface", "gateway", "mac"])?;
    let interface = fields.required("interface", "an interface's name", |c| c.text("a name"));
    let gateway = fields.optional("gateway", ip);
    let mac = fields.optional("mac", mac);
    let uplink = Uplink { interface: interface?.to_owned(), gateway: gateway?, mac: mac? };
    if uplink.gateway.is_none() && uplink.mac.is_none() {
        return cursor.expected("a gateway or a mac");
    }
    Some(UplinkMode::Fixed(uplink))
}

fn limits(cursor: &Cursor<'_>) -> Option<Limits> {
    let fields = cursor.fields(&["vips", "backends", "fragments", "clients"])?;
    let default = Limits::default();
    let vips = fields.or("vips", u64::from(default.vips), |c| c.integer(1..=256));
    let backends = fields.or("backends", u64::from(default.backends), |c| c.integer(1..=16_383));
    let fragments =
        fields.or("fragments", u64::from(default.fragments), |c| c.integer(1..=1_000_000));
    let clients = fields.optional("clients", |c| c.integer(1..=262_144));
    Some(Limits {
        vips: vips? as u32,
        backends: backends? as u32,
        fragments: fragments? as u32,
        clients: clients?.map(|clients| clients as u32),
    })
}

#[cfg(test)]
mod tests;
