//! Addresses: an IP address or a host name, and a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// By number.
    Ip(IpAddr),
    /// By name, in lower case; resolved when it is used.
    Name(String),
}

/// Where a backend listens: `10.0.0.1:80`, `[::1]:8080` or `app-3.internal:80`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The host.
    pub host: Host,
    /// Never 0.
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Host::Ip(IpAddr::V4(ip)) => ip.fmt(f),
            Host::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Host {
    /// As it stands in a certificate or a name look-up: an IPv6 address without its brackets.
    pub fn bare(&self) -> String {
        match self {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
        }
    }
}

impl Address {
    /// The address itself, when it needs no resolving.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address { host: Host::Ip(address.ip()), port: address.port() }
    }
}

/// Why a text is not an address or a host: what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected(&'static str);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Expected {}

impl FromStr for Address {
    type Err = Expected;

    fn from_str(text: &str) -> Result<Self, Expected> {
        address(text).map_err(Expected)
    }
}

impl FromStr for Host {
    type Err = Expected;

    /// Reads a host: an IPv4 address, an IPv6 address in brackets, or a name.
    fn from_str(text: &str) -> Result<Self, Expected> {
        host(text).map_err(Expected)
    }
}

fn address(text: &str) -> Result<Address, &'static str> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            (host, port)
        }
        _ => {
            return Err(
                "expected host:port, such as 127.0.0.1:9001, [::1]:9001 or name.example:80",
            );
        }
    };
    let port = match port.parse::<u16>() {
        Ok(port) if port > 0 => port,
        _ => return Err("expected a port from 1 to 65535"),
    };
    Ok(Address { host: self::host(host)?, port })
}

fn host(text: &str) -> Result<Host, &'static str> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match inner.parse::<Ipv6Addr>() {
            Ok(ip) => reachable(ip.into()),
            Err(_) => Err("expected an IPv6 address between the brackets"),
        };
    }
    if text.contains('/') {
        return Err("expected host:port without http:// or a path");
    }
    if text.contains(':') {
        let of_six = |b: u8| b.is_ascii_hexdigit() || b == b':';
        return Err(if text.matches(':').count() > 1 && text.bytes().all(of_six) {
            "expected an IPv6 address in brackets, such as [::1]:9001"
        } else {
            "expected one host and one port, such as 127.0.0.1:9001"
        });
    }
    let last_label = text.rsplit('.').next().unwrap_or_default();
    if last_label.bytes().all(|b| b.is_ascii_digit()) && !last_label.is_empty() {
        return match text.parse::<Ipv4Addr>() {
            Ok(ip) => reachable(ip.into()),
            Err(_) => Err("expected an IPv4 address of four numbers from 0 to 255"),
        };
    }
    if is_name(text) {
        return Ok(Host::Name(text.to_ascii_lowercase()));
    }
    Err("expected an IP address or a host name")
}

/// Connections go to one host that has this address; these stand for none or for many.
fn reachable(ip: IpAddr) -> Result<Host, &'static str> {
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err("expected the address of one host");
    }
    Ok(Host::Ip(ip))
}

/// RFC 1123, section 2.1; underscores as names in container networks have them.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_come_back_as_written() {
        for text in ["127.0.0.1:9001", "[::1]:80", "shop-1.example:65535", "db_1:1", "localhost:80"]
        {
            assert_eq!(address(text).unwrap().to_string(), text);
        }
        assert_eq!(address("Shop:80"), address("shop:80"));
        assert_eq!(address("[0:0::1]:80"), address("[::1]:80"));
    }

    #[test]
    fn each_mistake_has_its_own_answer() {
        for (text, says) in [
            ("http://10.0.0.1:80", "without http://"),
            ("::1:80", "in brackets"),
            ("10.0.0.12:22:33", "one host and one port"),
            ("10.0.0.1", "expected host:port, such as"),
        ] {
            let error = address(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn bad_addresses_are_refused() {
        for text in [
            "",
            ":",
            ":80",
            "a",
            "a:",
            "a:b",
            "a:0",
            "a:65536",
            "a:-1",
            "a:+1",
            "a: 1",
            "a b:1",
            "::1:80",
            "[::1]",
            "[::1:80",
            "::1]:80",
            "[a]:80",
            "[127.0.0.1]:80",
            "256.0.0.1:80",
            "1.2.3:80",
            "127.0.0.01:80",
            "1:2:3",
            "0.0.0.0:80",
            "[::]:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "a..b:80",
            "-a:80",
            "a-:80",
            "é:80",
            "http://a:80",
            "a/b:80",
            "u@a:80",
            ".:80",
            "a.:80",
            "[fe80::1%eth0]:80",
            "99999999999999999999:80",
        ] {
            assert!(address(text).is_err(), "{text}");
        }
        assert!(address(&format!("{}:80", "a".repeat(64))).is_err());
        assert!(address(&format!("{}a:80", "a.".repeat(127))).is_err());
    }
}
