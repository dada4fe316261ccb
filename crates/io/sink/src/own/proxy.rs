//! Plimsoll's own layer-7 proxy, through its socket (`proxy.socket`).
//!
//! The proxy sets all weights of a plan at once or none; they are in force on every thread from its next request on.
//! What it counts is exact: requests in flight, begun, answered and failed, of all entries that send to the pool.
//!
//! `sink: { proxy: { … } }`

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_config::Cursor;
use plimsoll_model::SinkLimits;

use super::{Daemon, OwnSink, Place, check_name, limits, look};
use crate::steer::{self, Poll, Servers, SinkConfig, SinkHandle, Steered, Steering, absolute};
use crate::{FoundPool, SinkError};

static DAEMON: Daemon = Daemon {
    command: "plimsoll proxy run",
    key: "proxy.socket",
    permission: "only the proxy's own user may write to its socket",
    unknown: |socket, pool, exist| SinkError::UnknownPool { socket, pool, exist },
};

/// Where the balancer is, and which of its pools is steered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySinkConfig {
    /// The proxy's socket.
    pub socket: PathBuf,
    /// The pool's name in the proxy's configuration.
    pub pool: String,
    /// Time between two readings of its counters.
    pub poll: Poll,
    /// Bound on one question and its answer.
    pub timeout: Duration,
}

impl ProxySinkConfig {
    /// With the default of everything else.
    pub fn new(socket: PathBuf, pool: &str) -> Self {
        ProxySinkConfig {
            socket,
            pool: pool.to_owned(),
            poll: Poll::default(),
            timeout: steer::TIMEOUT,
        }
    }

    /// A sink that steers `servers`, given with their names in the proxy's configuration. Connects on first use.
    /// [`BalancerReport::at`](plimsoll_model::BalancerReport::at) counts from now; see [`OwnSink::with_origin`].
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that the balancer could not have, or that come twice.
    pub fn sink(&self, servers: Servers) -> Result<OwnSink, SinkError> {
        let (socket, service) = (self.socket.clone(), self.pool.clone());
        OwnSink::new(&DAEMON, Place { socket, service, timeout: self.timeout }, servers)
    }
}

impl SinkConfig for ProxySinkConfig {
    const KEY: &'static str = "proxy";
    const POOL: (&'static str, &'static str) = ("a pool of the proxy", "pool");
    const FORM: &'static str = "{ socket: …, pool: … }";
    const REPORTS_LOSSES: bool = true;

    fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&["socket", "pool", "poll", "timeout"])?;
        let what = "the path of the proxy's proxy.socket";
        let socket = fields.required("socket", what, Cursor::unix_path);
        let what = "the pool's name in the proxy's configuration";
        let pool = fields.required("pool", what, |c| {
            c.text_if("a name of 1 to 63 letters", |name| check_name("pool name", name).is_ok())
        });
        let poll = fields.or("poll", Poll::default(), steer::poll);
        let timeout = fields.or("timeout", steer::TIMEOUT, steer::timeout);
        let (socket, pool) = (socket?, pool?.to_owned());
        Some(ProxySinkConfig { socket, pool, poll: poll?, timeout: timeout? })
    }

    fn limits(&self) -> SinkLimits {
        limits()
    }

    fn check(&self, servers: &Servers) -> Result<(), SinkError> {
        self.sink(servers.clone()).map(drop)
    }

    fn place(&self) -> String {
        format!("proxy socket {}", self.socket.display())
    }

    fn spelled_out(&self) -> Self {
        ProxySinkConfig { socket: steer::spelled_out(&self.socket), ..self.clone() }
    }

    fn pool(&self) -> &str {
        &self.pool
    }

    fn with_pool(&self, name: &str) -> Self {
        ProxySinkConfig { pool: name.to_owned(), ..self.clone() }
    }

    fn written(&self) -> Vec<(&'static str, String)> {
        vec![("socket", absolute(&self.socket)), ("pool", self.pool.clone())]
    }

    async fn look(&self) -> Result<Vec<FoundPool>, SinkError> {
        look(&DAEMON, &self.socket, self.timeout).await
    }

    fn start(&self, steering: &Steering, steered: Steered) -> Result<SinkHandle, SinkError> {
        let sink = self.sink(steered.servers)?.with_origin(steering.origin);
        Ok(steer::start_dedicated(sink, self.poll))
    }
}
