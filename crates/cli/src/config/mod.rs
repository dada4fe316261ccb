//! The configuration file. It may hold the sections of several commands; each command reads its own, and `check`
//! reads all. The parts that are configured own the types of their sections, and read them.
//!
//! Reading a configuration opens no socket, resolves no name and looks at no other file.

mod daemon;
pub mod defaults;
pub mod shared;
mod types;

#[cfg(test)]
mod tests;

use std::path::Path;

use plimsoll_config::{ConfigError, Document};

use crate::edge::config as edge;
use crate::l4::config as l4;
use crate::proxy::config as proxy;

pub use types::{Api, Backend, Config, Service, Store};

/// Every key that a document may have at its top: what no command reads is a mistake.
pub const KEYS: &[&str] = &["services", "store", "api", "l4", "proxy", "edge"];

/// Reads the daemon's sections in a file.
///
/// # Errors
/// Everything that is wrong with them, in order of place; if the file cannot be read, that alone.
pub fn load(path: &Path) -> Result<Config, Vec<ConfigError>> {
    Document::load(path)?.read(daemon::config)
}

/// The sections of all commands that a document has.
#[derive(Clone, Debug, PartialEq)]
pub struct Sections {
    /// Of `plimsoll run`.
    pub daemon: Option<Config>,
    /// Of `plimsoll l4`.
    pub l4: Option<plimsoll_l4::Section>,
    /// Of `plimsoll proxy`.
    pub proxy: Option<plimsoll_proxy::ProxyConfig>,
    /// Of `plimsoll edge`.
    pub edge: Option<plimsoll_edge::config::EdgeConfig>,
}

/// Reads every section that a document has. One without any is read as the daemon's.
///
/// # Errors
/// Everything that is wrong with any of them, in order of place.
pub fn all(document: &Document) -> Result<Sections, Vec<ConfigError>> {
    let has_l4 = document.has("l4");
    let has_proxy = document.has("proxy");
    let has_edge = document.has("edge");
    let is_daemons = document.has("services") || !(has_l4 || has_proxy || has_edge);
    let daemon = is_daemons.then(|| document.read(daemon::config));
    let l4 = has_l4.then(|| document.read(l4::document));
    let proxy = has_proxy.then(|| document.read(proxy::document));
    let edge = has_edge.then(|| document.read(edge::document));
    match (daemon.transpose(), l4.transpose(), proxy.transpose(), edge.transpose()) {
        (Ok(daemon), Ok(l4), Ok(proxy), Ok(edge)) => Ok(Sections { daemon, l4, proxy, edge }),
        (daemon, l4, proxy, edge) => {
            let problems =
                [daemon.err(), l4.err(), proxy.err(), edge.err()].into_iter().flatten().flatten();
            let mut problems: Vec<ConfigError> = problems.collect();
            // Each reader reports what is no section at all.
            problems.sort_by(|a, b| (a.line, a.column, &a.key).cmp(&(b.line, b.column, &b.key)));
            problems.dedup();
            Err(problems)
        }
    }
}

/// Reads a text; `name` stands for the file in errors.
#[cfg(test)]
pub fn parse(name: &str, text: &str) -> Result<Config, Vec<ConfigError>> {
    Document::parse(name, text)?.read(daemon::config)
}
