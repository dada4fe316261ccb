//! The configuration, in two stages: *what was written* (a tree of YAML nodes that know their place)
//! becomes *what is meant* ([`Config`], plain data with every default filled in). Between the two
//! stands a reader that reports every problem and goes on, so that one run names them all.
//!
//! Reading a configuration opens no socket, resolves no name and looks at no other file.

mod address;
pub mod defaults;
mod http;
mod read;
mod report;
mod scalar;
mod schema;
mod tree;
mod types;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

#[cfg(test)]
pub use address::address as parse_address;
pub use address::{Address, Host};
pub use read::Cursor;
pub use report::{ConfigError, Position, Report};
pub use schema::{l4_name, listen, unix_path};
pub use types::{
    Backend, Config, Connection, CurveFamily, Exploration, Http, Scheme, Service, Sink, Socket, Tls,
};

/// What the daemon's document must have first.
const FIRST: &str = "a list of at least one service";

/// Reads the configuration in a file.
///
/// # Errors
/// Everything that is wrong with it, in order of place; if the file cannot be read, that alone.
pub fn load(path: &Path) -> Result<Config, Vec<ConfigError>> {
    load_as(path, "services", FIRST, schema::config)
}

/// Where that begins in a file which a key leads to, such as `services[0].probe`: for what is only found
/// wrong once the file has been read. The beginning, if it has changed beyond reading since.
pub fn place(path: &Path, key: &str) -> Position {
    let text = read_bounded(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let root = text.and_then(|text| tree::read(&text).ok().flatten());
    root.map_or(Position::START, |root| root.place(key))
}

/// Reads another document than the daemon's: `key` is what it must have, of which there is to be
/// `what`, and `read` turns it into what is meant.
///
/// # Errors
/// As [`load`].
pub fn load_as<T>(
    path: &Path,
    key: &str,
    what: &str,
    read: impl FnOnce(&Cursor<'_>) -> Option<T>,
) -> Result<T, Vec<ConfigError>> {
    let name = path.display().to_string();
    let bytes = read_bounded(path).map_err(|error| {
        alone(&name, Position::START, "config", format!("cannot be read: {}", plain(&error)))
    })?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
        let at = Position::after(&before);
        alone(&name, at, "config", "expected UTF-8 text, found other bytes".to_owned())
    })?;
    parse_as(&name, text, key, what, read)
}

/// Reads a configuration; `name` stands for the file in errors.
///
/// # Errors
/// Everything that is wrong with it, in order of place; if it is not YAML, the first breach alone.
#[cfg(test)]
pub fn parse(name: &str, text: &str) -> Result<Config, Vec<ConfigError>> {
    parse_as(name, text, "services", FIRST, schema::config)
}

/// As [`load_as`], from a text.
///
/// # Errors
/// As [`load_as`].
pub fn parse_as<T>(
    name: &str,
    text: &str,
    key: &str,
    what: &str,
    read: impl FnOnce(&Cursor<'_>) -> Option<T>,
) -> Result<T, Vec<ConfigError>> {
    let root = match tree::read(text) {
        Ok(Some(root)) => root,
        Ok(None) => {
            let message = format!("missing; expected {what} (the file is empty)");
            return Err(alone(name, Position::START, key, message));
        }
        Err(fault) => return Err(alone(name, fault.at, "yaml", fault.message)),
    };
    let report = Report::default();
    let config = read(&Cursor::root(&root, &report));
    let errors = report.into_errors(name);
    match config {
        Some(config) if errors.is_empty() => Ok(config),
        _ => Err(errors),
    }
}

fn alone(file: &str, at: Position, key: &str, message: String) -> Vec<ConfigError> {
    let report = Report::default();
    report.add(at, key, message);
    report.into_errors(file)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(defaults::MAX_FILE as u64 + 1);
    file.read_to_end(&mut bytes)?;
    if bytes.len() > defaults::MAX_FILE {
        return Err(io::Error::other(format!("longer than {} MiB", defaults::MAX_FILE >> 20)));
    }
    Ok(bytes)
}

/// The system's words without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
