use std::time::Duration;

use crate::spec::{Connection, ProbeSpec, Scheme, SpecError};

/// Apache, NGINX and HAProxy take heads of 8 KiB and more.
const MAX_REQUEST_HEAD: usize = 8 * 1024;
/// The longest body of a request, bytes.
pub(crate) const MAX_REQUEST_BODY: usize = 1024 * 1024;
/// The greatest limit of a response's body, bytes.
pub(crate) const MAX_BODY_LIMIT: usize = 64 * 1024 * 1024;
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// A host name of DNS with a port.
const MAX_AUTHORITY: usize = 260;

const USER_AGENT: &str = concat!("plimsoll-probe/", env!("CARGO_PKG_VERSION"));

/// Fields that decide where a message ends or what becomes of the connection (RFC 9110 §7.6.1,
/// RFC 9112 §6). `Host` has its own setting; `Expect` would make the server wait for us.
pub(crate) const RESERVED: [&str; 10] = [
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

/// Checks everything of a spec that needs no file.
pub(crate) fn validate(spec: &ProbeSpec) -> Result<(), SpecError> {
    if !is_token(&spec.method) || spec.method.eq_ignore_ascii_case("CONNECT") {
        return Err(SpecError::Method(spec.method.clone()));
    }
    let path_byte = |b: u8| b.is_ascii_graphic() && b != b'#';
    if !spec.path.starts_with('/') || !spec.path.bytes().all(path_byte) {
        return Err(SpecError::Path(spec.path.clone()));
    }
    if let Some(host) = spec.host.as_ref().filter(|host| !is_authority(host)) {
        return Err(SpecError::Host(host.clone()));
    }
    for (name, value) in &spec.headers {
        validate_header(name, value)?;
    }
    if let Some(body) = spec.body.as_ref().filter(|body| body.len() > MAX_REQUEST_BODY) {
        return Err(SpecError::BodyTooLong(body.len()));
    }
    if spec.timeout < Duration::from_millis(1) || spec.timeout > MAX_TIMEOUT {
        return Err(SpecError::Timeout);
    }
    if spec.max_body > MAX_BODY_LIMIT {
        return Err(SpecError::MaxBody);
    }
    if spec.scheme == Scheme::Http && spec.tls.is_some() {
        return Err(SpecError::TlsWithoutHttps);
    }
    // The longest authority that an address can make, so that the length holds for every backend.
    let head = serialize(spec, spec.host.as_deref().unwrap_or(&"h".repeat(MAX_AUTHORITY))).len()
        - spec.body.as_ref().map_or(0, Vec::len);
    if head > MAX_REQUEST_HEAD {
        return Err(SpecError::HeadTooLong(head));
    }
    validate_expect_body(spec)
}

fn validate_header(name: &str, value: &str) -> Result<(), SpecError> {
    if !is_token(name) {
        return Err(SpecError::HeaderName(name.to_owned()));
    }
    if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(SpecError::HeaderReserved(name.to_owned()));
    }
    let clean = value.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
    if !clean || value.trim_matches([' ', '\t']) != value {
        return Err(SpecError::HeaderValue(name.to_owned()));
    }
    Ok(())
}

fn validate_expect_body(spec: &ProbeSpec) -> Result<(), SpecError> {
    match &spec.expect_body {
        Some(text) if text.is_empty() => Err(SpecError::ExpectBody("it is empty")),
        Some(text) if text.len() > spec.max_body => {
            Err(SpecError::ExpectBody("it is longer than the longest body that is read"))
        }
        Some(_) if spec.method == "HEAD" => {
            Err(SpecError::ExpectBody("an answer to HEAD has no body"))
        }
        _ => Ok(()),
    }
}

/// The whole request as it goes over the wire, so that a probe is one `write`.
pub(crate) fn serialize(spec: &ProbeSpec, authority: &str) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\nHost: {authority}\r\n", spec.method, spec.path);
    let given = |name: &str| spec.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    for (name, value) in [("User-Agent", USER_AGENT), ("Accept", "*/*")] {
        if !given(name) {
            push_field(&mut head, name, value);
        }
    }
    for (name, value) in &spec.headers {
        push_field(&mut head, name, value);
    }
    // A method that usually has a body must say when it has none (RFC 9110 §8.6).
    let expects_body = matches!(spec.method.as_str(), "POST" | "PUT" | "PATCH");
    if spec.body.is_some() || expects_body {
        let length = spec.body.as_ref().map_or(0, Vec::len);
        push_field(&mut head, "Content-Length", &length.to_string());
    }
    if spec.connection == Connection::New {
        push_field(&mut head, "Connection", "close");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(spec.body.as_deref().unwrap_or_default());
    bytes
}

fn push_field(head: &mut String, name: &str, value: &str) {
    head.push_str(name);
    head.push_str(": ");
    head.push_str(value);
    head.push_str("\r\n");
}

/// RFC 9110 §5.6.2.
/// A token of RFC 9110 §5.6.2.
pub(crate) fn is_token(text: &str) -> bool {
    let tchar = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(tchar)
}

