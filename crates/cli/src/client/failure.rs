//! What can go wrong for a command that asks a daemon, and the exit code that says so.

use std::io;
use std::path::PathBuf;

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The arguments or the configuration are wrong; the message is complete, line by line.
    Usage(String),
    /// Nothing answers there.
    NoDaemon {
        /// Where.
        api: String,
        /// Why not.
        why: String,
    },
    /// Something answers, but not as this version of Plimsoll does.
    NotPlimsoll {
        /// Where.
        api: String,
        /// What it said.
        why: String,
    },
    /// The daemon has no service of this name.
    UnknownService {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A file cannot be written.
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Standard output cannot be written.
    Write(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Write(error)
    }
}

impl Failure {
    /// The exit code: 1 for an unknown service and for output that cannot be written, 2 for wrong
    /// arguments or configuration, 4 when no daemon answers. A reader that has seen enough (`| head`)
    /// is no failure.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Failure::UnknownService { .. } | Failure::File { .. } | Failure::Write(_) => 1,
            Failure::Usage(_) => 2,
            Failure::NoDaemon { .. } | Failure::NotPlimsoll { .. } => 4,
        }
    }

    /// What to say on standard error, line by line.
    pub fn message(&self) -> Option<String> {
        Some(match self {
            // Problems of a configuration begin with its file name and nothing before it.
            Failure::Usage(lines) => lines.clone(),
            Failure::NoDaemon { api, why } => {
                format!("plimsoll: no daemon answers at {api} ({why}); is `plimsoll run` up?")
            }
            Failure::NotPlimsoll { api, why } => format!(
                "plimsoll: what answers at {api} is no plimsoll daemon, or one of another version ({why})"
            ),
            Failure::UnknownService { name, known } if known.is_empty() => {
                format!("plimsoll: no service is named {name:?}; the daemon has none")
            }
            Failure::UnknownService { name, known } => {
                format!("plimsoll: no service is named {name:?}; there is {}", known.join(", "))
            }
            Failure::File { path, error } => {
                format!("plimsoll: cannot write {}: {error}", path.display())
            }
            Failure::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => return None,
            Failure::Write(error) => format!("plimsoll: cannot write the answer: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure() {
        let enough = Failure::Write(io::ErrorKind::BrokenPipe.into());
        assert_eq!((enough.code(), enough.message()), (0, None));
        let full = Failure::Write(io::ErrorKind::StorageFull.into());
        assert_eq!(full.code(), 1);
        assert_eq!(
            full.message().as_deref(),
            Some("plimsoll: cannot write the answer: no storage space")
        );
    }
}
