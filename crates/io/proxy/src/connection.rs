//! One client's connection: a bare socket while nothing comes and while plain requests are passed on ([`crate::quick`]),
//! hyper's for all others.
//!
//! hyper's state and buffers of a connection take more than ten times what a socket does, so they are taken down when a
//! request has ended, or after [`PARK_AFTER`], and built again when they are needed. New connections begin as bare sockets.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1::{self, Connection, UpgradeableConnection};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tracing::debug;

use crate::body::{Body, BodyError};
use crate::capture;
use crate::doorstep;
use crate::linger::{Blocked, Lingering};
use crate::quick::{Buffer, Quick, Scratch};
use crate::serve::{Client, Handler, Open};
use crate::stream::Stream;
use crate::wire::Wire;

/// How long a connection is idle before it is parked, where all its requests are hyper's: long enough that one in use is
/// not taken down and built again between two requests.
const PARK_AFTER: Duration = Duration::from_secs(1);

/// Serves a client until its connection ends, or the proxy is to end and no request is under way.
pub(crate) async fn serve<H: Handler>(
    stream: TcpStream,
    builder: Rc<http1::Builder>,
    handler: Rc<H>,
    client: Client,
) {
    let open = client.open.clone();
    let mut stopped = pin!(open.stop.stopped());
    // Once, to be woken: whether it is so is seen without.
    poll_fn(|cx| Poll::Ready(stopped.as_mut().poll(cx).is_ready())).await;
    let mut served = pin!(serve_awake(stream, builder, handler, client));
    open.alarm.wake(|cx| served.as_mut().poll(cx)).await;
}

async fn serve_awake<H: Handler>(
    stream: TcpStream,
    builder: Rc<http1::Builder>,
    handler: Rc<H>,
    client: Client,
) {
    let idle = client.idle;
    let (open, peer) = (client.open.clone(), client.peer);
    let (quick, sender) = (handler.clone(), client.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, client) = (handler.clone(), client.clone());
        let busy = Busy::new(&client.open, !request.body().is_end_stream());
        client.open.writes.interim.begin(request.version(), handler.limits().headers);
        async move {
            let open = client.open.clone();
            let response = handler.handle(client, request).await;
            // What comes before it is out, or below hyper.
            open.writes.interim.taken().await;
            Ok::<_, Infallible>(response.map(|body| Answer { body, _busy: busy }))
        }
    });
    let stream = Lingering::new(Wire::new(stream), open.writes.clone());
    let mut parked = Parked { stream, service };
    if quick.expects_announcement(&sender)
        && !doorstep::read_announcement(&sender, &mut parked.stream).await
    {
        quick.tally().malformed.one_more();
        return;
    }
    if quick.captures() {
        open.original.set(capture::original(&parked.stream.stream().stream));
    }
    let mut is_first = true;
    loop {
        // A part of a head is hyper's already.
        let mut may_park = !parked.stream.stream().has_unread();
        let came = parked.wait(&open, idle, quick.scratch(), is_first).await;
        if is_first {
            let foreign = match &came {
                Came::Nothing => None,
                Came::Bytes(bytes) => doorstep::foreign(bytes.filled()),
                Came::Something => match doorstep::foreign_unread(&parked.stream).await {
                    Poll::Ready(foreign) => foreign,
                    Poll::Pending if open.stop.is_stopping() => None,
                    Poll::Pending => continue,
                },
            };
            is_first = false;
            if let Some(foreign) = foreign {
                return doorstep::turn_away(&*quick, &sender, &mut parked.stream, foreign).await;
            }
        }
        match came {
            Came::Nothing => return,
            Came::Something => {}
            Came::Bytes(bytes) if bytes.filled().is_empty() => return,
            Came::Bytes(bytes) => {
                open.begin();
                let passed = quick.quick(&sender, &mut parked.stream, bytes.filled()).await;
                open.is_busy.set(false);
                match passed {
                    Quick::Answered => continue,
                    Quick::Ended => return,
                    Quick::Else => parked.stream.stream_mut().precede(bytes.filled()),
                }
                may_park = false;
            }
        }
        let Parked { stream, service } = parked;
        let stream = Stream::new(stream);
        let connection = builder.serve_connection(TokioIo::new(stream.clone()), service);
        let http = Served::new(connection, stream, idle, may_park, quick.scratch().is_some());
        match http.run(&open).await {
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
}

/// What came while nothing was under way.
enum Came<'a> {
    /// It has been idle for too long, or is broken.
    Nothing,
    /// Something to read, or the proxy's end: hyper's.
    Something,
    /// These bytes; none is the end.
    Bytes(Buffer<'a>),
}

impl<S> Parked<S> {
    /// What there is to serve, read already where that is into `scratch`.
    async fn wait<'a>(
        &mut self,
        open: &Open,
        idle: Duration,
        scratch: Option<&'a Scratch>,
        is_new: bool,
    ) -> Came<'a> {
        poll_fn(|cx| {
            let until = open.stop.newcomers_until();
            if until.is_some_and(|until| !is_new || open.alarm.is_past(until)) {
                return Poll::Ready(Came::Something);
            }
            if let Some(came) = self.poll(scratch, cx) {
                return Poll::Ready(came);
            }
            match open.alarm.is_past(open.idle_since() + idle) {
                true => Poll::Ready(Came::Nothing),
                false => Poll::Pending,
            }
        })
        .await
    }

    fn poll<'a>(&mut self, scratch: Option<&'a Scratch>, cx: &mut Context<'_>) -> Option<Came<'a>> {
        let Some(scratch) = scratch else {
            let wire = self.stream.stream();
            let is_ready = wire.has_unread() || wire.stream.poll_read_ready(cx).is_ready();
            return is_ready.then_some(Came::Something);
        };
        let mut buffer = scratch.buffer();
        match buffer.poll_read(&mut self.stream, cx) {
            Poll::Ready(Ok(_)) => Some(Came::Bytes(buffer)),
            Poll::Ready(Err(_)) => Some(Came::Nothing),
            Poll::Pending => None,
        }
    }
}

