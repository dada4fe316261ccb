//! One client's connection: hyper's while requests are under way, a bare socket while nothing comes.
//!
//! hyper's state and buffers of an idle connection take more than ten times what a socket does, so they are taken down
//! after [`PARK_AFTER`], and built again when the socket becomes readable. New connections begin as bare sockets.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1::{self, Connection, UpgradeableConnection};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tracing::debug;

use crate::body::{Body, BodyError};
use crate::linger::{Blocked, Lingering};
use crate::serve::{Client, Handler, Open};
use crate::wire::Wire;

/// How long a connection is idle before it is parked: long enough that one in use is not taken down and built again
/// between two requests.
const PARK_AFTER: Duration = Duration::from_secs(1);

type Stream = TokioIo<Lingering<Wire>>;

/// Serves a client until its connection ends, or the proxy is to end and no request is under way.
pub(crate) async fn serve<H: Handler>(
    stream: TcpStream,
    builder: Rc<http1::Builder>,
    handler: Rc<H>,
    client: Client,
) {
    let idle = handler.timeouts().idle;
    let (open, peer) = (client.open.clone(), client.peer);
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, client) = (handler.clone(), client.clone());
        let busy = Busy::new(&client.open);
        async move {
            let response = handler.handle(client, request).await;
            Ok::<_, Infallible>(response.map(|body| Answer { body, _busy: busy }))
        }
    });
    let stream = Lingering::new(Wire(stream), open.writes.clone());
    let mut parked = Parked { stream, service, has_more: false };
    loop {
        if !parked.wait(&open, idle).await {
            return;
        }
        let Parked { stream, service, has_more } = parked;
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        match Served::new(connection, idle, !has_more).run(&open).await {
            Ok(Some(again)) => parked = again,
            Ok(None) => return,
            Err(error) => {
                debug!(%peer, %error, "a client's connection ended early");
                return;
            }
        }
    }
}

/// A connection on which nothing is under way.
struct Parked<S> {
    stream: Lingering<Wire>,
    service: S,
    /// It was not idle: a part of a head has been read.
    has_more: bool,
}

impl<S> Parked<S> {
    /// Whether there is something to serve, the end included, before it has been idle for too long.
    async fn wait(&self, open: &Open, idle: Duration) -> bool {
        let mut stopped = pin!(open.stop.stopped());
        let since = open.idle_since();
        let stream = &self.stream.stream().0;
        open.alarm
            .wake(|cx| {
                let is_ready = self.has_more || stream.poll_read_ready(cx).is_ready();
                if is_ready || stopped.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(true);
                }
                match open.alarm.is_past(since + idle) {
                    true => Poll::Ready(false),
                    false => Poll::Pending,
                }
            })
            .await
    }
}

enum Http<S: HttpService<Incoming>> {
    Plain(Box<Connection<Stream, S>>),
    /// From when a request asks for another protocol: of this one the stream cannot be had back.
    Upgradeable(Box<UpgradeableConnection<Stream, S>>),
    Gone,
}

impl<S, E> Http<S>
where
    S: HttpService<Incoming, ResBody = Answer, Error = E>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        match self {
            Http::Plain(connection) => Pin::new(connection.as_mut()).poll(cx),
            Http::Upgradeable(connection) => Pin::new(connection.as_mut()).poll(cx),
            Http::Gone => Poll::Ready(Ok(())),
        }
    }

    fn end_after_request(&mut self) {
        match self {
            Http::Plain(connection) => Pin::new(connection.as_mut()).graceful_shutdown(),
            Http::Upgradeable(connection) => Pin::new(connection.as_mut()).graceful_shutdown(),
            Http::Gone => {}
        }
    }

    fn expect_upgrade(&mut self) {
        *self = match std::mem::replace(self, Http::Gone) {
            Http::Plain(connection) => Http::Upgradeable(Box::new(connection.with_upgrades())),
            other => other,
        };
    }
}

/// A connection that hyper serves.
struct Served<S: HttpService<Incoming>> {
    http: Http<S>,
    idle: Duration,
    blocked: Blocked,
    is_ending: bool,
    /// Not once more before another request, where a part of that had been read.
    may_park: bool,
}

enum Next {
    Ended(hyper::Result<()>),
    Park,
    TimedOut,
}

impl<S, E> Served<S>
where
    S: HttpService<Incoming, ResBody = Answer, Error = E>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn new(connection: Connection<Stream, S>, idle: Duration, may_park: bool) -> Self {
        let http = Http::Plain(Box::new(connection));
        Served { http, idle, blocked: Blocked::default(), is_ending: false, may_park }
    }

    /// Until it ends, or is idle.
    async fn run(mut self, open: &Open) -> hyper::Result<Option<Parked<S>>> {
        let mut stopped = pin!(open.stop.stopped());
        // Once, to be woken: whether it is so is seen without.
        poll_fn(|cx| Poll::Ready(stopped.as_mut().poll(cx).is_ready())).await;
        match open.alarm.wake(|cx| self.poll(open, cx)).await {
            Next::Ended(ended) => ended.map(|()| None),
            Next::TimedOut => Ok(None),
            Next::Park => {
                let Http::Plain(connection) = self.http else { return Ok(None) };
                let parts = connection.into_parts();
                let (mut stream, service) = (parts.io.into_inner(), parts.service);
                let has_more = !parts.read_buf.is_empty();
                stream.unread(parts.read_buf);
                Ok(Some(Parked { stream, service, has_more }))
            }
        }
    }

    fn poll(&mut self, open: &Open, cx: &mut Context<'_>) -> Poll<Next> {
        if let Poll::Ready(ended) = self.http.poll(cx) {
            return Poll::Ready(Next::Ended(ended));
        }
        if open.expects_upgrade.take() {
            self.http.expect_upgrade();
        }
        if open.stop.is_stopping() && !self.is_ending {
            self.is_ending = true;
            self.http.end_after_request();
            return Poll::Ready(Next::Ended(ready!(self.http.poll(cx))));
        }
        if self.blocked.is_for(self.idle, &open.writes, &open.alarm) {
            return Poll::Ready(Next::TimedOut);
        }
        if open.writes.are_blocked() {
            return Poll::Pending;
        }
        if open.is_busy.get() {
            self.may_park = true;
            return Poll::Pending;
        }
        let since = open.idle_since();
        if open.alarm.is_past(since + self.idle) {
            return Poll::Ready(Next::TimedOut);
        }
        let can_park = self.may_park && !self.is_ending && matches!(self.http, Http::Plain(_));
        if can_park && open.alarm.is_past(since + PARK_AFTER) {
            return Poll::Ready(Next::Park);
        }
        Poll::Pending
    }
}

/// A request of this connection is under way.
struct Busy(Rc<Open>);

impl Busy {
    fn new(open: &Rc<Open>) -> Self {
        open.begin();
        Busy(open.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.is_busy.set(false);
    }
}

/// The body of a response: when hyper drops it the request is over.
struct Answer {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
