use std::time::{Duration, Instant};

use plimsoll_model::{BalancerReport, Method, Nanos};

use super::catalogue::Catalogue;
use super::info::{self, ProcessInfo};
use super::link::{Link, LinkError};
use super::stat::StatTable;
use super::state::StateTable;
use super::table::number;
use super::{AccessLevel, ProcessIdentity, SocketAddress, SteeredBackend, Witness, method};
use crate::SinkError;

/// One connection to the runtime API of one HAProxy, for all of its backends that are steered.
///
/// All calls may be dropped while they wait: the connection is then closed, and the next call opens a
/// new one.
pub struct HaproxyConnection {
    pub(super) link: Link,
    may_reopen: bool,
    /// How often it was opened: what was learned on an earlier connection may be of another process.
    pub(super) opened: u64,
    /// What the socket allows, where HAProxy tells.
    level: Option<AccessLevel>,
    pub(super) process: ProcessInfo,
    pub(super) catalogue: Catalogue,
    pub(super) stat: StatTable,
    pub(super) state: StateTable,
    origin: Instant,
    /// The commands of a poll, and which backend has which number; kept for their room.
    pub(super) lines: String,
    pub(super) places: Vec<(u64, usize)>,
}

impl HaproxyConnection {
    /// Connects on first use. `timeout` bounds connecting and each exchange.
    /// [`BalancerReport::at`] counts from `origin`.
    pub fn new(socket: SocketAddress, timeout: Duration, origin: Instant) -> Self {
        HaproxyConnection {
            link: Link::new(socket, timeout),
            may_reopen: true,
            opened: 0,
            level: None,
            process: ProcessInfo::default(),
            catalogue: Catalogue::default(),
            stat: StatTable::new(),
            state: StateTable::new(),
            origin,
            lines: String::new(),
            places: Vec::new(),
        }
    }

    /// Where it leads.
    pub fn address(&self) -> &SocketAddress {
        self.link.address()
    }

