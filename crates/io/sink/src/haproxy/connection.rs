use std::time::{Duration, Instant};

use plimsoll_model::{BalancerReport, Method, Nanos};

use super::catalogue::Catalogue;
use super::info::{self, ProcessInfo};
use super::link::{Link, LinkError};
use super::stat::{SERVER_ROW, Stat, StatTable};
use super::state::StateTable;
use super::table::number;
use super::{AccessLevel, SocketAddress, SteeredBackend, method};
use crate::SinkError;

/// HAProxy's answer when it has no such backend.
const NO_BACKEND: &[u8] = b"Can't find backend.";
/// What a command costs HAProxy besides its rows, in rows: 12 µs beside 3 (measured on 2.6).
const COMMAND_IN_ROWS: usize = 4;
/// With so many servers their states are read with every poll …
const FEW_SERVERS: usize = 100;
/// … and with more so often, and whenever `show stat` shows another status or weight: they cost HAProxy
/// a sixth of a poll, and change seldom.
const STATES_EVERY: Duration = Duration::from_secs(1);

/// One connection to the runtime API of one HAProxy, for all of its backends that are steered.
///
/// All calls may be dropped while they wait: the connection is then closed, and the next call opens a
/// new one.
pub struct HaproxyConnection {
    pub(super) link: Link,
    may_reopen: bool,
    /// How often it was opened: what was learned on an earlier connection may be of another process.
    opened: u64,
    /// What the socket allows, where HAProxy tells.
    level: Option<AccessLevel>,
    process: ProcessInfo,
    catalogue: Catalogue,
    stat: StatTable,
    state: StateTable,
    origin: Instant,
    /// The commands of a poll, and which backend has which number; kept for their room.
    lines: String,
    places: Vec<(u64, usize)>,
}

/// Which process answers on a connection, and what this connection may ask of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The name of its machine.
    pub node: String,
    /// Its number there.
    pub pid: u32,
    /// When it started, seconds since 1970.
    pub started_at: u64,
    /// The level of the socket: two sockets of one process may allow different things.
    pub level: Option<AccessLevel>,
}

/// What a process says of itself at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Which process it says it is.
    pub identity: ProcessIdentity,
    /// Bytes it has sent to anybody so far.
    pub sent: u64,
    /// Bytes it sent to us since, which it counts afterwards.
    pub answered: u64,
}

impl Witness {
    /// Whether three answers, asked for one after the other on one connection, another one, and the first
    /// again, come from one process. Number and start alone do not prove it (containers have few numbers,
    /// and start together): but only one process counts what both connections were sent.
    pub fn is_one_process(first: &Witness, other: &Witness, last: &Witness) -> bool {
        first.identity == other.identity
            && first.identity == last.identity
            && first.sent > 0
            && other.sent >= first.sent + first.answered
            && last.sent >= other.sent + other.answered
    }
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

    /// Whether a connection that was cut is opened anew by itself (it is unless told otherwise): what answers
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

    /// Who answers, and a proof of it; see [`Witness::is_one_process`].
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
    async fn list(&mut self) -> Result<(), LinkError> {
        self.link.exchange("show servers state\nshow stat -1 2 -1\n").await?;
        let answers = self.link.answers();
        let HaproxyConnection { state, stat, catalogue, .. } = self;
        let read = catalogue.read(answers.get(0), state, answers.get(1), stat);
        self.understood(read)
    }

    /// One poll. The backends' snapshots are changed only by whole answers.
    async fn ask(
        &mut self,
        backends: &mut [&mut SteeredBackend],
        counters: bool,
    ) -> Result<(), LinkError> {
        let opened = self.opened;
        if backends.iter_mut().any(|b| !b.find(opened, &self.catalogue)) {
            // It may have been added since.
            self.list().await?;
            backends.iter_mut().for_each(|b| {
                b.find(opened, &self.catalogue);
            });
        }
        let whole = self.is_whole_cheaper(backends.iter().map(|b| b.snapshot.rows.len()));
        let read = self.rows_of(backends.iter().map(|b| b.snapshot.rows.len()));
        let now = Instant::now();
        let old = |b: &&mut SteeredBackend| !b.snapshot.has_states_since(now, STATES_EVERY);
        let states = !counters || read <= FEW_SERVERS || backends.iter().any(old);
        self.write_lines(backends, whole, states, counters);
        self.link.exchange(&self.lines).await?;
        let taken = self.take(backends, whole, states, counters);
        self.understood(taken)?;
        if states { Ok(()) } else { self.reread_states(backends).await }
    }

    /// A backend is asked for by number, because `show stat NAME` takes a frontend of that name first. One
    /// that was not found is left out.
    fn write_lines(
        &mut self,
        backends: &[&mut SteeredBackend],
        whole: bool,
        states: bool,
        counters: bool,
    ) {
        use std::fmt::Write as _;
        let lines = &mut self.lines;
        lines.clear();
        lines.push_str("show info\n");
        if whole {
            lines.push_str(if states { "show servers state\n" } else { "" });
            lines.push_str(if counters { "show stat -1 4 -1\n" } else { "" });
            return;
        }
        for backend in backends {
            let Some(id) = backend.snapshot.backend_id else { continue };
            if states {
                let _ = writeln!(lines, "show servers state {}", backend.name);
            }
            if counters {
                let _ = writeln!(lines, "show stat {id} 4 -1");
            }
        }
    }

