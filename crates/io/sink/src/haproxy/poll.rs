//! What is asked with one poll, and where its answers go.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::info::ProcessInfo;
use super::link::LinkError;
use super::stat::{SERVER_ROW, Stat, StatTable};
use super::state::StateTable;
use super::table::number;
use super::{HaproxyConnection, SteeredBackend};

/// HAProxy's answer when it has no such backend.
const NO_BACKEND: &[u8] = b"Can't find backend.";
/// What a command costs HAProxy besides its rows, in rows: 12 µs beside 3 (measured on 2.6).
const COMMAND_IN_ROWS: usize = 4;
/// With so many servers their states are read with every poll …
const FEW_SERVERS: usize = 100;
/// … and with more so often, and whenever `show stat` shows another status or weight: they cost HAProxy
/// a sixth of a poll, and change seldom.
const STATES_EVERY: Duration = Duration::from_secs(1);

impl HaproxyConnection {
    /// One poll. The backends' snapshots are changed only by whole answers.
    pub(super) async fn ask(
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
