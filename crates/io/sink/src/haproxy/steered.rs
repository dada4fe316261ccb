use plimsoll_model::{
    BackendId, BalancerReport, Method, Nanos, ServerReport, ServerStatus, Traffic,
};

use super::catalogue::Catalogue;
use super::names;
use super::snapshot::{ServerRow, Snapshot};
use super::state::ServerState;
use crate::SinkError;
use crate::servers::Roster;

/// One backend of a HAProxy whose servers are steered, and what was last read of it.
pub struct SteeredBackend {
    pub(super) name: String,
    pub(super) roster: Roster,
    /// The connection on which it was found.
    opened: u64,
    /// How it picks, as learned on that connection.
    pub(super) method: Option<Method>,
    pub(super) snapshot: Snapshot,
}

impl SteeredBackend {
    /// The backend of this name; `servers` are given with their names in HAProxy.
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that HAProxy could not have, or that come twice.
    pub fn new(name: &str, servers: Vec<(BackendId, String)>) -> Result<Self, SinkError> {
        names::check("backend name", name)?;
        Ok(SteeredBackend {
            name: name.to_owned(),
            roster: Roster::new(servers, names::check)?,
            opened: 0,
            method: None,
            snapshot: Snapshot::new(),
        })
    }

    /// Its name in HAProxy.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Forgets which connection it was found on: the next one may be another with the same number.
    pub fn leave_connection(&mut self) {
        self.opened = 0;
    }

    /// Replaces the servers that are steered: some joined or left.
    ///
    /// # Errors
    /// As [`SteeredBackend::new`]; the present servers then stay.
    pub fn set_servers(&mut self, servers: Vec<(BackendId, String)>) -> Result<(), SinkError> {
        self.roster.set(servers)
    }

    /// Looks it up among the backends of a newly opened connection. False when it is not there.
    pub(super) fn find(&mut self, opened: u64, catalogue: &Catalogue) -> bool {
        if self.opened == opened && self.snapshot.backend_id.is_some() {
            return true;
        }
        self.opened = opened;
        self.method = None;
        self.snapshot.forget_states();
        let found = catalogue.get(&self.name);
        self.snapshot.backend_id = found.map(|entry| entry.id);
        self.snapshot.algo = found.map(|entry| entry.algo.clone()).unwrap_or_default();
        found.is_some()
    }

    /// HAProxy no longer has it.
    pub(super) fn lose(&mut self) {
        self.snapshot.backend_id = None;
    }

    pub(super) fn report(&mut self, at: Nanos, method: Method) -> BalancerReport {
        let SteeredBackend { roster, snapshot, .. } = self;
        let row = |hint, id, name: &str| snapshot.row(hint, name).map(|row| server_report(id, row));
        let servers = roster.report(row);
        BalancerReport {
            at,
            method,
            generation: self.generation(),
            traffic: Traffic::Counted,
            servers,
        }
    }

    /// Which life of which process: its start, its number, and how often its counters were cleared.
    pub(super) fn generation(&self) -> u64 {
        let process = &self.snapshot.process;
        (process.started_at << 32)
            | (u64::from(process.pid & 0xff_ffff) << 8)
            | (self.snapshot.resets & 0xff)
    }

    /// All servers that are steered must exist, or have existed.
    pub(super) fn require_servers(&self) -> Result<(), SinkError> {
        let is_there = |hint: usize, name: &str| self.snapshot.row(hint, name).is_some();
        self.roster.require(is_there).map_err(|missing| {
            let (backend, exist) = (self.name.clone(), self.snapshot.names());
            SinkError::UnknownServers { backend, missing, exist }
        })
    }

    /// Those steered servers whose weight an agent may set as well.
    pub(super) fn with_active_agents(&self) -> Vec<String> {
        let rows = self.roster.servers().iter().enumerate();
        rows.filter_map(|(hint, (_, name))| self.snapshot.row(hint, name))
            .filter(|row| row.state.agent_active())
            .map(|row| row.name.clone())
            .collect()
    }
}

fn server_report(backend: BackendId, row: &ServerRow) -> ServerReport {
    ServerReport {
        backend,
        weight: row.state.weight,
        status: status(&row.state),
        checked: row.state.checked(),
        in_flight: row.in_flight,
        queued: row.queued,
        started_total: row.started,
        errors_total: row.errors,
        answered_total: row.answered,
        response_times: None,
    }
}

/// The numeric states tell an administrator's drain from a weight of 0, which texts do not in every
/// version. A server that its own health check declares `stopping` (404 under `disable-on-404`) gets
/// no new traffic either: drained.
pub(super) fn status(state: &ServerState) -> ServerStatus {
    match state.operation {
        _ if state.in_maintenance() => ServerStatus::Maintenance,
        0 => ServerStatus::Down,
        _ if state.drained() => ServerStatus::Drain,
        1 => ServerStatus::Starting,
        3 => ServerStatus::Drain,
        _ => ServerStatus::Up,
    }
}
