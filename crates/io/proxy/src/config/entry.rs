//! Where the proxy listens: ingress and egress entries.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use plimsoll_admission::{AdaptiveOptions, AdmissionOptions, CapacityOptions};
use plimsoll_config::{Cursor, Fields};

use super::named::Named;
use super::notes::{Capture, Forwarding};
use super::{Taken, all, numeric};
use crate::cgroup::CpuGroup;
use crate::cidr::Cidr;

const MS: fn(u64) -> Duration = Duration::from_millis;
const HOUR: Duration = Duration::from_secs(3_600);
/// Bounds of every time-out.
fn timeouts() -> std::ops::RangeInclusive<Duration> {
    MS(1)..=HOUR
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection to a backend stands.
    pub connect: Duration,
    /// From the end of a request to the head of its response, all tries together.
    pub request: Duration,
    /// Without a byte: between requests, within a head, within a body, either way.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let s = Duration::from_secs;
        Timeouts { connect: s(1), request: s(30), idle: s(60) }
    }
}

/// How much an entry takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of clients at the same time; more are answered 503 and closed.
    pub connections: usize,
    /// Bytes of a request's or response's head.
    pub headers: usize,
    /// Bytes of a request's body that are kept so that it can be sent again.
    pub body_kept_for_retries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connections: 10_000, headers: 32 << 10, body_kept_for_retries: 64 << 10 }
    }
}

/// An entry before an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Ingress {
    /// Its name in status and metrics.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// The application.
    pub upstream: SocketAddr,
    /// Whose `plimsoll-*` request headers are believed.
    pub trust: Vec<Cidr>,
    /// Peers that must begin with the `PROXY` protocol, and are believed.
    pub proxy_protocol: Vec<Cidr>,
    /// What is admitted.
    pub admission: AdmissionOptions,
    /// Whose CPU it tells balancers of that ask.
    pub cpu: Cpu,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How much it takes on.
    pub limits: Limits,
}

/// Whose CPU time counts as an application's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// All of this machine.
    Machine,
    /// A control group's, of its quota, or of the machine where it has none.
    Group(CpuGroup),
}

impl Cpu {
    fn read(cursor: &Cursor<'_>) -> Option<Self> {
        if cursor.is_scalar() {
            return cursor.one_of(&[("machine", ())]).map(|()| Cpu::Machine);
        }
        let fields = cursor.fields(&["cgroup"])?;
        let what = "the directory of a control group, such as /sys/fs/cgroup/shop";
        fields.required("cgroup", what, |c| {
            let path = c.text_if(what, |path| path.starts_with('/'))?;
            let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
            let found = CpuGroup::find(Path::new(path), &mounts);
            let missing = "this one has neither a cpu.stat with usage_usec (version 2) nor, here or where `cpuacct` is \
                           mounted, a cpuacct.usage (version 1)";
            found.map(Cpu::Group).or_else(|| c.expected(format!("{what}: {missing}")))
        })
    }
}

/// An entry beside a caller, or before a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Egress {
    /// Its name in status and metrics.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Which requests go to which pool; the most specific first.
    pub routes: Vec<Route>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How much it takes on.
    pub limits: Limits,
    /// What it captures; none: nothing.
    pub capture: Option<Capture>,
    /// What headers say of clients to backends.
    pub forwarding: Forwarding,
    /// Peers that must begin with the `PROXY` protocol, and are believed.
    pub proxy_protocol: Vec<Cidr>,
}

/// Requests of a host whose path begins so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The host, in lower case, without its port; none: any.
    pub host: Option<String>,
    /// The path itself, or followed by `/` or what comes after it.
    pub path: String,
    /// The pool, by its place in [`super::ProxyConfig::pools`].
    pub pool: usize,
}

