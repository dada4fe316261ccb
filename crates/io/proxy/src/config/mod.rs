//! The section `proxy` of the configuration: types, defaults, and how it is read.

mod entry;
mod named;
mod notes;
mod pool;
pub(crate) mod source;
mod sticky;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use named::Named;
use plimsoll_config::{Cursor, Once};

pub use entry::{Cpu, Egress, Ingress, Limits, Route, Timeouts};
pub use notes::{Capture, Forwarding, Note, ProxyProtocol};
pub use pool::{Backend, Pool};
pub use source::{Health, Source, load as load_backends};
pub use sticky::{Cookie, SameSite};

/// Where `plimsoll proxy status` asks when nothing else is said.
pub const SOCKET: &str = "/run/plimsoll/proxy.sock";
/// How long requests may take to finish once the proxy is asked to end.
const DRAIN: Duration = Duration::from_secs(30);
/// More threads than any machine has cores are a mistake.
const MOST_THREADS: u64 = 1_024;

/// The whole section.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyConfig {
    /// Threads that serve, each with a runtime, listeners and upstream connections of its own; none: one per core.
    pub threads: Option<usize>,
    /// How long requests may take to finish after SIGTERM.
    pub drain: Duration,
    /// The Unix socket that answers `plimsoll proxy status`; none: there is none.
    pub socket: Option<PathBuf>,
    /// Where `/metrics` is served; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where requests are logged; none: nowhere.
    pub access_log: Option<AccessLog>,
    /// Entries before an application.
    pub ingress: Vec<Ingress>,
    /// Entries beside a caller, or before a pool.
    pub egress: Vec<Egress>,
    /// The pools that egress entries send to.
    pub pools: Vec<Pool>,
}

impl ProxyConfig {
    /// How many threads serve: as many as it says, or one per core.
    pub fn thread_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores)
    }

    /// Reads the section.
    pub fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&[
            "threads",
            "drain",
            "socket",
            "metrics",
            "access_log",
            "ingress",
            "egress",
            "pools",
        ])?;
        let threads =
            fields.optional("threads", |c| c.integer(1..=MOST_THREADS).map(|n| n as usize));
        let hour = Duration::from_secs(3_600);
        let drain = fields.or("drain", DRAIN, |c| c.duration(Duration::ZERO..=hour));
        let socket = fields.optional("socket", Cursor::unix_path);
        let access_log = fields.optional("access_log", AccessLog::read);
        let mut taken = Taken::default();
        let metrics = fields.optional("metrics", |c| {
            let fields = c.fields(&["listen"])?;
            let what = "an address and port such as \"127.0.0.1:7405\"";
            fields.required("listen", what, |c| taken.listen(c))
        });
        let mut named = Named::default();
        let pools = fields.or("pools", Vec::new(), |c| {
            let pools = all(c, "a list of pools", |c| Pool::read(c, &mut named));
            if named.count() == Some(0) {
                named.list_is_wrong();
            }
            pools
        });
        let ingress = fields.or("ingress", Vec::new(), |c| {
            all(c, "a list of ingress entries", |c| Ingress::read(c, &mut taken))
        });
        let egress = fields.or("egress", Vec::new(), |c| {
            // Of a list that is none nothing is known.
            if c.is_mapping() || c.is_scalar() {
                named.may_use_any();
            }
            all(c, "a list of egress entries", |c| Egress::read(c, &mut taken, &mut named))
        });
        let all_are_used = named.all_are_used(fields.get("pools").unwrap_or(cursor));
        let (ingress, egress, pools) = (ingress?, egress?, pools?);
        if ingress.is_empty() && egress.is_empty() {
            return cursor.problem("expected at least one entry in ingress or egress");
        }
        if !all_are_used {
            return None;
        }
        Some(ProxyConfig {
            threads: threads?,
            drain: drain?,
            socket: socket?,
            metrics: metrics?,
            access_log: access_log?,
            ingress,
            egress,
            pools,
        })
    }
}

/// Where requests are logged.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLog {
    /// The file, which lines are appended to.
    pub file: PathBuf,
    /// The part of all requests that is logged, above 0 and up to 1.
    pub sample: f64,
}

impl AccessLog {
    fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&["file", "sample"])?;
        let file = fields.required("file", "the path of a file", |c| {
            c.text_if("the path of a file", |path| !path.is_empty()).map(PathBuf::from)
        });
        let sample = fields.or("sample", 1.0, |c| c.number(1e-9..=1.0));
        Some(AccessLog { file: file?, sample: sample? })
    }
}

/// What entries have taken already: no two may have the same.
#[derive(Default)]
struct Taken {
    addresses: Once<SocketAddr>,
    names: Once<String>,
}

impl Taken {
    fn listen(&mut self, cursor: &Cursor<'_>) -> Option<SocketAddr> {
        let address = cursor.listen()?;
        self.addresses.take(address, cursor, "an address that nothing else listens on")?;
        Some(address)
    }

    fn name(&mut self, cursor: &Cursor<'_>) -> Option<String> {
        let name = name(cursor)?;
        self.names.take(name.clone(), cursor, "a name that no other entry has")?;
        Some(name)
    }
}

/// A name that can stand in a label of metrics and in a command.
fn name(cursor: &Cursor<'_>) -> Option<String> {
    let valid = |name: &str| {
        (1..=128).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let what = "a name of up to 128 letters, digits, - _ and .";
    cursor.text_if(what, valid).map(str::to_owned)
}

/// Every item of a list; all bad ones are reported.
fn all<T>(
    cursor: &Cursor<'_>,
    what: &str,
    read: impl FnMut(&Cursor<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let items = cursor.items(what)?;
    if items.is_empty() {
        return cursor.expected(format!("{what}, with at least one"));
    }
    let read: Vec<Option<T>> = items.iter().map(read).collect();
    read.into_iter().collect()
}

/// An IP address and a port, for names are not looked up.
fn numeric(cursor: &Cursor<'_>) -> Option<SocketAddr> {
    let address = cursor.address()?;
    match address.socket_addr() {
        Some(address) => Some(address),
        None => cursor.expected("an IP address and a port: the proxy looks up no names"),
    }
}

#[cfg(test)]
mod tests;
