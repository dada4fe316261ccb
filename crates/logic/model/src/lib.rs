//! The words every part of Plimsoll shares: backends ([`BackendId`]), when ([`Nanos`]), what was
//! measured ([`Outcome`], [`BalancerReport`]), what load does to latency ([`Curve`]) and what a
//! balancer is told ([`Plan`]).
//!
//! Nothing here decides anything, and nothing here knows a clock or a socket.

mod balancer;
mod curve;
mod outcome;
mod plan;
mod time;

pub use balancer::{
    BalancerReport, Method, MethodKind, ResponseTimes, ServerReport, ServerStatus, Traffic,
};
pub use curve::{Curve, Hyperbola};
pub use outcome::{FailureKind, Outcome};
pub use plan::{Applied, GREATEST_WEIGHT, Objective, Plan, PlanEntry, PlanKind, SinkLimits};
pub use time::Nanos;

use serde::{Deserialize, Serialize};

/// A backend's identity: given once when it joins, stable for its life, never reused, and never made
/// from its weight, its address or its position in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BackendId(pub u32);

impl std::fmt::Display for BackendId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b{}", self.0)
    }
}
