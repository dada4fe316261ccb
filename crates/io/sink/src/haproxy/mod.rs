//! HAProxy over its runtime API. How it behaves is told in `docs/haproxy.md`.

mod address;
mod apply;
mod info;
mod inspect;
mod link;
mod method;
mod names;
mod refresh;
mod snapshot;
mod stat;
mod state;
mod table;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use plimsoll_model::{
    Applied, BackendId, BalancerReport, Method, Nanos, Plan, ServerReport, ServerStatus, SinkLimits,
};

pub use address::SocketAddress;
pub use inspect::{AccessLevel, AgentState, InspectedServer, Inspection};

use crate::servers::checked;
use crate::{SinkError, WeightSink};
use link::Link;
use snapshot::{ServerRow, Snapshot};
use state::ServerState;

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

/// Steers one backend of HAProxy.
///
/// All calls may be dropped while they wait: the connection is then closed, and the next call opens a
/// new one.
pub struct HaproxySink {
    backend: String,
    /// In order of [`BackendId`].
    servers: Vec<(BackendId, String)>,
    link: Link,
    origin: Instant,
    /// The commands of a poll, made once per connection.
    poll: String,
    /// What the socket allows, where HAProxy tells.
    level: Option<AccessLevel>,
    /// The `algo` this was learned from, and what it means.
    method: Option<(String, Method)>,
    snapshot: Snapshot,
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
        names::check("backend name", &config.backend)?;
        Ok(HaproxySink {
            servers: checked(servers, names::check)?,
            poll: String::new(),
            backend: config.backend,
            link: Link::new(config.socket, config.timeout),
            origin: Instant::now(),
            level: None,
            method: None,
            snapshot: Snapshot::new(),
        })
    }

    /// Counts [`BalancerReport::at`] from this instant.
    #[must_use]
    pub fn with_origin(mut self, origin: Instant) -> Self {
        self.origin = origin;
        self
    }

    /// Replaces the servers that are steered: some joined or left.
    ///
    /// # Errors
    /// As [`HaproxySink::new`]; the present servers then stay.
    pub fn set_servers(&mut self, servers: Vec<(BackendId, String)>) -> Result<(), SinkError> {
        self.servers = checked(servers, names::check)?;
        Ok(())
    }

    fn report(&self, method: Method) -> BalancerReport {
        let at = Nanos::ZERO + self.origin.elapsed();
        let servers = self
            .servers
            .iter()
            .enumerate()
            .filter_map(|(hint, (id, name))| {
                self.snapshot.row(hint, name).map(|row| server_report(*id, row))
            })
            .collect();
        BalancerReport { at, method, generation: self.generation(), servers }
    }

    /// Which life of which process: its start, its number, and how often its counters were cleared.
    fn generation(&self) -> u64 {
        let process = &self.snapshot.process;
        (process.started_at << 32)
            | (u64::from(process.pid & 0xff_ffff) << 8)
            | (self.snapshot.resets & 0xff)
    }

    fn protocol(&self, reason: String) -> SinkError {
        SinkError::Protocol { socket: self.link.address().to_string(), reason }
    }
}

impl WeightSink for HaproxySink {
    fn limits(&self) -> SinkLimits {
        SinkLimits {
            range: WEIGHTS,
            min_interval: MIN_INTERVAL,
            picks_per_weight: PICKS_PER_WEIGHT,
        }
    }

    async fn apply(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        self.apply_plan(plan).await
    }

    async fn read_back(&mut self) -> Result<BalancerReport, SinkError> {
        self.refresh().await?;
        self.require_servers()?;
        let method = self.learn_method().await?;
        Ok(self.report(method))
    }
}

fn server_report(backend: BackendId, row: &ServerRow) -> ServerReport {
    ServerReport {
        backend,
        weight: row.state.weight,
        status: status(&row.state),
        in_flight: row.in_flight,
        queued: row.queued,
        started_total: row.started,
        errors_total: row.errors,
    }
}

/// The numeric states tell an administrator's drain from a weight of 0, which texts do not in every
/// version. A server that its own health check declares `stopping` (404 under `disable-on-404`) gets
/// no new traffic either: drained.
fn status(state: &ServerState) -> ServerStatus {
    match state.operation {
        _ if state.in_maintenance() => ServerStatus::Maintenance,
        0 => ServerStatus::Down,
        _ if state.drained() => ServerStatus::Drain,
        1 => ServerStatus::Starting,
        3 => ServerStatus::Drain,
        _ => ServerStatus::Up,
    }
}
