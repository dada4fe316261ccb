//! What of a request keeps it with others: a hash of its source, of its URI, of a header, a query
//! parameter or a cookie, made once per request and given to the policy as [`crate::Request::key`].
//!
//! Source: HAProxy's `balance source`, `uri [whole] [path-only] [len n] [depth n]`, `hdr(name)`,
//! `url_param name` and `rdp-cookie(name)` with `hash-type … <function> [avalanche]`: with one of
//! HAProxy's functions the hash, and with it the server, is the one that HAProxy 2.6 takes
//! (`tests/haproxy.rs`). `cookie` is its `balance hash req.cook(name)`. A request that has no such thing
//! has no key; the policies then go round, as HAProxy does. Cost: one pass over what is hashed.

mod function;
mod parse;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use function::HashFunction;
pub(crate) use function::full_hash;

/// What can be read of a request before it is sent. Whoever holds a request implements it; nothing is
/// copied.
pub trait RequestView {
    /// Who sent it.
    fn source(&self) -> Option<IpAddr> {
        None
    }

    /// Its target as it stands in the request line: `/path?query`, or a whole URI.
    fn target(&self) -> Option<&[u8]> {
        None
    }

    /// The first header of this name, in any case of letters.
    fn header(&self, _name: &str) -> Option<&[u8]> {
        None
    }

    /// What a connection sent first, where it is no HTTP.
    fn payload(&self) -> Option<&[u8]> {
        None
    }
}

/// Which part of a request is hashed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// The client's address.
    Source,
    /// The URI, up to its query unless `whole`.
    Uri(UriPart),
    /// A header's first value, up to a comma.
    Header(String),
    /// A parameter of the query.
    QueryParam(String),
    /// A cookie of HTTP.
    Cookie(String),
    /// A cookie in the first packet of a remote desktop session; HAProxy's default name is `mstshash`.
    RdpCookie(String),
}

/// How much of a URI is hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UriPart {
    /// The query, too.
    pub whole: bool,
    /// From the path on: without scheme and authority, which only some requests have.
    pub path_only: bool,
    /// So many directories, counted by their slashes.
    pub depth: Option<u32>,
    /// So many bytes.
    pub len: Option<u32>,
}

/// Makes keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashKey {
    /// What is hashed.
    pub of: KeySource,
    /// By which function.
    #[serde(default)]
    pub function: HashFunction,
    /// Whether HAProxy's functions are followed by its mixing of bits. Without it the short ones leave
    /// neighbouring keys neighbours.
    #[serde(default)]
    pub avalanche: bool,
}

impl HashKey {
    /// Of this, by the function that mixes best.
    pub fn new(of: KeySource) -> Self {
        HashKey { of, function: HashFunction::default(), avalanche: false }
    }

    /// The request's key, if it has what is hashed.
    pub fn key(&self, request: &impl RequestView) -> Option<u64> {
        let part = match &self.of {
            KeySource::Source => return Some(self.address(request.source()?)),
            KeySource::Uri(part) => part.of(request.target()?),
            KeySource::Header(name) => parse::first_value(request.header(name)?)?,
            KeySource::QueryParam(name) => parse::query_param(request.target()?, name.as_bytes())?,
            KeySource::Cookie(name) => parse::cookie(request.header("cookie")?, name.as_bytes())?,
            KeySource::RdpCookie(name) => parse::rdp_cookie(request.payload()?, name.as_bytes())?,
        };
        Some(self.function.hash(part, self.avalanche))
    }

    fn address(&self, address: IpAddr) -> u64 {
        match address {
            IpAddr::V4(v4) => self.function.hash_address(&v4.octets(), self.avalanche),
            IpAddr::V6(v6) => self.function.hash_address(&v6.octets(), self.avalanche),
        }
    }
}

