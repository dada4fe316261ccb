//! How the threads of one balancer hear of each other's requests.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::Notify;

use super::event::Event;
use super::log::{CAPACITY, Log};

/// Readers are woken when so many entries may wait for them: one that has nothing to pick for reads otherwise only
/// at its upkeep.
const WAKE_EVERY: u64 = CAPACITY as u64 / 2;

/// Most entries that wait for a reader that is behind, 64 MB: only one that has died is behind by more, and what it is
/// not passed on is no loss.
const MOST_SPILLED: usize = 1 << 22;

/// The logs of all threads of one balancer.
#[derive(Debug)]
pub(crate) struct Logs {
    logs: Vec<Log>,
    /// Wakes each thread for its upkeep.
    wake: Vec<Arc<Notify>>,
}

impl Logs {
    /// For threads that are woken so.
    pub(crate) fn new(wake: Vec<Arc<Notify>>) -> Arc<Self> {
        let others = wake.len() - 1;
        Arc::new(Logs { logs: wake.iter().map(|_| Log::new(others)).collect(), wake })
    }
}

/// What one thread has not read yet of another's log.
#[derive(Debug)]
struct Unread {
    thread: usize,
    reader: usize,
    next: u64,
    end: u64,
    /// The next.
    event: Event,
}

/// One thread's end.
#[derive(Debug)]
pub(super) struct Mesh {
    logs: Arc<Logs>,
    thread: usize,
    written: u64,
    /// What was read by all when it was last looked at.
    read_by_all: u64,
    /// What found the log full, in order. It waits for a reader that is behind by a whole log although it was woken
    /// for half of one: milliseconds.
    spilled: VecDeque<[u64; 2]>,
    /// Empty but while it reads: one of each log at most, so that reading allocates nothing.
    unread: Vec<Unread>,
}

impl Mesh {
    /// None where there is no other thread.
    pub(super) fn new(logs: Arc<Logs>, thread: usize) -> Option<Self> {
        let (spilled, unread) = (VecDeque::new(), Vec::with_capacity(logs.logs.len()));
        let mesh = Mesh { logs, thread, written: 0, read_by_all: 0, spilled, unread };
        (mesh.logs.logs.len() > 1).then_some(mesh)
    }

    /// Tells the others.
    pub(super) fn tell(&mut self, event: Event) {
        if self.spilled.is_empty() && self.has_room() {
            self.append(event.pack());
        } else {
            if self.spilled.len() < MOST_SPILLED {
                self.spilled.push_back(event.pack());
            }
            self.flush();
        }
    }

    /// Passes on what could not be passed on before.
    pub(super) fn flush(&mut self) {
        while !self.spilled.is_empty() && self.has_room() {
            if let Some(entry) = self.spilled.pop_front() {
                self.append(entry);
            }
        }
    }

    /// Takes what the others passed on, in the order in which it happened: what a policy learns from a request is also
    /// how many others were there.
    pub(super) fn hear(&mut self, mut take: impl FnMut(Event)) {
        for (thread, log) in self.logs.logs.iter().enumerate() {
            if thread != self.thread {
                // A log's readers are the other threads, in order.
                let reader = self.thread - usize::from(thread < self.thread);
                let Range { start: next, end } = log.unread(reader);
                if next < end {
                    let event = Event::unpack(log.entry(next));
                    self.unread.push(Unread { thread, reader, next, end, event });
                }
            }
        }
        while let Some(first) = self.unread.iter_mut().min_by_key(|unread| unread.event.at) {
            take(first.event);
            let log = &self.logs.logs[first.thread];
            first.next += 1;
            if first.next < first.end {
                first.event = Event::unpack(log.entry(first.next));
            } else {
                log.mark_read(first.reader, first.end);
                let thread = first.thread;
                self.unread.retain(|unread| unread.thread != thread);
            }
        }
    }

    fn has_room(&mut self) -> bool {
        if self.written - self.read_by_all < CAPACITY as u64 {
            return true;
        }
        self.read_by_all = self.logs.logs[self.thread].read_by_all();
        self.written - self.read_by_all < CAPACITY as u64
    }

    fn append(&mut self, entry: [u64; 2]) {
        self.logs.logs[self.thread].append(self.written, entry);
        self.written += 1;
        if self.written.is_multiple_of(WAKE_EVERY) {
            for (thread, wake) in self.logs.wake.iter().enumerate() {
                if thread != self.thread {
                    wake.notify_one();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::Nanos;

    use super::super::event::Change;
    use super::*;

    #[test]
    fn what_others_tell_is_heard_in_the_order_in_which_it_happened() {
        let logs = Logs::new((0..3).map(|_| Arc::default()).collect());
        let mesh = |thread| Mesh::new(logs.clone(), thread).expect("not alone");
        let (mut hears, mut one, mut other) = (mesh(1), mesh(0), mesh(2));
        let event = |at| Event { backend: at as usize, at: Nanos(at), change: Change::Started };
        [1, 4, 5, 9].into_iter().for_each(|at| one.tell(event(at)));
        [2, 3, 7].into_iter().for_each(|at| other.tell(event(at)));
        let mut heard = Vec::new();
        hears.hear(|event| heard.push(event.at.0));
        assert_eq!(heard, [1, 2, 3, 4, 5, 7, 9]);
        hears.hear(|event| panic!("heard twice: {event:?}"));
        one.hear(|event| heard.push(event.at.0));
        assert_eq!(heard[7..], [2, 3, 7]);
    }
}
