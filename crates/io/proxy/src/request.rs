//! What must hold of a request before anything is done with it, beyond what hyper refuses while it reads: one host,
//! a target of this server, a method that is passed on. What leaves is in origin form.

use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Uri, Version};

use crate::answer::Problem;
use crate::framing;

/// Checks a request's head, and makes of it what backends get.
///
/// # Errors
/// What the client gets.
pub(crate) fn admit(head: &mut Parts) -> Result<(), Problem> {
    if head.method == Method::CONNECT {
        return Err(Problem::Connect);
    }
    framing::is_chunked(&head.headers).map_err(Problem::from)?;
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(Problem::Hosts);
    }
    match first {
        None if head.version == Version::HTTP_11 => return Err(Problem::NoHost),
        // HTTP/1.0 may have none, HTTP/1.1, which backends get, must have one.
        None => {
            head.headers.insert(header::HOST, HeaderValue::from_static(""));
        }
        Some(host) if !is_host(host) => return Err(Problem::BadHost),
        _ => {}
    }
    if head.uri.scheme().is_some() || head.uri.authority().is_some() {
        to_origin_form(head)?;
    }
    if head.uri.path() == "*" && head.method != Method::OPTIONS {
        return Err(Problem::Target);
    }
    head.version = Version::HTTP_11;
    Ok(())
}

/// Of an absolute target the host counts, not the header (RFC 9112, section 3.2.2).
fn to_origin_form(head: &mut Parts) -> Result<(), Problem> {
    let authority = head.uri.authority().ok_or(Problem::Target)?;
    if authority.as_str().contains('@') || head.uri.scheme_str() != Some("http") {
        return Err(Problem::Target);
    }
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| Problem::Target)?;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let target = if target.is_empty() { "/" } else { target };
    head.uri = target.parse::<Uri>().map_err(|_| Problem::Target)?;
    head.headers.insert(header::HOST, host);
    Ok(())
}

/// Characters of `uri-host [ ":" port ]`: no list, no path, no user.
fn is_host(host: &HeaderValue) -> bool {
    host.as_bytes().iter().copied().all(is_host_byte)
}

/// Whether a byte may be in a host with its port.
pub(crate) fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%[]:".contains(&byte)
}

/// The host of a request, without its port; routes go by it.
pub(crate) fn host(head: &Parts) -> &str {
    without_port(head.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or(""))
}

/// What a `Host` header names.
pub(crate) fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        // `[::1]` has colons, but no port.
        Some(colon) if !host.ends_with(']') => &host[..colon],
        _ => host,
    }
}

/// Whether sending it twice is as good as once (RFC 9110, section 9.2.2).
pub(crate) fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS, Method::TRACE]
        .contains(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(uri: &str, hosts: &[&str]) -> Result<Parts, Problem> {
        let mut builder = hyper::Request::builder().uri(uri);
        for host in hosts {
            builder = builder.header("host", *host);
        }
        let (mut head, ()) = builder.body(()).unwrap().into_parts();
        admit(&mut head).map(|()| head)
    }

    #[test]
    fn one_host_and_a_target_here() {
        assert_eq!(host(&checked("/a?b", &["Shop:80"]).unwrap()), "Shop");
        assert_eq!(host(&checked("/", &["[::1]"]).unwrap()), "[::1]");
        assert_eq!(host(&checked("/", &["[::1]:80"]).unwrap()), "[::1]");
        assert_eq!(checked("/", &[]).err(), Some(Problem::NoHost));
        assert_eq!(checked("/", &["a", "a"]).err(), Some(Problem::Hosts));
        for bad in ["a,b", "a/b", "u@a", "a b"] {
            assert_eq!(checked("/", &[bad]).err(), Some(Problem::BadHost), "{bad}");
        }
    }

    #[test]
    fn an_absolute_target_becomes_a_path_and_its_host_counts() {
        let head = checked("http://shop:81/a?b", &["other"]).unwrap();
        assert_eq!((head.uri.to_string().as_str(), host(&head)), ("/a?b", "shop"));
        assert_eq!(checked("http://shop", &["shop"]).unwrap().uri, "/");
        assert_eq!(checked("https://shop/", &["shop"]).err(), Some(Problem::Target));
        assert_eq!(checked("http://u@shop/", &["shop"]).err(), Some(Problem::Target));
    }
}
