//! Messages so plain that they are passed on without hyper: a head that is complete and has nothing unusual in it, and a
//! body whose length it says. Whatever is not plainly right, malformed messages among it, is none of these: hyper reads
//! it again from its beginning, and says what is wrong with it.

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::time::SystemTime;

use httparse::{Header, Status};
use hyper::StatusCode;
use hyper::header::HeaderValue;
use plimsoll_policy::RequestView;

use crate::answer::is_failure;
use crate::headers::{OURS, Rejected};
use crate::request::is_host_byte;
use crate::sticky::{self, Sticky};

/// Most headers of a plain message.
const MOST_HEADERS: usize = 48;

/// Where a parser puts headers.
pub(crate) type Slots<'b> = [MaybeUninit<Header<'b>>; MOST_HEADERS];

pub(crate) const fn slots<'b>() -> Slots<'b> {
    [const { MaybeUninit::uninit() }; MOST_HEADERS]
}

/// A request of HTTP/1.1, whole: its body, if any, is in the same bytes, and nothing follows.
pub(crate) struct Request<'h, 'b> {
    method: &'b str,
    target: &'b str,
    pub(crate) host: &'b str,
    headers: &'h [Header<'b>],
    body: &'b [u8],
    /// How long its head is.
    pub(crate) head_length: usize,
    /// Whether it says already which client it is from (`X-Forwarded-*`).
    pub(crate) is_forwarded: bool,
}

impl<'h, 'b> Request<'h, 'b> {
    /// The bytes as a request; none if they are no plain one.
    pub(crate) fn parse(bytes: &'b [u8], slots: &'h mut Slots<'b>) -> Option<Self> {
        let mut parsed = httparse::Request::new(&mut []);
        let Ok(Status::Complete(end)) = parsed.parse_with_uninit_headers(bytes, slots) else {
            return None;
        };
        let (method, target) = (parsed.method?, parsed.path?);
        let headers: &'h [Header<'b>] = parsed.headers;
        let may_have_no_length = matches!(method, "GET" | "HEAD");
        let is_known = may_have_no_length || matches!(method, "POST" | "PUT" | "DELETE" | "PATCH");
        let is_path = target.starts_with('/') && target.bytes().all(is_target_byte);
        if parsed.version != Some(1) || !is_known || !is_path {
            return None;
        }
        let (mut host, mut length, mut is_forwarded) = (None, None, false);
        for Header { name, value } in headers {
            match Kind::of(name) {
                Kind::Host if host.is_none() => host = Some(std::str::from_utf8(value).ok()?),
                Kind::Length if length.is_none() => length = Some(number(value)?),
                Kind::Connection if value.eq_ignore_ascii_case(b"keep-alive") => {}
                Kind::Forwarded => is_forwarded = true,
                Kind::Ours | Kind::Other | Kind::Date | Kind::Cookie => {}
                _ => return None,
            }
        }
        let (host, body) = (host?, &bytes[end..]);
        if length.is_none() && !may_have_no_length || length.unwrap_or(0) != body.len() {
            return None;
        }
        host.bytes().all(is_host_byte).then_some(Request {
            method,
            target,
            host,
            headers,
            body,
            head_length: end,
            is_forwarded,
        })
    }

    /// How long its body is.
    pub(crate) fn body_length(&self) -> usize {
        self.body.len()
    }

    /// Whether its response has no body.
    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Its target without the query.
    pub(crate) fn path(&self) -> &'b str {
        self.target.split('?').next().unwrap_or(self.target)
    }

    /// The values of its `Cookie` headers.
    pub(crate) fn cookies(&self) -> impl Iterator<Item = &'b [u8]> {
        let is_cookie = |header: &&Header<'_>| Kind::of(header.name) == Kind::Cookie;
        self.headers.iter().filter(is_cookie).map(|header| header.value)
    }

    /// Appends it as a backend gets it, with the time and the tries that it has left and the client that it is from, if
    /// the backend gets those, and without the pool's own cookie.
    pub(crate) fn write(
        &self,
        left: Option<(u64, u32)>,
        client: Option<IpAddr>,
        sticky: Option<&Sticky>,
        out: &mut Vec<u8>,
    ) {
        for piece in [self.method, " ", self.target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(piece.as_bytes());
        }
        for header in self.headers {
            match (Kind::of(header.name), sticky) {
                (Kind::Connection | Kind::Ours, _) => {}
                (Kind::Cookie, Some(sticky)) if sticky.is_in(header.value) => {
                    write_others(header, sticky, out);
                }
                _ => write_header(header, out),
            }
        }
        if let Some((left, tries)) = left {
            // To a vector: it cannot fail.
            let _ = write!(out, "plimsoll-deadline: {left}\r\nplimsoll-try: {tries}\r\n");
        }
        if let Some(client) = client {
            let host = self.host;
            let _ = write!(
                out,
                "x-forwarded-for: {client}\r\nx-forwarded-proto: http\r\nx-forwarded-host: {host}\r\n"
            );
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.body);
    }
}

