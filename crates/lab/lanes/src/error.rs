use std::io;
use std::path::PathBuf;

use plimsoll_pack::PackError;
use plimsoll_testbed::load::LoadError;
use plimsoll_testbed::{SetError, StartError};

/// Why lanes cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// There is no HAProxy on this machine.
    #[error(
        "haproxy is not installed (looked in PATH, /usr/sbin and /usr/local/sbin); on Debian and \
         Ubuntu: apt-get install haproxy"
    )]
    NoHaproxy,
    /// Another program that a lane is to have is not on this machine.
    #[error("{name} is not installed (looked in PATH, /usr/sbin and /usr/local/sbin); {hint}")]
    NotInstalled {
        /// Which.
        name: &'static str,
        /// Where it is to be had.
        hint: &'static str,
    },
    /// There is no Plimsoll to try.
    #[error(
        "plimsoll, whose daemon is to be started, is neither in {beside}, beside this program, nor in PATH; \
         from source: cargo build --release -p plimsoll", beside = beside.display()
    )]
    NoPlimsoll {
        /// The directory of this program.
        beside: PathBuf,
    },
    /// A process that a lane needs has ended.
    #[error("{name} has ended ({how}){said}")]
    Ended {
        /// Which, for people.
        name: String,
        /// Its exit status.
        how: String,
        /// The end of what it wrote, after a colon; empty when it wrote nothing.
        said: String,
    },
    /// A process does not answer.
    #[error("{name} does not answer: {why}")]
    Mute {
        /// Which, for people.
        name: String,
        /// What came instead.
        why: String,
    },
    /// The system refuses a file, a socket or a process.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// The emulated backends do not start.
    #[error("emulated backends: {0}")]
    Backends(#[from] StartError),
    /// An emulated backend cannot be changed.
    #[error("emulated backends: {0}")]
    Change(#[from] SetError),
    /// The emulated backends have stopped.
    #[error("the emulated backends have stopped")]
    BackendsStopped,
    /// The clients do not start, or have stopped.
    #[error("clients: {0}")]
    Load(#[from] LoadError),
    /// A finished part of an earlier run cannot be taken for this one's; the text names the file.
    #[error("{0}")]
    Kept(String),
    /// There is no static split of this pool.
    #[error("no static split of this pool: {0}")]
    Pack(#[from] PackError),
}

impl LaneError {
    /// For `map_err`: what was tried when the system refused.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> LaneError {
        let what = what.into();
        move |source| LaneError::System { what, source }
    }
}
