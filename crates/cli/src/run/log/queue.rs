//! Log lines on their way to standard error. Steering never waits for the log's reader, or fails
//! because there is none: lines wait in a bounded queue for a thread that writes them, and those that find no
//! room there, or cannot be written, are counted and lost.
//!
//! Of the libraries, tracing-appender's writer does the same but for two things that matter here: it does not
//! count lines that could not be written, and its end may panic where standard output is closed as well.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait for whoever reads the log: minutes of a busy daemon's, about a megabyte.
const WAITING: usize = 4_096;
/// How long the end may wait for the last lines to be written.
const END_WITHIN: Duration = Duration::from_secs(5);
/// How often the end tries to get into a full queue.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Lines lost since the process began: it has one standard error.
static LOST: AtomicU64 = AtomicU64::new(0);

/// How many lines were lost since the process began.
pub fn lost() -> &'static AtomicU64 {
    &LOST
}

enum Entry {
    Line(Vec<u8>),
    /// Everything before it has been tried.
    End(SyncSender<()>),
}

/// The queue's entrance; cloning it is cheap and shares it.
#[derive(Clone)]
pub struct Queue {
    entries: SyncSender<Entry>,
    lost: &'static AtomicU64,
    /// What is done to a line before it waits.
    prepare: fn(&[u8]) -> Vec<u8>,
}

impl Queue {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        out: impl Write + Send + 'static,
        prepare: fn(&[u8]) -> Vec<u8>,
    ) -> io::Result<Self> {
        Self::start_with(out, prepare, WAITING, &LOST)
    }

    fn start_with(
        mut out: impl Write + Send + 'static,
        prepare: fn(&[u8]) -> Vec<u8>,
        waiting: usize,
        lost: &'static AtomicU64,
    ) -> io::Result<Self> {
        let (entries, inbox) = sync_channel(waiting);
        let thread = std::thread::Builder::new().name("log".to_owned());
        thread.spawn(move || write(&inbox, &mut out, lost))?;
        Ok(Queue { entries, lost, prepare })
    }

    /// Has a line written as soon as that can be, or counts it as lost.
    pub fn put(&self, line: &[u8]) {
        if self.entries.try_send(Entry::Line((self.prepare)(line))).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Ends the thread once it has written what waits, but waits for that no longer than five seconds. Lines that
    /// come later are lost.
    pub fn end(&self) {
        let until = Instant::now() + END_WITHIN;
        let (done, written) = sync_channel(1);
        let mut end = Entry::End(done);
        loop {
            end = match self.entries.try_send(end) {
                Ok(()) => break,
                Err(TrySendError::Full(end)) if Instant::now() < until => end,
                Err(_) => return,
            };
            std::thread::sleep(TRY_AGAIN);
        }
        // An error is a reader that hangs: the last lines are not worth more waiting.
        let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// Every event is one write of one line.
impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Queue;

    fn make_writer(&'a self) -> Queue {
        self.clone()
    }
}

fn write(inbox: &Receiver<Entry>, out: &mut impl Write, lost: &AtomicU64) {
    let mut told = lost.load(Relaxed);
    let mut is_written = false;
    loop {
        let next = match inbox.try_recv() {
            Err(TryRecvError::Empty) => {
                let now = lost.load(Relaxed);
                if is_written && now > told {
                    // Through the queue like any other line, and so in the log's own format.
                    let lines = now - told;
                    tracing::warn!(lines, "log lines were lost: standard error did not take them");
                    told = now;
                }
                inbox.recv().ok()
            }
            other => other.ok(),
        };
        match next {
            Some(Entry::Line(line)) => {
                is_written = out.write_all(&line).is_ok();
                if !is_written {
                    lost.fetch_add(1, Relaxed);
                }
            }
            Some(Entry::End(done)) => {
                // The receiver may have gone.
                let _ = done.try_send(());
                return;
            }
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Waits until it is let go, then takes what comes, or refuses it.
    struct Hung {
        go: Receiver<()>,
        takes: bool,
        written: std::sync::mpsc::Sender<Vec<u8>>,
    }

    impl Write for Hung {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // An error is an end of the waiting for good.
            let _ = self.go.recv();
            if !self.takes {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.written.send(line.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn counter() -> &'static AtomicU64 {
        Box::leak(Box::default())
    }

    #[test]
    fn a_reader_that_hangs_does_not_block_writers_and_dropped_lines_are_counted() {
        let ((go, gate), (written, lines)) = (channel(), channel());
        let lost = counter();
        let out = Hung { go: gate, takes: true, written };
        let queue = Queue::start_with(out, <[u8]>::to_vec, 4, lost).expect("a thread");
        for _ in 0..100 {
            queue.put(b"a line\n");
        }
        // Four wait, and one may be in the writer's hands.
        let first = lost.load(Relaxed);
        assert!((95..=96).contains(&first), "{first}");
        drop(go);
        queue.end();
        assert_eq!(
            lines.try_iter().count() as u64,
            100 - first,
            "what waited is written at the end"
        );
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let ((go, gate), (written, _lines)) = (channel(), channel());
        drop(go);
        let lost = counter();
        let out = Hung { go: gate, takes: false, written };
        let queue = Queue::start_with(out, <[u8]>::to_vec, 16, lost).expect("a thread");
        for _ in 0..7 {
            queue.put(b"a line\n");
        }
        queue.end();
        assert_eq!(lost.load(Relaxed), 7);
    }
}
