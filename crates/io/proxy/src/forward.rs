//! One request to one backend: on a connection that is there, or a new one; one that turns out to be closed is
//! replaced without anybody noticing.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode, Version};
use tokio::time::Instant;

use crate::answer::Problem;
use crate::body::{Outgoing, Source};
use crate::config::Timeouts;
use crate::framing;
use crate::headers;
use crate::request::is_idempotent;
use crate::serve::Open;
use crate::upstream::{Connections, Lease, NoConnection};

/// Why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// No connection could be made.
    NoConnection,
    /// No socket was left here for one.
    NoSocket,
    /// The backend broke off.
    Broken,
    /// The backend was not in time.
    Timeout,
    /// The client was not in time with its request.
    Stalled,
    /// The client broke its request off, or sent what is none.
    BadBody,
}

impl Failed {
    /// Whether the client is the reason.
    pub(crate) fn is_clients(self) -> bool {
        matches!(self, Failed::Stalled | Failed::BadBody)
    }

    /// Whether nothing was sent: any request may go elsewhere. Ports that are used up are so towards one backend.
    pub(crate) fn is_before_sent(self) -> bool {
        matches!(self, Failed::NoConnection | Failed::NoSocket)
    }

    /// What the client gets.
    pub(crate) fn problem(self) -> Problem {
        match self {
            Failed::NoConnection => Problem::NoConnection,
            Failed::NoSocket => Problem::NoSocket,
            Failed::Broken => Problem::NoResponse,
            Failed::Timeout => Problem::Timeout,
            Failed::Stalled => Problem::Stalled,
            Failed::BadBody => Problem::BadBody,
        }
    }
}

/// A request of a client, as often as it is sent.
pub(crate) struct Forward<'a> {
    open: &'a Open,
    head: Parts,
    /// The body of the first try.
    body: Option<Outgoing>,
    source: Option<Rc<Source>>,
    arrived: Instant,
    /// Whether all of it had come then, its body too.
    is_whole: bool,
    timeouts: Timeouts,
    /// The protocol that the client would go on with, on this connection.
    upgrade: Option<HeaderValue>,
}

