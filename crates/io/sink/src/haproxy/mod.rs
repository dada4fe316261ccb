//! HAProxy over its runtime API. How it behaves is described in `docs/haproxy.md`.

mod address;
mod apply;
mod catalogue;
pub(crate) mod config;
mod connection;
mod info;
mod inspect;
mod link;
mod look;
mod method;
mod names;
mod poll;
mod snapshot;
mod stat;
mod state;
mod steered;
mod table;
mod task;
mod tasks;
mod witness;

use std::time::Instant;

use plimsoll_model::{Applied, BackendId, BalancerReport, Plan, SinkLimits};

pub use address::SocketAddress;
pub use config::HaproxyConfig;
pub use connection::HaproxyConnection;
pub use inspect::{AccessLevel, AgentState, InspectedServer, Inspection};
pub use steered::SteeredBackend;
pub use tasks::HaproxyTasks;
pub use witness::{ProcessIdentity, Witness};

use crate::{ReportSource, Servers, SinkError, WeightSink};

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
        let HaproxyConfig { socket, backend, timeout, .. } = config;
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
}

impl WeightSink for HaproxySink {
    fn limits(&self) -> SinkLimits {
        SinkLimits::haproxy()
    }

    fn set_servers(&mut self, servers: Servers) -> Result<(), SinkError> {
        self.backend.set_servers(servers)
    }

    async fn apply(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        self.backend.apply(&mut self.connection, plan).await
    }
}

impl ReportSource for HaproxySink {
    async fn read(&mut self) -> Result<BalancerReport, SinkError> {
        let mut reports = self.connection.read(&mut [&mut self.backend]).await?;
        reports.swap_remove(0)
    }
}
