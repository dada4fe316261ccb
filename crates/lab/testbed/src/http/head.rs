//! Heads of requests and responses.

use httparse::{Header, Status};

use super::{Framing, ProtocolError};

/// More headers than this are an error, not a reason to allocate.
const MOST_HEADERS: usize = 64;

/// What a server must know of a request.
#[derive(Debug)]
pub struct RequestHead<'a> {
    /// `GET` and so on.
    pub method: &'a str,
    /// Path with query.
    pub target: &'a str,
    /// Whether the connection may serve another request.
    pub keep_alive: bool,
    /// Where its body ends.
    pub framing: Framing,
    /// Bytes of the head.
    pub len: usize,
}

/// What a client must know of a response.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    /// 100 to 599.
    pub status: u16,
    /// Whether the connection may serve another request.
    pub keep_alive: bool,
    /// Where its body ends.
    pub framing: Framing,
    /// The value of the header that was asked for.
    pub label: Option<&'a [u8]>,
    /// Bytes of the head.
    pub len: usize,
}

/// `None` when the head is not complete yet.
pub fn parse_request(bytes: &[u8]) -> Result<Option<RequestHead<'_>>, ProtocolError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(bytes) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(ProtocolError("not an HTTP request")),
    };
    let mut common = Common::new(request.version == Some(1));
    for header in request.headers.iter() {
        common.see(header)?;
    }
    let framing = match (common.chunked, common.length) {
        (true, _) => Framing::Chunked,
        (false, length) => Framing::Length(length.unwrap_or(0)),
    };
    Ok(Some(RequestHead {
        method: request.method.unwrap_or_default(),
        target: request.path.unwrap_or_default(),
        keep_alive: common.keep_alive,
        framing,
        len,
    }))
}

/// `None` when the head is not complete yet. `to_head` says that the request was `HEAD`; `label` names
/// the header whose value is wanted.
pub fn parse_response<'a>(
    bytes: &'a [u8],
    to_head: bool,
    label: &str,
) -> Result<Option<ResponseHead<'a>>, ProtocolError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let len = match response.parse(bytes) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(ProtocolError("not an HTTP response")),
    };
    let status = response.code.unwrap_or_default();
    let mut common = Common::new(response.version == Some(1));
    let mut found = None;
    for header in response.headers.iter() {
        common.see(header)?;
        if header.name.eq_ignore_ascii_case(label) {
            found = Some(header.value);
        }
    }
    let bodiless = to_head || status < 200 || status == 204 || status == 304;
    let framing = match (bodiless, common.chunked, common.length) {
        (true, _, _) => Framing::Length(0),
        (false, true, _) => Framing::Chunked,
        (false, false, Some(length)) => Framing::Length(length),
        (false, false, None) => Framing::UntilClose,
    };
    let keep_alive = common.keep_alive && framing != Framing::UntilClose;
    Ok(Some(ResponseHead { status, keep_alive, framing, label: found, len }))
}

/// What requests and responses have in common.
struct Common {
    keep_alive: bool,
    length: Option<u64>,
    chunked: bool,
}

impl Common {
    fn new(http_1_1: bool) -> Self {
        Common { keep_alive: http_1_1, length: None, chunked: false }
    }

    fn see(&mut self, header: &Header<'_>) -> Result<(), ProtocolError> {
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(header.value).unwrap_or_default().trim();
            let length = text.parse().map_err(|_| ProtocolError("bad Content-Length"))?;
            self.length = Some(length);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            self.chunked |= has_token(header.value, "chunked");
        } else if header.name.eq_ignore_ascii_case("connection") && has_token(header.value, "close")
        {
            self.keep_alive = false;
        }
        Ok(())
    }
}

fn has_token(value: &[u8], token: &str) -> bool {
    value.split(|b| *b == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_how_it_ends_and_whether_more_may_follow() {
        let text = b"PATCH /a?b HTTP/1.1\r\nContent-Length: 3\r\nConnection: x, Close\r\n\r\nabc";
        let head = parse_request(text).unwrap().unwrap();
        assert_eq!((head.method, head.target), ("PATCH", "/a?b"));
        assert_eq!((head.keep_alive, head.framing), (false, Framing::Length(3)));
        assert_eq!(head.len, text.len() - 3);
        let old = parse_request(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap();
        assert!(!old.keep_alive);
        assert!(parse_request(b"GET / HTTP/1.1\r\nHo").unwrap().is_none());
        assert!(parse_request(b"\x16\x03\x01 hello there\r\n\r\n").is_err());
        assert!(parse_request(b"GET / HTTP/1.1\r\nContent-Length: -3\r\n\r\n").is_err());
    }

    #[test]
    fn a_response_without_length_ends_with_its_connection() {
        let framing = |text: &str, to_head| {
            let head = parse_response(text.as_bytes(), to_head, "x-backend").unwrap().unwrap();
            (head.framing, head.keep_alive)
        };
        assert_eq!(framing("HTTP/1.1 200 OK\r\n\r\n", false), (Framing::UntilClose, false));
        assert_eq!(framing("HTTP/1.1 200 OK\r\n\r\n", true), (Framing::Length(0), true));
        assert_eq!(framing("HTTP/1.1 204 No\r\n\r\n", false), (Framing::Length(0), true));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
        assert_eq!(framing(chunked, false), (Framing::Chunked, true));
        assert!(parse_response(b"SSH-2.0-OpenSSH\r\n", false, "x").is_err());
    }

    #[test]
    fn the_label_is_found_in_any_case() {
        let text = b"HTTP/1.1 200 OK\r\nX-Backend: s1\r\nContent-Length: 0\r\n\r\n";
        let head = parse_response(text, false, "x-backend").unwrap().unwrap();
        assert_eq!(head.label, Some(&b"s1"[..]));
    }
}
