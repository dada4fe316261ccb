//! Which pool a request goes to, and what of it a policy may hash.

use std::net::IpAddr;

use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use plimsoll_policy::RequestView;

use crate::config::Route;
use crate::request;

/// The first route that holds for a request: they are in order already.
pub(crate) fn find<'a>(routes: &'a [Route], head: &Parts) -> Option<&'a Route> {
    find_by(routes, request::host(head), head.uri.path())
}

/// The same, of a host without its port and a path; `*` is the whole server (RFC 9110, section 9.3.7), as `/` is.
pub(crate) fn find_by<'a>(routes: &'a [Route], host: &str, path: &str) -> Option<&'a Route> {
    let path = if path == "*" { "/" } else { path };
    routes.iter().find(|route| {
        route.host.as_ref().is_none_or(|wanted| host.eq_ignore_ascii_case(wanted))
            && begins_with(path, &route.path)
    })
}

/// Whether a path is `prefix`, or below it.
fn begins_with(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
}

/// A request, as keys see it.
pub(crate) struct View<'a> {
    pub(crate) peer: IpAddr,
    pub(crate) head: &'a Parts,
}

impl RequestView for View<'_> {
    fn source(&self) -> Option<IpAddr> {
        Some(self.peer)
    }

    fn target(&self) -> Option<&[u8]> {
        self.head.uri.path_and_query().map(|target| target.as_str().as_bytes())
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.head.headers.get(name).map(HeaderValue::as_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::begins_with;

    #[test]
    fn a_prefix_ends_where_a_name_does() {
        assert!(begins_with("/", "/") && begins_with("/a/b", "/"));
        assert!(begins_with("/a", "/a") && begins_with("/a/b", "/a") && begins_with("/a/b", "/a/"));
        assert!(!begins_with("/ab", "/a") && !begins_with("/a", "/a/") && !begins_with("*", "/"));
    }
}
