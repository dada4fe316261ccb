use std::time::{Duration, Instant};

use super::info::ProcessInfo;
use super::stat::{Stat, StatRow};
use super::state::{ServerState, StateTable};
use super::table::{number, small};

/// What the last poll found of one backend, kept from poll to poll so that nothing is allocated while
/// nothing changes.
pub(super) struct Snapshot {
    pub(super) process: ProcessInfo,
    /// HAProxy's number of the backend in this process; none where it has no such backend.
    pub(super) backend_id: Option<u64>,
    /// The `algo` of its row; empty at `level user`.
    pub(super) algo: String,
    /// All servers of the backend, in HAProxy's order.
    pub(super) rows: Vec<ServerRow>,
    /// How often a counter fell while the process stayed: `clear counters all`, or a server deleted
    /// and added again.
    pub(super) resets: u64,
    /// When the states were last read in this process.
    states_read: Option<Instant>,
    /// Rows of the answer under way that were taken over.
    place: usize,
    /// A counter fell in the poll under way.
    fell: bool,
    /// A server joined, left, or shows another status or weight than when its state was read.
    changed: bool,
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
    /// Requests that the server itself has answered.
    pub(super) answered: Option<u64>,
    /// Status and weight in `show stat`, which show whether the state may have changed.
    shown: Vec<u8>,
}

impl Snapshot {
    pub(super) fn new() -> Self {
        Snapshot {
            process: ProcessInfo::default(),
            backend_id: None,
            algo: String::new(),
            rows: Vec::new(),
            resets: 0,
            states_read: None,
            place: 0,
            fell: false,
            changed: false,
        }
    }

    /// Takes over an answer of `show servers state` for this backend alone: names, weights and states.
    pub(super) fn read_states(
        &mut self,
        table: &mut StateTable,
        answer: &[u8],
    ) -> Result<(), String> {
        self.begin_states();
        table.read(answer, |_, name, state| {
            self.add_state(name, state);
            Ok(())
        })?;
        self.end_states();
        Ok(())
    }

    pub(super) fn begin_states(&mut self) {
        self.place = 0;
    }

    /// The state of the next server, in HAProxy's order.
    pub(super) fn add_state(&mut self, name: &[u8], state: ServerState) {
        let Snapshot { rows, place, .. } = self;
        match find(rows, *place, name) {
            Some(at) => rows.swap(at, *place),
            None => {
                let name = String::from_utf8_lossy(name).into_owned();
                rows.insert(*place, ServerRow { name, ..ServerRow::default() });
            }
        }
        rows[*place].state = state;
        *place += 1;
    }

    /// A server that was not in the answer is gone.
    pub(super) fn end_states(&mut self) {
        self.rows.truncate(self.place);
        self.place = 0;
        self.changed = false;
        self.states_read = Some(Instant::now());
    }

    /// The connection leads elsewhere: the states are read anew.
    pub(super) fn forget_states(&mut self) {
        self.states_read = None;
    }

    /// Whether the states were read within this time.
    pub(super) fn has_states_since(&self, now: Instant, span: Duration) -> bool {
        self.states_read.is_some_and(|at| now.saturating_duration_since(at) < span)
    }

    /// Takes over a row of `show stat` about one of its servers, in HAProxy's order.
    pub(super) fn count(&mut self, row: &StatRow<'_>) -> Result<(), String> {
        // A server that joined between the two answers is seen whole by the next poll.
        let Some(at) = find(&self.rows, self.place, row.get(Stat::Server)) else {
            self.changed = true;
            return Ok(());
        };
        self.changed |= at != self.place;
        self.place = at + 1;
        let server = &mut self.rows[at];
        self.changed |= server.shows_another(row.get(Stat::Status), row.get(Stat::EffectiveWeight));
        self.fell |= server.count(row)?;
        Ok(())
    }

    /// Everything of one poll was taken over.
    pub(super) fn end_poll(&mut self, process: ProcessInfo, counted: bool) {
        if counted {
            self.changed |= self.place != self.rows.len();
        }
        self.place = 0;
        if std::mem::take(&mut self.fell) && self.process == process {
            self.resets += 1;
        }
        self.process = process;
    }

    /// Whether the states that were last read may no longer hold.
    pub(super) fn has_changed(&self) -> bool {
        self.changed && self.backend_id.is_some()
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

/// Requests that the server itself has answered: responses with headers. In TCP mode there are none.
fn answered(row: &StatRow<'_>) -> Result<Option<u64>, String> {
    let responses = [
        ("hrsp_1xx", Stat::Answers1xx),
        ("hrsp_2xx", Stat::Answers2xx),
        ("hrsp_3xx", Stat::Answers3xx),
        ("hrsp_4xx", Stat::Answers4xx),
        ("hrsp_5xx", Stat::Answers5xx),
        ("hrsp_other", Stat::OtherAnswers),
    ];
    if responses.iter().all(|(_, column)| row.get(*column).is_empty()) {
        return Ok(None);
    }
    let sum = responses.into_iter().try_fold(0u64, |sum, (name, column)| {
        Ok::<_, String>(sum.saturating_add(number(name, row.get(column))?))
    });
    sum.map(Some)
}

impl ServerRow {
    /// Whether status or weight differ from what they last were; remembers them.
    fn shows_another(&mut self, status: &[u8], weight: &[u8]) -> bool {
        let held = self.shown.strip_prefix(status).and_then(|rest| rest.strip_prefix(b","));
        if held == Some(weight) {
            return false;
        }
        self.shown.clear();
        self.shown.extend_from_slice(status);
        self.shown.push(b',');
        self.shown.extend_from_slice(weight);
        true
    }

    /// Takes over its counters; tells whether the running one fell.
    fn count(&mut self, row: &StatRow<'_>) -> Result<bool, String> {
        let started = number("stot", row.get(Stat::Started))?;
        let fell = started < self.started;
        self.started = started;
        self.in_flight = small("scur", row.get(Stat::InFlight))?;
        self.queued = small("qcur", row.get(Stat::Queued))?;
        // Each attempt that fails shows in at least one of these: another attempt at the same server, at another one, no
        // attempt left, no valid answer, an answer of 5xx. HAProxy 2.6 counts one that it retries after it was sent two
        // or three times. `stot` counts attempts once, hence the bound.
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
        self.errors = errors.min(started);
        self.answered = answered(row)?;
        Ok(fell)
    }
}
