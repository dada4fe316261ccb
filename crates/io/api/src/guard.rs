//! Which clients may ask, and what a browser may do with the answer.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{StatusCode, uri::Authority};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::routes::ApiError;

/// Which names a request may call this server by.
///
/// A page of any site can make its own name resolve to 127.0.0.1 and then read our answers as its own
/// (DNS rebinding). Its requests still carry that name as `Host`, so on loopback only names that no
/// site can own are answered. On other addresses the names by which others reach us are unknown.
#[derive(Clone, Copy, Debug)]
pub struct HostGuard {
    bound: IpAddr,
}

impl HostGuard {
    /// The guard of a server that listens here.
    pub fn new(bound: SocketAddr) -> Self {
        HostGuard { bound: bound.ip() }
    }

    /// Whether a request that names this host may be answered; the port does not matter, for it may
    /// have been forwarded.
    fn admits(&self, host: &str) -> bool {
        if !self.bound.is_loopback() {
            return true;
        }
        let Ok(authority) = host.parse::<Authority>() else { return false };
        if authority.as_str().contains('@') {
            return false;
        }
        let name = authority.host();
        let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
        match bare.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback(),
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        }
    }

    /// Every host that the request names: in its target and in its `Host` headers. None at all is
    /// HTTP/1.0, which no browser speaks.
    fn admits_request(&self, request: &Request) -> bool {
        let target = request.uri().authority().map(Authority::as_str);
        let mut named = request.headers().get_all(header::HOST).iter();
        target.is_none_or(|host| self.admits(host))
            && named.all(|host| host.to_str().is_ok_and(|host| self.admits(host)))
    }
}

/// Refuses requests that the guard does not admit, and marks every answer as private.
pub async fn guard(State(guard): State<HostGuard>, request: Request, next: Next) -> Response {
    let mut response = if guard.admits_request(&request) {
        next.run(request).await
    } else {
        let why = "the Host header does not name this machine; ask for localhost or 127.0.0.1";
        ApiError::new(StatusCode::FORBIDDEN, why).into_response()
    };
    harden(response.headers_mut());
    response
}

/// No sniffing, no framing, no caching, no content from elsewhere. There is no CORS header either:
/// other origins cannot read.
fn harden(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(bound: &str) -> HostGuard {
        HostGuard::new(bound.parse().expect("an address"))
    }

    #[test]
    fn on_loopback_only_this_machine_is_admitted() {
        let guard = on("127.0.0.1:7400");
        for host in ["localhost", "LOCALHOST:7400", "127.0.0.1:80", "127.0.0.2", "[::1]:7400"] {
            assert!(guard.admits(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:7400",
            "127.0.0.1.evil.example",
            "10.0.0.1:7400",
            "localhost@evil.example",
            "[fe80::1]",
            "",
            "a b",
        ] {
            assert!(!guard.admits(host), "{host}");
        }
        assert!(on("[::1]:7400").admits("[::1]:7400"));
    }

    #[test]
    fn elsewhere_names_are_unknown() {
        assert!(on("0.0.0.0:7400").admits("plimsoll.internal:7400"));
    }
}
