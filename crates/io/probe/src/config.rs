//! The sections `probe` and `liveness` of a service, read into what is asked of its backends.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_config::{Address, Cursor, Fields, Host, Keyed, quoted};

use crate::request::{MAX_BODY_LIMIT, MAX_REQUEST_BODY, RESERVED, is_token};
use crate::{Connection, Probe, ProbeSpec, Scheme, StatusSet, TlsSpec};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Default of `probe.timeout`.
const PROBE_TIMEOUT: Duration = ms(2_000);
/// Default of `liveness.timeout`.
const LIVENESS_TIMEOUT: Duration = ms(1_000);
/// Default of `liveness.requests`.
const LIVENESS_REQUESTS: u32 = 1;
/// Default of `probe.jitter`.
const JITTER: f64 = 0.1;
/// Default of `*.max_body`, bytes.
const MAX_BODY: usize = 64 << 10;

/// Bounds of `probe.timeout`.
const PROBE_TIMEOUTS: RangeInclusive<Duration> = ms(1)..=ms(3_600_000);
/// Bounds of `liveness.timeout`.
const LIVENESS_TIMEOUTS: RangeInclusive<Duration> = ms(1)..=ms(60_000);
/// Bounds of intervals: below 10 ms timers are no longer even.
const INTERVALS: RangeInclusive<Duration> = ms(10)..=ms(3_600_000);
/// Bounds of `probe.requests`.
const PROBES: RangeInclusive<u64> = 1..=10_000;
/// Bounds of `liveness.requests`: more at once would be a load test.
const CHECKS: RangeInclusive<u64> = 1..=16;
/// `liveness.timeout` may span so many intervals: about as many rounds overlap while a backend hangs.
const LIVENESS_ROUNDS: u128 = 1_000;
/// Bounds of `*.max_body`, bytes.
const MAX_BODIES: RangeInclusive<u64> = 1..=MAX_BODY_LIMIT as u64;
/// Bounds of a part of a whole.
const PART: RangeInclusive<f64> = 0.0..=1.0;

/// How latency is measured besides by the traffic: the section `probe`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeConfig {
    /// The request, and the answer that counts as a success.
    pub request: ProbeSpec,
    /// Time between two probes of one backend; none: adapts to the backend's capacity.
    pub interval: Option<Duration>,
    /// Probes per backend and interval; none: adapts to the backend's capacity.
    pub requests: Option<u32>,
    /// Each gap between probes is stretched or shrunk by up to this part of itself, 0…1.
    pub jitter: f64,
}

/// How life is checked where traffic does not show it: the section `liveness`.
#[derive(Clone, Debug, PartialEq)]
pub struct LivenessConfig {
    /// The request; scheme, host and tls are the probe's where not given.
    pub request: ProbeSpec,
    /// Time between two checks of one backend; none: as they are needed, within the budget.
    pub interval: Option<Duration>,
    /// Requests per check; the backend lives when one of them succeeds.
    pub requests: u32,
    /// A port other than the backend's own.
    pub port: Option<u16>,
}

/// The keys of a request.
macro_rules! request_keys {
    ($($more:literal),*) => {
        &["path", "timeout", "interval", "requests", "scheme", "method", "host", "headers", "body", "expect",
          "connection", "max_body", "tls", $($more),*]
    };
}
const PROBE_KEYS: &[&str] = request_keys!("jitter");
const LIVENESS_KEYS: &[&str] = request_keys!("port");

const METHODS: &[(&str, &str)] = &[
    ("GET", "GET"),
    ("HEAD", "HEAD"),
    ("POST", "POST"),
    ("PUT", "PUT"),
    ("PATCH", "PATCH"),
    ("DELETE", "DELETE"),
    ("OPTIONS", "OPTIONS"),
];

/// What holds where a request does not say.
struct Inherited {
    timeout: Duration,
    timeouts: RangeInclusive<Duration>,
    scheme: Scheme,
    host: Option<String>,
    tls: TlsSpec,
}

impl ProbeConfig {
    /// Reads the section.
    pub fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(PROBE_KEYS)?;
        let inherited = Inherited {
            timeout: PROBE_TIMEOUT,
            timeouts: PROBE_TIMEOUTS,
            scheme: Scheme::Http,
            host: None,
            tls: TlsSpec::default(),
        };
        let request = request(cursor, &fields, inherited);
        let interval = fields.optional("interval", |c| c.duration(INTERVALS));
        let requests = fields.optional("requests", |c| requests(c, PROBES));
        let jitter = fields.or("jitter", JITTER, |c| c.number(PART));
        Some(ProbeConfig {
            request: request?,
            interval: interval?,
            requests: requests?,
            jitter: jitter?,
        })
    }
}

impl LivenessConfig {
    /// Reads the section; `probe` as far as it could be read.
    pub fn read(cursor: &Cursor<'_>, probe: Option<&ProbeConfig>) -> Option<Self> {
        let fields = cursor.fields(LIVENESS_KEYS)?;
        let probe = probe.map(|probe| &probe.request);
        let inherited = Inherited {
            timeout: LIVENESS_TIMEOUT,
            timeouts: LIVENESS_TIMEOUTS,
            scheme: probe.map_or(Scheme::Http, |p| p.scheme),
            host: probe.and_then(|p| p.host.clone()),
            tls: probe.and_then(|p| p.tls.clone()).unwrap_or_default(),
        };
        let request = request(cursor, &fields, inherited);
        let interval = fields.optional("interval", |c| c.duration(INTERVALS));
        let requests = fields.or("requests", LIVENESS_REQUESTS, |c| requests(c, CHECKS));
        let port = fields.optional("port", |c| c.integer(1..=65_535).map(|port| port as u16));
        let (request, interval) = (request?, interval?);
        let rounds = interval.map(|each| request.timeout.as_nanos().div_ceil(each.as_nanos()));
        if rounds.is_some_and(|rounds| rounds > LIVENESS_ROUNDS) {
            let at = fields.get("timeout").or_else(|| fields.get("interval")).unwrap_or(cursor);
            return at.expected("a timeout of at most 1000 intervals");
        }
        Some(LivenessConfig { request, interval, requests: requests?, port: port? })
    }
}

