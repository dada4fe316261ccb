//! `sink: { haproxy: { … } }`

use std::time::Duration;

use plimsoll_config::{Cursor, quoted};
use plimsoll_model::SinkLimits;

use super::task::Subscriber;
use super::{SocketAddress, SteeredBackend, address, names};
use crate::steer::{self, Poll, Servers, SinkConfig, SinkHandle, Steered, Steering, absolute};
use crate::{FoundPool, SinkError};

/// Where HAProxy is, and which of its backends is steered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaproxyConfig {
    /// The runtime API, `level admin` (or `operator`, to observe only).
    pub socket: SocketAddress,
    /// The backend's name in HAProxy's configuration.
    pub backend: String,
    /// Time between two readings of its counters.
    pub poll: Poll,
    /// Bound on connecting and on each exchange. The first one to exceed it ends the call, but for a
    /// batch, which is then undone within as many again.
    pub timeout: Duration,
}

impl HaproxyConfig {
    /// With the default of everything else.
    pub fn new(socket: SocketAddress, backend: &str) -> Self {
        let backend = backend.to_owned();
        HaproxyConfig { socket, backend, poll: Poll::default(), timeout: steer::TIMEOUT }
    }
}

impl SinkConfig for HaproxyConfig {
    const KEY: &'static str = "haproxy";
    const FORM: &'static str = "{ socket: …, backend: … }";
    const POOL: (&'static str, &'static str) = ("an HAProxy backend", "backend");
    const REPORTS_LOSSES: bool = true;

    fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&["socket", "backend", "poll", "timeout"])?;
        let what = "the admin socket: a path, or host:port";
        let socket = fields.required("socket", what, socket);
        let what = "the backend section's name in HAProxy";
        let backend = fields.required("backend", what, backend);
        let poll = fields.or("poll", Poll::default(), steer::poll);
        let timeout = fields.or("timeout", steer::TIMEOUT, steer::timeout);
        let (socket, backend) = (socket?, backend?);
        Some(HaproxyConfig { socket, backend, poll: poll?, timeout: timeout? })
    }

    fn limits(&self) -> SinkLimits {
        SinkLimits::haproxy()
    }

    fn check(&self, servers: &Servers) -> Result<(), SinkError> {
        SteeredBackend::new(&self.backend, servers.clone()).map(drop)
    }

    fn place(&self) -> String {
        self.socket.to_string()
    }

    fn spelled_out(&self) -> Self {
        HaproxyConfig { socket: self.socket.spelled_out(), ..self.clone() }
    }

    fn pool(&self) -> &str {
        &self.backend
    }

    fn with_pool(&self, name: &str) -> Self {
        HaproxyConfig { backend: name.to_owned(), ..self.clone() }
    }

    fn written(&self) -> Vec<(&'static str, String)> {
        let socket = match &self.socket {
            SocketAddress::Unix(path) => absolute(path),
            SocketAddress::Tcp(address) => address.clone(),
        };
        vec![("socket", socket), ("backend", self.backend.clone())]
    }

    async fn look(&self) -> Result<Vec<FoundPool>, SinkError> {
        super::look::look(&self.socket, self.timeout).await
    }

    fn start(&self, steering: &Steering, steered: Steered) -> Result<SinkHandle, SinkError> {
        let backend = SteeredBackend::new(&self.backend, steered.servers)?;
        let (handle, end) = SinkHandle::new();
        let names = (steered.service, self.socket.clone());
        let (timeout, poll) = (self.timeout, self.poll);
        let subscriber = Subscriber::new(names, backend, timeout, poll, steered.observe, end);
        steering.haproxys.subscribe(subscriber, steering.origin);
        Ok(handle)
    }
}

/// What HAProxy's runtime API listens at, as `SocketAddress` is read everywhere.
pub(crate) fn socket(cursor: &Cursor<'_>) -> Option<SocketAddress> {
    let text = cursor.text("a path, or host:port")?;
    match address::parse(text) {
        Ok(socket) => Some(socket),
        Err(expected) => cursor.problem(format!("{expected}, found {}", quoted(text))),
    }
}

fn backend(cursor: &Cursor<'_>) -> Option<String> {
    let valid = |name: &str| names::check("backend name", name).is_ok();
    let what = "a name as HAProxy takes it: letters, digits, - _ . and :";
    cursor.text_if(what, valid).map(str::to_owned)
}
