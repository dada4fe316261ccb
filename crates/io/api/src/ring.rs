//! The last decisions of one service, numbered.

use std::collections::VecDeque;

use plimsoll_control::Record;

use crate::timestamp;
use crate::wire::Event;

/// How many events of one service are kept in memory; older ones are in the store.
pub const MAX_EVENTS: usize = 1_000;

/// A bounded queue of events with growing numbers.
#[derive(Debug, Default)]
pub struct Ring {
    events: VecDeque<Event>,
    last_seq: u64,
}

impl Ring {
    /// Adds what happened at this time, milliseconds since 1970; gives it with its number.
    pub fn push(&mut self, unix_ms: i64, record: Record) -> Event {
        let Record { kind, backend, reason } = record;
        let unix_ms = timestamp::clamp(unix_ms);
        let event = Event { seq: self.last_seq + 1, unix_ms, kind, backend, reason };
        self.keep(event.clone());
        event
    }

    /// Adds an event that has its number already; one that is not newer than the last is ignored.
    pub fn keep(&mut self, mut event: Event) {
        if event.seq <= self.last_seq {
            return;
        }
        event.unix_ms = timestamp::clamp(event.unix_ms);
        self.last_seq = event.seq;
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The number of the newest event; 0 before the first.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// At most `limit` events, oldest first: the newest ones, or those that follow number `after`.
    pub fn read(&self, after: Option<u64>, limit: usize) -> Vec<Event> {
        match after {
            Some(seq) => self.events.iter().filter(|e| e.seq > seq).take(limit).cloned().collect(),
            None => {
                let skipped = self.events.len().saturating_sub(limit);
                self.events.iter().skip(skipped).cloned().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_control::RecordKind;

    use super::*;

    fn note(reason: String) -> Record {
        Record { kind: RecordKind::Warning, backend: None, reason }
    }

    fn seqs(events: &[Event]) -> Vec<u64> {
        events.iter().map(|e| e.seq).collect()
    }

    #[test]
    fn the_oldest_events_give_way() {
        let mut ring = Ring::default();
        for i in 1..=MAX_EVENTS as u64 + 5 {
            assert_eq!(ring.push(0, note(i.to_string())).seq, i);
        }
        assert_eq!(ring.events.len(), MAX_EVENTS);
        assert_eq!(seqs(&ring.read(Some(0), 2)), [6, 7]);
        assert_eq!(seqs(&ring.read(None, 2)), [1_004, 1_005]);
        assert_eq!(seqs(&ring.read(Some(1_004), 100)), [1_005]);
        assert_eq!(ring.read(Some(1_005), 100), []);
    }

    #[test]
    fn numbers_go_on_after_a_restart() {
        let mut old = Ring::default();
        old.push(7, note("before".into()));
        old.push(8, note("crash".into()));
        let mut new = Ring::default();
        for event in old.read(Some(0), 10) {
            new.keep(event);
        }
        assert_eq!(new.push(9, note("after".into())).seq, 3);
        new.keep(Event { seq: 2, ..new.events[0].clone() });
        assert_eq!(seqs(&new.read(None, 10)), [1, 2, 3]);
    }
}
