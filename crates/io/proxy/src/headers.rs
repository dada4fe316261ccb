//! Headers that end here: those of one hop (RFC 9110, section 7.6.1), and our own.

use std::time::Duration;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use plimsoll_admission::Reason;

/// On responses of an ingress: `1` where its backend has room for more, else `0`.
pub(crate) const CHIP: HeaderName = HeaderName::from_static("plimsoll-chip");
/// On a 429 of an ingress: `full`, `queue` or `deadline`. An application's own 429 has none.
pub(crate) const REJECTED: HeaderName = HeaderName::from_static("plimsoll-rejected");
/// Beside `plimsoll-rejected: deadline`: `1` where the backend had nothing else to do, so that others would be no
/// faster.
pub(crate) const IDLE: HeaderName = HeaderName::from_static("plimsoll-idle");
/// On requests to an ingress: milliseconds until the client no longer waits for the answer.
pub(crate) const DEADLINE: HeaderName = HeaderName::from_static("plimsoll-deadline");
/// On requests to an ingress: how often the request would be tried elsewhere if it were refused.
pub(crate) const TRY: HeaderName = HeaderName::from_static("plimsoll-try");
/// On a request that asks an ingress for its application's load.
pub(crate) const PROBE: HeaderName = HeaderName::from_static("plimsoll-probe");
/// On the answer to it: `in_flight=3, latency_us=1200, cpu=0.431`.
pub(crate) const LOAD: HeaderName = HeaderName::from_static("plimsoll-load");
pub(crate) const OURS: &str = "plimsoll-";

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// RFC 7540, section 3.2.1: of an upgrade to HTTP/2, which is not passed on.
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// What our 429 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    Full,
    Queue,
    Deadline { is_idle: bool },
}

impl From<Reason> for Rejected {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Full => Rejected::Full,
            Reason::Queue => Rejected::Queue,
            Reason::Deadline { is_idle } => Rejected::Deadline { is_idle },
        }
    }
}

impl Rejected {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Rejected::Full => "full",
            Rejected::Queue => "queue",
            Rejected::Deadline { .. } => "deadline",
        }
    }

    /// Whether another backend that is no faster could serve the request.
    pub(crate) fn is_worth_a_retry(self) -> bool {
        self != Rejected::Deadline { is_idle: true }
    }

    /// Whether a header of this name says that a response is a refusal of ours.
    pub(crate) fn is_named(name: &str) -> bool {
        name.eq_ignore_ascii_case(REJECTED.as_str())
    }

    /// What a response says, if it is a refusal of ours.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get(REJECTED)?.as_bytes() {
            b"queue" => Some(Rejected::Queue),
            b"deadline" => {
                let is_idle = headers.get(IDLE).is_some_and(|value| value == "1");
                Some(Rejected::Deadline { is_idle })
            }
            _ => Some(Rejected::Full),
        }
    }
}

/// The chip that a response carries.
pub(crate) fn chip(headers: &HeaderMap) -> Option<bool> {
    chip_of(headers.get(CHIP)?.as_bytes())
}

/// The chip that this header value is.
pub(crate) fn chip_of(value: &[u8]) -> Option<bool> {
    match value {
        b"1" => Some(true),
        b"0" => Some(false),
        _ => None,
    }
}

pub(crate) fn chip_value(chip: bool) -> HeaderValue {
    HeaderValue::from_static(if chip { "1" } else { "0" })
}

/// A small number: none is made anew for those that occur.
pub(crate) fn number(n: u32) -> HeaderValue {
    const DIGITS: [&str; 16] =
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];
    match DIGITS.get(n as usize) {
        Some(digits) => HeaderValue::from_static(digits),
        None => HeaderValue::from(n),
    }
}

/// The time that a request has left, as it says.
pub(crate) fn deadline(headers: &HeaderMap) -> Option<Duration> {
    whole(headers, &DEADLINE).map(Duration::from_millis)
}

/// The tries that a request has left, as it says.
pub(crate) fn tries_left(headers: &HeaderMap) -> Option<u32> {
    whole(headers, &TRY).map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

fn whole(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let digits = headers.get(name)?.to_str().ok()?;
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(digits)?.parse().ok()
}

/// Removes all of ours.
pub(crate) fn remove_ours(headers: &mut HeaderMap) {
    remove_where(headers, |name| name.as_str().starts_with(OURS));
}

/// The protocol that a client would go on with on its connection, if it says so as it must: in `Upgrade`, which
/// `Connection` names. HTTP/2 is none of these: the proxy does not speak it.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(header::UPGRADE)?;
    let is_asked =
        listed(headers, &header::CONNECTION).any(|name| name.eq_ignore_ascii_case(b"upgrade"));
    let spoken: Vec<&[u8]> = listed(headers, &header::UPGRADE)
        .filter(|protocol| !protocol.is_empty() && !protocol.eq_ignore_ascii_case(b"h2c"))
        .collect();
    let protocols = (is_asked && !spoken.is_empty()).then(|| spoken.join(&b", "[..]))?;
    HeaderValue::from_bytes(&protocols).ok()
}