    /// How often it was opened so far.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Bounds connecting and each exchange from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.link.set_limit(timeout);
    }

    /// Whether it is connected.
    pub fn is_open(&self) -> bool {
        self.link.is_open()
    }

    /// Whether a connection that was cut is opened anew by itself (it is unless set otherwise): what answers
    /// then may be another process.
    pub fn may_reopen(&mut self, may: bool) {
        self.may_reopen = may;
    }

    pub(super) fn set_origin(&mut self, origin: Instant) {
        self.origin = origin;
    }

    pub(super) fn level(&self) -> Option<AccessLevel> {
        self.level
    }

    /// Reads these backends: one write, one read. A kept connection that was cut, or that leads to a process
    /// which a reload has replaced, is opened anew once.
    ///
    /// # Errors
    /// When HAProxy cannot be reached or understood; an error of one backend alone stands in its place.
    pub async fn read(
        &mut self,
        backends: &mut [&mut SteeredBackend],
    ) -> Result<Vec<Result<BalancerReport, SinkError>>, SinkError> {
        self.poll(backends, true).await?;
        let at = Nanos::ZERO + self.origin.elapsed();
        let mut reports = Vec::with_capacity(backends.len());
        for backend in backends {
            reports.push(match self.check(backend) {
                Err(error) => Err(error),
                Ok(()) => self.learn_method(backend).await.map(|method| backend.report(at, method)),
            });
        }
        Ok(reports)
    }

    /// The process that answers, and a proof of it; see [`Witness::is_one_process`].
    ///
    /// # Errors
    /// When HAProxy cannot be reached or understood.
    pub async fn witness(&mut self) -> Result<Witness, SinkError> {
        let asked = self.link.exchange("show info\n").await;
        asked.map(|_| ()).map_err(|error| self.link.error(error))?;
        let text = self.link.answers().get(0);
        let told = ProcessInfo::parse(text).and_then(|process| {
            let sent = info::value(text, "TotalBytesOut").unwrap_or_default();
            Ok((process, number("TotalBytesOut", sent.as_bytes())?))
        });
        let (process, sent) = told.map_err(|why| self.link.error(LinkError::Protocol(why)))?;
        let identity = ProcessIdentity {
            node: info::value(text, "node").unwrap_or_default(),
            pid: process.pid,
            started_at: process.started_at,
            level: self.level,
        };
        Ok(Witness { identity, sent, answered: text.len() as u64 })
    }

    /// What keeps a backend that was read from being steered, though it can be read.
    pub fn refusal(&self, backend: &SteeredBackend) -> Option<SinkError> {
        if let Some(level) = self.level.filter(|level| *level != AccessLevel::Admin) {
            return Some(self.too_low(level.as_str(), "admin to steer"));
        }
        let servers = backend.with_active_agents();
        (!servers.is_empty())
            .then(|| SinkError::AgentCheck { backend: backend.name.clone(), servers })
    }

    /// Reads states, and counters too where they are asked for.
    pub(super) async fn poll(
        &mut self,
        backends: &mut [&mut SteeredBackend],
        counters: bool,
    ) -> Result<(), SinkError> {
        if self.link.is_open() {
            match self.ask(backends, counters).await {
                Err(LinkError::Cut(_)) => {}
                Err(error) => return Err(self.link.error(error)),
                Ok(()) if self.process.stopping => {}
                Ok(()) => return Ok(()),
            }
        }
        self.link.close();
        if self.opened > 0 && !self.may_reopen {
            return Err(self.link.error(LinkError::Cut(None)));
        }
        let anew = async {
            self.open().await?;
            self.ask(backends, counters).await
        };
        anew.await.map_err(|error| self.link.error(error))?;
        if self.process.stopping {
            self.link.close();
            return Err(SinkError::Unreachable {
                socket: self.link.address().to_string(),
                reason: "HAProxy is stopping".to_owned(),
                source: None,
            });
        }
        Ok(())
    }

    /// Connects, and learns what stays the same for the life of the connection: what the socket
    /// allows, and the backends there are.
    async fn open(&mut self) -> Result<(), LinkError> {
        self.link.open().await?;
        self.opened += 1;
        let answers = self.link.exchange("show cli level\n").await?;
        self.level = AccessLevel::parse(answers.get(0));
        self.list().await
    }

    /// Learns which backends there are.
    pub(super) async fn list(&mut self) -> Result<(), LinkError> {
        self.link.exchange("show servers state\nshow stat -1 2 -1\n").await?;
        let answers = self.link.answers();
        let HaproxyConnection { state, stat, catalogue, .. } = self;
        let read = catalogue.read(answers.get(0), state, answers.get(1), stat);
        self.understood(read)
    }

    /// HAProxy's number of a backend that was read, which must exist.
    pub(super) fn found(&self, backend: &SteeredBackend) -> Result<u64, SinkError> {
        backend.snapshot.backend_id.ok_or_else(|| {
            let (backend, exist) = (backend.name.clone(), self.catalogue.names());
            SinkError::UnknownBackend { backend, exist }
        })
    }

    /// So must all of its servers that are steered.
    pub(super) fn check(&self, backend: &SteeredBackend) -> Result<(), SinkError> {
        self.found(backend)?;
        backend.require_servers()
    }

    /// How the backend picks; asked for once per connection.
    pub(super) async fn learn_method(
        &mut self,
        backend: &mut SteeredBackend,
    ) -> Result<Method, SinkError> {
        if let Some(method) = &backend.method {
            return Ok(method.clone());
        }
        let algo = &backend.snapshot.algo;
        if algo.is_empty() {
            return Err(self.too_low("user", "operator to observe and admin to steer"));
        }
        let method = match method::from_algo(algo) {
            method::Known::Method(method) => method,
            method::Known::Hash(name) => self.ask_hash(backend, name).await?,
        };
        Ok(backend.method.insert(method).clone())
    }

    async fn ask_hash(
        &mut self,
        backend: &SteeredBackend,
        name: String,
    ) -> Result<Method, SinkError> {
        let server = backend.snapshot.rows.first().map_or("s", |row| row.name.as_str());
        let question = method::question(&backend.name, server);
        match self.link.exchange(&question).await {
            Ok(answers) => Ok(method::from_answer(name, answers.get(0))),
            Err(error) => Err(self.link.error(error)),
        }
    }

    /// An answer that makes no sense closes the connection.
    pub(super) fn understood(&mut self, read: Result<(), String>) -> Result<(), LinkError> {
        read.map_err(|reason| {
            self.link.close();
            LinkError::Protocol(reason)
        })
    }

    /// Reads again what a backend's servers hold, out of an answer of this connection.
    pub(super) fn take_states(
        &mut self,
        backend: &mut SteeredBackend,
        answer: usize,
    ) -> Result<(), LinkError> {
        let HaproxyConnection { link, state, .. } = self;
        let read = backend.snapshot.read_states(state, link.answers().get(answer));
        self.understood(read)
    }

    /// The error for a socket whose level is too low.
    pub(super) fn too_low(&self, level: &str, needed: &str) -> SinkError {
        SinkError::Permission {
            socket: self.link.address().to_string(),
            reason: format!(
                "it has level {level}, and needs level {needed}: write `stats socket … level admin` \
                 in haproxy.cfg"
            ),
        }
    }
}
