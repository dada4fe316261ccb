//! Reports of the balancer become windows of traffic; changes by other parties are detected.

pub(crate) mod balancer;
pub(crate) mod pool;
pub(crate) mod reports;
pub(crate) mod traffic;

use std::time::Duration;

/// No plan is made from a report older than this.
pub(crate) const STALE: Duration = Duration::from_secs(2);
