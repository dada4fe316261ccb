use super::info::ProcessInfo;
use super::link::Answers;
use super::stat::{BACKEND_ROW, SERVER_ROW, Stat, StatRow, StatTable};
use super::state::{ServerState, StateTable};
use super::table::{number, small};

/// What one poll found, kept from poll to poll so that nothing is allocated while nothing changes.
pub(super) struct Snapshot {
    pub(super) process: ProcessInfo,
    /// HAProxy's number of the backend in this process.
    pub(super) backend_id: Option<u64>,
    /// The `algo` of the BACKEND row; empty at `level user`, and while there is no such row.
    pub(super) algo: String,
    /// All servers of the backend, in HAProxy's order.
    pub(super) rows: Vec<ServerRow>,
    /// How often a counter fell while the process stayed: `clear counters all`, or a server deleted
    /// and added again.
    pub(super) resets: u64,
    stat: StatTable,
    state: StateTable,
}

/// One server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerRow {
    pub(super) name: String,
    pub(super) state: ServerState,
    pub(super) in_flight: u32,
    pub(super) queued: u32,
    pub(super) started: u64,
    pub(super) errors: u64,
}

/// The commands of a poll, in the order in which [`Snapshot::read`] takes their answers.
///
/// The backend is asked for by number, because `show stat NAME` takes a frontend of that name first.
/// Without a number (no server yet) all backends are listed, and the others passed over.
pub(super) fn poll(backend: &str, id: Option<u64>) -> String {
    match id {
        Some(id) => format!("show info\nshow servers state {backend}\nshow stat {id} 6 -1\n"),
        None => format!("show info\nshow servers state {backend}\nshow stat -1 6 -1\n"),
    }
}

/// Where the answers of [`poll`] lie.
pub(super) const INFO: usize = 0;
pub(super) const STATE: usize = 1;
pub(super) const STAT: usize = 2;

impl Snapshot {
    pub(super) fn new() -> Self {
        Snapshot {
            process: ProcessInfo::default(),
            backend_id: None,
            algo: String::new(),
            rows: Vec::new(),
            resets: 0,
            stat: StatTable::new(),
            state: StateTable::new(),
        }
    }

    /// Takes over the answers of a poll.
    pub(super) fn read(&mut self, backend: &str, answers: &Answers) -> Result<(), String> {
        let process = ProcessInfo::parse(answers.get(INFO))?;
        let same_process = process == self.process;
        self.process = process;
        self.read_state(answers.get(STATE))?;
        let Snapshot { rows, stat, algo, resets, .. } = self;
        algo.clear();
        let mut hint = 0;
        let mut fell = false;
        stat.read(answers.get(STAT), |row| {
            if row.get(Stat::Proxy) != backend.as_bytes() {
                return Ok(());
            }
            match row.get(Stat::Kind) {
                BACKEND_ROW => algo.push_str(&String::from_utf8_lossy(row.get(Stat::Algorithm))),
                SERVER_ROW => {
                    // A server that joined between the two answers is seen whole by the next poll.
                    if let Some(at) = find(rows, hint, row.get(Stat::Server)) {
                        hint = at + 1;
                        fell |= count(&mut rows[at], &row)?;
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        if fell && same_process {
            *resets += 1;
        }
        Ok(())
    }

    /// Takes over an answer of `show servers state` alone: names, weights and states.
    pub(super) fn read_state(&mut self, answer: &[u8]) -> Result<(), String> {
        let Snapshot { rows, state, backend_id, .. } = self;
        let mut place = 0;
        *backend_id = state.read(answer, |name, state| {
            match find(rows, place, name) {
                Some(at) => rows.swap(at, place),
                None => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    rows.insert(place, ServerRow { name, ..ServerRow::default() });
                }
            }
            rows[place].state = state;
            place += 1;
            Ok(())
        })?;
        rows.truncate(place);
        Ok(())
    }

    /// The row of a server, looked for at `hint` first.
    pub(super) fn row(&self, hint: usize, name: &str) -> Option<&ServerRow> {
        find(&self.rows, hint, name.as_bytes()).map(|at| &self.rows[at])
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.name.clone()).collect()
    }
}

/// Both tables list the servers in the same order, so that the hint is nearly always right.
fn find(rows: &[ServerRow], hint: usize, name: &[u8]) -> Option<usize> {
    let is_it = |row: &ServerRow| row.name.as_bytes() == name;
    if rows.get(hint).is_some_and(is_it) { Some(hint) } else { rows.iter().position(is_it) }
}

/// Takes over a server's counters; tells whether the running one fell.
fn count(server: &mut ServerRow, row: &StatRow<'_>) -> Result<bool, String> {
    let started = number("stot", row.get(Stat::Started))?;
    let fell = started < server.started;
    server.started = started;
    server.in_flight = small("scur", row.get(Stat::InFlight))?;
    server.queued = small("qcur", row.get(Stat::Queued))?;
    // `stot` counts attempts, and each attempt that fails shows in exactly one of these: another
    // attempt at the same server, at another one, no attempt left, no valid answer, an answer of 5xx.
    // But a connection reset before its answer counts twice in `eresp`, hence the bound.
    let errors = [
        ("wretr", Stat::Retries),
        ("wredis", Stat::Redispatches),
        ("econ", Stat::ConnectErrors),
        ("eresp", Stat::ResponseErrors),
        ("hrsp_5xx", Stat::Answers5xx),
    ]
    .into_iter()
    .try_fold(0u64, |sum, (name, column)| {
        Ok::<_, String>(sum.saturating_add(number(name, row.get(column))?))
    })?;
    server.errors = errors.min(started);
    Ok(fell)
}
