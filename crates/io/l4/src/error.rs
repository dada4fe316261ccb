//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the data plane could not do what it was asked.
#[derive(Debug, Error)]
pub enum L4Error {
    /// Some right is missing.
    #[error(
        "expected the rights to load programs into the kernel: run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; missing: {0}"
    )]
    Privileges(String),
    /// No bpffs where the pins should go.
    #[error("{path}: expected a bpffs: mount -t bpf bpf {path}: {error}")]
    Bpffs {
        /// Where.
        path: PathBuf,
        /// Why it could not be mounted.
        error: io::Error,
    },
    /// No directory of pins.
    #[error("{0}: expected a directory of pins, in a bpffs; nothing was removed")]
    NoPins(PathBuf),
    /// Pins that stay.
    #[error("{path}: cannot remove what is pinned: {error}")]
    Unremoved {
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Pins would not outlive the process.
    #[error(
        "{0}: in a mount namespace of this process's own, where what is pinned goes with it; {advice}",
        advice = crate::mounts::ADVICE
    )]
    OwnMounts(PathBuf),
    /// The kernel does not take the program.
    #[error("the kernel does not take the program: {0}")]
    Load(String),
    /// The kernel lacks what the program needs.
    #[error("Linux {release} is too old: expected {missing}")]
    TooOld {
        /// What runs here.
        release: String,
        /// What it lacks, and since when there is that.
        missing: String,
    },
    /// A map.
    #[error("map {name}: {error}")]
    Map {
        /// Its name.
        name: &'static str,
        /// What failed.
        error: String,
    },
    /// Pinned maps of a version that is not understood, or with other version bits.
    #[error(
        "{path}: the pinned maps have {found}, expected {expected}; `plimsoll l4 detach` removes them, and with them counters and connections"
    )]
    Pinned {
        /// Where they are.
        path: PathBuf,
        /// What they have.
        found: String,
        /// What the configuration asks for.
        expected: String,
    },
    /// Other sizes, at run time.
    #[error(
        "the tables have {found}, expected {expected}: start the daemon again, which makes them anew; connections go on"
    )]
    Sizes {
        /// What they have.
        found: String,
        /// What the configuration asks for.
        expected: String,
    },
    /// Another place for the pins, at run time.
    #[error(
        "l4.pin_dir: {asked}: expected {held}, where this daemon's maps are; a new place needs `plimsoll l4 detach` and a new start"
    )]
    PinDir {
        /// Where they are.
        held: PathBuf,
        /// Where they should be.
        asked: PathBuf,
    },
    /// Another daemon has taken charge.
    #[error(
        "{0}: a newer daemon has taken over, or `plimsoll l4 detach` has removed what was pinned; nothing was written"
    )]
    Replaced(PathBuf),
    /// Nothing is pinned.
    #[error("{0}: no balancer is pinned here; expected `plimsoll l4 run` to have been started")]
    NotRunning(PathBuf),
    /// An interface.
    #[error("interface {name}: {error}")]
    Interface {
        /// Its name.
        name: String,
        /// What is wrong.
        error: String,
    },
    /// The key file.
    #[error("{path}: {error}")]
    KeyFile {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        error: String,
    },
    /// The salt cannot be rotated now.
    #[error("{0}")]
    Rotation(String),
    /// Too many services or servers for the tables.
    #[error("{what}: expected at most {limit}; raise l4.limits and start the daemon again")]
    Full {
        /// Of what.
        what: String,
        /// How many fit.
        limit: u32,
    },
    /// An unknown name.
    #[error("{what} {name}: not known; expected one of {known}")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// As given.
        name: String,
        /// What there is.
        known: String,
    },
    /// A policy that does not take weights from others.
    #[error(
        "{vip}: policy {policy} takes no weights from a controller; expected weighted_round_robin, power_of_two, least_connections, hash or maglev"
    )]
    NoLiveWeights {
        /// The service.
        vip: String,
        /// Its policy.
        policy: &'static str,
    },
    /// Weights of which none is above 0 for a server that takes connections.
    #[error(
        "{vip}: every server would have weight 0, of those that are up and found; expected one at least to take connections"
    )]
    AllZero {
        /// The service.
        vip: String,
    },
    /// The kernel's tables of links, routes and neighbours.
    #[error("netlink: {0}")]
    Netlink(#[from] io::Error),
}

impl L4Error {
    /// For `map_err` on a map's call.
    pub(crate) fn map<E: std::fmt::Display>(name: &'static str) -> impl Fn(E) -> L4Error {
        move |error| L4Error::Map { name, error: error.to_string() }
    }
}