impl UriPart {
    fn of(self, target: &[u8]) -> &[u8] {
        let mut part = if self.path_only { parse::path(target) } else { target };
        if let Some(len) = self.len {
            part = &part[..part.len().min(len as usize)];
        }
        let mut slashes = 0;
        let end = part.iter().position(|&c| {
            slashes += u32::from(c == b'/');
            self.depth.is_some_and(|depth| slashes > depth) || (c == b'?' && !self.whole)
        });
        &part[..end.unwrap_or(part.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct View(&'static str);

    impl RequestView for View {
        fn target(&self) -> Option<&[u8]> {
            Some(self.0.as_bytes())
        }
    }

    fn part(of: UriPart, target: &str) -> String {
        String::from_utf8(of.of(target.as_bytes()).to_vec()).unwrap()
    }

    #[test]
    fn parts_of_a_uri() {
        let all = UriPart::default();
        assert_eq!(part(all, "/a/b/c?x=1"), "/a/b/c");
        assert_eq!(part(UriPart { whole: true, ..all }, "/a/b?x=1"), "/a/b?x=1");
        for (depth, expected) in [(1, "/a"), (2, "/a/b"), (9, "/a/b/c")] {
            assert_eq!(part(UriPart { depth: Some(depth), ..all }, "/a/b/c?x"), expected);
        }
        assert_eq!(part(UriPart { len: Some(3), ..all }, "/a/b/c"), "/a/");
        let path_only = UriPart { path_only: true, ..all };
        assert_eq!(part(path_only, "http://host:80/a/b?x"), "/a/b");
        assert_eq!(part(path_only, "/a/http://b"), "/a/http://b");
    }

    #[test]
    fn a_request_without_it_has_no_key() {
        let key = |of, target| HashKey::new(of).key(&View(target));
        assert_eq!(key(KeySource::Source, "/"), None);
        assert_eq!(key(KeySource::Header("host".to_owned()), "/"), None);
        assert_eq!(key(KeySource::QueryParam("id".to_owned()), "/?idx=1"), None);
        let id = KeySource::QueryParam("id".to_owned());
        assert_eq!(key(id.clone(), "/a?id=7"), key(id.clone(), "/b?x&id=7&y=1"));
        assert_ne!(key(id.clone(), "/a?id=7"), key(id, "/a?id=8"));
    }

    struct Headers;

    impl RequestView for Headers {
        fn header(&self, name: &str) -> Option<&[u8]> {
            match name.to_ascii_lowercase().as_str() {
                "cookie" => Some(b"a=1; sid=7"),
                "x-user" => Some(b"ann, bob"),
                _ => None,
            }
        }

        fn payload(&self) -> Option<&[u8]> {
            Some(b"\x03\0\0\x1a\x15\xe0\0\0\0\0\0Cookie: user=7\r\n")
        }
    }

    #[test]
    fn headers_and_cookies_of_both_kinds() {
        let sdbm = |of| HashKey { of, function: HashFunction::Sdbm, avalanche: false };
        let key = |of| sdbm(of).key(&Headers);
        let hash = |text: &str| Some(HashFunction::Sdbm.hash(text.as_bytes(), false));
        assert_eq!(key(KeySource::Header("X-User".to_owned())), hash("ann"));
        assert_eq!(key(KeySource::Cookie("sid".to_owned())), hash("7"));
        assert_eq!(key(KeySource::RdpCookie("user".to_owned())), hash("7"));
        assert_eq!(key(KeySource::RdpCookie("mstshash".to_owned())), None);
    }

    #[test]
    fn it_can_be_configured() {
        let text = r#"{"of": {"uri": {"depth": 2}}, "function": "crc32", "avalanche": true}"#;
        let key: HashKey = serde_json::from_str(text).unwrap();
        let uri = UriPart { depth: Some(2), ..UriPart::default() };
        let function = HashFunction::Crc32;
        assert_eq!(key, HashKey { of: KeySource::Uri(uri), function, avalanche: true });
        assert!(serde_json::from_str::<HashKey>(r#"{"of": "sauce"}"#).is_err());
    }
}
