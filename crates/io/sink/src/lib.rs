//! Programs weights into balancers that Plimsoll did not build, and reads back what they hold.
//!
//! [`WeightSink`] is what the daemon sees. [`HaproxySink`] drives HAProxy over its runtime API: one
//! kept connection, one write per batch, every answer attributed to its command. [`L4Sink`] drives
//! Plimsoll's own layer-4 balancer through its daemon's socket.
//!
//! A plan is checked before anything is sent, undone when it fails halfway, and [`Applied`] says what
//! the balancer really holds afterwards.

mod error;
mod haproxy;
mod l4;
mod servers;

use std::future::Future;

use plimsoll_model::{Applied, BalancerReport, Plan, SinkLimits};

pub use error::{SinkError, SinkErrorKind};
pub use haproxy::{
    AccessLevel, AgentState, HaproxyConfig, HaproxyConnection, HaproxySink, InspectedServer,
    Inspection, ProcessIdentity, SocketAddress, SteeredBackend, Witness, haproxy_limits,
};
pub use l4::{L4Sink, L4SinkConfig, wire};

/// A balancer whose weights can be set and read while it runs.
pub trait WeightSink: Send {
    /// What the balancer bears: its range of weights, and how often they may change.
    fn limits(&self) -> SinkLimits;

    /// Programs all weights of a plan, sending only those that differ from what the balancer holds
    /// now.
    ///
    /// # Errors
    /// Nothing is sent when the plan, a name, the method or the permission is wrong. When a command
    /// fails halfway, the weights already changed are put back, and the error says which.
    fn apply(&mut self, plan: &Plan) -> impl Future<Output = Result<Applied, SinkError>> + Send;

    /// What the balancer holds and has counted: method, weights, states, requests.
    ///
    /// # Errors
    /// When the balancer cannot be reached or understood, or does not know a configured name.
    fn read_back(&mut self) -> impl Future<Output = Result<BalancerReport, SinkError>> + Send;
}