/// `uri-host [":" port]` (RFC 9110 §7.2), by its characters.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rfind([':', ']']) {
        Some(at) if text[at..].starts_with(':') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    };
    let port_ok = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    let host_ok = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let name_byte = |b: u8| b.is_ascii_alphanumeric() || b"-._~%".contains(&b);
            !host.is_empty() && host.bytes().all(name_byte)
        }
    };
    text.len() <= MAX_AUTHORITY && port_ok && host_ok
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlsSpec;

    fn text(spec: &ProbeSpec) -> String {
        String::from_utf8(serialize(spec, "h:8080")).unwrap()
    }

    #[test]
    fn a_plain_request_is_small() {
        let agent = format!("User-Agent: {USER_AGENT}\r\n");
        assert_eq!(
            text(&ProbeSpec::default()),
            format!("GET / HTTP/1.1\r\nHost: h:8080\r\n{agent}Accept: */*\r\n\r\n")
        );
    }

    #[test]
    fn a_request_carries_what_the_spec_says() {
        let spec = ProbeSpec {
            method: "POST".into(),
            path: "/q?x=1".into(),
            headers: vec![("user-agent".into(), "me".into()), ("X-A".into(), "b c".into())],
            body: Some(b"hi".to_vec()),
            connection: Connection::New,
            ..ProbeSpec::default()
        };
        validate(&spec).unwrap();
        assert_eq!(
            text(&spec),
            "POST /q?x=1 HTTP/1.1\r\nHost: h:8080\r\nAccept: */*\r\nuser-agent: me\r\nX-A: b c\r\n\
             Content-Length: 2\r\nConnection: close\r\n\r\nhi"
        );
        let bare = ProbeSpec { method: "PUT".into(), ..ProbeSpec::default() };
        assert!(text(&bare).contains("Content-Length: 0\r\n"));
    }

    /// The error of the default spec with one thing changed.
    fn refused(change: impl FnOnce(&mut ProbeSpec)) -> SpecError {
        let mut spec = ProbeSpec::default();
        change(&mut spec);
        validate(&spec).expect_err("the spec is wrong")
    }

    #[test]
    fn nothing_can_be_smuggled_into_a_request() {
        for method in ["", "GET ", "GE\r\nT", "connect"] {
            assert!(matches!(refused(|s| s.method = method.into()), SpecError::Method(_)));
        }
        for path in ["", "x", "http://h/", "/a b", "/a\r\nX: y", "/é", "/a#b", "/\0"] {
            assert!(matches!(refused(|s| s.path = path.into()), SpecError::Path(_)), "{path}");
        }
        for host in ["", "a b", "a\r\nX: y", "a/b", "u@h", ":80", "a:", "a:b", "::1", "[::1"] {
            assert!(
                matches!(refused(|s| s.host = Some(host.into())), SpecError::Host(_)),
                "{host}"
            );
        }
        for host in ["a", "a.b:80", "10.0.0.1:1", "[::1]", "[::1]:80"] {
            validate(&ProbeSpec { host: Some(host.into()), ..ProbeSpec::default() }).expect(host);
        }
        let header = |n: &str, v: &str| refused(|s| s.headers = vec![(n.into(), v.into())]);
        for name in ["", "a b", "a:", "a\n"] {
            assert!(matches!(header(name, "v"), SpecError::HeaderName(_)));
        }
        for name in ["Host", "content-length", "Transfer-Encoding", "CONNECTION", "Expect"] {
            assert!(matches!(header(name, "v"), SpecError::HeaderReserved(_)));
        }
        for value in ["a\r\nX: y", "a\nb", "a\0", " a", "a\t", "\x7f"] {
            assert!(matches!(header("X", value), SpecError::HeaderValue(_)));
        }
    }

    #[test]
    fn limits_are_kept() {
        assert!(matches!(refused(|s| s.timeout = Duration::ZERO), SpecError::Timeout));
        assert!(matches!(refused(|s| s.timeout = Duration::from_secs(3601)), SpecError::Timeout));
        assert!(matches!(refused(|s| s.max_body = usize::MAX), SpecError::MaxBody));
        let long = |s: &mut ProbeSpec| s.path = format!("/{}", "x".repeat(MAX_REQUEST_HEAD));
        assert!(matches!(refused(long), SpecError::HeadTooLong(_)));
        let heavy = |s: &mut ProbeSpec| s.body = Some(vec![0; MAX_REQUEST_BODY + 1]);
        assert!(matches!(refused(heavy), SpecError::BodyTooLong(_)));
        let tls = |s: &mut ProbeSpec| s.tls = Some(TlsSpec::default());
        assert!(matches!(refused(tls), SpecError::TlsWithoutHttps));
    }

    #[test]
    fn an_expected_body_must_be_able_to_come() {
        assert!(matches!(refused(|s| s.expect_body = Some(vec![])), SpecError::ExpectBody(_)));
        let longer = |s: &mut ProbeSpec| {
            s.max_body = 3;
            s.expect_body = Some(b"four".to_vec());
        };
        assert!(matches!(refused(longer), SpecError::ExpectBody(_)));
        let head = |s: &mut ProbeSpec| {
            s.method = "HEAD".into();
            s.expect_body = Some(b"x".to_vec());
        };
        assert!(matches!(refused(head), SpecError::ExpectBody(_)));
    }
}
