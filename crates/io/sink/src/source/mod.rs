//! What tells of requests where the balancer itself does not: its access log, sent by syslog, or queries of a
//! Prometheus. A source tells and does not steer; it takes the place of the counters in what any sink reports, and
//! leaves it the weights.

mod access_log;
mod envoy;
mod flights;
mod line;
mod prometheus;
mod relay;

use std::collections::BTreeSet;
use std::time::Instant;

use plimsoll_config::{Cursor, Once};
use plimsoll_model::BackendId;

pub use access_log::AccessLog;
pub use line::{LogFormat, NGINX_FORMAT};
pub use prometheus::{Prometheus, Signal, Told};

use crate::steer::SinkHandle;

/// What tells of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The balancer's access log.
    AccessLog(AccessLog),
    /// Queries of a Prometheus.
    Prometheus(Prometheus),
}

impl Source {
    /// What may stand in `source`, for messages.
    pub const FORMS: &str = "{ access_log: { listen: …, format: … } } or { prometheus: { url: …, rate: …, latency: … } }";

    /// Its key in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            Source::AccessLog(_) => "access_log",
            Source::Prometheus(_) => "prometheus",
        }
    }

    /// Reads `source`: `{ access_log: { … } }` or `{ prometheus: { … } }`. No other of `taken` listens where it
    /// does.
    pub fn read(cursor: &Cursor<'_>, taken: &mut Once<String>) -> Option<Self> {
        let fields = cursor.fields(&["access_log", "prometheus"])?;
        let one = format!("one source: {}", Self::FORMS);
        match (fields.get("access_log"), fields.get("prometheus")) {
            (Some(c), None) => AccessLog::read(c, taken).map(Source::AccessLog),
            (None, Some(c)) => Prometheus::read(c).map(Source::Prometheus),
            (None, None) => cursor.expected(one),
            (Some(_), Some(_)) => cursor.expected(format!("{one}, not both")),
        }
    }
}

/// Stands between a sink's task and its service.
pub(crate) struct Sourced {
    pub(crate) source: Source,
    /// What the pool is called in each of its balancers.
    pub(crate) pools: BTreeSet<String>,
    /// Names and addresses by which the source calls the servers.
    pub(crate) servers: Vec<(String, BackendId)>,
    pub(crate) origin: Instant,
}

/// Starts it on the runtime of the caller; it ends when the handle is dropped.
pub(crate) fn start(sourced: Sourced, sink: SinkHandle) -> SinkHandle {
    let Sourced { source, pools, servers, origin } = sourced;
    let servers = servers.into_iter().collect();
    let (handle, end) = SinkHandle::new();
    match source {
        Source::AccessLog(log) => {
            let (known, listener) = log.start(pools, servers, origin);
            tokio::spawn(async move {
                relay::pass(known, sink, end, origin).await;
                listener.abort();
            });
        }
        Source::Prometheus(prometheus) => {
            let (known, asker) = prometheus.start(servers);
            tokio::spawn(async move {
                relay::pass(known, sink, end, origin).await;
                asker.abort();
            });
        }
    }
    handle
}
