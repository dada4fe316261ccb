//! Answers of our own: why a request was not passed on, or has no response.

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};

use crate::body::Body;
use crate::framing::Misframed;
use crate::headers::Rejected;

/// Why a request has no response of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// `CONNECT`.
    Connect,
    /// A transfer coding that is not undone here.
    Coding,
    /// In chunks of chunks.
    ChunkedTwice,
    /// HTTP/1.1 without a host.
    NoHost,
    /// Two hosts.
    Hosts,
    /// A host that is none.
    BadHost,
    /// A target of another server, or of another scheme.
    Target,
    /// No route.
    NoRoute,
    /// No backend may be picked.
    NoBackend,
    /// No backend could be connected to.
    NoConnection,
    /// The proxy itself has no socket left.
    NoSocket,
    /// The backend broke off before its response's head was complete, or sent none that is one.
    NoResponse,
    /// No response in time.
    Timeout,
    /// The client stopped sending in the midst of its request.
    Stalled,
    /// The client's body is none: a chunk without a size, say.
    BadBody,
}

/// Whether a backend's response counts as its failure. An application's own 429 does: it is no refusal of ours, but fast
/// as it is, it must not look like speed.
pub(crate) fn is_failure(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

impl From<Misframed> for Problem {
    fn from(misframed: Misframed) -> Self {
        match misframed {
            Misframed::Coding => Problem::Coding,
            Misframed::ChunkedTwice => Problem::ChunkedTwice,
            Misframed::Length => Problem::BadBody,
        }
    }
}

impl Problem {
    fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Problem::Connect => (StatusCode::NOT_IMPLEMENTED, "CONNECT is not supported\n"),
            Problem::Coding => {
                (StatusCode::NOT_IMPLEMENTED, "expected no Transfer-Encoding but chunked\n")
            }
            Problem::ChunkedTwice => {
                (StatusCode::BAD_REQUEST, "expected chunked once in Transfer-Encoding\n")
            }
            Problem::NoHost => (StatusCode::BAD_REQUEST, "missing header: Host\n"),
            Problem::Hosts => {
                (StatusCode::BAD_REQUEST, "expected one Host header, found several\n")
            }
            Problem::BadHost => (StatusCode::BAD_REQUEST, "expected a host name in Host\n"),
            Problem::Target => (StatusCode::BAD_REQUEST, "expected a path, or a target of http\n"),
            Problem::NoRoute => (StatusCode::NOT_FOUND, "no route for this host and path\n"),
            Problem::NoBackend => (StatusCode::SERVICE_UNAVAILABLE, "no backend is available\n"),
            Problem::NoConnection => (StatusCode::BAD_GATEWAY, "no backend could be reached\n"),
            Problem::NoSocket => {
                (StatusCode::SERVICE_UNAVAILABLE, "the proxy has no more connections to give\n")
            }
            Problem::NoResponse => (StatusCode::BAD_GATEWAY, "the backend sent no response\n"),
            Problem::Timeout => {
                (StatusCode::GATEWAY_TIMEOUT, "the backend sent no response in time\n")
            }
            Problem::BadBody => (StatusCode::BAD_REQUEST, "expected a body as its headers say\n"),
            Problem::Stalled => {
                (StatusCode::REQUEST_TIMEOUT, "the request was not complete in time\n")
            }
        }
    }

    /// The response that says so.
    pub(crate) fn response(self) -> Response<Body> {
        let (status, text) = self.answer();
        let mut response = text_response(status, text);
        if matches!(self, Problem::Stalled | Problem::BadBody) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }
}

/// A short text.
pub(crate) fn text_response(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::text(text));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// Our 429: the request was not begun, and why.
pub(crate) fn rejected_response(rejected: Rejected) -> Response<Body> {
    text_response(
        StatusCode::TOO_MANY_REQUESTS,
        match rejected {
            Rejected::Full => "refused: full\n",
            Rejected::Queue => "refused: others are waiting, it would be answered too late\n",
            Rejected::Deadline { .. } => "refused: it would be answered too late\n",
        },
    )
}