impl Ingress {
    pub(super) fn read(cursor: &Cursor<'_>, taken: &mut Taken) -> Option<Self> {
        let fields = cursor.fields(&[
            "name",
            "listen",
            "upstream",
            "trust",
            "proxy_protocol",
            "capacity",
            "deadline",
            "cpu",
            "timeouts",
            "limits",
        ])?;
        let listen = fields.required("listen", LISTEN, |c| taken.listen(c));
        let name = match fields.get("name") {
            Some(cursor) => taken.name(cursor),
            None => listen.map(|listen| listen.to_string()),
        };
        let upstream = fields.required("upstream", "the application's address", numeric);
        let trust = fields.or("trust", Vec::new(), |c| all(c, "a list of networks", cidr));
        let proxy_protocol = fields.or("proxy_protocol", Vec::new(), announcing);
        let capacity = fields.or("capacity", CapacityOptions::default(), capacity);
        let deadline = fields.optional("deadline", |c| c.duration(timeouts()));
        let cpu = fields.or("cpu", Cpu::Machine, Cpu::read);
        let (timeouts, limits) = bounds(&fields);
        let deadline_ms = deadline?.map(|deadline| deadline.as_millis() as u64);
        Some(Ingress {
            name: name?,
            listen: listen?,
            upstream: upstream?,
            trust: trust?,
            proxy_protocol: proxy_protocol?,
            admission: AdmissionOptions { capacity: capacity?, deadline_ms },
            cpu: cpu?,
            timeouts: timeouts?,
            limits: limits?,
        })
    }
}

const LISTEN: &str = "where to listen, such as \"127.0.0.1:8080\"";

impl Egress {
    pub(super) fn read(cursor: &Cursor<'_>, taken: &mut Taken, named: &mut Named) -> Option<Self> {
        if !cursor.is_mapping() {
            named.may_use_any();
        }
        let fields = cursor.fields(&[
            "name",
            "listen",
            "routes",
            "timeouts",
            "limits",
            "x_forwarded",
            "forwarded",
            "proxy_protocol",
            "capture",
        ])?;
        let name = fields.required("name", "the entry's name", |c| taken.name(c));
        let listen = fields.required("listen", LISTEN, |c| taken.listen(c));
        let routes = match (fields.get("routes"), named.count()) {
            (Some(cursor), _) => {
                if cursor.is_mapping() || cursor.is_scalar() {
                    named.may_use_any();
                }
                all(cursor, "a list of routes", |c| route(c, named))
            }
            (None, Some(1)) => {
                named.uses(0);
                Some(vec![Route { host: None, path: "/".to_owned(), pool: 0 }])
            }
            (None, count) => {
                named.may_use_any();
                match count {
                    Some(0) => cursor.problem("expected a pool to send to, in proxy.pools"),
                    Some(_) => cursor.problem("missing routes; expected them with several pools"),
                    None => None,
                }
            }
        };
        let (timeouts, limits) = bounds(&fields);
        let forwarding = Forwarding::read(&fields, listen);
        let proxy_protocol = fields.or("proxy_protocol", Vec::new(), announcing);
        let capture = fields.optional("capture", |c| Capture::read(c, listen));
        let mut routes = routes?;
        // A stable sort: of two alike the first stays first.
        routes.sort_by_key(|route| (route.host.is_none(), std::cmp::Reverse(route.path.len())));
        Some(Egress {
            name: name?,
            listen: listen?,
            routes,
            timeouts: timeouts?,
            limits: limits?,
            forwarding: forwarding?,
            capture: capture?,
            proxy_protocol: proxy_protocol?,
        })
    }
}

fn announcing(cursor: &Cursor<'_>) -> Option<Vec<Cidr>> {
    all(cursor, "a list of networks", cidr)
}

fn route(cursor: &Cursor<'_>, named: &mut Named) -> Option<Route> {
    if cursor.value("pool").is_none() {
        named.may_use_any();
    }
    let fields = cursor.fields(&["host", "path", "pool"])?;
    let host = fields.optional("host", |c| {
        let what = "a host name or IP address without a port";
        let valid = |text: &str| text.parse::<plimsoll_config::Host>().is_ok();
        c.text_if(what, valid).map(str::to_ascii_lowercase)
    });
    let path = fields.or("path", "/".to_owned(), |c| {
        let valid = |path: &str| {
            path.starts_with('/')
                && path.bytes().all(|b| b.is_ascii_graphic() && !b"?#".contains(&b))
        };
        c.text_if("a path that begins with /", valid).map(str::to_owned)
    });
    let pool = fields.required("pool", "a pool's name", |c| named.find(c));
    Some(Route { host: host?, path: path?, pool: pool? })
}

