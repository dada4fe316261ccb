use plimsoll_model::{BackendId, Method, MethodKind, ServerStatus};

use super::link::LinkError;
use super::stat::{BACKEND_ROW, SERVER_ROW, Stat, StatTable};
use super::steered::status;
use super::table::small;
use super::{HaproxySink, SteeredBackend, info};
use crate::SinkError;

/// What a socket of HAProxy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLevel {
    /// Reads little: not even how a backend picks.
    User,
    /// Reads all, changes nothing that matters here.
    Operator,
    /// Sets weights.
    Admin,
}

impl AccessLevel {
    /// HAProxy's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            AccessLevel::User => "user",
            AccessLevel::Operator => "operator",
            AccessLevel::Admin => "admin",
        }
    }

    pub(super) fn parse(answer: &[u8]) -> Option<Self> {
        match answer {
            b"user" => Some(AccessLevel::User),
            b"operator" => Some(AccessLevel::Operator),
            b"admin" => Some(AccessLevel::Admin),
            _ => None,
        }
    }
}

/// Whether a server has an agent-check, which may set its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// None is configured.
    Absent,
    /// Configured, and switched off (`disable agent`).
    Disabled,
    /// It may set the weight at any time: Plimsoll refuses to steer.
    Active,
}

/// One server as HAProxy has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedServer {
    /// Its name in HAProxy.
    pub name: String,
    /// Its id with us; none for a server that is not steered.
    pub backend: Option<BackendId>,
    /// Its address; empty at `level user`.
    pub address: String,
    /// Health and administrative state.
    pub status: ServerStatus,
    /// HAProxy's own words for it, such as `UP 1/3` or `MAINT (via shop/s1)`.
    pub status_text: String,
    /// The weight as set.
    pub weight: u32,
    /// The weight in effect; less than `weight` during a slowstart.
    pub effective_weight: u32,
    /// The weight in the configuration.
    pub initial_weight: u32,
    /// It serves only when all others are down.
    pub is_backup: bool,
    /// Most requests at a time; none when there is no limit.
    pub maxconn: Option<u32>,
    /// Requests that wait for this server in HAProxy.
    pub queued: u32,
    /// Whether a health check is on.
    pub checked: bool,
    /// What the last health check said; empty when there was none.
    pub check_status: String,
    /// Whether an agent may set the weight.
    pub agent: AgentState,
}

/// The raw facts about a backend and its balancer, for people to judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// HAProxy's version.
    pub version: String,
    /// Its process number.
    pub pid: u32,
    /// When it started, seconds since 1970; 0 where it does not tell.
    pub started_at: u64,
    /// How many threads it has.
    pub threads: u32,
    /// Its connection limit.
    pub maxconn: u32,
    /// Requests that wait in HAProxy for any server to be free.
    pub queued: u32,
    /// What the socket allows, where HAProxy tells.
    pub level: Option<AccessLevel>,
    /// How the backend picks; the name is empty at `level user`, which does not get it.
    pub method: Method,
    /// Every server of the backend, steered or not, in HAProxy's order.
    pub servers: Vec<InspectedServer>,
    /// Names that are to be steered and do not exist.
    pub missing: Vec<String>,
}

impl HaproxySink {
    /// Everything that HAProxy tells about the backend, also where it could not be steered.
    ///
    /// # Errors
    /// When HAProxy cannot be reached or understood, or has no such backend.
    pub async fn inspect(&mut self) -> Result<Inspection, SinkError> {
        let HaproxySink { connection, backend } = self;
        connection.poll(&mut [&mut *backend], true).await?;
        let id = connection.found(backend)?;
        let lines = format!("show info\nshow stat {id} 6 -1\n");
        let asked = connection.link.exchange(&lines).await;
        asked.map(|_| ()).map_err(|error| connection.link.error(error))?;
        let answers = connection.link.answers();
        let (details, queued) = backend
            .details(answers.get(1))
            .map_err(|reason| connection.link.error(LinkError::Protocol(reason)))?;
        let text = answers.get(0);
        let number = |key| info::value(text, key).and_then(|n| n.parse().ok()).unwrap_or(0);
        let (threads, maxconn) = (number("Nbthread"), number("Maxconn"));
        let version = info::value(text, "Version").unwrap_or_default();
        let servers = backend.inspected(&details);
        let exists = |name: &String| servers.iter().any(|server| &server.name == name);
        let missing = backend.roster.servers().iter().map(|(_, name)| name.clone());
        let missing = missing.filter(|name| !exists(name)).collect();
        let method = if backend.snapshot.algo.is_empty() {
            Method { name: String::new(), kind: MethodKind::NoLiveWeights }
        } else {
            connection.learn_method(backend).await?
        };
        Ok(Inspection {
            version,
            pid: backend.snapshot.process.pid,
            started_at: backend.snapshot.process.started_at,
            threads,
            maxconn,
            queued,
            level: connection.level(),
            method,
            servers,
            missing,
        })
    }
}

impl SteeredBackend {
    fn inspected(&self, details: &[Details]) -> Vec<InspectedServer> {
        let rows = self.snapshot.rows.iter();
        rows.filter_map(|row| {
            let detail = details.iter().find(|detail| detail.name == row.name)?.clone();
            let known = self.roster.servers().iter().find(|(_, name)| *name == row.name);
            let agent = match (row.state.agent_configured(), row.state.agent_active()) {
                (_, true) => AgentState::Active,
                (true, false) => AgentState::Disabled,
                (false, false) => AgentState::Absent,
            };
            Some(InspectedServer {
                name: row.name.clone(),
                backend: known.map(|(id, _)| *id),
                address: detail.address,
                status: status(&row.state),
                status_text: detail.status,
                weight: row.state.weight,
                effective_weight: detail.effective_weight,
                initial_weight: row.state.initial_weight,
                is_backup: detail.is_backup,
                maxconn: detail.maxconn,
                queued: row.queued,
                checked: row.state.checked(),
                check_status: detail.check_status,
                agent,
            })
        })
        .collect()
    }

    /// What a poll passes over: of its servers, and how many requests wait for any of them.
    fn details(&self, stat: &[u8]) -> Result<(Vec<Details>, u32), String> {
        let (mut details, mut queued) = (Vec::new(), 0);
        StatTable::new().read(stat, |row| {
            let text = |column| String::from_utf8_lossy(row.get(column)).into_owned();
            let ours = row.get(Stat::Proxy) == self.name.as_bytes();
            if ours && row.get(Stat::Kind) == BACKEND_ROW {
                queued = small("qcur", row.get(Stat::Queued))?;
            }
            if ours && row.get(Stat::Kind) == SERVER_ROW {
                let maxconn = small("slim", row.get(Stat::MaxConn))?;
                details.push(Details {
                    name: text(Stat::Server),
                    status: text(Stat::Status),
                    address: text(Stat::Address),
                    check_status: text(Stat::CheckStatus),
                    effective_weight: small("weight", row.get(Stat::EffectiveWeight))?,
                    is_backup: row.get(Stat::Backup) == b"1",
                    maxconn: (maxconn > 0).then_some(maxconn),
                });
            }
            Ok(())
        })?;
        Ok((details, queued))
    }
}

#[derive(Clone)]
struct Details {
    name: String,
    status: String,
    address: String,
    check_status: String,
    effective_weight: u32,
    is_backup: bool,
    maxconn: Option<u32>,
}
