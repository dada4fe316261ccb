//! A log that one thread appends to and the others read, each at its own pace: single producer, several
//! consumers, every entry for each of them. No lock and no read-modify-write: the writer alone moves `written`,
//! each reader alone moves its own mark. An entry is stored before `written` moves past it (release), and is
//! overwritten only after all marks have (acquire).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries kept for readers that lag; a power of two. At 50,000 requests a second on a thread, two entries each,
/// a reader may be 20 ms behind.
pub(super) const CAPACITY: usize = 2_048;

/// On a cache line of its own: its writer would otherwise slow the others down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Mark(AtomicU64);

#[derive(Debug)]
pub(super) struct Log {
    entries: Box<[[AtomicU64; 2]]>,
    written: Mark,
    /// How far each reader is.
    read: Box<[Mark]>,
}

impl Log {
    pub(super) fn new(readers: usize) -> Self {
        Log {
            entries: (0..CAPACITY).map(|_| Default::default()).collect(),
            written: Mark::default(),
            read: (0..readers).map(|_| Mark::default()).collect(),
        }
    }

    /// How far the slowest reader is. To be asked by the writer.
    pub(super) fn read_by_all(&self) -> u64 {
        let marks = self.read.iter().map(|mark| mark.0.load(Ordering::Acquire));
        marks.min().unwrap_or(u64::MAX)
    }

    /// Appends. To be called by the one writer, with its number of entries so far, when all have read the entry
    /// that was [`CAPACITY`] before this one.
    pub(super) fn append(&self, number: u64, [a, b]: [u64; 2]) {
        let entry = &self.entries[number as usize % CAPACITY];
        entry[0].store(a, Ordering::Relaxed);
        entry[1].store(b, Ordering::Relaxed);
        self.written.0.store(number + 1, Ordering::Release);
    }

    /// The numbers of the entries that a reader has not read yet. To be called by this reader's one thread, as is all
    /// that follows.
    pub(super) fn unread(&self, reader: usize) -> Range<u64> {
        self.read[reader].0.load(Ordering::Relaxed)..self.written.0.load(Ordering::Acquire)
    }

    /// One of those entries.
    pub(super) fn entry(&self, number: u64) -> [u64; 2] {
        let [a, b] = &self.entries[number as usize % CAPACITY];
        [a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)]
    }

    /// This reader has read all entries before this one.
    pub(super) fn mark_read(&self, reader: usize, before: u64) {
        self.read[reader].0.store(before, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reader_gets_every_entry_once_and_in_order() {
        const ENTRIES: u64 = 200_000;
        let log = Log::new(3);
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let log = &log;
                scope.spawn(move || {
                    let mut next = 0;
                    while next < ENTRIES {
                        let unread = log.unread(reader);
                        assert_eq!(unread.start, next);
                        for number in unread.clone() {
                            assert_eq!(log.entry(number), [next, next * 3]);
                            next += 1;
                        }
                        log.mark_read(reader, unread.end);
                        std::thread::yield_now();
                    }
                });
            }
            for number in 0..ENTRIES {
                while number - log.read_by_all().min(number) >= CAPACITY as u64 {
                    std::thread::yield_now();
                }
                log.append(number, [number, number * 3]);
            }
        });
    }
}
