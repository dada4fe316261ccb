//! `sink: { nginx: { … } }`

use std::time::Duration;

use plimsoll_config::Cursor;
use plimsoll_model::SinkLimits;

use super::{NginxSink, check_name, link};
use crate::haproxy::{SocketAddress, config::socket};
use crate::steer::{self, Poll, Servers, SinkConfig, SinkHandle, Steered, Steering, absolute};
use crate::{FoundPool, SinkError};

/// Where NGINX's Lua balancer listens, and which of its upstreams is steered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NginxConfig {
    /// The local socket of the Lua balancer.
    pub socket: SocketAddress,
    /// The upstream's name.
    pub upstream: String,
    /// Time between two readings of its counters.
    pub poll: Poll,
    /// Bound on one question and its answer.
    pub timeout: Duration,
}

impl NginxConfig {
    /// With the default of everything else.
    pub fn new(socket: SocketAddress, upstream: &str) -> Self {
        let upstream = upstream.to_owned();
        NginxConfig { socket, upstream, poll: Poll::default(), timeout: steer::TIMEOUT }
    }
}

impl SinkConfig for NginxConfig {
    const KEY: &'static str = "nginx";
    const FORM: &'static str = "{ socket: …, upstream: … }";
    const POOL: (&'static str, &'static str) = ("an NGINX upstream", "upstream");
    const REPORTS_LOSSES: bool = true;

    fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&["socket", "upstream", "poll", "timeout"])?;
        let what = "the Lua balancer's socket: a path, or host:port";
        let socket = fields.required("socket", what, socket);
        let what = "the upstream's name in NGINX";
        let upstream = fields.required("upstream", what, |c| {
            let what = "a name of letters, digits, - _ . and :";
            c.text_if(what, |name| check_name("upstream's name", name).is_ok()).map(str::to_owned)
        });
        let poll = fields.or("poll", Poll::default(), steer::poll);
        let timeout = fields.or("timeout", steer::TIMEOUT, steer::timeout);
        let (socket, upstream) = (socket?, upstream?);
        Some(NginxConfig { socket, upstream, poll: poll?, timeout: timeout? })
    }

    fn limits(&self) -> SinkLimits {
        super::limits()
    }

    fn check(&self, servers: &Servers) -> Result<(), SinkError> {
        NginxSink::new(self.clone(), servers.clone()).map(drop)
    }

    fn place(&self) -> String {
        link::place(&self.socket)
    }

    fn spelled_out(&self) -> Self {
        NginxConfig { socket: self.socket.spelled_out(), ..self.clone() }
    }

    fn pool(&self) -> &str {
        &self.upstream
    }

    fn with_pool(&self, name: &str) -> Self {
        NginxConfig { upstream: name.to_owned(), ..self.clone() }
    }

    fn written(&self) -> Vec<(&'static str, String)> {
        let socket = match &self.socket {
            SocketAddress::Unix(path) => absolute(path),
            SocketAddress::Tcp(address) => address.clone(),
        };
        vec![("socket", socket), ("upstream", self.upstream.clone())]
    }

    async fn look(&self) -> Result<Vec<FoundPool>, SinkError> {
        super::look(self).await
    }

    fn start(&self, steering: &Steering, steered: Steered) -> Result<SinkHandle, SinkError> {
        let sink = NginxSink::new(self.clone(), steered.servers)?.with_origin(steering.origin);
        Ok(steer::start_dedicated(sink, self.poll))
    }
}