/// A plain request, as keys see it.
pub(crate) struct View<'r, 'h, 'b> {
    pub(crate) peer: IpAddr,
    pub(crate) request: &'r Request<'h, 'b>,
}

impl RequestView for View<'_, '_, '_> {
    fn source(&self) -> Option<IpAddr> {
        Some(self.peer)
    }

    fn target(&self) -> Option<&[u8]> {
        Some(self.request.target.as_bytes())
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        // Those that end here, a key does not see either.
        let mut headers = self.request.headers.iter();
        let found = headers.find(|header| header.name.eq_ignore_ascii_case(name))?;
        let ends_here =
            matches!(Kind::of(found.name), Kind::Connection | Kind::Ours | Kind::Unusual);
        (!ends_here).then_some(found.value)
    }
}

/// The head of a plain response of HTTP/1.1.
#[derive(Debug, PartialEq)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    /// Where its body begins.
    pub(crate) end: usize,
    /// How long its body is.
    pub(crate) length: u64,
    pub(crate) chip: Option<bool>,
    /// Whether the backend closes the connection.
    pub(crate) closes: bool,
}

impl Response {
    /// The bytes as a response that is passed on, and appends its head as the client gets it; none if it is incomplete,
    /// or longer than `most`, or not plain, or a refusal, and nothing that counts has been appended then.
    pub(crate) fn pass(
        bytes: &[u8],
        most: usize,
        to_head: bool,
        closes: bool,
        set_cookie: Option<&HeaderValue>,
        out: &mut Vec<u8>,
    ) -> Option<Self> {
        let mut slots = slots();
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let complete =
            config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut slots).ok()?;
        let Status::Complete(end) = complete else { return None };
        if end > most {
            return None;
        }
        let (status, reason) = (StatusCode::from_u16(parsed.code?).ok()?, parsed.reason?);
        let is_204 = status == StatusCode::NO_CONTENT;
        let has_none = is_204 || status == StatusCode::NOT_MODIFIED;
        if parsed.version != Some(1) || status.is_informational() || is_204 && to_head {
            return None;
        }
        let _ = write!(out, "HTTP/1.1 {} {reason}\r\n", status.as_str());
        let mut response = Response { status, end, length: 0, chip: None, closes: false };
        let (mut length, mut has_date) = (None, false);
        for header in parsed.headers.iter() {
            let Header { name, value } = header;
            match Kind::of(name) {
                Kind::Length if length.is_none() && !is_204 => {
                    length = Some(number(value)? as u64);
                    write_header(header, out);
                }
                Kind::Connection if value.eq_ignore_ascii_case(b"keep-alive") => {}
                Kind::Connection if value.eq_ignore_ascii_case(b"close") => response.closes = true,
                Kind::Ours if name.eq_ignore_ascii_case("plimsoll-chip") => {
                    response.chip = response.chip.or_else(|| crate::headers::chip_of(value));
                }
                // What it refuses is tried elsewhere.
                Kind::Ours if Rejected::is_named(name) => return None,
                Kind::Ours => {}
                Kind::Date => {
                    has_date = true;
                    write_header(header, out);
                }
                Kind::Other | Kind::Host | Kind::Forwarded | Kind::Cookie => {
                    write_header(header, out)
                }
                Kind::Length | Kind::Connection | Kind::Unusual => return None,
            }
        }
        if !has_none && !to_head {
            response.length = length?;
        }
        if !has_date {
            let now = httpdate::fmt_http_date(SystemTime::now());
            let _ = write!(out, "date: {now}\r\n");
        }
        // One that could not serve is none to stay with.
        if let Some(set) = set_cookie.filter(|_| !is_failure(status)) {
            sticky::write_set(set, out);
        }
        if closes {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        Some(response)
    }
}

/// What a header means to a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Length,
    Connection,
    Date,
    /// `plimsoll-*`.
    Ours,
    Cookie,
    /// `X-Forwarded-For`, `-Proto`, `-Host`.
    Forwarded,
    /// It ends here, or changes how the message is read: hyper's.
    Unusual,
    Other,
}

impl Kind {
    fn of(name: &str) -> Kind {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is("host") => Kind::Host,
            4 if is("date") => Kind::Date,
            14 if is("content-length") => Kind::Length,
            10 if is("connection") => Kind::Connection,
            2 if is("te") => Kind::Unusual,
            6 if is("cookie") => Kind::Cookie,
            6 if is("expect") => Kind::Unusual,
            7 if is("upgrade") || is("trailer") => Kind::Unusual,
            10 if is("keep-alive") => Kind::Unusual,
            16 if is("proxy-connection") => Kind::Unusual,
            17 if is("transfer-encoding") => Kind::Unusual,
            15 if is("x-forwarded-for") => Kind::Forwarded,
            16 if is("x-forwarded-host") => Kind::Forwarded,
            17 if is("x-forwarded-proto") => Kind::Forwarded,
            9.. if name.as_bytes()[..9].eq_ignore_ascii_case(OURS.as_bytes()) => Kind::Ours,
            _ => Kind::Other,
        }
    }
}

