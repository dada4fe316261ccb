//! HAProxy over its runtime API. How it behaves is told in `docs/haproxy.md`.

mod address;
mod apply;
mod catalogue;
mod connection;
mod info;
mod inspect;
mod link;
mod method;
mod names;
mod poll;
mod snapshot;
mod stat;
mod state;
mod steered;
mod table;
mod witness;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use plimsoll_model::{Applied, BackendId, BalancerReport, Plan, SinkLimits};

pub use address::SocketAddress;
pub use connection::HaproxyConnection;
pub use inspect::{AccessLevel, AgentState, InspectedServer, Inspection};
pub use steered::SteeredBackend;
pub use witness::{ProcessIdentity, Witness};

use crate::{SinkError, WeightSink};

/// HAProxy's weights.
const WEIGHTS: RangeInclusive<u32> = 0..=256;

/// `lb_fwrr.c` scales weights by 16 and a round has as many picks as they come to together.
const PICKS_PER_WEIGHT: u32 = 16;
/// HAProxy takes a weight in microseconds; what it bears is set by the traffic. This only keeps a
/// caller that runs wild from keeping it busy.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Where HAProxy is, and which of its backends is steered.
#[derive(Clone, Debug)]
pub struct HaproxyConfig {
    /// The runtime API, `level admin` (or `operator`, to observe only).
    pub socket: SocketAddress,
    /// The backend's name in HAProxy's configuration.
    pub backend: String,
    /// Bound on connecting and on each exchange. The first one to exceed it ends the call, but for a
    /// batch, which is then undone within as many again.
    pub timeout: Duration,
}

impl HaproxyConfig {
    /// Time-out where none is configured.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
}

/// Steers one backend of HAProxy on a connection of its own.
///
/// All calls may be dropped while they wait: the connection is then closed, and the next call opens a
/// new one.
pub struct HaproxySink {
    connection: HaproxyConnection,
    backend: SteeredBackend,
}

impl HaproxySink {
    /// A sink that steers `servers`, given with their names in HAProxy. Connects on first use.
    /// [`BalancerReport::at`] counts from now; see [`HaproxySink::with_origin`].
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that HAProxy could not have, or that come twice.
    pub fn new(
        config: HaproxyConfig,
        servers: Vec<(BackendId, String)>,
    ) -> Result<Self, SinkError> {
        let HaproxyConfig { socket, backend, timeout } = config;
        Ok(HaproxySink {
            backend: SteeredBackend::new(&backend, servers)?,
            connection: HaproxyConnection::new(socket, timeout, Instant::now()),
        })
    }

    /// Counts [`BalancerReport::at`] from this instant.
    #[must_use]
    pub fn with_origin(mut self, origin: Instant) -> Self {
        self.connection.set_origin(origin);
        self
    }

    /// Replaces the servers that are steered: some joined or left.
    ///
    /// # Errors
    /// As [`HaproxySink::new`]; the present servers then stay.
    pub fn set_servers(&mut self, servers: Vec<(BackendId, String)>) -> Result<(), SinkError> {
        self.backend.set_servers(servers)
    }
}

/// What every HAProxy bears.
pub fn haproxy_limits() -> SinkLimits {
    SinkLimits { range: WEIGHTS, min_interval: MIN_INTERVAL, picks_per_weight: PICKS_PER_WEIGHT }
}

impl WeightSink for HaproxySink {
    fn limits(&self) -> SinkLimits {
        haproxy_limits()
    }

    async fn apply(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        self.backend.apply(&mut self.connection, plan).await
    }

    async fn read_back(&mut self) -> Result<BalancerReport, SinkError> {
        let mut reports = self.connection.read(&mut [&mut self.backend]).await?;
        reports.swap_remove(0)
    }
}
