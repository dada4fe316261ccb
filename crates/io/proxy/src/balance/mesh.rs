//! How the threads of one balancer hear of each other's requests.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use super::event::Event;
use super::log::{CAPACITY, Log};

/// Readers are woken when so many entries may wait for them: one that has nothing to pick for reads otherwise only
/// at its upkeep.
const WAKE_EVERY: u64 = CAPACITY as u64 / 2;

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
}

impl Mesh {
    /// None where there is nobody else.
    pub(super) fn new(logs: Arc<Logs>, thread: usize) -> Option<Self> {
        let spilled = VecDeque::new();
        let mesh = Mesh { logs, thread, written: 0, read_by_all: 0, spilled };
        (mesh.logs.logs.len() > 1).then_some(mesh)
    }

    /// Tells the others.
    pub(super) fn tell(&mut self, event: Event) {
        if self.spilled.is_empty() && self.has_room() {
            self.append(event.pack());
        } else {
            self.spilled.push_back(event.pack());
            self.flush();
        }
    }

    /// Tells what could not be told before.
    pub(super) fn flush(&mut self) {
        while !self.spilled.is_empty() && self.has_room() {
            if let Some(entry) = self.spilled.pop_front() {
                self.append(entry);
            }
        }
    }

    /// Takes what the others have told.
    pub(super) fn hear(&self, mut take: impl FnMut(Event)) {
        for (thread, log) in self.logs.logs.iter().enumerate() {
            if thread != self.thread {
                // A log's readers are the other threads, in order.
                let reader = self.thread - usize::from(thread < self.thread);
                log.read(reader, |entry| take(Event::unpack(entry)));
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
