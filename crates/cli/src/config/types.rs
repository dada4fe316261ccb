//! What a configuration means to the daemon, as plain data: every default filled in, every value checked. The types
//! of probes and sinks are owned by the parts that are configured so.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_config::{Address, Placed};
use plimsoll_control::{CurveChoice, DrainTest, DriftTest, Exploration};
use plimsoll_model::Objective;
use plimsoll_probe::{LivenessConfig, ProbeConfig};
use plimsoll_sink::Sink;

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
    /// At least one; names and addresses unique.
    pub backends: Vec<Backend>,
    /// How to measure a backend's latency besides its traffic, if at all.
    pub probe: Option<Placed<ProbeConfig>>,
    /// How to check for life where traffic does not tell; without it, by bare connections.
    pub liveness: Option<Placed<LivenessConfig>>,
    /// What the packing minimises.
    pub objective: Objective,
    /// The greatest difference between two weights, 0…1 (KnapsackLB §3.3); none: any difference.
    pub theta: Option<f64>,
    /// The balancer to program.
    pub sink: Placed<Sink>,
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

/// How curves are learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learn {
    /// How a pool is explored.
    pub exploration: Exploration,
    /// The shape that is fitted.
    pub curve: CurveChoice,
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
