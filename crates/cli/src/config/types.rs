//! What a configuration means, as plain data: every default filled in, every value checked.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_control::{DrainTest, DriftTest};
use plimsoll_model::Objective;

use super::address::{Address, Host};

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What to steer; at least one, names unique, no two on the same HAProxy backend or layer-4 service.
    pub services: Vec<Service>,
    /// Where to keep what was learned.
    pub store: Store,
    /// Where to answer questions.
    pub api: Api,
}

/// One pool behind one balancer.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Unique; letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// At least one; names and addresses unique.
    pub backends: Vec<Backend>,
    /// How to measure a backend's latency besides its traffic, if at all.
    pub probe: Option<Probe>,
    /// How to check for life where traffic does not tell; without it, by bare connections.
    pub liveness: Option<Liveness>,
    /// What the packing minimises.
    pub objective: Objective,
    /// The greatest difference between two weights, 0…1 (KnapsackLB §3.3); none: any difference.
    pub theta: Option<f64>,
    /// The balancer to program.
    pub sink: Sink,
    /// How curves are learned.
    pub learn: Learn,
    /// How often and how little weights may change.
    pub limits: Limits,
}

/// One server of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The server's name in the balancer.
    pub name: String,
    /// Where probes go.
    pub address: Address,
}

/// How latency is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The request.
    pub http: Http,
    /// Time between two probes of one backend; none: adapts to what the backend can bear.
    pub interval: Option<Duration>,
    /// Probes per backend and interval; none: adapts to what the backend can bear.
    pub requests: Option<u32>,
}

/// How life is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Liveness {
    /// The request; scheme, host and tls are the probe's where not given.
    pub http: Http,
    /// Time between two checks of one backend; none: as they are needed, within the budget.
    pub interval: Option<Duration>,
    /// Requests per check; the backend lives when one of them succeeds.
    pub requests: u32,
    /// A port other than the backend's own.
    pub port: Option<u16>,
}

/// One HTTP request and the answer that counts as a success.
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// In capitals.
    pub method: Method,
    /// Starts with `/`; may hold a query.
    pub path: String,
    /// The `Host` header; none: the backend's address.
    pub host: Option<String>,
    /// In the order written; names unique, `Host`, `Connection` and framing headers not among them.
    pub headers: Vec<(String, String)>,
    /// Sent with the request, with its length.
    pub body: Option<String>,
    /// What a success looks like.
    pub expect: Expect,
    /// Whether the next request may use the same connection.
    pub connection: Connection,
    /// From the start of the attempt, connection included, to the last byte.
    pub timeout: Duration,
    /// Each interval is stretched or shrunk by up to this part of itself, 0…1.
    pub jitter: f64,
    /// The longest body that is read, bytes; a longer one is a failure.
    pub max_body: usize,
    /// Used when the scheme is `https`.
    pub tls: Tls,
}

/// `http` or `https`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

/// The methods a probe may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
}

impl Method {
    /// As it stands in a request line.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
        }
    }
}

/// What an answer must be to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// Any of these.
    pub status: Vec<RangeInclusive<u16>>,
    /// Must occur in the body.
    pub body: Option<String>,
}

/// What becomes of a probe's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Kept for the next one.
    Keep,
    /// A new one each time; its handshake counts as latency.
    New,
}

/// Whom to trust, and under which name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates (PEM) to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// The name to ask for and to check; none: the backend's address.
    pub server_name: Option<Host>,
    /// Check no certificate at all.
    pub insecure: bool,
}

/// The balancers that can be programmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// HAProxy, over its runtime API.
    Haproxy(Haproxy),
    /// Plimsoll's own layer-4 balancer, over its daemon's socket.
    L4(L4),
}

/// One service of one layer-4 balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L4 {
    /// The daemon's `l4.socket.path`.
    pub socket: PathBuf,
    /// The service's name there.
    pub vip: String,
    /// Time between two readings of its counters; by the balancer's method if it is not given.
    pub poll: Option<Duration>,
    /// For one question and its answer.
    pub timeout: Duration,
}

/// One backend section of one HAProxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Haproxy {
    /// Its `stats socket`, at `level admin`.
    pub socket: Socket,
    /// The backend section's name.
    pub backend: String,
    /// Time between two readings of its counters; by the balancer's method if it is not given.
    pub poll: Option<Duration>,
    /// For one command and its answer.
    pub timeout: Duration,
}

/// Where a runtime API listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Socket {
    /// A Unix socket.
    Unix(PathBuf),
    /// Host and port.
    Tcp(Address),
}

/// How curves are learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learn {
    /// How a pool is explored.
    pub exploration: Exploration,
    /// The shape that is fitted.
    pub curve: CurveFamily,
    /// How a change of a backend is told from noise.
    pub drift: DriftTest,
    /// Whether curves are measured anew on purpose now and then.
    pub refresh: bool,
    /// How the drain time is measured.
    pub drain: DrainTest,
    /// While exploring, a backend's latency may grow to this many times its least.
    pub latency_factor: f64,
    /// While exploring, a weight may grow by this factor in one step.
    pub max_step: f64,
}

/// How a pool is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exploration {
    /// By the plan itself, which is optimistic about what is not known.
    Packed,
    /// One backend at a time, until the step is within 5 % of the last good weight.
    Bisect,
    /// The stopping rule of KnapsackLB's algorithm 1 as printed; for comparison only.
    Literal,
}

/// The shape that is fitted to samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveFamily {
    /// The one with the least cross-validated error.
    Auto,
    /// `a + b / (c − x)`
    Hyperbola,
    /// Monotone points joined smoothly.
    Isotonic,
    /// Degree 2, as in the paper.
    Poly2,
}

/// How often and how little weights may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// A plan is programmed when some backend's share changes by at least this, 0…1.
    pub min_change: f64,
    /// The least time between two programmings.
    pub min_interval: Duration,
    /// A backend that joins or returns has its whole share after this; zero: at once.
    pub slow_start: Duration,
}

/// Where to keep what was learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// A file; relative to the working directory.
    pub path: PathBuf,
}

/// Where to answer questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Whether others than this host may reach it.
    pub allow_remote: bool,
}
