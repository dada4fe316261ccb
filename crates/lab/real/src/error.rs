use std::io;

use plimsoll_lanes::LaneError;

use crate::cgroup::CgroupError;

/// Why real servers cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// Control groups cannot be had.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A HAProxy, a daemon, a server or the clients do not run.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// A program that is needed is not there.
    #[error("{what} not found ({looked}); {hint}")]
    Missing {
        /// Which.
        what: &'static str,
        /// Where it was looked for.
        looked: &'static str,
        /// What helps.
        hint: &'static str,
    },
    /// A server does not answer.
    #[error("server {name} does not answer at {address}: {source}")]
    Mute {
        /// Which.
        name: String,
        /// Where it should listen.
        address: std::net::SocketAddr,
        /// What came instead.
        source: io::Error,
    },
    /// A server did too little for its capacity to be known.
    #[error("server {0} answered too few requests to know its capacity; calibrate for longer")]
    TooFew(String),
    /// Something listens on port 8000 of all the addresses that are meant for servers.
    #[error(
        "every address of 127.64.0.0 to 127.191.0.0 has its port 8000 taken; a program that listens on *:8000 takes them \
         all: `ss -ltnp 'sport = :8000'` names it"
    )]
    NoAddress,
    /// It was interrupted by a signal.
    #[error("interrupted")]
    Interrupted,
}