    /// Takes over the answers to [`HaproxyConnection::write_lines`].
    fn take(
        &mut self,
        backends: &mut [&mut SteeredBackend],
        whole: bool,
        states: bool,
        counters: bool,
    ) -> Result<(), String> {
        let HaproxyConnection { link, process, state, stat, places, .. } = self;
        let answers = link.answers();
        let mut texts = (0..).map(|at| answers.get(at));
        let mut next = || texts.next().unwrap_or_default();
        *process = ProcessInfo::parse(next())?;
        if whole {
            places.clear();
            let known = backends.iter().enumerate();
            places.extend(known.filter_map(|(at, b)| Some((b.snapshot.backend_id?, at))));
            places.sort_unstable();
            if states {
                read_all_states(state, next(), backends, places)?;
            }
            if counters {
                read_all_counters(stat, next(), backends, places)?;
            }
        } else {
            for b in backends.iter_mut().filter(|b| b.snapshot.backend_id.is_some()) {
                if states {
                    let text = next();
                    if text == NO_BACKEND {
                        b.lose();
                    } else {
                        b.snapshot.read_states(state, text)?;
                    }
                }
                if counters {
                    let text = next();
                    if b.snapshot.backend_id.is_some() {
                        stat.read(text, |row| match row.get(Stat::Kind) {
                            SERVER_ROW => b.snapshot.count(&row),
                            _ => Ok(()),
                        })?;
                    }
                }
            }
        }
        for b in backends {
            b.snapshot.end_poll(*process, counters);
        }
        Ok(())
    }

    /// Reads the states of those whose rows tell that something has changed.
    async fn reread_states(
        &mut self,
        backends: &mut [&mut SteeredBackend],
    ) -> Result<(), LinkError> {
        use std::fmt::Write as _;
        self.lines.clear();
        for b in backends.iter().filter(|b| b.snapshot.has_changed()) {
            let _ = writeln!(self.lines, "show servers state {}", b.name);
        }
        if self.lines.is_empty() {
            return Ok(());
        }
        self.link.exchange(&self.lines).await?;
        let HaproxyConnection { link, state, .. } = self;
        let changed = backends.iter_mut().filter(|b| b.snapshot.has_changed()).enumerate();
        let mut read = Ok(());
        for (at, b) in changed {
            read = read.and_then(|()| b.snapshot.read_states(state, link.answers().get(at)));
        }
        self.understood(read)
    }

    /// Whether reading every backend of this HAProxy costs it less than these alone.
    fn is_whole_cheaper(&self, servers: impl ExactSizeIterator<Item = usize>) -> bool {
        let backends = servers.len();
        self.catalogue.servers() <= servers.sum::<usize>() + COMMAND_IN_ROWS * backends
    }

    /// How many rows reading backends of so many servers costs.
    fn rows_of(&self, servers: impl ExactSizeIterator<Item = usize>) -> usize {
        let alone = COMMAND_IN_ROWS * servers.len();
        (alone + servers.sum::<usize>()).min(self.catalogue.servers())
    }

    /// What a poll of these backends costs HAProxy, as a number of servers.
    pub fn rows<'a>(&self, backends: impl Iterator<Item = &'a SteeredBackend>) -> usize {
        let servers: Vec<usize> = backends.map(|b| b.snapshot.rows.len()).collect();
        self.rows_of(servers.into_iter())
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
    fn understood(&mut self, read: Result<(), String>) -> Result<(), LinkError> {
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

/// Gives every row of `show servers state` to its backend; those of others are passed over.
fn read_all_states(
    table: &mut StateTable,
    text: &[u8],
    backends: &mut [&mut SteeredBackend],
    places: &[(u64, usize)],
) -> Result<(), String> {
    backends.iter_mut().for_each(|b| b.snapshot.begin_states());
    table.read(text, |id, name, state| {
        if let Some(at) = place(places, id) {
            backends[at].snapshot.add_state(name, state);
        }
        Ok(())
    })?;
    backends.iter_mut().for_each(|b| b.snapshot.end_states());
    Ok(())
}

/// The same for `show stat`. A backend's rows follow one another, so that it is looked up once.
fn read_all_counters(
    table: &mut StatTable,
    text: &[u8],
    backends: &mut [&mut SteeredBackend],
    places: &[(u64, usize)],
) -> Result<(), String> {
    let mut last: (&[u8], Option<usize>) = (&[], None);
    table.read(text, |row| {
        let id = row.get(Stat::Id);
        if id != last.0 {
            last = (id, place(places, number("iid", id)?));
        }
        match last.1 {
            Some(at) if row.get(Stat::Kind) == SERVER_ROW => backends[at].snapshot.count(&row),
            _ => Ok(()),
        }
    })
}

fn place(places: &[(u64, usize)], id: u64) -> Option<usize> {
    places.binary_search_by_key(&id, |(id, _)| *id).ok().map(|at| places[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(pid: u32, sent: u64) -> Witness {
        let identity = ProcessIdentity {
            node: "n".into(),
            pid,
            started_at: 9,
            level: Some(AccessLevel::Admin),
        };
        Witness { identity, sent, answered: 1_000 }
    }

    #[test]
    fn twin_processes_with_the_same_number_and_start_are_not_taken_for_one() {
        let one = |first, other, last| {
            Witness::is_one_process(&witness(8, first), &witness(8, other), &witness(8, last))
        };
        assert!(one(5_000, 6_000, 7_000), "each counts what the other connection was sent");
        assert!(one(5_000, 96_000, 99_000), "and what clients were");
        // Idle twins: each counts its own connection only.
        assert!(!one(5_000, 5_000, 6_000));
        assert!(!one(5_000, 6_000, 6_000));
        assert!(!one(5_000, 900_000, 6_000), "the other has sent much more");
        assert!(!one(0, 1_000, 2_000), "this HAProxy does not count");
        let (other, third) = (witness(9, 6_000), witness(8, 7_000));
        assert!(!Witness::is_one_process(&witness(8, 5_000), &other, &third));
    }
}