fn write_header(header: &Header<'_>, out: &mut Vec<u8>) {
    for piece in [header.name.as_bytes(), b": ", header.value, b"\r\n"] {
        out.extend_from_slice(piece);
    }
}

/// Without the pool's own cookie; nothing where there is no other.
fn write_others(header: &Header<'_>, sticky: &Sticky, out: &mut Vec<u8>) {
    let mut others = sticky.others(header.value);
    let Some(first) = others.next() else { return };
    for piece in [header.name.as_bytes(), b": ", first] {
        out.extend_from_slice(piece);
    }
    for other in others {
        out.extend_from_slice(b"; ");
        out.extend_from_slice(other);
    }
    out.extend_from_slice(b"\r\n");
}

/// Whether this is a header by which a backend gets the client's address.
pub(crate) fn tells_client(name: &str) -> bool {
    Kind::of(name) == Kind::Forwarded
}

/// Digits alone, and not too many.
fn number(value: &[u8]) -> Option<usize> {
    let is_plain = (1..=15).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    is_plain.then(|| value.iter().fold(0, |n, digit| n * 10 + usize::from(digit - b'0')))
}

/// RFC 3986, less what no target needs unescaped.
fn is_target_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(text: &str) -> Option<String> {
        let mut slots = slots();
        let request = Request::parse(text.as_bytes(), &mut slots)?;
        let mut out = Vec::new();
        request.write(Some((7, 2)), None, None, &mut out);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_plain_request_goes_on_without_what_ends_here() {
        let request = "GET /a?b=1 HTTP/1.1\r\nHost: shop:80\nConnection: Keep-Alive\r\nX-A:  1 \r\n\
            Plimsoll-Try: 9\r\n\r\n";
        let expected = "GET /a?b=1 HTTP/1.1\r\nHost: shop:80\r\nX-A: 1\r\nplimsoll-deadline: 7\r\n\
            plimsoll-try: 2\r\n\r\n";
        assert_eq!(sent(request).unwrap(), expected);
        let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nok";
        assert!(sent(post).unwrap().ends_with("\r\n\r\nok"));
    }

    #[test]
    fn a_backend_gets_the_clients_address_in_headers() {
        let text = "GET / HTTP/1.1\r\nHost: shop\r\n\r\n";
        let (mut slots, mut out) = (slots(), Vec::new());
        let request = Request::parse(text.as_bytes(), &mut slots).unwrap();
        assert!(!request.is_forwarded);
        request.write(None, Some(IpAddr::from([9, 9, 9, 9])), None, &mut out);
        let expected = "GET / HTTP/1.1\r\nHost: shop\r\nx-forwarded-for: 9.9.9.9\r\n\
            x-forwarded-proto: http\r\nx-forwarded-host: shop\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        for name in ["x-forwarded-for", "X-Forwarded-Proto", "X-FORWARDED-HOST"] {
            let text = format!("GET / HTTP/1.1\r\nhost: a\r\n{name}: b\r\n\r\n");
            let mut slots = super::slots();
            assert!(Request::parse(text.as_bytes(), &mut slots).unwrap().is_forwarded, "{name}");
        }
    }

    #[test]
    fn whatever_is_not_plain_is_hypers() {
        for odd in [
            "GET / HTTP/1.1\r\nhost: a\r\n",
            "GET / HTTP/1.0\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET /\"a HTTP/1.1\r\nhost: a\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\no",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nokGET",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +2\r\n\r\nok",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n 2\r\n\r\n",
            "GET / HTTP/1.1\r\nhost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
        ] {
            assert_eq!(sent(odd), None, "{odd}");
        }
    }

    fn passed(text: &str, to_head: bool) -> Option<(Response, String)> {
        let mut out = Vec::new();
        let response = Response::pass(text.as_bytes(), 8 << 10, to_head, false, None, &mut out)?;
        Some((response, String::from_utf8(out).unwrap()))
    }

    #[test]
    fn a_plain_response_goes_on_without_what_ends_here() {
        let text = "HTTP/1.1 200 Fine\r\nDate: x\r\nconnection: close\r\nplimsoll-chip: 1\r\n\
            Content-Length: 4\r\n\r\nbody";
        let (response, head) = passed(text, false).unwrap();
        assert_eq!(head, "HTTP/1.1 200 Fine\r\nDate: x\r\nContent-Length: 4\r\n\r\n");
        let end = text.len() - 4;
        let status = StatusCode::OK;
        let expected = Response { status, end, length: 4, chip: Some(true), closes: true };
        assert_eq!(response, expected);
        let (response, head) = passed("HTTP/1.1 304 \r\ncontent-length: 9\r\n\r\n", false).unwrap();
        assert!(response.length == 0 && head.contains("content-length: 9\r\ndate: "), "{head}");
        assert_eq!(
            passed("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", true).unwrap().0.length,
            0
        );
    }

    #[test]
    fn a_response_that_is_not_plain_is_hypers() {
        for odd in [
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 4\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: x-a\r\n\r\n",
            "HTTP/1.1 429 Too Many Requests\r\nplimsoll-rejected: full\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(passed(odd, false), None, "{odd}");
        }
    }
}