fn requests(cursor: &Cursor<'_>, bounds: RangeInclusive<u64>) -> Option<u32> {
    cursor.integer(bounds).and_then(|n| u32::try_from(n).ok())
}

fn request(cursor: &Cursor<'_>, fields: &Fields<'_>, inherited: Inherited) -> Option<ProbeSpec> {
    let path = fields.required("path", "the path to ask for, such as /health", path);
    let timeout = fields.or("timeout", inherited.timeout, |c| c.duration(inherited.timeouts));
    let scheme = fields.or("scheme", inherited.scheme, |c| {
        c.one_of(&[("http", Scheme::Http), ("https", Scheme::Https)])
    });
    let method = fields.or("method", "GET", |c| c.one_of(METHODS));
    let host = fields.or("host", inherited.host, |c| host_header(c).map(Some));
    let headers = fields.or("headers", Vec::new(), headers);
    let body = fields.optional("body", |c| {
        c.text_if("a string to send, of at most 1 MiB", |text| text.len() <= MAX_REQUEST_BODY)
            .map(|text| text.as_bytes().to_vec())
    });
    let expect = fields.or("expect", Expect::default(), expect);
    let connection = fields.or("connection", Connection::Keep, |c| {
        c.one_of(&[("keep", Connection::Keep), ("new", Connection::New)])
    });
    let max_body = fields.or("max_body", MAX_BODY, |c| {
        c.integer(MAX_BODIES).and_then(|bytes| usize::try_from(bytes).ok())
    });
    let tls = fields.or("tls", inherited.tls, tls);
    agree(fields, scheme, method, expect.as_ref())?;
    let (scheme, expect, tls) = (scheme?, expect?, tls?);
    let spec = ProbeSpec {
        scheme,
        method: method?.to_owned(),
        path: path?,
        host: host?,
        headers: headers?,
        body: body?,
        expect_status: expect.status,
        expect_body: expect.body,
        timeout: timeout?,
        connection: connection?,
        max_body: max_body?,
        tls: (scheme == Scheme::Https).then_some(tls),
    };
    match Probe::check(&spec) {
        Ok(()) => Some(spec),
        Err(error) => cursor.problem(error),
    }
}

/// Keys that are fine by themselves, but not together.
fn agree(
    fields: &Fields<'_>,
    scheme: Option<Scheme>,
    method: Option<&str>,
    expect: Option<&Expect>,
) -> Option<()> {
    if let (Some(tls), Some(Scheme::Http)) = (fields.get("tls"), scheme) {
        return tls.problem("expected only with scheme: https");
    }
    if let (Some(cursor), Some("HEAD"), Some(Expect { body: Some(_), .. })) =
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
    let valid = |text: &str| text.parse::<Address>().is_ok() || text.parse::<Host>().is_ok();
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
    let name = entry.key;
    if !is_token(name) {
        return entry.problem(format!("expected a header name, found {}", quoted(name)));
    }
    if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
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

/// What a success looks like.
#[derive(Default)]
struct Expect {
    status: StatusSet,
    body: Option<Vec<u8>>,
}

fn expect(cursor: &Cursor<'_>) -> Option<Expect> {
    let fields = cursor.fields(&["status", "body"])?;
    let status = fields.or("status", StatusSet::default(), statuses);
    let body = fields.optional("body", |c| {
        c.text_if("the text that must occur in the body", |text| !text.is_empty())
            .map(|text| text.as_bytes().to_vec())
    });
    Some(Expect { status: status?, body: body? })
}

fn statuses(cursor: &Cursor<'_>) -> Option<StatusSet> {
    let items = cursor.items_or_one();
    if items.is_empty() {
        return cursor.expected("at least one status");
    }
    // Not short-circuiting: every bad one is reported.
    let ranges: Vec<_> = items.iter().map(status).collect();
    let ranges: Option<Vec<_>> = ranges.into_iter().collect();
    StatusSet::new(ranges?).map_or_else(|error| cursor.problem(error), Some)
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

fn tls(cursor: &Cursor<'_>) -> Option<TlsSpec> {
    let fields = cursor.fields(&["ca", "server_name", "insecure"])?;
    let ca_file = fields.optional("ca", |c| {
        c.text_if("the path of a PEM file", |text| !text.is_empty()).map(PathBuf::from)
    });
    let server_name = fields.optional("server_name", server_name);
    let insecure = fields.or("insecure", false, Cursor::boolean);
    Some(TlsSpec { ca_file: ca_file?, server_name: server_name?, insecure: insecure? })
}

fn server_name(cursor: &Cursor<'_>) -> Option<String> {
    let what = "a host name or an IP address";
    let text = cursor.text(what)?;
    // An IPv6 address needs no brackets here: no port follows.
    match text.parse().map(Host::Ip).or_else(|_| text.parse::<Host>()) {
        Ok(host) => Some(host.bare()),
        Err(_) => cursor.expected(what),
    }
}
