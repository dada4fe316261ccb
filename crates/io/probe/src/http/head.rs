use std::mem::MaybeUninit;

use crate::failure::Failure;

use super::Body;

/// The longest head of an answer that is read, bytes: what NGINX and HAProxy take by default.
pub(crate) const MAX_HEAD: usize = 16 * 1024;

/// HAProxy's `tune.http.maxhdr`.
const MAX_HEADERS: usize = 101;

/// What the head of an answer says.
#[derive(Debug)]
pub(crate) struct Head {
    pub status: u16,
    /// What follows the head.
    pub body: Body,
    /// Whether the server means to keep the connection (RFC 9112 §9.3).
    pub keep: bool,
    /// How many bytes the head took.
    pub length: usize,
}

/// The fields of a head that matter here.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    coded: bool,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

/// Reads a head from the beginning of `bytes`; `None` when it is not complete yet.
///
/// `head_only` says that the request was a `HEAD`.
pub(crate) fn parse_head(bytes: &[u8], head_only: bool) -> Result<Option<Head>, Failure> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut response, bytes, &mut headers)
        .map_err(|error| Failure::protocol(format!("not an HTTP/1 answer: {error}")))?;
    let httparse::Status::Complete(length) = status else { return Ok(None) };
    let status = response.code.unwrap_or_default();
    if !(100..=599).contains(&status) {
        return Err(Failure::protocol(format!("status {status} does not exist")));
    }
    let old = response.version == Some(0);
    let fields = read_fields(response.headers)?;
    let body = framing(&fields, status, old, head_only)?;
    let keep = !fields.close && (!old || fields.keep_alive) && !matches!(body, Body::UntilClose);
    Ok(Some(Head { status, body, keep, length }))
}

fn read_fields(headers: &[httparse::Header<'_>]) -> Result<Fields, Failure> {
    let mut fields = Fields::default();
    for header in headers {
        let name = header.name;
        if name.eq_ignore_ascii_case("content-length") {
            read_length(header.value, &mut fields.length)?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            fields.coded = true;
            // Only the last coding decides where the body ends.
            fields.chunked = items(header.value).last().is_some_and(|c| is(c, b"chunked"));
        } else if name.eq_ignore_ascii_case("connection") {
            fields.close |= items(header.value).any(|option| is(option, b"close"));
            fields.keep_alive |= items(header.value).any(|option| is(option, b"keep-alive"));
        }
    }
    Ok(fields)
}

/// Repeated lengths are one length if they agree (RFC 9112 §6.3).
fn read_length(value: &[u8], length: &mut Option<u64>) -> Result<(), Failure> {
    for item in items(value) {
        let number = std::str::from_utf8(item)
            .ok()
            .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|text| text.parse::<u64>().ok())
            .ok_or_else(|| Failure::protocol("Content-Length is not a number"))?;
        if length.is_some_and(|known| known != number) {
            return Err(Failure::protocol("two different Content-Lengths"));
        }
        *length = Some(number);
    }
    Ok(())
}

/// RFC 9112 §6.3, in its order.
fn framing(fields: &Fields, status: u16, old: bool, head_only: bool) -> Result<Body, Failure> {
    if head_only || status < 200 || status == 204 || status == 304 {
        return Ok(Body::empty());
    }
    if fields.coded {
        // Two framings at once, or chunks in HTTP/1.0, are how requests get smuggled.
        if fields.length.is_some() {
            return Err(Failure::protocol("both Content-Length and Transfer-Encoding"));
        }
        if old {
            return Err(Failure::protocol("Transfer-Encoding in HTTP/1.0"));
        }
        return Ok(if fields.chunked { Body::chunked() } else { Body::UntilClose });
    }
    Ok(fields.length.map_or(Body::UntilClose, Body::of_length))
}

/// The non-empty items of a comma-separated field.
fn items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|item| !item.is_empty())
}

fn is(item: &[u8], word: &[u8]) -> bool {
    item.eq_ignore_ascii_case(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::FailureKind;

    fn head(fields: &str) -> Head {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\nrest");
        let head = parse_head(bytes.as_bytes(), false).expect("valid").expect("complete");
        assert_eq!(head.length, bytes.len() - 4);
        head
    }

    #[test]
    fn framing_follows_the_fields() {
        assert!(matches!(head("").body, Body::UntilClose));
        assert!(matches!(head("content-length: 5\r\n").body, Body::Length(5)));
        assert!(matches!(
            head("Content-Length: 5, 5\r\nContent-Length: 5\r\n").body,
            Body::Length(5)
        ));
        assert!(matches!(head("Transfer-Encoding: gzip, Chunked\r\n").body, Body::Chunked(_)));
        let split = "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n";
        assert!(matches!(head(split).body, Body::Chunked(_)));
        assert!(matches!(head("Transfer-Encoding: gzip\r\n").body, Body::UntilClose));
    }

    #[test]
    fn some_answers_have_no_body_whatever_they_say() {
        let length = "Content-Length: 9\r\n\r\n";
        for line in ["HTTP/1.1 204 x", "HTTP/1.1 304 x", "HTTP/1.1 103 x"] {
            let bytes = format!("{line}\r\n{length}");
            let head = parse_head(bytes.as_bytes(), false).unwrap().unwrap();
            assert!(matches!(head.body, Body::Length(0)), "{line}");
        }
        let bytes = format!("HTTP/1.1 200 x\r\n{length}");
        let head = parse_head(bytes.as_bytes(), true).unwrap().unwrap();
        assert!(matches!(head.body, Body::Length(0)) && head.keep);
    }

    #[test]
    fn keeping_is_the_servers_choice() {
        let keeps = |version: &str, fields: &str| {
            let bytes = format!("{version} 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
            parse_head(bytes.as_bytes(), false).unwrap().unwrap().keep
        };
        assert!(keeps("HTTP/1.1", ""));
        assert!(!keeps("HTTP/1.1", "Connection: x, Close\r\n"));
        assert!(!keeps("HTTP/1.0", ""));
        assert!(keeps("HTTP/1.0", "Connection: Keep-Alive\r\n"));
        assert!(!head("").keep);
    }

    #[test]
    fn what_is_not_http_is_a_protocol_failure() {
        for bytes in [
            "SSH-2.0-OpenSSH_9.2\r\n",
            "HTTP/2.0 200 OK\r\n",
            "HTTP/1.1 099 x\r\n\r\n",
            "HTTP/1.1 700 x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
        ] {
            let failure = parse_head(bytes.as_bytes(), false).expect_err(bytes);
            assert_eq!(failure.kind, FailureKind::Protocol, "{bytes}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        assert!(parse_head(many.as_bytes(), false).is_err());
    }

    #[test]
    fn every_prefix_of_a_head_is_incomplete() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n";
        for end in 0..bytes.len() {
            assert!(parse_head(&bytes[..end], false).unwrap().is_none(), "{end}");
        }
        assert!(parse_head(bytes, false).unwrap().is_some());
    }
}