fn bounds(fields: &Fields<'_>) -> (Option<Timeouts>, Option<Limits>) {
    let timeouts = fields.or("timeouts", Timeouts::default(), |c| {
        let (fields, default) = (c.fields(&["connect", "request", "idle"])?, Timeouts::default());
        let connect = fields.or("connect", default.connect, |c| c.duration(timeouts()));
        let request = fields.or("request", default.request, |c| c.duration(timeouts()));
        let idle = fields.or("idle", default.idle, |c| c.duration(timeouts()));
        Some(Timeouts { connect: connect?, request: request?, idle: idle? })
    });
    let limits = fields.or("limits", Limits::default(), |c| {
        let fields = c.fields(&["connections", "headers", "body_kept_for_retries"])?;
        let default = Limits::default();
        let connections = fields.or("connections", default.connections, |c| {
            c.integer(1..=10_000_000).map(|n| n as usize)
        });
        // Below 8 KiB hyper does not go.
        let headers = fields.or("headers", default.headers, |c| bytes(c, 8 << 10, 1 << 20));
        let kept = fields
            .or("body_kept_for_retries", default.body_kept_for_retries, |c| bytes(c, 0, 64 << 20));
        Some(Limits { connections: connections?, headers: headers?, body_kept_for_retries: kept? })
    });
    (timeouts, limits)
}

/// A size: bytes, or a number with KiB or MiB.
fn bytes(cursor: &Cursor<'_>, least: usize, most: usize) -> Option<usize> {
    let what = || format!("a size from {least} to {most} bytes, such as 65536, 64KiB or 1MiB");
    let text = cursor.scalar(&what())?;
    let (digits, unit) = match (text.strip_suffix("KiB"), text.strip_suffix("MiB")) {
        (Some(digits), _) => (digits, 1 << 10),
        (_, Some(digits)) => (digits, 1 << 20),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let size = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
    match size {
        Some(size) if is_number && (least..=most).contains(&size) => Some(size),
        _ => cursor.expected(what()),
    }
}

pub(super) fn cidr(cursor: &Cursor<'_>) -> Option<Cidr> {
    let what = "a network such as \"10.0.0.0/8\" or \"::1/128\", its host bits zero";
    let text = cursor.text(what)?;
    text.parse().map_or_else(|()| cursor.expected(what), Some)
}

/// `average`, `{ static: N }` or `{ adaptive: { … } }`.
fn capacity(cursor: &Cursor<'_>) -> Option<CapacityOptions> {
    if cursor.is_scalar() {
        return cursor.one_of(&[
            ("average", CapacityOptions::Average),
            ("adaptive", CapacityOptions::default()),
        ]);
    }
    let fields = cursor.fields(&["static", "adaptive"])?;
    match (fields.get("static"), fields.get("adaptive")) {
        (Some(fixed), None) => {
            fixed.integer(1..=u64::from(u32::MAX)).map(|n| CapacityOptions::Static(n as u32))
        }
        (None, Some(adaptive)) => {
            let fields = adaptive.fields(&["loss", "first_cores", "most", "max_wait"])?;
            let default = AdaptiveOptions::default();
            let loss = fields.or("loss", default.loss, |c| c.number(1e-4..=0.5));
            let first_cores = fields.or("first_cores", default.first_cores, |c| {
                c.integer(1..=65_536).map(|n| n as u32)
            });
            let most = fields
                .or("most", default.most, |c| c.integer(1..=u64::from(u32::MAX)).map(|n| n as u32));
            let max_wait_ms = fields.or("max_wait", default.max_wait_ms, |c| {
                let wait = c.duration(Duration::from_millis(1)..=Duration::from_secs(3_600));
                wait.map(|wait| Some(wait.as_millis() as u64))
            });
            Some(CapacityOptions::Adaptive(AdaptiveOptions {
                loss: loss?,
                first_cores: first_cores?,
                most: most?,
                max_wait_ms: max_wait_ms?,
            }))
        }
        _ => cursor.expected("average, { static: N } or { adaptive: { … } }"),
    }
}
