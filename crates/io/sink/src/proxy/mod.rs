//! Plimsoll's own layer-7 proxy, through its socket (`proxy.socket`).
//!
//! The proxy sets all weights of a plan at once or none; they are in force on every thread from its next request on.
//! What it counts is exact: requests in flight, begun, answered and failed, of all entries that send to the pool.

mod config;

use std::time::{Duration, Instant};

use plimsoll_model::{Applied, BackendId, BalancerReport, Plan, SinkLimits};

use crate::own::{Daemon, Own, Place};
use crate::{ReportSource, Servers, SinkError, WeightSink};
pub use config::ProxySinkConfig;

/// A programming costs the proxy microseconds; this only keeps a caller that runs wild from keeping it busy.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// `round_robin`'s credit outlives a change of weights, and the others have no turns.
const PICKS_PER_WEIGHT: u32 = 0;

static DAEMON: Daemon = Daemon {
    command: "plimsoll proxy run",
    key: "proxy.socket",
    permission: "only the proxy's own user may write to its socket",
    unknown: |socket, pool, exist| SinkError::UnknownPool { socket, pool, exist },
    weights: 0..=256,
};

/// Steers one pool of the proxy.
///
/// All calls may be dropped while they wait: the connection is then closed, and the next call opens a new
/// one.
pub struct ProxySink(Own);

impl ProxySink {
    /// A sink that steers `servers`, given with their names in its configuration. Connects on first
    /// use. [`BalancerReport::at`] counts from now; see [`ProxySink::with_origin`].
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that the balancer could not have, or that come twice.
    pub fn new(
        config: ProxySinkConfig,
        servers: Vec<(BackendId, String)>,
    ) -> Result<Self, SinkError> {
        let ProxySinkConfig { socket, pool, timeout, .. } = config;
        Own::new(&DAEMON, Place { socket, service: pool, timeout }, servers).map(ProxySink)
    }

    /// Counts [`BalancerReport::at`] from this instant.
    #[must_use]
    pub fn with_origin(self, origin: Instant) -> Self {
        ProxySink(self.0.with_origin(origin))
    }
}

fn limits() -> SinkLimits {
    SinkLimits {
        range: DAEMON.weights.clone(),
        min_interval: MIN_INTERVAL,
        picks_per_weight: PICKS_PER_WEIGHT,
    }
}

impl WeightSink for ProxySink {
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

impl ReportSource for ProxySink {
    async fn read(&mut self) -> Result<BalancerReport, SinkError> {
        self.0.read().await
    }
}
