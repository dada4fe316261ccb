use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Where a backend listens: `10.0.0.1:80`, `[::1]:8080` or `app-3.internal:80`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Host {
    Ip(IpAddr),
    Name(Box<str>),
}

/// Why a text is not an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No `:port` at the end, or not a number in 1…65535.
    #[error("`{0}` does not end with a port, such as `:80`")]
    Port(String),
    /// Neither an IP address nor a host name.
    #[error("`{0}` does not begin with an IP address or a host name")]
    Host(String),
}

/// The longest host name that DNS carries (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;

impl Address {
    /// The address itself, when it needs no resolving.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host without the port, and an IPv6 address without its brackets.
    pub fn host(&self) -> String {
        match &self.host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.to_string(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        Address { host: Host::Ip(addr.ip()), port: addr.port() }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| AddressError::Port(text.to_owned()))?;
        let port = match port.parse::<u16>() {
            // `+80` parses as a number but is not a port anybody means.
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => number,
            _ => return Err(AddressError::Port(text.to_owned())),
        };
        let bad_host = || AddressError::Host(text.to_owned());
        let host = if let Some(inner) = host.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(bad_host)?;
            Host::Ip(IpAddr::V6(inner.parse().map_err(|_| bad_host())?))
        } else if let Ok(ip) = host.parse::<std::net::Ipv4Addr>() {
            Host::Ip(IpAddr::V4(ip))
        } else if is_name(host) {
            Host::Name(host.into())
        } else {
            return Err(bad_host());
        };
        Ok(Address { host, port })
    }
}

/// A host name as resolvers take it: labels of letters, digits, `-` and `_` (which container
/// platforms use), and not a number in disguise such as `10.0.0` that resolvers would complete.
fn is_name(host: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    host.len() <= MAX_NAME
        && host.split('.').all(label)
        && host.rsplit('.').next().is_some_and(|last| last.bytes().any(|b| !b.is_ascii_digit()))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_addresses() {
        for text in ["10.0.0.1:80", "[::1]:8080", "app-3.internal:80", "web_1:65535", "localhost:1"]
        {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        let v6: Address = "[fe80::1]:80".parse().unwrap();
        assert_eq!((v6.host(), v6.port()), ("fe80::1".to_owned(), 80));
        assert!(v6.socket_addr().is_some());
        assert!("localhost:80".parse::<Address>().unwrap().socket_addr().is_none());
    }

    #[test]
    fn refuses_what_cannot_be_connected_to() {
        for text in ["", "host", "host:", "host:0", "host:65536", "host:+80", "host:8o"] {
            assert!(matches!(text.parse::<Address>(), Err(AddressError::Port(_))), "{text}");
        }
        for text in [":80", "[::1:80", "::1:80", "a b:80", "-a:80", "a..b:80", "10.0.0:80", "é:80"]
        {
            assert!(matches!(text.parse::<Address>(), Err(AddressError::Host(_))), "{text}");
        }
    }
}
