//! What an experiment is given to run with, and why it may not come to an end.

use std::fmt;
use std::io;

use plimsoll_lanes::{Interrupt, LaneError};

type Progress = Box<dyn Fn(f64, &str) + Send + Sync>;

/// What one run is given.
pub struct Context {
    /// The only source of randomness: the same seed, the same draws.
    pub seed: u64,
    /// Whether to be done within seconds, at the price of what the numbers are worth.
    pub quick: bool,
    interrupt: Interrupt,
    progress: Progress,
}

impl Context {
    /// A run with this seed; nobody is told of its progress.
    pub fn new(seed: u64, quick: bool, interrupt: Interrupt) -> Self {
        Context { seed, quick, interrupt, progress: Box::new(|_, _| ()) }
    }

    /// The same run, whose progress is told to `tell`: the part that is done (0…1), and what is under way.
    pub fn telling(self, tell: impl Fn(f64, &str) + Send + Sync + 'static) -> Self {
        Context { progress: Box::new(tell), ..self }
    }

    /// Tells whoever waits how far the run is: the part that is done, 0…1, and what is under way. Also
    /// the place where an interrupted run ends, so call it often.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    pub fn progress(&self, done: f64, what: &str) -> Result<(), Failure> {
        (self.progress)(done.clamp(0.0, 1.0), what);
        self.check()
    }

    /// Ends an interrupted run; long loops call it.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    pub fn check(&self) -> Result<(), Failure> {
        if self.interrupt.came() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// `quick` when the run is to be quick, `full` when it is not.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("seed", &self.seed)
            .field("quick", &self.quick)
            .finish_non_exhaustive()
    }
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A person or a supervisor wished it to end.
    #[error("interrupted")]
    Interrupted,
    /// Lanes do not run.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// Namespaces, or servers and clients in them.
    #[error(transparent)]
    Net(#[from] plimsoll_testbed::net::NetError),
    /// The data plane.
    #[error(transparent)]
    L4(#[from] plimsoll_l4::L4Error),
    /// Measurements of the data plane.
    #[error(transparent)]
    Bench(#[from] plimsoll_l4bench::BenchError),
    /// Weights cannot be computed.
    #[error("no packing: {0}")]
    Pack(#[from] plimsoll_pack::PackError),
    /// Results cannot be written or read.
    #[error("cannot {what}: {source}")]
    File {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// Anything else, said in full.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// For `map_err`: what was tried when the system refused.
    pub fn file(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
        let what = what.into();
        move |source| Failure::File { what, source }
    }
}