enum Http<S: HttpService<Incoming>> {
    Plain(Box<Connection<TokioIo<Stream>, S>>),
    /// From when a request asks for another protocol: of this one the stream cannot be had back.
    Upgradeable(Box<UpgradeableConnection<TokioIo<Stream>, S>>),
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
    /// What hyper reads from.
    stream: Stream,
    idle: Duration,
    blocked: Blocked,
    is_ending: bool,
    /// Not before another request, where a part of that has been read.
    may_park: bool,
    /// At once when a request has ended: the next may be plain.
    parks_at_once: bool,
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
    fn new(
        connection: Connection<TokioIo<Stream>, S>,
        stream: Stream,
        idle: Duration,
        may_park: bool,
        parks_at_once: bool,
    ) -> Self {
        let (http, blocked) = (Http::Plain(Box::new(connection)), Blocked::default());
        Served { http, stream, idle, blocked, is_ending: false, may_park, parks_at_once }
    }

    /// Until it ends, or is idle.
    async fn run(mut self, open: &Open) -> hyper::Result<Option<Parked<S>>> {
        match poll_fn(|cx| self.poll(open, cx)).await {
            Next::Ended(ended) => ended.map(|()| None),
            Next::TimedOut => Ok(None),
            Next::Park => {
                let Http::Plain(connection) = self.http else { return Ok(None) };
                let parts = connection.into_parts();
                drop(parts.io);
                let Some(mut stream) = self.stream.into_inner() else { return Ok(None) };
                stream.stream_mut().precede(&parts.read_buf);
                Ok(Some(Parked { stream, service: parts.service }))
            }
        }
    }

    fn poll(&mut self, open: &Open, cx: &mut Context<'_>) -> Poll<Next> {
        let mut unread = 0;
        loop {
            if let Poll::Ready(ended) = self.http.poll(cx) {
                return Poll::Ready(Next::Ended(ended));
            }
            if open.writes.are_shut() {
                // It lingers, for as long as that takes: what still comes is no request.
                return Poll::Pending;
            }
            // hyper does not notice this by itself where it reads nothing: bytes sent ahead, a body that is not asked for.
            let mut stream = self.stream.lock();
            let is_unread = open.is_busy.get() && !open.awaits_body.get();
            if is_unread && stream.stream_mut().poll_left(cx) {
                return Poll::Ready(Next::Ended(Ok(())));
            }
            if stream.send_interim(cx) {
                // The response may wait for that.
                continue;
            }
            // It does not know of what was read for that, either, and may wait for it.
            let now = stream.stream().unread_bytes().len();
            if now == std::mem::replace(&mut unread, now) {
                break;
            }
        }
        if open.expects_upgrade.take() {
            self.http.expect_upgrade();
        }
        if open.stop.is_stopping() && !self.is_ending {
            self.is_ending = true;
            self.http.end_after_request();
            return self.poll(open, cx);
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
        let parks_at_once = self.parks_at_once && !open.had_body.get();
        if can_park && (parks_at_once || open.alarm.is_past(since + PARK_AFTER)) {
            return Poll::Ready(Next::Park);
        }
        Poll::Pending
    }
}

/// A request of this connection is under way.
struct Busy(Rc<Open>);

impl Busy {
    fn new(open: &Rc<Open>, has_body: bool) -> Self {
        open.begin();
        open.had_body.set(has_body);
        open.awaits_body.set(false);
        Busy(open.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.is_busy.set(false);
        self.0.record.end();
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
