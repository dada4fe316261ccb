//! The way of most requests: a plain one ([`crate::plain`]), to a backend to which a connection is idle, which answers
//! plainly. It is passed on without hyper, which halves what the proxy does itself for a request.
//!
//! Whatever else happens is hyper's: a request that is not plain from its beginning, and one that was begun here (its
//! backend has refused it or broken off, answers in chunks, is late) with what was done of it so far ([`Resume`]). So
//! nothing is decided here that is not decided in [`crate::egress`] alike, but that all is well.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use plimsoll_policy::{Ending, HashKey, KeySource, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::balance::{Flight, Live};
use crate::config::Limits;
use crate::egress::{Egress, Resume};
use crate::linger::{Blocked, Lingering};
use crate::plain::{self, Response, View};
use crate::pool::Pool;
use crate::serve::Client;
use crate::wire::Wire;

/// What is read at once; a request that is longer is not plain.
const BUFFER: usize = 32 << 10;
/// Buffers kept for later, more than requests are under way on a thread at most times.
const MOST_FREE: usize = 256;

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quick {
    /// It has been answered.
    Answered,
    /// The connection has ended.
    Ended,
    /// It is for hyper, from its beginning.
    Else,
}

/// Buffers of one thread of one entry.
#[derive(Default)]
pub(crate) struct Scratch {
    free: RefCell<Vec<Box<[u8]>>>,
    /// What is being written. Unused between polls.
    out: RefCell<Vec<u8>>,
}

/// A buffer, back to where it is from when it is dropped.
pub(crate) struct Buffer<'a> {
    scratch: &'a Scratch,
    bytes: Box<[u8]>,
    length: usize,
}

impl Scratch {
    /// An empty buffer.
    pub(crate) fn buffer(&self) -> Buffer<'_> {
        let free = self.free.borrow_mut().pop();
        let bytes = free.unwrap_or_else(|| vec![0; BUFFER].into_boxed_slice());
        Buffer { scratch: self, bytes, length: 0 }
    }
}

impl Buffer<'_> {
    /// What was read.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Reads what there is; none is the end.
    pub(crate) fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(&mut self.bytes);
        let polled = Pin::new(stream).poll_read(cx, &mut buffer);
        self.length = buffer.filled().len();
        polled.map_ok(|()| self.length)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let mut free = self.scratch.free.borrow_mut();
        if free.len() < MOST_FREE {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// Passes on a request of these bytes, if it is plain.
pub(crate) async fn pass(
    egress: &Egress,
    client: &Client,
    stream: &mut Lingering<Wire>,
    bytes: &[u8],
) -> Quick {
    // Nothing of the request is held while it waits: each connection's task is as large as all that it may hold.
    let Some(begun) = begin(egress, client, bytes) else { return Quick::Else };
    let Begun { pool, flight, live, to_head, sets_cookie, wire } = begun;
    let stays_with = sets_cookie.then(|| flight.backend());
    let passing = Passing { egress, client, pool, stays_with, stream, arrived: Instant::now() };
    match wire {
        Some(wire) => passing.exchange(to_head, (flight, live), wire).await,
        None => {
            passing.give_up(Resume { flight, live, lease: None, arrived: passing.arrived });
            Quick::Else
        }
    }
}

/// A request that is counted, and written to `scratch.out`.
struct Begun<'a> {
    pool: &'a Pool,
    flight: Flight,
    live: Live,
    /// Whether its response has no body.
    to_head: bool,
    /// Whether its client is to stay with the backend from now on.
    sets_cookie: bool,
    /// None where no connection is idle.
    wire: Option<Wire>,
}

fn begin<'a>(egress: &'a Egress, client: &Client, bytes: &[u8]) -> Option<Begun<'a>> {
    let mut slots = plain::slots();
    let request = plain::Request::parse(bytes, &mut slots)?;
    let pool = egress.route_plain(&request)?;
    if pool.balancer.others_wait() || pool.asks_before() {
        return None;
    }
    let Limits { headers, body_kept_for_retries, .. } = egress.limits;
    if request.head_length > headers || request.body_length() > body_kept_for_retries {
        return None;
    }
    let told = egress.tells_client().then(|| client.address().ip().to_canonical());
    let goes_by_told =
        |key: &HashKey| matches!(&key.of, KeySource::Header(name) if plain::tells_client(name));
    if told.is_some()
        && (request.is_forwarded || pool.balancer.key.as_ref().is_some_and(goes_by_told))
    {
        // The client is added to what is there, and then that is hashed.
        return None;
    }
    let view = View { peer: client.address().ip(), request: &request };
    let key = pool.balancer.key.as_ref().and_then(|key| key.key(&view));
    let live = pool.balancer.begin();
    let sticky = pool.balancer.sticky.as_ref();
    let named = sticky.and_then(|sticky| sticky.named(request.cookies()));
    let own = named.and_then(|backend| pool.balancer.pick_own(backend));
    let flight = own.or_else(|| pool.balancer.pick(&Request::keyed(key)))?;
    let sets_cookie = sticky.is_some() && named != Some(flight.backend());
    egress.tally.requests.one_more();
    let wire = pool.connections.bare(flight.backend());
    if wire.is_some() {
        pool.ask_beside(key);
    }
    let left = pool.has_ingress(flight.backend()).then(|| {
        let left = egress.timeouts.request.as_millis();
        (u64::try_from(left).unwrap_or(u64::MAX), pool.balancer.tries_left(0))
    });
    let mut out = egress.scratch.out.borrow_mut();
    out.clear();
    request.write(left, told, sticky, &mut out);
    Some(Begun { pool, flight, live, to_head: request.is_head(), sets_cookie, wire })
}

