//! Why a network cannot be set up.

use std::io;

/// What stands in the way of a network on this machine.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Namespaces are root's to make.
    #[error("needs root: it makes network namespaces; run it with sudo")]
    NotRoot,
    /// Programs that are not installed.
    #[error("{} not installed; on Debian and Ubuntu: apt-get install {}", programs.join(", "), packages.join(" "))]
    Missing {
        /// What was looked for.
        programs: Vec<&'static str>,
        /// What to install.
        packages: Vec<&'static str>,
    },
    /// A command failed.
    #[error("`{command}`: {said}")]
    Command {
        /// What was run.
        command: String,
        /// What it wrote.
        said: String,
    },
    /// The system refuses a file, a thread or a namespace.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// A server does not answer.
    #[error("{name} does not answer on {address}{said}")]
    Mute {
        /// Which.
        name: String,
        /// Where.
        address: String,
        /// The end of its log, after a colon; empty when it wrote nothing.
        said: String,
    },
}

impl NetError {
    /// For `map_err`: what was tried when the system refused.
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> NetError {
        let what = what.into();
        move |source| NetError::System { what, source }
    }
}