/// The members of a list, which may stand on several lines.
fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii))
}

/// Says that this connection may go on with another protocol.
pub(crate) fn ask_for_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// Removes what concerns one connection alone: `Connection` and what it names, `Keep-Alive`, `Proxy-Connection`,
/// `TE`, `Upgrade`, and `Transfer-Encoding`, for bodies are framed anew.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        // A vector for the rare client that names a header here, or sends several of these.
        let named: Vec<HeaderValue> = headers.get_all(header::CONNECTION).iter().cloned().collect();
        headers.remove(header::CONNECTION);
        named.iter().for_each(|named| remove_named(headers, named));
    }
    for name in [
        KEEP_ALIVE,
        PROXY_CONNECTION,
        HTTP2_SETTINGS,
        header::TE,
        header::UPGRADE,
        header::TRANSFER_ENCODING,
    ] {
        headers.remove(name);
    }
}

fn remove_named(headers: &mut HeaderMap, connection: &HeaderValue) {
    let names = connection.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii);
    for name in names {
        // The usual words name no header. What frames and routes a message is not a client's to remove.
        let kept: [&[u8]; 5] = [b"close", b"keep-alive", b"upgrade", b"host", b"content-length"];
        if name.is_empty() || kept.iter().any(|kept| kept.eq_ignore_ascii_case(name)) {
            continue;
        }
        if let Ok(name) = HeaderName::from_bytes(name) {
            headers.remove(name);
        }
    }
}

fn remove_where(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    // One pass where there is none, which is the usual case; nothing is allocated.
    while let Some(name) = headers.keys().find(|name| unwanted(name)).cloned() {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |&(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut map = HeaderMap::new();
        pairs.iter().map(pair).for_each(|(name, value)| {
            map.append(name, value);
        });
        map
    }

    #[test]
    fn what_concerns_one_connection_ends_here() {
        let mut headers = map(&[
            ("connection", "close, X-Mine , host, content-length"),
            ("x-mine", "1"),
            ("host", "shop"),
            ("content-length", "5"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-connection", "keep-alive"),
            ("x-other", "2"),
        ]);
        remove_hop_by_hop(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "host", "x-other"]);
    }

    #[test]
    fn an_upgrade_is_one_that_connection_names() {
        let asked = |connection, upgrade| {
            super::upgrade(&map(&[("connection", connection), ("upgrade", upgrade)])).is_some()
        };
        assert!(asked("keep-alive, Upgrade", "websocket"));
        assert!(!asked("keep-alive", "websocket") && !asked("upgrade", "h2c"));
        let several = map(&[
            ("connection", "upgrade, http2-settings"),
            ("upgrade", "H2C, websocket"),
            ("upgrade", "other/1"),
        ]);
        assert_eq!(super::upgrade(&several).unwrap(), "websocket, other/1");
    }

    #[test]
    fn all_of_ours_are_removed() {
        let mut headers = map(&[
            ("plimsoll-chip", "1"),
            ("plimsoll-anything", "a"),
            ("plimsoll-anything", "b"),
            ("x-plimsoll", "stays"),
        ]);
        remove_ours(&mut headers);
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn numbers_of_others_are_digits_or_nothing() {
        for (text, value) in [("7", Some(7)), ("", None), ("-1", None), ("+1", None), ("1e3", None)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(TRY, HeaderValue::from_static(text));
            assert_eq!(tries_left(&headers), value, "{text}");
        }
        assert_eq!((number(3), number(99)), ("3".parse().unwrap(), "99".parse().unwrap()));
    }

    #[test]
    fn a_refusal_is_read_as_it_was_written() {
        for reason in [Reason::Full, Reason::Queue, Reason::Deadline { is_idle: true }] {
            let rejected = Rejected::from(reason);
            let mut headers = HeaderMap::new();
            headers.insert(REJECTED, HeaderValue::from_static(rejected.word()));
            if rejected == (Rejected::Deadline { is_idle: true }) {
                headers.insert(IDLE, HeaderValue::from_static("1"));
            }
            assert_eq!(Rejected::of(&headers), Some(rejected));
            assert_eq!(rejected.is_worth_a_retry(), reason.is_worth_a_retry());
        }
        assert_eq!(Rejected::of(&HeaderMap::new()), None);
    }
}
