//! What a server is, and how it is started.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use plimsoll_testbed::format_duration;

use crate::{Pool, RealError};

/// What a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Make {
    /// The lab's own.
    #[default]
    Own,
    /// Node.js: one thread that does everything.
    Node,
}

impl Make {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Make::Own => "own",
            Make::Node => "node",
        }
    }

    /// The program; what it needs on disk is written to `dir`.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn program(self) -> Result<PathBuf, RealError> {
        match self {
            Make::Own => beside("plimsoll-real-server").ok_or_else(|| RealError::Missing {
                what: "plimsoll-real-server",
                looked: "beside this program".to_owned(),
                hint: "cargo build -p plimsoll-real --bins builds it",
            }),
            Make::Node => in_path("node").ok_or_else(|| RealError::Missing {
                what: "node",
                looked: "in PATH".to_owned(),
                hint: "on Debian and Ubuntu: apt-get install nodejs",
            }),
        }
    }

    /// What it is started with. `dir` is where the files of the run are.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn arguments(
        self,
        pool: &Pool,
        address: SocketAddr,
        dir: &Path,
    ) -> std::io::Result<Vec<OsString>> {
        Ok(match self {
            Make::Own => {
                let text: [String; 10] = [
                    "--listen".into(),
                    address.to_string(),
                    "--model".into(),
                    pool.model.name().into(),
                    "--threads".into(),
                    pool.threads.to_string(),
                    "--work".into(),
                    format_duration(pool.work.mean),
                    "--health-work".into(),
                    format_duration(pool.health_work),
                ];
                text.map(OsString::from).into()
            }
            Make::Node => {
                let script = dir.join("server.js");
                std::fs::write(&script, NODE)?;
                let work_us = pool.work.mean.as_micros().to_string();
                let (host, port) = (address.ip().to_string(), address.port().to_string());
                vec![script.into(), host.into(), port.into(), work_us.into()]
            }
        })
    }
}

/// Burns CPU by the process's own CPU time, as the lab's own server does by its threads'.
const NODE: &str = include_str!("server.js");

/// A program of this name where this one is, or one directory up, as examples and tests are built.
pub fn beside(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let dirs = own.ancestors().skip(1).take(2);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A program of this name in PATH.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}
