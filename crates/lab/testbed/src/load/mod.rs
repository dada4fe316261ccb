//! A load generator: open loop (Poisson, constant) and closed loop.

mod arrivals;
mod conn;
mod engine;
mod recorder;
mod report;
mod requests;
mod spec;

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::Waker;

pub use arrivals::Pattern;
pub use report::{ErrorKind, LoadReport, Record, Slice, Summary};
pub use spec::{Arrivals, Asked, LoadSpec, Target};

use crate::clock::Clock;
use engine::{Command, Engine};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The load is impossible; every reason.
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
    /// The system refuses a thread, an epoll or a timer.
    #[error("the load generator cannot run: {0}")]
    System(#[from] io::Error),
    /// The load was aborted, or its report was taken already.
    #[error("the load has ended")]
    Ended,
}

/// A load that runs on a thread of its own; it is aborted when dropped.
pub struct LoadHandle {
    commands: Sender<Command>,
    waker: Waker,
    started: Instant,
    /// Closed by the thread when it ends.
    done: Mutex<Receiver<()>>,
    thread: Option<JoinHandle<io::Result<LoadReport>>>,
}

/// Starts a load.
///
/// # Errors
/// When the specification is impossible or the system refuses a thread.
pub fn start(spec: LoadSpec) -> Result<LoadHandle, LoadError> {
    let problems = spec.problems();
    if !problems.is_empty() {
        return Err(LoadError::Invalid(problems));
    }
    let (commands, inbox) = channel();
    let started = Instant::now();
    let (engine, waker) = Engine::new(spec, inbox, Clock::start())?;
    let (ending, done) = channel::<()>();
    let body = move || {
        // Dropped with the thread's end, which is what the handle waits for.
        let _ending = ending;
        engine.run()
    };
    let thread = std::thread::Builder::new().name("load".into()).spawn(body)?;
    let done = Mutex::new(done);
    Ok(LoadHandle { commands, waker, started, done, thread: Some(thread) })
}

/// Runs a load to its end, showing how it stands every `every`.
///
/// # Errors
/// As [`start`].
pub fn run(
    spec: LoadSpec,
    every: Duration,
    mut progress: impl FnMut(&LoadReport),
) -> Result<LoadReport, LoadError> {
    let handle = start(spec)?;
    while !handle.wait(every) {
        if let Some(report) = handle.snapshot() {
            progress(&report);
        }
    }
    handle.join()
}

impl LoadHandle {
    /// When the load's clock read zero: [`Record::start_ns`] and [`Slice::second`] count from here.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The numbers so far; `None` when the load has ended.
    pub fn snapshot(&self) -> Option<LoadReport> {
        let (answer, result) = channel();
        self.send(Command::Snapshot(answer)).ok()?;
        result.recv().ok()
    }

    /// Changes the rate of an open loop from now on; 0 pauses it. A closed loop has none to change.
    ///
    /// # Errors
    /// When the rate is not a number from 0 to 1,000,000, or the load has ended.
    pub fn set_rate(&self, rate_rps: f64) -> Result<(), LoadError> {
        if !spec::valid_rate(rate_rps) {
            return Err(LoadError::Invalid(vec![format!("rate: not possible: {rate_rps}")]));
        }
        self.send(Command::SetRate(rate_rps)).map_err(|()| LoadError::Ended)
    }

    /// Ends the arrivals now; requests under way may still end.
    pub fn stop(&self) {
        // A load that has ended needs no stopping.
        let _ = self.send(Command::Stop);
    }

    /// Waits at most so long for the end; true when it has come.
    pub fn wait(&self, at_most: Duration) -> bool {
        // Nothing is ever written under this lock that a panic could leave half done.
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.recv_timeout(at_most) == Err(RecvTimeoutError::Disconnected)
    }

    /// True when the load has ended by itself or after [`LoadHandle::stop`].
    pub fn is_finished(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits for the end, that of the last request included, which is at most a time-out away.
    ///
    /// # Errors
    /// When the system had refused to go on.
    pub fn join(mut self) -> Result<LoadReport, LoadError> {
        let thread = self.thread.take().ok_or(LoadError::Ended)?;
        match thread.join() {
            Ok(result) => Ok(result?),
            Err(_) => Err(LoadError::System(io::Error::other("the load's thread panicked"))),
        }
    }

    fn send(&self, command: Command) -> Result<(), ()> {
        self.commands.send(command).map_err(|_| ())?;
        self.waker.wake().map_err(|_| ())
    }
}

impl Drop for LoadHandle {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The report is unwanted, and so is the reason why there may be none.
            let _ = self.send(Command::Abort);
            let _ = thread.join();
        }
    }
}
