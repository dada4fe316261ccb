//! Probes and liveness checks.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::address::{self, Host};
use super::defaults;
use super::read::{Cursor, Fields, Keyed};
use super::report::quoted;
use super::types::{Connection, Expect, Http, Liveness, Method, Probe, Scheme, Tls};

const PROBE: &[&str] = &[
    "path",
    "timeout",
    "interval",
    "requests",
    "scheme",
    "method",
    "host",
    "headers",
    "body",
    "expect",
    "connection",
    "jitter",
    "max_body",
    "tls",
];
const LIVENESS: &[&str] = &[
    "path",
    "timeout",
    "interval",
    "requests",
    "port",
    "scheme",
    "method",
    "host",
    "headers",
    "body",
    "expect",
    "connection",
    "jitter",
    "max_body",
    "tls",
];

const METHODS: &[(&str, Method)] = &[
    ("GET", Method::Get),
    ("HEAD", Method::Head),
    ("POST", Method::Post),
    ("PUT", Method::Put),
    ("PATCH", Method::Patch),
    ("DELETE", Method::Delete),
    ("OPTIONS", Method::Options),
];

/// What holds where a request does not say.
#[derive(Clone, Debug)]
struct Inherited {
    timeout: Duration,
    timeouts: RangeInclusive<Duration>,
    scheme: Scheme,
    host: Option<String>,
    tls: Tls,
}

/// `probe`
pub fn probe(cursor: &Cursor<'_>) -> Option<Probe> {
    let fields = cursor.fields(PROBE)?;
    let inherited = Inherited {
        timeout: defaults::PROBE_TIMEOUT,
        timeouts: defaults::any_time(),
        scheme: Scheme::Http,
        host: None,
        tls: Tls::default(),
    };
    let http = http(&fields, inherited);
    let interval = fields.optional("interval", |c| c.duration(defaults::probe_interval()));
    let requests = fields.optional("requests", |c| requests(c, defaults::REQUESTS));
    Some(Probe { http: http?, interval: interval?, requests: requests? })
}

/// `liveness`; `probe` as far as it could be read.
pub fn liveness(cursor: &Cursor<'_>, probe: Option<&Probe>) -> Option<Liveness> {
    let fields = cursor.fields(LIVENESS)?;
    let inherited = Inherited {
        timeout: defaults::LIVENESS_TIMEOUT,
        timeouts: defaults::liveness_timeout(),
        scheme: probe.map_or(Scheme::Http, |p| p.http.scheme),
        host: probe.and_then(|p| p.http.host.clone()),
        tls: probe.map(|p| p.http.tls.clone()).unwrap_or_default(),
    };
    let http = http(&fields, inherited);
    let interval = fields.optional("interval", |c| c.duration(defaults::probe_interval()));
    let requests = fields
        .or("requests", defaults::LIVENESS_REQUESTS, |c| requests(c, defaults::LIVENESS_CHECKS));
    let port = fields.optional("port", |c| c.integer(1..=65_535).map(|port| port as u16));
    let (http, interval) = (http?, interval?);
    let rounds = interval.map(|interval| http.timeout.as_nanos().div_ceil(interval.as_nanos()));
    if rounds.is_some_and(|rounds| rounds > defaults::LIVENESS_ROUNDS) {
        let at = fields.get("timeout").or_else(|| fields.get("interval"));
        return at.as_ref().map_or(cursor, |at| at).expected("a timeout of at most 1000 intervals");
    }
    Some(Liveness { http, interval, requests: requests?, port: port? })
}

fn requests(cursor: &Cursor<'_>, bounds: RangeInclusive<u64>) -> Option<u32> {
    cursor.integer(bounds).and_then(|n| u32::try_from(n).ok())
}

fn http(fields: &Fields<'_>, inherited: Inherited) -> Option<Http> {
    let path = fields.required("path", "the path to ask for, such as /health", path);
    let timeout = fields.or("timeout", inherited.timeout, |c| c.duration(inherited.timeouts));
    let scheme = fields.or("scheme", inherited.scheme, |c| {
        c.one_of(&[("http", Scheme::Http), ("https", Scheme::Https)])
    });
    let method = fields.or("method", Method::Get, |c| c.one_of(METHODS));
    let host = fields.or("host", inherited.host, |c| host_header(c).map(Some));
    let headers = fields.or("headers", Vec::new(), headers);
    let body = fields.optional("body", |c| {
        c.text_if("a string to send, of at most 1 MiB", |text| text.len() <= defaults::REQUEST_BODY)
            .map(str::to_owned)
    });
    let expect = fields.or("expect", any_success(), expect);
    let connection = fields.or("connection", Connection::Keep, |c| {
        c.one_of(&[("keep", Connection::Keep), ("new", Connection::New)])
    });
    let jitter = fields.or("jitter", defaults::JITTER, |c| c.number(defaults::PART));
    let max_body = fields.or("max_body", defaults::MAX_BODY, |c| {
        c.integer(defaults::MAX_BODY_BOUNDS).and_then(|bytes| usize::try_from(bytes).ok())
    });
    let tls = fields.or("tls", inherited.tls, tls);
    agree(fields, scheme, method, expect.as_ref())?;
    Some(Http {
        scheme: scheme?,
        method: method?,
        path: path?,
        host: host?,
        headers: headers?,
        body: body?,
        expect: expect?,
        connection: connection?,
        timeout: timeout?,
        jitter: jitter?,
        max_body: max_body?,
        tls: tls?,
    })
}

