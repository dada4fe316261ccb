//! Which daemon may write: one at a time, the newest. Every change of what is pinned is made under a lock on
//! the directory (`flock`, which ends with its holder). Whoever holds it looks whether the pinned program is
//! its own: a daemon that starts pins its program last of all, and the one before writes no more.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::error::L4Error;

/// The right to write, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _locked: File,
}

impl Turn {
    /// Waits for whoever is writing: milliseconds, or as long as a daemon takes to start.
    pub(crate) fn wait(dir: &Path) -> Result<Turn, L4Error> {
        let locked = File::open(dir).map_err(|_| L4Error::Replaced(dir.to_owned()))?;
        flock(&locked, FlockOperation::LockExclusive).map_err(std::io::Error::from)?;
        Ok(Turn { _locked: locked })
    }
}
