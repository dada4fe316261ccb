//! Every deterministic method: how HAProxy is configured, and which of our policies is the same.

use plimsoll_policy::{HashFunction, HashKey, KeySource, PolicyKind, Settings, UriPart};

/// What is hashed, for a table that is a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The method does not hash.
    None,
    /// The client's address.
    Source,
    /// The URI.
    Uri(UriPart),
    /// A header.
    Header(&'static str),
    /// A parameter of the query.
    Param(&'static str),
    /// A cookie of HTTP.
    Cookie(&'static str),
    /// A cookie of a remote desktop.
    Rdp(&'static str),
}

/// What becomes of requests that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Each is answered before the next is sent.
    AtOnce,
    /// They stay open and end in an order of their own.
    Later,
}

/// One method.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name, for people.
    pub name: &'static str,
    /// What stands in HAProxy's section.
    pub lines: &'static str,
    /// Our policy.
    pub kind: PolicyKind,
    /// What is hashed.
    pub key: Key,
    /// By which function, and whether it is followed by HAProxy's avalanche.
    pub function: (HashFunction, bool),
    /// `hash-balance-factor`.
    pub factor: Option<u32>,
    /// The servers' weights.
    pub weights: [u32; 5],
    /// `maxconn` of the servers.
    pub limits: Option<[u32; 5]>,
    /// When requests end.
    pub ends: Ends,
    /// Whether weights are changed while it runs.
    pub reweighted: bool,
    /// Clients have addresses of IPv6.
    pub v6: bool,
}

const UNEVEN: [u32; 5] = [3, 1, 5, 2, 4];
/// The cores of the paper's Table 4.
const TABLE_4: [u32; 5] = [4, 8, 16, 32, 48];
/// Great ones, whose keys are coarse.
const GREAT: [u32; 5] = [256, 200, 131, 33, 7];

const PLAIN: Case = Case {
    name: "",
    lines: "",
    kind: PolicyKind::StaticRoundRobin,
    key: Key::None,
    function: (HashFunction::Sdbm, false),
    factor: None,
    weights: UNEVEN,
    limits: None,
    ends: Ends::AtOnce,
    reweighted: false,
    v6: false,
};
const TURNS: Case = Case { kind: PolicyKind::RoundrobinHaproxy, ..PLAIN };
const LEAST: Case = Case { kind: PolicyKind::LeastconnHaproxy, ends: Ends::Later, ..PLAIN };
const MAP: Case = Case { kind: PolicyKind::HashMap, ..PLAIN };
const RING: Case = Case {
    kind: PolicyKind::HashRing,
    function: (HashFunction::Sdbm, true),
    weights: TABLE_4,
    ..PLAIN
};
const URI: UriPart = UriPart { whole: false, path_only: false, depth: None, len: None };

/// All of them; those of the paper first.
pub const CASES: &[Case] = &[
    Case { name: "first", lines: "balance first", kind: PolicyKind::First, ..PLAIN },
    Case {
        name: "first, maxconn 4 9 1 16 20",
        lines: "balance first",
        kind: PolicyKind::First,
        limits: Some([4, 9, 1, 16, 20]),
        ends: Ends::Later,
        ..PLAIN
    },
    Case { name: "leastconn, equal", lines: "balance leastconn", weights: [1; 5], ..LEAST },
    Case { name: "leastconn, 4:8:16:32:48", lines: "balance leastconn", weights: TABLE_4, ..LEAST },
    Case { name: "leastconn, great weights", lines: "balance leastconn", weights: GREAT, ..LEAST },
    Case {
        name: "leastconn, weights changed",
        lines: "balance leastconn",
        reweighted: true,
        ..LEAST
    },
    Case { name: "source", lines: "balance source", key: Key::Source, ..MAP },
    Case { name: "source, IPv6", lines: "balance source", key: Key::Source, v6: true, ..MAP },
    Case {
        name: "source, consistent wt6 avalanche",
        lines: "balance source\n    hash-type consistent wt6 avalanche",
        key: Key::Source,
        function: (HashFunction::Wt6, true),
        ..RING
    },
    Case { name: "roundrobin, equal", lines: "balance roundrobin", weights: [1; 5], ..TURNS },
    Case {
        name: "roundrobin, 4:8:16:32:48",
        lines: "balance roundrobin",
        weights: TABLE_4,
        ..TURNS
    },
    Case {
        name: "roundrobin, great weights",
        lines: "balance roundrobin",
        weights: GREAT,
        ..TURNS
    },
    Case {
        name: "roundrobin, weights changed",
        lines: "balance roundrobin",
        reweighted: true,
        ..TURNS
    },
    Case { name: "static-rr, equal", lines: "balance static-rr", weights: [1; 5], ..PLAIN },
    Case { name: "static-rr, 4:8:16:32:48", lines: "balance static-rr", weights: TABLE_4, ..PLAIN },
    Case { name: "uri", lines: "balance uri", key: Key::Uri(URI), ..MAP },
    Case {
        name: "uri whole",
        lines: "balance uri whole",
        key: Key::Uri(UriPart { whole: true, ..URI }),
        ..MAP
    },
    Case {
        name: "uri depth 1",
        lines: "balance uri depth 1",
        key: Key::Uri(UriPart { depth: Some(1), ..URI }),
        ..MAP
    },
    Case {
        name: "uri path-only",
        lines: "balance uri path-only",
        key: Key::Uri(UriPart { path_only: true, ..URI }),
        ..MAP
    },
    Case {
        name: "uri, map-based djb2 avalanche",
        lines: "balance uri\n    hash-type map-based djb2 avalanche",
        key: Key::Uri(URI),
        function: (HashFunction::Djb2, true),
        ..MAP
    },
    Case {
        name: "uri, map-based wt6",
        lines: "balance uri\n    hash-type map-based wt6",
        key: Key::Uri(URI),
        function: (HashFunction::Wt6, false),
        ..MAP
    },
    Case {
        name: "uri, consistent",
        lines: "balance uri\n    hash-type consistent sdbm avalanche",
        key: Key::Uri(URI),
        ..RING
    },
    Case {
        name: "uri, consistent crc32",
        lines: "balance uri\n    hash-type consistent crc32",
        key: Key::Uri(URI),
        function: (HashFunction::Crc32, false),
        ..RING
    },
    Case {
        name: "uri, consistent, factor 125",
        lines: "balance uri\n    hash-type consistent sdbm avalanche\n    hash-balance-factor 125",
        key: Key::Uri(URI),
        factor: Some(125),
        ends: Ends::Later,
        ..RING
    },
    Case {
        name: "hdr(User-Agent)",
        lines: "balance hdr(User-Agent)",
        key: Key::Header("User-Agent"),
        ..MAP
    },
    Case {
        name: "hash req.cook(sid)",
        lines: "balance hash req.cook(sid)",
        key: Key::Cookie("sid"),
        ..MAP
    },
    Case { name: "url_param id", lines: "balance url_param id", key: Key::Param("id"), ..MAP },
    Case {
        name: "rdp-cookie(user)",
        lines: "balance rdp-cookie(user)",
        key: Key::Rdp("user"),
        ..MAP
    },
    Case {
        name: "rdp-cookie(user), consistent",
        lines: "balance rdp-cookie(user)\n    hash-type consistent sdbm avalanche",
        key: Key::Rdp("user"),
        ..RING
    },
];

impl Case {
    /// Whether connections are of a remote desktop, and not of HTTP.
    pub fn is_rdp(&self) -> bool {
        matches!(self.key, Key::Rdp(_))
    }

    /// What makes the keys of requests; nothing for methods that do not hash.
    pub fn hash_key(&self) -> Option<HashKey> {
        let of = match self.key {
            Key::None => return None,
            Key::Source => KeySource::Source,
            Key::Uri(part) => KeySource::Uri(part),
            Key::Header(name) => KeySource::Header(name.to_owned()),
            Key::Param(name) => KeySource::QueryParam(name.to_owned()),
            Key::Cookie(name) => KeySource::Cookie(name.to_owned()),
            Key::Rdp(name) => KeySource::RdpCookie(name.to_owned()),
        };
        let (function, avalanche) = self.function;
        Some(HashKey { of, function, avalanche })
    }

    /// What is set in our policy.
    pub fn settings(&self) -> Settings {
        Settings { hash_balance_factor: self.factor, ..Settings::default() }
    }
}