/// Keys that are fine by themselves, but not together.
fn agree(
    fields: &Fields<'_>,
    scheme: Option<Scheme>,
    method: Option<Method>,
    expect: Option<&Expect>,
) -> Option<()> {
    if let (Some(tls), Some(Scheme::Http)) = (fields.get("tls"), scheme) {
        return tls.problem("expected only with scheme: https");
    }
    if let (Some(cursor), Some(Method::Head), Some(Expect { body: Some(_), .. })) =
        (fields.get("expect"), method, expect)
    {
        return cursor.problem("expected no body: an answer to HEAD has none");
    }
    Some(())
}

fn path(cursor: &Cursor<'_>) -> Option<String> {
    let what = "a path that begins with / (spaces and the like percent-encoded)";
    let valid = |path: &str| {
        path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && b != b'#')
    };
    cursor.text_if(what, valid).map(str::to_owned)
}

fn host_header(cursor: &Cursor<'_>) -> Option<String> {
    let valid = |text: &str| match address::address(text) {
        Ok(_) => true,
        Err(_) => address::host(text).is_ok(),
    };
    cursor.text_if("a host name, with or without a port", valid).map(str::to_owned)
}

fn headers(cursor: &Cursor<'_>) -> Option<Vec<(String, String)>> {
    let entries = cursor.entries("a mapping of header names to strings")?;
    let mut headers: Vec<(String, String)> = Vec::with_capacity(entries.len());
    let mut good = true;
    for entry in entries {
        let header = header(&entry, &headers);
        good &= header.is_some();
        headers.extend(header);
    }
    good.then_some(headers)
}

fn header(entry: &Keyed<'_>, before: &[(String, String)]) -> Option<(String, String)> {
    const OURS: [&str; 10] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    // RFC 9110, section 5.6.2: a token.
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let name = entry.key;
    if name.is_empty() || !name.bytes().all(token) {
        return entry.problem(format!("expected a header name, found {}", quoted(name)));
    }
    if OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
        return entry
            .problem("expected another header: this one follows from host, body, connection");
    }
    if before.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
        return entry.problem("expected once: the case of a header name does not matter");
    }
    let visible = |value: &str| {
        value.bytes().all(|b| b == b' ' || b == b'\t' || b.is_ascii_graphic())
            && value.trim_matches([' ', '\t']) == value
    };
    let what = "a string of visible ASCII characters without spaces around it";
    let value = entry.value.text_if(what, visible)?;
    Some((name.to_owned(), value.to_owned()))
}

fn any_success() -> Expect {
    Expect { status: vec![defaults::EXPECT_STATUS], body: None }
}

fn expect(cursor: &Cursor<'_>) -> Option<Expect> {
    let fields = cursor.fields(&["status", "body"])?;
    let status = fields.or("status", vec![defaults::EXPECT_STATUS], statuses);
    let body = fields.optional("body", |c| {
        c.text_if("the text that must occur in the body", |text| !text.is_empty())
            .map(str::to_owned)
    });
    Some(Expect { status: status?, body: body? })
}

fn statuses(cursor: &Cursor<'_>) -> Option<Vec<RangeInclusive<u16>>> {
    let items = cursor.items_or_one();
    if items.is_empty() {
        return cursor.expected("at least one status");
    }
    // Not short-circuiting: every bad one is reported.
    let ranges: Vec<_> = items.iter().map(status).collect();
    ranges.into_iter().collect()
}

fn status(cursor: &Cursor<'_>) -> Option<RangeInclusive<u16>> {
    let what = "a status from 200 to 599, or a range such as 200-399";
    let parse = |text: &str| match text.trim() {
        text if text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    let text = cursor.scalar(what)?;
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (parse(from), parse(to)) {
        (Some(from), Some(to)) if (200..=599).contains(&from) && from <= to && to <= 599 => {
            Some(from..=to)
        }
        _ => cursor.expected(what),
    }
}

fn tls(cursor: &Cursor<'_>) -> Option<Tls> {
    let fields = cursor.fields(&["ca", "server_name", "insecure"])?;
    let ca = fields.optional("ca", |c| {
        c.text_if("the path of a PEM file", |text| !text.is_empty()).map(PathBuf::from)
    });
    let server_name = fields.optional("server_name", server_name);
    let insecure = fields.or("insecure", false, Cursor::boolean);
    Some(Tls { ca: ca?, server_name: server_name?, insecure: insecure? })
}

fn server_name(cursor: &Cursor<'_>) -> Option<Host> {
    let what = "a host name or an IP address";
    let text = cursor.text(what)?;
    // An IPv6 address needs no brackets here: no port follows.
    match text.parse().map(Host::Ip).or_else(|_| address::host(text)) {
        Ok(host) => Some(host),
        Err(_) => cursor.expected(what),
    }
}