/// A request on its way.
struct Passing<'a> {
    egress: &'a Egress,
    client: &'a Client,
    pool: &'a Pool,
    /// The backend that the client is to stay with, if it is.
    stays_with: Option<usize>,
    stream: &'a mut Lingering<Wire>,
    arrived: Instant,
}

/// What came of waiting for a response.
enum Came {
    /// Its head; what of it the client has not taken yet.
    Head(Response, Rest),
    /// None, or one that is not plain: so much was read of it.
    Odd(Bytes),
    /// The client has left.
    ClientLeft,
}

/// What is left of a response.
struct Rest {
    /// Bytes that the backend has not sent yet.
    to_come: u64,
    /// What the client has not taken yet.
    pending: Vec<u8>,
    /// The backend has sent more than it should, or closes the connection.
    is_spent: bool,
}

/// What became of the rest of a response.
enum Relayed {
    /// All of it was read.
    Read,
    /// The backend broke off.
    Broken,
    /// The client has left, or takes nothing.
    ClientLeft,
}

impl Passing<'_> {
    /// For hyper, at its next request, which is this one.
    fn give_up(&self, resume: Resume) {
        *self.client.open.resume.borrow_mut() = Some(resume);
    }

    async fn exchange(
        mut self,
        to_head: bool,
        (mut flight, live): (Flight, Live),
        mut wire: Wire,
    ) -> Quick {
        let came = match self.send(&mut wire).await {
            true => self.head(&mut wire, to_head).await,
            false => Came::Odd(Bytes::new()),
        };
        let backend = flight.backend();
        let (response, mut rest) = match came {
            Came::Head(response, rest) => (response, rest),
            Came::ClientLeft => return Quick::Ended,
            Came::Odd(read) => {
                let Ok(lease) = self.pool.connections.resume(backend, wire, read).await else {
                    return Quick::Ended;
                };
                let lease = Some(lease);
                self.give_up(Resume { flight, live, lease, arrived: self.arrived });
                return Quick::Else;
            }
        };
        let ending = self.pool.answered(&mut flight, response.chip, response.status);
        if rest.to_come > 0 {
            match self.relay(&mut wire, &mut rest).await {
                Relayed::Read => {}
                Relayed::ClientLeft => return Quick::Ended,
                Relayed::Broken => {
                    flight.end(Ending::Failure);
                    return Quick::Ended;
                }
            }
        }
        flight.end(ending);
        drop(live);
        if !rest.is_spent {
            self.pool.connections.park(backend, wire);
        }
        match rest.pending.is_empty() || self.flush(&mut rest).await {
            true => Quick::Answered,
            false => Quick::Ended,
        }
    }

    /// Sends what has just been written to `scratch.out`; whether it was sent in time and without an error.
    async fn send(&self, wire: &mut Wire) -> bool {
        let (mut rest, mut is_begun) = (Vec::new(), false);
        let deadline = self.arrived + self.egress.timeouts.request;
        poll_fn(|cx| {
            let mut wire = Pin::new(&mut *wire);
            if !is_begun {
                is_begun = true;
                let out = self.egress.scratch.out.borrow();
                let sent = match wire.as_mut().poll_write(cx, &out) {
                    Poll::Ready(Ok(sent)) => sent,
                    Poll::Ready(Err(_)) => return Poll::Ready(false),
                    Poll::Pending => 0,
                };
                rest.extend_from_slice(&out[sent..]);
            }
            while !rest.is_empty() {
                match wire.as_mut().poll_write(cx, &rest) {
                    Poll::Ready(Ok(sent @ 1..)) => drop(rest.drain(..sent)),
                    Poll::Ready(_) => return Poll::Ready(false),
                    Poll::Pending if self.client.open.alarm.is_past(deadline) => {
                        return Poll::Ready(false);
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(true)
        })
        .await
    }

    /// Waits for the head of the response, and passes on what comes with it.
    async fn head(&mut self, wire: &mut Wire, to_head: bool) -> Came {
        let Passing { egress, client, pool, stays_with, stream, arrived } = self;
        let sticky = pool.balancer.sticky.as_ref();
        let set = sticky.zip(*stays_with).and_then(|(sticky, backend)| sticky.set(backend));
        let deadline = *arrived + egress.timeouts.request;
        poll_fn(|cx| {
            let mut buffer = egress.scratch.buffer();
            match buffer.poll_read(wire, cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(Came::Odd(Bytes::new())),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending if stream.stream_mut().poll_left(cx) => {
                    return Poll::Ready(Came::ClientLeft);
                }
                Poll::Pending if client.open.alarm.is_past(deadline) => {
                    return Poll::Ready(Came::Odd(Bytes::new()));
                }
                Poll::Pending => return Poll::Pending,
            }
            let bytes = buffer.filled();
            let mut out = egress.scratch.out.borrow_mut();
            out.clear();
            let (most, closes) = (egress.limits.headers, client.open.stop.is_stopping());
            let Some(response) = Response::pass(bytes, most, to_head, closes, set, &mut out) else {
                return Poll::Ready(Came::Odd(Bytes::copy_from_slice(bytes)));
            };
            let body = &bytes[response.end..];
            let mut rest =
                Rest { to_come: response.length, pending: Vec::new(), is_spent: response.closes };
            let body = rest.take(body);
            match rest.write(stream, &out, body, cx) {
                true => Poll::Ready(Came::Head(response, rest)),
                false => Poll::Ready(Came::ClientLeft),
            }
        })
        .await
    }

    /// Passes on the rest of a body until all of it has been read.
    async fn relay(&mut self, wire: &mut Wire, rest: &mut Rest) -> Relayed {
        let Passing { egress, client, stream, .. } = self;
        let idle = egress.timeouts.idle;
        let (mut until, mut blocked) = (None, Blocked::default());
        let alarm = &client.open.alarm;
        poll_fn(|cx| {
            while rest.to_come > 0 {
                match rest.flush(stream, cx) {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => return Poll::Ready(Relayed::ClientLeft),
                    Poll::Pending if blocked.is_for(idle, &client.open.writes, alarm) => {
                        return Poll::Ready(Relayed::ClientLeft);
                    }
                    Poll::Pending => return Poll::Pending,
                }
                let mut buffer = egress.scratch.buffer();
                match buffer.poll_read(wire, cx) {
                    Poll::Ready(Ok(1..)) => until = None,
                    Poll::Ready(_) => return Poll::Ready(Relayed::Broken),
                    Poll::Pending => {
                        if stream.stream_mut().poll_left(cx) {
                            return Poll::Ready(Relayed::ClientLeft);
                        }
                        let until = *until.get_or_insert_with(|| Instant::now() + idle);
                        return match alarm.is_past(until) {
                            true => Poll::Ready(Relayed::Broken),
                            false => Poll::Pending,
                        };
                    }
                }
                let body = rest.take(buffer.filled());
                if !rest.write(stream, &[], body, cx) {
                    return Poll::Ready(Relayed::ClientLeft);
                }
            }
            Poll::Ready(Relayed::Read)
        })
        .await
    }

    /// Waits until the client has taken everything; whether it has.
    async fn flush(&mut self, rest: &mut Rest) -> bool {
        let Passing { egress, client, stream, .. } = self;
        let mut blocked = Blocked::default();
        poll_fn(|cx| match rest.flush(stream, cx) {
            Poll::Pending => {
                let open = &client.open;
                match blocked.is_for(egress.timeouts.idle, &open.writes, &open.alarm) {
                    true => Poll::Ready(false),
                    false => Poll::Pending,
                }
            }
            flushed => flushed,
        })
        .await
    }
}

impl Rest {
    /// What of these bytes is body: what a backend sends beyond it is never taken for a response.
    fn take<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let length = usize::try_from(self.to_come).unwrap_or(usize::MAX).min(bytes.len());
        self.is_spent |= length < bytes.len();
        self.to_come -= length as u64;
        &bytes[..length]
    }

    /// Sends the client what it takes, and keeps the rest; whether there is a client. Nothing is pending before.
    fn write(
        &mut self,
        stream: &mut Lingering<Wire>,
        head: &[u8],
        body: &[u8],
        cx: &mut Context<'_>,
    ) -> bool {
        let pieces = [IoSlice::new(head), IoSlice::new(body)];
        let pieces = match (head.is_empty(), body.is_empty()) {
            (false, false) => &pieces[..],
            (false, true) => &pieces[..1],
            (true, _) => &pieces[1..],
        };
        match Pin::new(stream).poll_write_vectored(cx, pieces) {
            Poll::Ready(Ok(sent)) => self.keep(head, body, sent),
            Poll::Ready(Err(_)) => return false,
            Poll::Pending => self.keep(head, body, 0),
        }
        true
    }

    fn keep(&mut self, head: &[u8], body: &[u8], sent: usize) {
        self.pending.extend_from_slice(&head[sent.min(head.len())..]);
        self.pending.extend_from_slice(&body[sent.saturating_sub(head.len())..]);
    }

    /// Sends what is pending; whether there is a client.
    fn flush(&mut self, stream: &mut Lingering<Wire>, cx: &mut Context<'_>) -> Poll<bool> {
        while !self.pending.is_empty() {
            match Pin::new(&mut *stream).poll_write(cx, &self.pending) {
                Poll::Ready(Ok(sent @ 1..)) => drop(self.pending.drain(..sent)),
                Poll::Ready(_) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(true)
    }
}
