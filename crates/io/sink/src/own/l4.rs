//! Plimsoll's own layer-4 balancer, through its daemon's socket (`l4.socket`).
//!
//! The daemon holds the kernel's tables alone, so that there is one hand on them; it sets all weights of a
//! plan at once or none, and keeps them through its own restarts. A request is a connection here: what is
//! in flight are the connections that are open.
//!
//! `sink: { l4: { … } }`

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_config::Cursor;
use plimsoll_model::SinkLimits;

use super::{Daemon, OwnSink, Place, check_name, limits, look};
use crate::steer::{self, Poll, Servers, SinkConfig, SinkHandle, Steered, Steering, absolute};
use crate::{FoundPool, SinkError};

static DAEMON: Daemon = Daemon {
    command: "plimsoll l4 run",
    key: "l4.socket.path",
    permission: "Plimsoll's user must be allowed to write to the socket (see l4.socket.mode)",
    unknown: |socket, vip, exist| SinkError::UnknownVip { socket, vip, exist },
};

/// Where the balancer is, and which of its services is steered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L4SinkConfig {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The service's name in the layer-4 configuration.
    pub vip: String,
    /// Time between two readings of its counters.
    pub poll: Poll,
    /// Bound on one question and its answer.
    pub timeout: Duration,
}

impl L4SinkConfig {
    /// With the default of everything else.
    pub fn new(socket: PathBuf, vip: &str) -> Self {
        L4SinkConfig { socket, vip: vip.to_owned(), poll: Poll::default(), timeout: steer::TIMEOUT }
    }

    /// A sink that steers `servers`, given with their names in the layer-4 configuration. Connects on first use.
    /// [`BalancerReport::at`](plimsoll_model::BalancerReport::at) counts from now; see [`OwnSink::with_origin`].
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that the balancer could not have, or that come twice.
    pub fn sink(&self, servers: Servers) -> Result<OwnSink, SinkError> {
        let (socket, service) = (self.socket.clone(), self.vip.clone());
        OwnSink::new(&DAEMON, Place { socket, service, timeout: self.timeout }, servers)
    }
}

impl SinkConfig for L4SinkConfig {
    const KEY: &'static str = "l4";
    const POOL: (&'static str, &'static str) = ("a layer-4 service", "vip");
    const FORM: &'static str = "{ socket: …, vip: … }";
    /// Packets do not tell an answer from an error.
    const REPORTS_LOSSES: bool = false;

    fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&["socket", "vip", "poll", "timeout"])?;
        let what = "the path of the daemon's l4.socket";
        let socket = fields.required("socket", what, Cursor::unix_path);
        let what = "the service's name in the layer-4 configuration";
        let vip = fields.required("vip", what, |c| {
            c.text_if("a name of 1 to 63 letters", |name| check_name("service name", name).is_ok())
        });
        let poll = fields.or("poll", Poll::default(), steer::poll);
        let timeout = fields.or("timeout", steer::TIMEOUT, steer::timeout);
        let (socket, vip) = (socket?, vip?.to_owned());
        Some(L4SinkConfig { socket, vip, poll: poll?, timeout: timeout? })
    }

    fn limits(&self) -> SinkLimits {
        limits()
    }

    fn check(&self, servers: &Servers) -> Result<(), SinkError> {
        self.sink(servers.clone()).map(drop)
    }

    fn place(&self) -> String {
        format!("layer-4 socket {}", self.socket.display())
    }

    fn spelled_out(&self) -> Self {
        L4SinkConfig { socket: steer::spelled_out(&self.socket), ..self.clone() }
    }

    fn pool(&self) -> &str {
        &self.vip
    }

    fn with_pool(&self, name: &str) -> Self {
        L4SinkConfig { vip: name.to_owned(), ..self.clone() }
    }

    fn written(&self) -> Vec<(&'static str, String)> {
        vec![("socket", absolute(&self.socket)), ("vip", self.vip.clone())]
    }

    async fn look(&self) -> Result<Vec<FoundPool>, SinkError> {
        look(&DAEMON, &self.socket, self.timeout).await
    }

    fn start(&self, steering: &Steering, steered: Steered) -> Result<SinkHandle, SinkError> {
        let sink = self.sink(steered.servers)?.with_origin(steering.origin);
        Ok(steer::start_dedicated(sink, self.poll))
    }
}
