//! Plimsoll's own layer-4 balancer, through its daemon's socket (`l4.socket`).
//!
//! The daemon holds the kernel's tables alone, so that there is one hand on them; it sets all weights of a
//! plan at once or none, and keeps them through its own restarts. A request is a connection here: what is
//! in flight are the connections that are open.

mod config;

use std::time::{Duration, Instant};

use plimsoll_model::{Applied, BackendId, BalancerReport, Plan, SinkLimits};

use crate::own::{Daemon, Own, Place};
use crate::{ReportSource, Servers, SinkError, WeightSink};
pub use config::L4SinkConfig;

/// A programming costs the daemon a few milliseconds; this only keeps a caller that runs wild from keeping
/// it busy.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// A new list is gone through from the next connection on.
const PICKS_PER_WEIGHT: u32 = 0;

static DAEMON: Daemon = Daemon {
    command: "plimsoll l4 run",
    key: "l4.socket.path",
    permission: "Plimsoll's user must be allowed to write to the socket (see l4.socket.mode)",
    unknown: |socket, vip, exist| SinkError::UnknownVip { socket, vip, exist },
    // The list that is gone through has 8,192 places: 32 servers fit with the greatest weight each, and of
    // more servers weights are rounded.
    weights: 0..=256,
};

/// Steers one service of the layer-4 balancer.
///
/// All calls may be dropped while they wait: the connection is then closed, and the next call opens a new
/// one.
pub struct L4Sink(Own);

impl L4Sink {
    /// A sink that steers `servers`, given with their names in the layer-4 configuration. Connects on first
    /// use. [`BalancerReport::at`] counts from now; see [`L4Sink::with_origin`].
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that the balancer could not have, or that come twice.
    pub fn new(config: L4SinkConfig, servers: Vec<(BackendId, String)>) -> Result<Self, SinkError> {
        let L4SinkConfig { socket, vip, timeout, .. } = config;
        Own::new(&DAEMON, Place { socket, service: vip, timeout }, servers).map(L4Sink)
    }

    /// Counts [`BalancerReport::at`] from this instant.
    #[must_use]
    pub fn with_origin(self, origin: Instant) -> Self {
        L4Sink(self.0.with_origin(origin))
    }
}

fn limits() -> SinkLimits {
    SinkLimits {
        range: DAEMON.weights.clone(),
        min_interval: MIN_INTERVAL,
        picks_per_weight: PICKS_PER_WEIGHT,
    }
}

impl WeightSink for L4Sink {
    fn limits(&self) -> SinkLimits {
        limits()
    }

    fn set_servers(&mut self, servers: Servers) -> Result<(), SinkError> {
        self.0.set_servers(servers)
    }

    async fn apply(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        self.0.apply(plan).await
    }
}

impl ReportSource for L4Sink {
    async fn read(&mut self) -> Result<BalancerReport, SinkError> {
        self.0.read().await
    }
}
