//! Where the backends of a pool come from, and how they are checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_config::{Address, ConfigError, Cursor, Document, Once};

use super::{Backend, all, name, numeric};

/// Where backends come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration itself.
    List,
    /// A file with such a list, which is looked at every so often.
    File {
        /// The file.
        path: PathBuf,
        /// Time between two looks.
        interval: Duration,
    },
    /// All addresses of a name, looked up every so often.
    Dns {
        /// The name, and the port of all.
        address: Address,
        /// Time between two look-ups.
        interval: Duration,
    },
}

/// How backends are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What is asked for, to be answered 200 to 399; none: a connection is enough.
    pub path: Option<String>,
    /// The host that is asked for; none: the backend's address.
    pub host: Option<String>,
    /// Time between two checks of a backend.
    pub interval: Duration,
    /// A check without an answer after this has failed.
    pub timeout: Duration,
    /// Checks in a row that must succeed before one that is down is up.
    pub rise: u32,
    /// Checks in a row that must fail before one that is up is down.
    pub fall: u32,
}

/// A file is looked at so often.
const FILE_EVERY: Duration = Duration::from_secs(1);
/// A name is looked up so often: the system's resolver does not tell how long its answer holds; HAProxy's
/// `hold valid` is as long.
const DNS_EVERY: Duration = Duration::from_secs(10);

fn intervals() -> std::ops::RangeInclusive<Duration> {
    Duration::from_millis(10)..=Duration::from_secs(3_600)
}

/// Reads `backends`: a list, `{ file: F }` or `{ dns: NAME:PORT }`. A file is read at once; what a name stands for is
/// not known yet.
pub(super) fn read(cursor: &Cursor<'_>) -> Option<(Source, Vec<Backend>)> {
    if !cursor.is_mapping() {
        return Some((Source::List, list(cursor)?));
    }
    let fields = cursor.fields(&["file", "dns", "interval"])?;
    let interval = fields.optional("interval", |c| c.duration(intervals()));
    match (fields.get("file"), fields.get("dns")) {
        (Some(file), None) => {
            let written = file.text_if("a file's path", |path| !path.is_empty())?;
            // Beside the configuration, wherever the daemon was started.
            let path = Path::new(file.file()).parent().unwrap_or(Path::new("")).join(written);
            match load(&path) {
                Ok(backends) => {
                    let interval = interval?.unwrap_or(FILE_EVERY);
                    Some((Source::File { path, interval }, backends))
                }
                Err(errors) => {
                    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                    file.problem(errors.join("; "))
                }
            }
        }
        (None, Some(dns)) => {
            let address = dns.address()?;
            Some((Source::Dns { address, interval: interval?.unwrap_or(DNS_EVERY) }, Vec::new()))
        }
        _ => cursor.expected("a list of backends, { file: F } or { dns: \"NAME:PORT\" }"),
    }
}

/// Reads a file of backends: a list, each `{ name: …, address: …, weight: … }`.
///
/// # Errors
/// All that is wrong with it.
pub fn load(path: &Path) -> Result<Vec<Backend>, Vec<ConfigError>> {
    Document::load(path)?.read(list)
}

fn list(cursor: &Cursor<'_>) -> Option<Vec<Backend>> {
    let (mut names, mut addresses) = (Once::default(), Once::default());
    let backends = all(cursor, "a list of backends, each { name: …, address: … }", |item| {
        let fields = item.fields(&["name", "address", "weight"])?;
        let name = fields.required("name", "the backend's name", |c| {
            let name = name(c)?;
            names.take(name.clone(), c, "a name that no other backend has")?;
            Some(name)
        });
        let address = fields.required("address", "an IP address and a port", |c| {
            let address = numeric(c)?;
            addresses.take(address, c, "an address that no other backend has")?;
            Some(address)
        });
        let weight = fields.or("weight", 1, |c| c.integer(0..=65_535).map(|n| n as u32));
        Some(Backend { name: name?, address: address?, weight: weight? })
    })?;
    if backends.iter().all(|backend| backend.weight == 0) {
        return cursor.expected("at least one backend of weight above 0");
    }
    Some(backends)
}

/// Reads `health`.
pub(super) fn health(cursor: &Cursor<'_>) -> Option<Health> {
    let fields = cursor.fields(&["path", "host", "interval", "timeout", "rise", "fall"])?;
    let path = fields.optional("path", |c| {
        let valid =
            |path: &str| path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic());
        c.text_if("a path that begins with /", valid).map(str::to_owned)
    });
    let host = fields.optional("host", |c| {
        let valid = |host: &str| {
            !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic() && !b"/@".contains(&b))
        };
        c.text_if("a host name", valid).map(str::to_owned)
    });
    let (s, count) = (Duration::from_secs, |c: &Cursor<'_>| c.integer(1..=100).map(|n| n as u32));
    let interval = fields.or("interval", s(2), |c| c.duration(intervals()));
    let timeout = fields.or("timeout", s(1), |c| c.duration(intervals()));
    let rise = fields.or("rise", 2, count);
    let fall = fields.or("fall", 3, count);
    Some(Health {
        path: path?,
        host: host?,
        interval: interval?,
        timeout: timeout?,
        rise: rise?,
        fall: fall?,
    })
}
