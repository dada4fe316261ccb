use std::time::Duration;

use plimsoll_model::{Applied, BackendId, BalancerReport, FailureKind, Nanos, Outcome, Plan};
use serde::{Deserialize, Serialize};

use crate::spec::ServiceSpec;

/// What the world tells the controller.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed; sent at least every 100 ms.
    Tick,
    /// The balancer was read.
    Balancer(BalancerReport),
    /// The balancer could not be read or refuses to be steered. `conflict` is true when waiting will
    /// not help (an agent sets weights, no permission, unknown servers).
    BalancerLost {
        /// For people.
        reason: String,
        /// Whether an administrator must act.
        conflict: bool,
    },
    /// One probe of the work URL came back.
    Probe {
        /// Whom it measured.
        backend: BackendId,
        /// Whether it counts as latency or as a drop.
        outcome: Outcome,
        /// Response time, microseconds; of no meaning on a failure.
        latency_us: f64,
        /// What went wrong, for people; empty on success.
        detail: String,
    },
    /// One round of liveness checks ended.
    Liveness {
        /// Whom it checked.
        backend: BackendId,
        /// How many checks of the round succeeded.
        successes: u32,
        /// Why the first that failed did so.
        failure: Option<FailureKind>,
        /// When the round began: rounds overlap, and one that hung may end after a later one.
        started: Nanos,
    },
    /// The sink carried out a plan.
    Applied(Applied),
    /// The sink did not carry out the plan of this epoch; the balancer holds what it held before.
    ApplyFailed {
        /// The plan's epoch.
        epoch: u64,
        /// For people.
        reason: String,
        /// Whether trying again can help.
        retryable: bool,
    },
    /// The configuration changed: backends join and leave, goals change.
    Reconfigured(Box<ServiceSpec>),
    /// The last event: nobody will steer from now on. A plan that comes of it may follow one that is not answered yet.
    Stopping,
}

/// What the controller asks of the world.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Program these weights.
    Program(Plan),
    /// Program these weights, which correct the last plan for the backlogs of the moment: nothing of them need be kept.
    Correct(Plan),
    /// From now on probe this backend so; `interval` zero stops its probes.
    ProbeRate {
        /// Whom.
        backend: BackendId,
        /// Time between rounds.
        interval: Duration,
        /// Probes per round.
        requests: u32,
    },
    /// From now on check this backend for life so.
    CheckRate {
        /// Whom.
        backend: BackendId,
        /// Time between checks; `None`: none for now.
        interval: Option<Duration>,
        /// The first is wanted at once, not after an interval.
        at_once: bool,
    },
    /// Something worth keeping happened.
    Record(Record),
    /// What was learned has changed enough to be worth keeping.
    SaveMemory,
}

/// The kind of a [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A plan was made.
    Plan,
    /// A plan made clients wait longer and was taken back.
    Rollback,
    /// A backend does not answer and gets nothing until it does: it may pause, or be dead.
    SetAside,
    /// A backend that was set aside answers again.
    Restored,
    /// A backend failed.
    Failed,
    /// A backend gets nothing, for its answers to clients are errors.
    Ejected,
    /// A backend is back.
    Returned,
    /// An administrator gave a backend back.
    GivenBack,
    /// A backend joined.
    Joined,
    /// A backend left.
    Left,
    /// A backend works at another rate than before, or the traffic is another.
    Drift,
    /// A backend may work at another rate than before, or most of the pool does: it is learned anew from its own traffic.
    Doubted,
    /// A backend that was learned anew has a greater capacity than before.
    Relearned,
    /// A backend completes more than its capacity was thought to be.
    Underestimated,
    /// A curve is measured anew on purpose.
    Refresh,
    /// The drain time was measured on purpose.
    Drained,
    /// The phase changed.
    Phase,
    /// The balancer was lost, restarted, or found again.
    Balancer,
    /// Somebody else changed a weight.
    Foreign,
    /// Something an administrator should know.
    Warning,
}

/// One decision or observation, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What kind of thing happened.
    pub kind: RecordKind,
    /// To whom; `None` for the whole service.
    pub backend: Option<String>,
    /// Why, for people.
    pub reason: String,
}
