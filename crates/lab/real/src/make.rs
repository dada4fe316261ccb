//! What a server is, and how it is started.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use plimsoll_lanes::{find_program, program_places};
use plimsoll_testbed::format_duration;

use crate::php;
use crate::{Pool, RealError};

/// What a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Make {
    /// The lab's own.
    #[default]
    Own,
    /// Node.js: one thread that does everything.
    Node,
    /// php-fpm behind nginx: as many processes as --threads says.
    Php,
}

impl Make {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Make::Own => "own",
            Make::Node => "node",
            Make::Php => "php",
        }
    }

    /// What it is made of.
    ///
    /// # Errors
    /// When something of it is not installed.
    pub fn find(self) -> Result<Installed, RealError> {
        let in_places = |name| find_program(name, program_places());
        let missing = |what, looked, hint| RealError::Missing { what, looked, hint };
        match self {
            Make::Own => beside("plimsoll-real-server").map(Installed::Own).ok_or(missing(
                "plimsoll-real-server",
                "beside this program",
                "cargo build -p plimsoll-real --bins builds it",
            )),
            Make::Node => in_places("node").map(Installed::Node).ok_or(missing(
                "node",
                PLACES,
                "on Debian and Ubuntu: apt-get install nodejs",
            )),
            Make::Php => Installed::php(in_places("nginx"), php::find_fpm()),
        }
    }
}

/// Where servers are looked for, for people.
const PLACES: &str = "in PATH, /usr/sbin and /usr/local/sbin";

/// The programs that a server of some make consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The lab's own.
    Own(PathBuf),
    /// Node.js.
    Node(PathBuf),
    /// php-fpm behind nginx.
    Php {
        /// Which speaks HTTP.
        nginx: PathBuf,
        /// Which works.
        fpm: PathBuf,
    },
}

/// A process to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// What it is started with.
    pub arguments: Vec<OsString>,
}

impl Installed {
    fn php(nginx: Option<PathBuf>, fpm: Option<PathBuf>) -> Result<Self, RealError> {
        let (what, hint) = match (nginx, fpm) {
            (Some(nginx), Some(fpm)) => return Ok(Installed::Php { nginx, fpm }),
            (Some(_), None) => ("php-fpm", "on Debian and Ubuntu: apt-get install php-fpm"),
            (None, Some(_)) => ("nginx", "on Debian and Ubuntu: apt-get install nginx"),
            (None, None) => {
                ("nginx and php-fpm", "on Debian and Ubuntu: apt-get install nginx php-fpm")
            }
        };
        Err(RealError::Missing { what, looked: PLACES, hint })
    }

    /// The processes of one server of this pool, in the order in which they start. What they need on disk
    /// is in `dir`, which nobody else uses.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn programs(
        &self,
        pool: &Pool,
        address: SocketAddr,
        dir: &Path,
    ) -> io::Result<Vec<Program>> {
        fs::create_dir_all(dir)?;
        let (path, arguments) = match self {
            Installed::Own(path) => {
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
                (path, text.map(OsString::from).into())
            }
            Installed::Node(path) => {
                let script = dir.join("server.js");
                fs::write(&script, NODE)?;
                let text = [
                    address.ip().to_string(),
                    address.port().to_string(),
                    pool.work.mean.as_micros().to_string(),
                    pool.health_work.as_micros().to_string(),
                ];
                let text = text.map(OsString::from);
                (path, [script.into()].into_iter().chain(text).collect())
            }
            Installed::Php { nginx, fpm } => return php::programs(nginx, fpm, pool, address, dir),
        };
        Ok(vec![Program { path: path.clone(), arguments }])
    }
}

/// Burns CPU by the process's own CPU time, as the lab's own server does by its threads'.
const NODE: &str = include_str!("server.js");

/// A program of this name where this one is, or one directory up, as examples and tests are built.
fn beside(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    find_program(name, own.ancestors().skip(1).take(2).map(Path::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_php_lacks_is_said_in_one_line() {
        let there = || Some(PathBuf::from("/x"));
        assert!(Installed::php(there(), there()).is_ok());
        for (nginx, fpm, expected) in [
            (there(), None, "php-fpm not found"),
            (None, there(), "nginx not found"),
            (None, None, "nginx and php-fpm not found"),
        ] {
            let text = Installed::php(nginx, fpm).unwrap_err().to_string();
            assert!(text.starts_with(expected) && text.contains("apt-get install"), "{text}");
            assert_eq!(text.lines().count(), 1);
        }
    }
}