impl<'a> Forward<'a> {
    /// A request that has just come, as backends get it: without what concerns its connection alone, or is ours.
    pub(crate) fn new(
        open: &'a Rc<Open>,
        (mut head, body): (Parts, Incoming),
        kept: usize,
        timeouts: Timeouts,
    ) -> Self {
        let body = Outgoing::new(body, kept, open);
        let source = body.source();
        let upgrade = headers::upgrade(&head.headers);
        headers::remove_ours(&mut head.headers);
        headers::remove_hop_by_hop(&mut head.headers);
        if source.is_some() && !head.headers.contains_key(header::CONTENT_LENGTH) {
            // hyper's client frames a GET's body, and a HEAD's, only where it is told to.
            head.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if let Some(protocol) = &upgrade {
            headers::ask_for_upgrade(&mut head.headers, protocol.clone());
        }
        let (arrived, is_whole) = (Instant::now(), source.is_none());
        Forward { open, head, body: Some(body), source, arrived, is_whole, timeouts, upgrade }
    }

    /// All of it came then.
    pub(crate) fn arrived_at(&mut self, arrived: Instant) {
        (self.arrived, self.is_whole) = (arrived, true);
    }

    /// Its head.
    pub(crate) fn head(&self) -> &Parts {
        &self.head
    }

    /// Its body, if it has one.
    pub(crate) fn source(&self) -> Option<Rc<Source>> {
        self.source.clone()
    }

    /// The headers that backends get.
    pub(crate) fn headers(&mut self) -> &mut HeaderMap {
        &mut self.head.headers
    }

    /// Whether it can be sent once more from its beginning.
    pub(crate) fn can_repeat(&self) -> bool {
        self.source.as_ref().is_none_or(|source| source.can_repeat())
    }

    /// Whether all of it has been read.
    pub(crate) fn is_sent(&self) -> bool {
        self.source.as_ref().is_none_or(|source| source.is_ended())
    }

    /// When its response's head must be there, or the client's next bytes where they are awaited.
    pub(crate) fn deadline(&self) -> Instant {
        match &self.source {
            _ if self.is_whole => self.arrived + self.timeouts.request,
            Some(source) if !source.is_ended() => source.last() + self.timeouts.idle,
            Some(source) => source.last() + self.timeouts.request,
            None => self.arrived + self.timeouts.request,
        }
    }

    /// Sends it to a backend, on a connection that is had already if there is one. `may_retry` is asked whether it may be sent twice, when a connection that had been used
    /// before was reset and the method allows it.
    pub(crate) async fn send(
        &mut self,
        connections: &Rc<Connections>,
        (backend, lease): (usize, Option<Lease>),
        may_retry: impl FnOnce() -> bool,
    ) -> Result<(Response<Incoming>, Lease), Failed> {
        let mut lease = match lease {
            Some(lease) => lease,
            None => self.connection(connections, backend, false).await?,
        };
        let mut may_retry = Some(may_retry);
        loop {
            let request = self.request();
            let sent = self.bounded(lease.send(request, self.upgrade.is_some()));
            let mut error = match self.in_time(sent).await?? {
                Ok(response)
                    if response.status() == StatusCode::SWITCHING_PROTOCOLS
                        && self.upgrade.is_none() =>
                {
                    // It was not asked for.
                    return Err(Failed::Broken);
                }
                Ok(mut response) => {
                    // Ours (RFC 9110, section 2.5): an HTTP/1.0 response would end the client's connection.
                    *response.version_mut() = Version::HTTP_11;
                    let settled = framing::settle(response.headers_mut());
                    return settled.map_err(|_| Failed::Broken).map(|()| (response, lease));
                }
                Err(error) => error,
            };
            if self.source.as_ref().is_some_and(|source| source.is_broken()) {
                return Err(Failed::BadBody);
            }
            match error.take_message() {
                // It was closed before anything was sent. A new one that does that is no connection.
                Some(_) if !lease.is_reused() => return Err(Failed::NoConnection),
                Some(request) => self.body = Some(request.into_body()),
                None => {
                    let is_stale = lease.is_reused()
                        && is_idempotent(&self.head.method)
                        && self.can_repeat()
                        && may_retry.take().is_some_and(|may_retry| may_retry());
                    if !is_stale {
                        return Err(Failed::Broken);
                    }
                }
            }
            drop(lease);
            lease = self.connection(connections, backend, true).await?;
        }
    }

    async fn connection(
        &self,
        connections: &Rc<Connections>,
        backend: usize,
        fresh: bool,
    ) -> Result<Lease, Failed> {
        self.in_time(connections.get(&self.open.alarm, backend, fresh)).await?.map_err(|error| {
            match error {
                NoConnection::Backend => Failed::NoConnection,
                NoConnection::Here => Failed::NoSocket,
            }
        })
    }

    fn request(&mut self) -> Request<Outgoing> {
        let body = self.body.take().unwrap_or_else(|| Outgoing::again(self.source.as_ref()));
        let mut request = Request::new(body);
        request.method_mut().clone_from(&self.head.method);
        request.uri_mut().clone_from(&self.head.uri);
        request.headers_mut().clone_from(&self.head.headers);
        let writes = self.open.writes.clone();
        hyper::ext::on_informational(&mut request, move |interim| {
            writes.interim.came(interim.status(), interim.headers());
        });
        request
    }

    /// Waits for a response, before which the backend may not send interim ones without end.
    async fn bounded<T>(&self, sent: impl Future<Output = T>) -> Result<T, Failed> {
        let mut sent = pin!(sent);
        poll_fn(|cx| {
            let polled = sent.as_mut().poll(cx);
            match self.open.writes.interim.are_too_much() {
                true => Poll::Ready(Err(Failed::Broken)),
                false => polled.map(Ok),
            }
        })
        .await
    }

    /// Waits until the deadline, which moves while the client sends.
    async fn in_time<T>(&self, what: impl Future<Output = T>) -> Result<T, Failed> {
        self.open.alarm.by(|| self.deadline(), what).await.ok_or_else(|| {
            let client_is_late = |source: &Rc<Source>| !source.is_ended() && source.is_awaited();
            match self.source.as_ref().is_some_and(client_is_late) {
                true => Failed::Stalled,
                false => Failed::Timeout,
            }
        })
    }
}
