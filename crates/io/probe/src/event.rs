use plimsoll_model::{BackendId, FailureKind, Nanos};

use crate::{Detail, ProbeResult};

/// One probe has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeEvent {
    /// The backend that it measured.
    pub backend: BackendId,
    /// What it found.
    pub result: ProbeResult,
    /// When it ended.
    pub at: Nanos,
}

/// One round of liveness has ended: all its checks have succeeded or failed.
///
/// Rounds overlap while one hangs, so a later round may end first: `started` tells their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivenessEvent {
    /// The backend that was checked.
    pub backend: BackendId,
    /// How many checks succeeded.
    pub successes: u32,
    /// How many failed. Checks that this machine could not make count as neither.
    pub failures: u32,
    /// The kind of the failure that came first.
    pub first_failure: Option<FailureKind>,
    /// What that failure was, for people; empty when there was none.
    pub detail: Detail,
    /// When the round began.
    pub started: Nanos,
    /// When the last of its checks ended.
    pub at: Nanos,
}
