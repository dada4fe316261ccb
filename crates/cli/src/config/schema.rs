//! Services, store and API; what must hold across them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use plimsoll_control::{DrainTest, DriftTest};
use plimsoll_model::Objective;

use super::address;
use super::defaults;
use super::http;
use super::read::Cursor;
use super::report::{Position, quoted};
use super::types::{
    Api, Backend, Config, CurveFamily, Exploration, Haproxy, L4, Learn, Limits, Service, Sink,
    Socket, Store,
};

const TOP: &[&str] = &["services", "store", "api"];
const SERVICE: &[&str] =
    &["name", "backends", "probe", "liveness", "objective", "theta", "sink", "learn", "limits"];

/// The whole document.
pub fn config(cursor: &Cursor<'_>) -> Option<Config> {
    let fields = cursor.fields(TOP)?;
    let services = fields.required("services", "a list of at least one service", services);
    let store = match fields.get("store") {
        Some(cursor) => store(cursor),
        None => Some(Store { path: PathBuf::from(defaults::STORE_PATH) }),
    };
    let api = match fields.get("api") {
        Some(cursor) => api(cursor),
        None => Some(Api { listen: defaults::API_LISTEN, allow_remote: false }),
    };
    Some(Config { services: services?, store: store?, api: api? })
}

fn services(cursor: &Cursor<'_>) -> Option<Vec<Service>> {
    let items = cursor.items("a list of services")?;
    if items.is_empty() {
        return cursor.expected("at least one service");
    }
    let mut seen = Seen::default();
    let services: Vec<Option<Service>> =
        items.iter().map(|item| service(item, &mut seen)).collect();
    services.into_iter().collect()
}

/// What other services have taken already, and where.
#[derive(Default)]
struct Seen {
    names: Taken<String>,
    targets: Taken<(Socket, String)>,
    vips: Taken<(PathBuf, String)>,
}

/// Values that may occur only once, each with the place where it first did.
struct Taken<T>(BTreeMap<T, Position>);

impl<T> Default for Taken<T> {
    fn default() -> Self {
        Taken(BTreeMap::new())
    }
}

impl<T: Ord> Taken<T> {
    /// Takes a value, or reports that it is taken.
    fn take(&mut self, value: T, cursor: &Cursor<'_>, what: &str) -> Option<()> {
        if let Some(first) = self.0.get(&value) {
            return cursor.expected(format!("{what} (this one stands on line {})", first.line));
        }
        self.0.insert(value, cursor.at());
        Some(())
    }
}

fn service(cursor: &Cursor<'_>, seen: &mut Seen) -> Option<Service> {
    let fields = cursor.fields(SERVICE)?;
    let name = fields.required("name", "the service's name", |c| service_name(c, seen));
    let backends = fields.required("backends", "a list of at least one backend", backends);
    let probe = fields.optional("probe", http::probe);
    let liveness =
        fields.optional("liveness", |c| http::liveness(c, probe.as_ref().and_then(Option::as_ref)));
    let objective = fields.or("objective", Objective::default(), |c| {
        c.one_of(&[
            ("traffic", Objective::Traffic),
            ("sum", Objective::Sum),
            ("max", Objective::Max),
        ])
    });
    let theta = fields.optional("theta", |c| c.number(defaults::PART));
    let sink = fields.required("sink", ONE_SINK, |c| sink(c, seen));
    let learn = fields.or("learn", default_learn(), learn);
    let limits = fields.or("limits", default_limits(), limits);
    Some(Service {
        name: name?,
        backends: backends?,
        probe: probe?,
        liveness: liveness?,
        objective: objective?,
        theta: theta?,
        sink: sink?,
        learn: learn?,
        limits: limits?,
    })
}

