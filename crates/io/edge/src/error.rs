//! What can go wrong.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_l4::L4Error;
use thiserror::Error;

/// Why a forwarder or a node does not run, or not as it was asked to.
#[derive(Debug, Error)]
pub enum EdgeError {
    /// Rights, bpffs: what the layer-4 data plane needs as well.
    #[error(transparent)]
    L4(#[from] L4Error),
    /// The kernel takes a program or a map not.
    #[error("the kernel refuses {what}: {error}")]
    Kernel {
        /// Which.
        what: String,
        /// What it says.
        error: String,
    },
    /// An interface is not there, or takes no program.
    #[error("{name}: {error}")]
    Interface {
        /// The interface.
        name: String,
        /// Why.
        error: String,
    },
    /// What is pinned was made by something else.
    #[error(
        "{path} holds maps of layout {found}, expected {expected}: stop the other version; `plimsoll edge detach` \
         removes them, and with them flows are lost"
    )]
    Pinned {
        /// Where.
        path: PathBuf,
        /// Of the maps.
        found: u32,
        /// Of this version.
        expected: u32,
    },
    /// The system refuses.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// What it says.
        error: io::Error,
    },
    /// A command that sets up a namespace fails.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command.
        command: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// The key file.
    #[error("{path}: {error}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: String,
    },
    /// Something in the configuration that only shows here.
    #[error("{0}")]
    Config(String),
    /// Whoever is asked does not answer, or not in the affirmative.
    #[error("{0}")]
    Asked(String),
}

impl EdgeError {
    pub(crate) fn kernel<E: std::error::Error>(what: &str) -> impl Fn(E) -> EdgeError {
        move |error| {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            EdgeError::Kernel { what: what.to_owned(), error: text }
        }
    }

    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> EdgeError {
        let what = what.into();
        move |error| EdgeError::System { what, error }
    }

    pub(crate) fn key(path: &Path, error: impl ToString) -> EdgeError {
        EdgeError::Key { path: path.to_owned(), error: error.to_string() }
    }
}
