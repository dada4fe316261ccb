//! What a configuration means to the daemon, as plain data: every default filled in, every value checked. The types
//! of probes and sinks are owned by the parts that are configured so.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_config::{Address, Placed};
use plimsoll_control::{CurveChoice, DriftTest};
use plimsoll_model::Objective;
use plimsoll_probe::{LivenessConfig, ProbeConfig};
use plimsoll_sink::{Sink, Sinks, Source};

use super::defaults;

/// What `plimsoll run` is to do.
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
    /// At least one, unless `auto`; names and addresses unique.
    pub backends: Vec<Backend>,
    /// They are asked of the balancer, again and again; none are known before it has answered.
    pub auto: bool,
    /// How to measure a backend's latency besides its traffic, if at all.
    pub probe: Option<Placed<ProbeConfig>>,
    /// How to check for life where traffic does not tell; without it, by bare connections.
    pub liveness: Option<Placed<LivenessConfig>>,
    /// What the packing minimises.
    pub objective: Objective,
    /// The greatest difference between two weights, 0…1 (KnapsackLB §3.3); none: any difference.
    pub theta: Option<f64>,
    /// The balancers to program.
    pub sink: Placed<Sinks>,
    /// What tells of requests in the place of the balancers' own counters, if anything does.
    pub source: Option<Source>,
    /// How curves are learned.
    pub learn: Learn,
    /// How often and how little weights may change.
    pub limits: Limits,
}

impl Service {
    /// One whose servers are asked of its balancer, with the default of everything else. `origin` stands for the
    /// configuration in problems.
    pub fn auto(name: String, sink: Sink, origin: &str) -> Self {
        Service {
            name,
            backends: Vec::new(),
            auto: true,
            probe: None,
            liveness: None,
            objective: Objective::default(),
            theta: None,
            sink: Placed::elsewhere(sink.into(), origin, "sink"),
            source: None,
            learn: Learn::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Learn {
    fn default() -> Self {
        Learn {
            curve: CurveChoice::Auto,
            drift: DriftTest::Sequential,
            refresh: true,
            latency_factor: defaults::LATENCY_FACTOR,
            max_step: defaults::MAX_STEP,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            min_change: defaults::MIN_CHANGE,
            min_interval: defaults::MIN_INTERVAL,
            slow_start: defaults::SLOW_START,
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Store { path: PathBuf::from(defaults::STORE_PATH) }
    }
}

impl Default for Api {
    fn default() -> Self {
        Api { listen: defaults::API_LISTEN, allow_remote: false }
    }
}

/// One server of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The server's name in the balancer.
    pub name: String,
    /// Where probes go.
    pub address: Address,
}

/// How curves are learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learn {
    /// The shape that is fitted.
    pub curve: CurveChoice,
    /// How a change of a backend is distinguished from noise.
    pub drift: DriftTest,
    /// Whether curves are measured anew on purpose now and then.
    pub refresh: bool,
    /// While exploring, a backend's latency may grow to this many times its least.
    pub latency_factor: f64,
    /// While exploring, a weight may grow by this factor in one step.
    pub max_step: f64,
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