fn service_name(cursor: &Cursor<'_>, seen: &mut Seen) -> Option<String> {
    let valid = |name: &str| {
        (1..=128).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let what = "a name of up to 128 letters, digits, - _ and .";
    let name = cursor.text_if(what, valid)?.to_owned();
    seen.names.take(name.clone(), cursor, "a name that no other service has")?;
    Some(name)
}

fn backends(cursor: &Cursor<'_>) -> Option<Vec<Backend>> {
    let items = cursor.items("a list of backends, each { name: …, address: … }")?;
    if items.is_empty() {
        return cursor.expected("at least one backend");
    }
    let (mut names, mut addresses) = (Taken::default(), Taken::default());
    let backends: Vec<Option<Backend>> = items
        .iter()
        .map(|item| {
            let fields = item.fields(&["name", "address"])?;
            let name = fields.required("name", "the server's name in the balancer", |c| {
                let name = haproxy_name(c)?;
                names.take(name.clone(), c, "a name that no other backend has")?;
                Some(name)
            });
            let address = fields.required("address", "host:port", |c| {
                let address = c.address()?;
                addresses.take(address.clone(), c, "an address that no other backend has")?;
                Some(address)
            });
            Some(Backend { name: name?, address: address? })
        })
        .collect();
    backends.into_iter().collect()
}

/// The characters that HAProxy takes in the names of servers and sections; nothing else may reach its
/// command line, where `;` and a line's end begin a new command.
fn haproxy_name(cursor: &Cursor<'_>) -> Option<String> {
    let valid = |name: &str| {
        (1..=255).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b))
    };
    let what = "a name as HAProxy takes it: letters, digits, - _ . and :";
    cursor.text_if(what, valid).map(str::to_owned)
}

fn sink(cursor: &Cursor<'_>, seen: &mut Seen) -> Option<Sink> {
    let fields = cursor.fields(&["haproxy", "l4"])?;
    let haproxy = fields.get("haproxy").map(|c| haproxy(c, seen).map(Sink::Haproxy));
    let l4 = fields.get("l4").map(|c| l4(c, seen).map(Sink::L4));
    match (haproxy, l4) {
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => cursor.expected(ONE_SINK),
        (Some(_), Some(_)) => cursor.expected(format!("{ONE_SINK}, not both")),
    }
}

const ONE_SINK: &str =
    "either { haproxy: { socket: …, backend: … } } or { l4: { socket: …, vip: … } }";

fn haproxy(cursor: &Cursor<'_>, seen: &mut Seen) -> Option<Haproxy> {
    let fields = cursor.fields(&["socket", "backend", "poll", "timeout"])?;
    let what = "the admin socket: a path, or host:port";
    let socket = fields.required("socket", what, socket);
    let backend = fields.required("backend", "the backend section's name in HAProxy", haproxy_name);
    let poll = fields.optional("poll", |c| c.duration(defaults::sink_poll()));
    let timeout =
        fields.or("timeout", defaults::SINK_TIMEOUT, |c| c.duration(defaults::any_time()));
    let (socket, backend) = (socket?, backend?);
    let target = (socket.clone(), backend.clone());
    let at = fields.get("backend").unwrap_or(cursor);
    seen.targets.take(target, at, "an HAProxy backend that no other service steers")?;
    Some(Haproxy { socket, backend, poll: poll?, timeout: timeout? })
}

fn l4(cursor: &Cursor<'_>, seen: &mut Seen) -> Option<L4> {
    let fields = cursor.fields(&["socket", "vip", "poll", "timeout"])?;
    let socket = fields.required("socket", "the path of the daemon's l4.socket", unix_path);
    let what = "the service's name in the layer-4 configuration";
    let vip = fields.required("vip", what, |c| c.text_if("a name of 1 to 63 letters", l4_name));
    let poll = fields.optional("poll", |c| c.duration(defaults::sink_poll()));
    let timeout =
        fields.or("timeout", defaults::SINK_TIMEOUT, |c| c.duration(defaults::any_time()));
    let (socket, vip) = (socket?, vip?.to_owned());
    let at = fields.get("vip").unwrap_or(cursor);
    let target = (socket.clone(), vip.clone());
    seen.vips.take(target, at, "a layer-4 service that no other service steers")?;
    Some(L4 { socket, vip, poll: poll?, timeout: timeout? })
}

/// Names of layer-4 services and their servers.
pub fn l4_name(text: &str) -> bool {
    (1..64).contains(&text.len()) && !text.contains(char::is_control)
}

/// The path of a Unix socket.
pub fn unix_path(cursor: &Cursor<'_>) -> Option<PathBuf> {
    // sun_path holds 108 bytes, one of them the end.
    const LONGEST: usize = 107;
    let what = format!("the path of a Unix socket, 1 to {LONGEST} bytes");
    cursor.text_if(&what, |path| (1..=LONGEST).contains(&path.len())).map(PathBuf::from)
}

/// A path when it has a slash or no colon, else `host:port`.
fn socket(cursor: &Cursor<'_>) -> Option<Socket> {
    let text = cursor.text("a path, or host:port")?;
    if text.contains('/') || !text.contains(':') {
        return unix_path(cursor).map(Socket::Unix);
    }
    match address::address(text) {
        Ok(address) => Some(Socket::Tcp(address)),
        Err(expected) => cursor.problem(format!("{expected}, or a path, found {}", quoted(text))),
    }
}

