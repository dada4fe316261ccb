//! One of several balancers: what it has reported, what it should hold, and what is wrong with it.

use std::fmt;

use plimsoll_model::{Applied, BackendId, BalancerReport, ServerReport, ServerStatus, Traffic};
use tokio::time::Instant;

use crate::steer::handle::{Loss, SinkHandle};
use crate::steer::subsets::Row;

/// What a member is called in messages.
pub struct Named {
    /// The balancer.
    pub place: String,
    /// Its pool, where another member has the same balancer.
    pub pool: Option<String>,
}

impl Named {
    /// What one of its messages says, with its name once: most begin with the balancer themselves.
    pub(super) fn says(&self, message: &str) -> String {
        let rest = message.strip_prefix(&self.place).and_then(|rest| rest.strip_prefix(": "));
        format!("{self}: {}", rest.unwrap_or(message))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pool {
            None => write!(f, "{}", self.place),
            Some(pool) => write!(f, "{}, {pool}", self.place),
        }
    }
}

pub(super) struct Member {
    pub(super) name: Named,
    pub(super) handle: SinkHandle,
    pub(super) last: Option<BalancerReport>,
    /// Its part of what is planned; all, where nothing is divided.
    pub(super) subset: Row,
    /// The weights that it should hold, of those in the plan.
    pub(super) due: Row,
    /// What was last told of the servers that it has.
    pub(super) said: String,
    /// Weights that it holds and should not, as last told.
    pub(super) strays: Row,
    /// It was given another subset, and has not answered yet.
    pub(super) moves: bool,
    /// It has reported since the last sum.
    pub(super) fresh: bool,
    pub(super) heard: Instant,
    /// Why it cannot be read now.
    pub(super) lost: Option<Loss>,
    /// What became of the plan under way.
    pub(super) answer: Option<Result<Applied, Loss>>,
}

impl Member {
    pub(super) fn new(name: Named, handle: SinkHandle) -> Self {
        Member {
            name,
            handle,
            last: None,
            subset: Row::new(),
            due: Row::new(),
            said: String::new(),
            strays: Row::new(),
            moves: false,
            fresh: false,
            heard: Instant::now(),
            lost: None,
            answer: None,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.lost.is_none()
    }

    /// Those of its subset that take no traffic there: what it alone holds down, the others' reports hide.
    pub(super) fn down(&self) -> impl Iterator<Item = BackendId> {
        let servers = self.last.iter().flat_map(|report| &report.servers);
        let down = servers.filter(|server| !server.status.takes_traffic()).map(|s| s.backend);
        down.filter(|id| self.subset.get(id).is_some_and(|weight| *weight > 0))
    }

    /// The weight of a server that it should hold; what it holds, where the plan leaves the server alone.
    pub(super) fn due_or_held(&self, id: BackendId, held: u32) -> u32 {
        self.due.get(&id).copied().unwrap_or(held)
    }

    /// Weights that it holds and should not.
    pub(super) fn strays(&self) -> Row {
        let servers = self.last.iter().flat_map(|report| &report.servers).filter(|s| is_steered(s));
        let strays =
            servers.filter(|s| self.due.get(&s.backend).is_some_and(|due| *due != s.weight));
        strays.map(|server| (server.backend, server.weight)).collect()
    }

    /// Requests that it has given to servers; none where it does not tell.
    pub(super) fn counted(&self) -> Option<u64> {
        let report = self.last.as_ref().filter(|report| report.traffic == Traffic::Counted)?;
        Some(report.servers.iter().fold(0, |sum, server| sum.saturating_add(server.started_total)))
    }
}

/// Whether the weight of a server in one balancer is one that a plan has given it: of one in maintenance, or that has left,
/// it need not be.
pub(super) fn is_steered(server: &ServerReport) -> bool {
    server.status != ServerStatus::Maintenance
}
