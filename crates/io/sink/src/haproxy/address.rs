use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use plimsoll_config::{Address, Expected, LONGEST_UNIX_PATH};

use crate::SinkError;
use crate::steer::spelled_out;

/// Where HAProxy's runtime API listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketAddress {
    /// A Unix socket: `stats socket /run/haproxy/admin.sock level admin`.
    Unix(PathBuf),
    /// `host:port`: `stats socket ipv4@127.0.0.1:9999 level admin`.
    Tcp(String),
}

impl SocketAddress {
    /// The path of a Unix socket.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            SocketAddress::Unix(path) => Some(path),
            SocketAddress::Tcp(_) => None,
        }
    }

    /// The same with its path as the file system has it.
    pub(crate) fn spelled_out(&self) -> Self {
        self.path().map_or(self.clone(), |path| SocketAddress::Unix(spelled_out(path)))
    }
}

/// Prefixes that mean TCP: our own and HAProxy's address families.
const TCP_PREFIXES: [&str; 6] = ["tcp://", "ipv4@", "ipv6@", "tcp@", "tcp4@", "tcp6@"];

impl FromStr for SocketAddress {
    type Err = SinkError;

    /// Reads `/path`, `unix@/path`, `host:port`, `tcp://host:port` and HAProxy's `ipv4@host:port`.
    fn from_str(text: &str) -> Result<Self, SinkError> {
        parse(text).map_err(|reason| SinkError::InvalidName {
            name: text.to_owned(),
            what: "socket address",
            reason,
        })
    }
}

/// The address that a text means, or what was expected.
pub(super) fn parse(text: &str) -> Result<SocketAddress, String> {
    if text.contains(['\0', '\n']) {
        return Err("expected a path or host:port".to_owned());
    }
    if let Some(path) = text.strip_prefix("unix@").or_else(|| text.strip_prefix("unix://")) {
        return unix(path);
    }
    if let Some(rest) = TCP_PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)) {
        return tcp(rest).map_err(|expected| format!("{expected}, after the prefix"));
    }
    if text.contains("://") || text.contains('@') && !text.contains('/') {
        return Err(
            "expected a path, unix@path, host:port, or it after ipv4@, ipv6@ or tcp@".into()
        );
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err("expected host:port: it has no port".to_owned());
    }
    match text.contains(':') && !text.contains('/') {
        true => tcp(text).map_err(|expected| format!("{expected}, or a path")),
        false => unix(text),
    }
}

fn unix(path: &str) -> Result<SocketAddress, String> {
    match (1..=LONGEST_UNIX_PATH).contains(&path.len()) {
        true => Ok(SocketAddress::Unix(PathBuf::from(path))),
        false => Err(format!("expected the path of a Unix socket, 1 to {LONGEST_UNIX_PATH} bytes")),
    }
}

fn tcp(text: &str) -> Result<SocketAddress, Expected> {
    text.parse::<Address>().map(|address| SocketAddress::Tcp(address.to_string()))
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketAddress::Unix(path) => write!(f, "HAProxy socket {}", path.display()),
            SocketAddress::Tcp(address) => write!(f, "HAProxy socket tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_way_to_write_an_address() {
        let unix = |path: &str| SocketAddress::Unix(PathBuf::from(path));
        let tcp = |address: &str| SocketAddress::Tcp(address.to_owned());
        for (text, expected) in [
            ("/run/haproxy/admin.sock", unix("/run/haproxy/admin.sock")),
            ("unix@/run/a.sock", unix("/run/a.sock")),
            ("./admin.sock", unix("./admin.sock")),
            ("admin.sock", unix("admin.sock")),
            ("/odd:9/path:1", unix("/odd:9/path:1")),
            ("127.0.0.1:9999", tcp("127.0.0.1:9999")),
            ("tcp://localhost:9999", tcp("localhost:9999")),
            ("ipv4@10.0.0.1:9999", tcp("10.0.0.1:9999")),
            ("ipv6@[::1]:9999", tcp("[::1]:9999")),
            ("[::1]:9999", tcp("[::1]:9999")),
        ] {
            assert_eq!(text.parse::<SocketAddress>().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn refuses_what_it_cannot_open() {
        for text in [
            "",
            "tcp://localhost",
            "127.0.0.1",
            "::1",
            "ipv4@1.2.3.4:0",
            "abns@name",
            "fd@3",
            "http://a:1",
        ] {
            let error = text.parse::<SocketAddress>().unwrap_err();
            assert!(error.to_string().contains("not a valid socket address"), "{error}");
        }
    }
}
