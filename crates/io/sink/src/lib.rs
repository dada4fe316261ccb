//! Programs weights into balancers that Plimsoll did not build, and reads back what they hold.
//!
//! What steers is a [`WeightSink`], what reports rates, requests in flight and weights a [`ReportSource`];
//! [`HaproxySink`] (over HAProxy's runtime API: one kept connection, one write per batch, every answer attributed
//! to its command), [`NginxSink`] (a balancer in Lua, over a local socket), [`OwnSink`] (Plimsoll's own layer-4
//! balancer and layer-7 proxy, through their daemons' sockets) are both; [`NginxReloadSink`] only steers, and a
//! [`Source`] (an access log, a Prometheus) only reports. [`Sinks`] are several of them before one pool.
//!
//! A daemon sees neither: it reads a [`Sink`] from the configuration, starts it, and holds a [`SinkHandle`] to give
//! plans to and to take reports from. A new balancer is a module with a [`SinkConfig`], and a line in `registry`
//! (and an arm in `plimsoll doctor`, which looks at what is special about each).
//!
//! A plan is checked before anything is sent, undone when it fails halfway, and [`Applied`] says what
//! the balancer really holds afterwards.

mod error;
mod found;
mod haproxy;
mod nginx;
mod own;
mod registry;
mod servers;
mod sinks;
mod socket;
mod source;
mod steer;
mod whole;

use std::future::Future;

use plimsoll_model::{Applied, BalancerReport, Plan, SinkLimits};

pub use error::{SinkError, SinkErrorKind};
pub use found::{FoundPool, FoundServer, LeftAlone};
pub use haproxy::{
    AccessLevel, AgentState, HaproxyConfig, HaproxyConnection, HaproxySink, InspectedServer,
    Inspection, ProcessIdentity, SocketAddress, SteeredBackend, Witness,
};
pub use nginx::{
    NginxConfig, NginxPool, NginxReloadConfig, NginxReloadSink, NginxServer, NginxSink,
    nginx_snippet,
};
pub use own::{L4SinkConfig, OwnSink, ProxySinkConfig, wire};
pub use registry::{Sink, one_sink};
pub use sinks::Sinks;
pub use source::{AccessLog, LogFormat, NGINX_FORMAT, Prometheus, Signal, Source, Told};
pub use steer::{Loss, Poll, Servers, SinkConfig, SinkHandle, SinkReport, Steered, Steering};

/// A balancer whose weights can be set while it runs.
pub trait WeightSink: Send {
    /// What the balancer can take: its range of weights, and how often they may change.
    fn limits(&self) -> SinkLimits;

    /// Replaces the servers that are steered, given with their names in the balancer: some joined or left.
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that the balancer could not have, or that come twice; the present
    /// servers then stay.
    fn set_servers(&mut self, servers: Servers) -> Result<(), SinkError>;

    /// Programs all weights of a plan, sending only those that differ from what the balancer holds
    /// now.
    ///
    /// # Errors
    /// Nothing is sent when the plan, a name, the method or the permission is wrong. When a command
    /// fails halfway, the weights already changed are put back, and the error says which.
    fn apply(&mut self, plan: &Plan) -> impl Future<Output = Result<Applied, SinkError>> + Send;
}

/// Reports what a balancer holds and has counted.
pub trait ReportSource: Send {
    /// Reads method, weights, states, and the requests since it started.
    ///
    /// # Errors
    /// When the balancer cannot be reached or understood, or does not know a configured name.
    fn read(&mut self) -> impl Future<Output = Result<BalancerReport, SinkError>> + Send;
}
