use std::time::Duration;

use plimsoll_model::{Applied, BackendId, BalancerReport, FailureKind, Nanos, Outcome, Plan};
use serde::{Deserialize, Serialize};

use crate::spec::ServiceSpec;

/// Input of the controller.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed; sent at least every 100 ms.
    Tick,
    /// A reading of the balancer.
    Balancer(BalancerReport),
    /// The balancer could not be read or refuses to be steered. `conflict` is true when waiting will
    /// not help (an agent sets weights, no permission, unknown servers).
    BalancerLost {
        /// The reason, for display.
        reason: String,
        /// Whether an administrator must act.
        conflict: bool,
    },
    /// Of several balancers some cannot be steered, for this reason, and the others can be and are; none: all are
    /// there again.
    BalancersDegraded(Option<String>),
    /// So many of several balancers share the traffic.
    BalancersSharing(u32),
    /// One probe of the work URL came back.
    Probe {
        /// The backend that was probed.
        backend: BackendId,
        /// Success counts as a latency, failure as a drop.
        outcome: Outcome,
        /// Response time, microseconds; meaningless on a failure.
        latency_us: f64,
        /// What went wrong, for display; empty on success.
        detail: String,
    },
    /// One round of liveness checks ended.
    Liveness {
        /// The backend that was checked.
        backend: BackendId,
        /// How many checks of the round succeeded.
        successes: u32,
        /// Why the first failed check failed.
        failure: Option<FailureKind>,
        /// When the round began: rounds overlap, and one that timed out may end after a later one.
        started: Nanos,
    },
    /// The sink carried out a plan.
    Applied(Applied),
    /// The sink did not carry out the plan of this epoch; the balancer holds the weights it held before.
    ApplyFailed {
        /// The plan's epoch.
        epoch: u64,
        /// The reason, for display.
        reason: String,
        /// Whether a retry can help.
        retryable: bool,
    },
    /// The configuration changed: backends join and leave, goals change.
    Reconfigured(Box<ServiceSpec>),
    /// The last event: Plimsoll stops. The plan that follows from it may be sent before the previous one is answered.
    Stopping,
}

/// Output of the controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Program these weights.
    Program(Plan),
    /// Program these weights, which correct the last plan for current backlogs: they need not be recorded or saved.
    Correct(Plan),
    /// Probe this backend with this interval from now on; an interval of zero stops its probes.
    ProbeRate {
        /// The backend.
        backend: BackendId,
        /// Time between rounds.
        interval: Duration,
        /// Probes per round.
        requests: u32,
    },
    /// Check this backend's liveness with this interval from now on.
    CheckRate {
        /// The backend.
        backend: BackendId,
        /// Time between checks; `None`: none for now.
        interval: Option<Duration>,
        /// Make the first check at once, not after an interval.
        at_once: bool,
    },
    /// An event for the log.
    Record(Record),
    /// The memory has changed enough to be saved.
    SaveMemory,
}

/// The kind of a [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A plan was made.
    Plan,
    /// A plan was rolled back because response times rose.
    Rollback,
    /// A backend does not answer and has weight 0 until it does: it may be pausing, or dead.
    SetAside,
    /// A backend that was set aside answers again.
    Restored,
    /// A backend failed.
    Failed,
    /// A backend has weight 0 because it answers clients with errors.
    Ejected,
    /// A failed backend serves again.
    Returned,
    /// An administrator put a backend back into service.
    GivenBack,
    /// A backend was added to the configuration.
    Joined,
    /// A backend was removed from the configuration, or taken out of service by an administrator.
    Left,
    /// A backend's service rate has changed, or the traffic has.
    Drift,
    /// A backend's service rate may have changed, or that of most of the pool has: it is learned again from its own
    /// traffic.
    Doubted,
    /// A backend that was learned again has a greater capacity than before.
    Relearned,
    /// A backend completes more than its estimated capacity.
    Underestimated,
    /// A backend is given a load in order to measure its curve.
    Refresh,
    /// The phase changed.
    Phase,
    /// The balancer was lost, restarted or reached again.
    Balancer,
    /// Another party changed a weight.
    Foreign,
    /// Something that an administrator should know.
    Warning,
}

/// A decision or observation, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What kind of event it is.
    pub kind: RecordKind,
    /// The backend concerned; `None` for the whole service.
    pub backend: Option<String>,
    /// The reason, for display.
    pub reason: String,
}