fn default_learn() -> Learn {
    Learn {
        exploration: Exploration::Packed,
        curve: CurveFamily::Auto,
        drift: DriftTest::Sequential,
        refresh: true,
        drain: DrainTest::Passive,
        latency_factor: defaults::LATENCY_FACTOR,
        max_step: defaults::MAX_STEP,
    }
}

fn learn(cursor: &Cursor<'_>) -> Option<Learn> {
    let fields = cursor.fields(&[
        "exploration",
        "curve",
        "drift",
        "refresh",
        "drain",
        "latency_factor",
        "max_step",
    ])?;
    let default = default_learn();
    let exploration = fields.or("exploration", default.exploration, |c| {
        c.one_of(&[
            ("packed", Exploration::Packed),
            ("bisect", Exploration::Bisect),
            ("literal", Exploration::Literal),
        ])
    });
    let curve = fields.or("curve", default.curve, |c| {
        c.one_of(&[
            ("auto", CurveFamily::Auto),
            ("hyperbola", CurveFamily::Hyperbola),
            ("isotonic", CurveFamily::Isotonic),
            ("poly2", CurveFamily::Poly2),
        ])
    });
    let drift = fields.or("drift", default.drift, |c| {
        c.one_of(&[
            ("sequential", DriftTest::Sequential),
            ("literal", DriftTest::Literal),
            ("off", DriftTest::Off),
        ])
    });
    let refresh = fields.or("refresh", default.refresh, Cursor::boolean);
    let drain = fields.or("drain", default.drain, |c| {
        c.one_of(&[("passive", DrainTest::Passive), ("overload", DrainTest::Overload)])
    });
    let latency_factor = fields.or("latency_factor", default.latency_factor, |c| {
        c.number(defaults::LATENCY_FACTOR_BOUNDS)
    });
    let max_step = fields.or("max_step", default.max_step, |c| c.number(defaults::MAX_STEP_BOUNDS));
    Some(Learn {
        exploration: exploration?,
        curve: curve?,
        drift: drift?,
        refresh: refresh?,
        drain: drain?,
        latency_factor: latency_factor?,
        max_step: max_step?,
    })
}

fn default_limits() -> Limits {
    Limits {
        min_change: defaults::MIN_CHANGE,
        min_interval: defaults::MIN_INTERVAL,
        slow_start: defaults::SLOW_START,
    }
}

fn limits(cursor: &Cursor<'_>) -> Option<Limits> {
    let fields = cursor.fields(&["min_change", "min_interval", "slow_start"])?;
    let min_change = fields.or("min_change", defaults::MIN_CHANGE, |c| c.number(defaults::PART));
    let min_interval =
        fields.or("min_interval", defaults::MIN_INTERVAL, |c| c.duration(defaults::any_time()));
    let slow_start =
        fields.or("slow_start", defaults::SLOW_START, |c| c.duration(defaults::slow_start()));
    Some(Limits { min_change: min_change?, min_interval: min_interval?, slow_start: slow_start? })
}

fn store(cursor: &Cursor<'_>) -> Option<Store> {
    let fields = cursor.fields(&["path"])?;
    let path = fields.or("path", PathBuf::from(defaults::STORE_PATH), |c| {
        c.text_if("the path of a file", |path| !path.is_empty() && !path.ends_with('/'))
            .map(PathBuf::from)
    });
    Some(Store { path: path? })
}

fn api(cursor: &Cursor<'_>) -> Option<Api> {
    let fields = cursor.fields(&["listen", "allow_remote"])?;
    let listen = fields.or("listen", defaults::API_LISTEN, listen);
    let allow_remote = fields.or("allow_remote", false, Cursor::boolean);
    let (listen, allow_remote) = (listen?, allow_remote?);
    if let (Some(cursor), false, false) =
        (fields.get("listen"), allow_remote, listen.ip().is_loopback())
    {
        return cursor.expected("a loopback address, or allow_remote: true beside it");
    }
    Some(Api { listen, allow_remote })
}

/// Where to listen: an IP address of this machine, or all of them, and a port.
pub fn listen(cursor: &Cursor<'_>) -> Option<SocketAddr> {
    let what = "an IP address and a port, such as \"127.0.0.1:7400\"";
    let text = cursor.text(what)?;
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() > 0 => Some(address),
        _ => cursor.expected(what),
    }
}
