//! Requests that have all that can be hashed, and every key that can be made of them.

use std::net::{IpAddr, Ipv4Addr};

use plimsoll_policy::{HashFunction, HashKey, KeySource, RequestView, UriPart};

/// Every function.
pub const FUNCTIONS: [HashFunction; 5] = [
    HashFunction::Xxh3,
    HashFunction::Sdbm,
    HashFunction::Djb2,
    HashFunction::Wt6,
    HashFunction::Crc32,
];

/// What one client sends: a browser and a remote desktop in one.
pub struct Sent {
    source: IpAddr,
    target: String,
    agent: String,
    cookies: String,
    payload: Vec<u8>,
}

impl Sent {
    /// From an address of IPv4, or of IPv6.
    pub fn by(client: u32, v6: bool) -> Self {
        let session = u64::from(client).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let v4 = Ipv4Addr::from_bits(0x0a00_0000 | client);
        let source = if v6 { v4.to_ipv6_mapped().into() } else { v4.into() };
        let desktop = format!("Cookie: mstshash={session:016x}\r\n");
        Sent {
            source,
            target: format!("http://shop/articles/{client}/reviews?page=2&session={session:016x}"),
            agent: format!("Mozilla/5.0 (X11; Linux x86_64; rv:{client}.0) Gecko/20100101"),
            cookies: format!("theme=dark; seen=1700000000.{client}; session={session:016x}; b=1"),
            payload: [b"\x03\0\0\x2c\x27\xe0\0\0\0\0\0", desktop.as_bytes()].concat(),
        }
    }
}

impl RequestView for Sent {
    fn source(&self) -> Option<IpAddr> {
        Some(self.source)
    }

    fn target(&self) -> Option<&[u8]> {
        Some(self.target.as_bytes())
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        match name {
            "user-agent" => Some(self.agent.as_bytes()),
            "cookie" => Some(self.cookies.as_bytes()),
            _ => None,
        }
    }

    fn payload(&self) -> Option<&[u8]> {
        Some(&self.payload)
    }
}

/// Every source, the URI whole and in part.
pub fn sources() -> [KeySource; 7] {
    let session = || "session".to_owned();
    let part = UriPart { path_only: true, depth: Some(2), len: Some(40), ..UriPart::default() };
    [
        KeySource::Source,
        KeySource::Uri(UriPart { whole: true, ..UriPart::default() }),
        KeySource::Uri(part),
        KeySource::Header("user-agent".to_owned()),
        KeySource::QueryParam(session()),
        KeySource::Cookie(session()),
        KeySource::RdpCookie("mstshash".to_owned()),
    ]
}

/// What is hashed, for people.
pub fn name(source: &KeySource) -> &'static str {
    match source {
        KeySource::Source => "source",
        KeySource::Uri(part) if part.whole => "uri, whole",
        KeySource::Uri(_) => "uri, in part",
        KeySource::Header(_) => "header",
        KeySource::QueryParam(_) => "query_param",
        KeySource::Cookie(_) => "cookie",
        KeySource::RdpCookie(_) => "rdp_cookie",
    }
}

/// Every key of this.
pub fn keys(of: &KeySource, avalanche: bool) -> [HashKey; FUNCTIONS.len()] {
    FUNCTIONS.map(|function| HashKey { of: of.clone(), function, avalanche })
}
