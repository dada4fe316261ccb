//! Response bodies on their way to the client. Each holds the guard that counts its request, and the connection that
//! it comes from: back to the pool when it is complete, closed when it is not.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use tokio::time::Instant;

use crate::body::Source;
use crate::guard::Guard;
use crate::headers;
use crate::serve::{Client, Open};
use crate::upstream::Lease;

/// A response's body.
pub(crate) enum Body {
    /// Of ours.
    Text(Option<Bytes>),
    /// A backend's.
    Passing(Passage),
}

/// A backend's body.
pub(crate) struct Passage {
    incoming: Incoming,
    /// Until it has ended.
    held: Option<(Guard, Lease)>,
    /// The request's body: while that is still on its way, no other request can use the connection.
    request: Option<Rc<Source>>,
    /// The client's connection.
    open: Rc<Open>,
    idle: Duration,
    /// While the backend lets it wait: until when it may.
    until: Option<Instant>,
    /// Why it broke off, while what came before that is sent.
    error: Option<BodyError>,
}

/// Why a body broke off.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The backend did.
    Upstream(hyper::Error),
    /// The backend sent nothing for too long.
    Stalled,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Upstream(error) => write!(f, "the backend broke off: {error}"),
            BodyError::Stalled => f.write_str("the backend sent no more of its response"),
        }
    }
}

impl std::error::Error for BodyError {}

impl Body {
    pub(crate) fn empty() -> Self {
        Body::Text(None)
    }

    pub(crate) fn text(text: &'static str) -> Self {
        Body::Text(Some(Bytes::from_static(text.as_bytes())))
    }
}

impl Passage {
    /// A backend's response to a request with this body, as the client gets it: without the headers that are of one hop
    /// or under our names. It breaks off when the backend sends nothing for `idle`.
    pub(crate) fn response(
        response: Response<Incoming>,
        request: Option<Rc<Source>>,
        guard: Guard,
        lease: Lease,
        (client, idle): (&Client, Duration),
    ) -> Response<Body> {
        let (mut head, incoming) = response.into_parts();
        headers::remove_ours(&mut head.headers);
        headers::remove_hop_by_hop(&mut head.headers);
        if request.as_ref().is_some_and(|request| !request.is_ended()) {
            // What is left of the request is not waited for: the client's connection ends with the response.
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let held = Some((guard, lease));
        let open = client.open.clone();
        let passage = Passage { incoming, held, request, open, idle, until: None, error: None };
        Response::from_parts(head, Body::Passing(passage))
    }

    fn complete(&mut self) {
        if let Some((guard, lease)) = self.held.take() {
            guard.complete();
            if self.request.as_ref().is_none_or(|request| request.is_ended()) {
                lease.give_back();
            }
        }
    }

    /// Breaks off, once what the client was to have before has been sent: hyper drops that with an error, and a client
    /// that gets nothing at all takes its connection for one that had been closed before, and may send the request again.
    fn break_off(&mut self, error: BodyError, cx: &Context<'_>) {
        if let Some((guard, lease)) = self.held.take() {
            guard.broken();
            drop(lease);
        }
        self.error = Some(error);
        cx.waker().wake_by_ref();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        // Not held any more: it has ended, or broken off.
        let Some((_, lease)) = &mut self.held else { return Poll::Ready(None) };
        match lease.poll_frame(&mut self.incoming, cx) {
            Poll::Ready(None) => {
                self.complete();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(frame))) => {
                self.until = None;
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.break_off(BodyError::Upstream(error), cx);
                Poll::Pending
            }
            Poll::Pending => self.wait(cx),
        }
    }

    fn wait(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.idle);
        if self.open.alarm.is_past(until) {
            self.break_off(BodyError::Stalled, cx);
        }
        Poll::Pending
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        // Of a body whose length is known the end is not asked for.
        if self.incoming.is_end_stream() {
            self.complete();
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Body::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Body::Passing(passage) => passage.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Text(text) => text.is_none(),
            Body::Passing(passage) => passage.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
            Body::Passing(passage) => passage.incoming.size_hint(),
        }
    }
}
