//! Threads that share one queue.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mio::Waker;
use slotmap::DefaultKey;

use super::burn::burn;

/// A request that costs CPU.
pub(super) struct Job {
    pub connection: DefaultKey,
    pub work: Duration,
    pub status: u16,
}

/// The threads, seen from the thread that reads and writes.
pub(super) struct Workers {
    queue: Sender<Job>,
    done: Receiver<Job>,
}

impl Workers {
    /// Starts so many; each job that is done comes back after a call of `waker`.
    pub(super) fn start(threads: usize, waker: &Arc<Waker>) -> io::Result<Self> {
        let (queue, jobs) = channel::<Job>();
        let (finished, done) = channel();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..threads {
            let (jobs, finished, waker) = (Arc::clone(&jobs), finished.clone(), Arc::clone(waker));
            let body = move || {
                loop {
                    // Held while it waits: the next thread waits for the lock instead.
                    let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = next else { return };
                    burn(job.work);
                    if finished.send(job).is_err() || waker.wake().is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().name("worker".into()).spawn(body)?;
        }
        Ok(Workers { queue, done })
    }

    pub(super) fn give(&self, job: Job) {
        // They end only with the process.
        let _ = self.queue.send(job);
    }

    pub(super) fn take_done(&self) -> Option<Job> {
        self.done.try_recv().ok()
    }
}
