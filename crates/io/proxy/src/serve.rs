//! Clients' connections: accepted up to a limit, served by hyper, ended when the proxy is to end.
//!
//! A client that closes its connection, or its sending half, while a request is under way is taken to have left: the
//! request is dropped then, which closes the connection to the backend and counts it down. What it had sent ahead does not
//! hide that, but for more than a buffer holds ([`Wire::poll_left`]).

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::access::Record;
use crate::alarm::Alarm;
use crate::body::Body;
use crate::config::{Limits, Timeouts};
use crate::connection;
use crate::egress::Resume;
use crate::linger::{Lingering, Writes};
use crate::quick::{Quick, Scratch};
use crate::room::Room;
use crate::tally::EntryTally;
use crate::wire::Wire;

/// Pause after a failed accept: the cause (no file descriptors left, say) does not go away at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a new connection has for its first request when the proxy is to end: it may be under way, and a client that
/// gets nothing cannot know whether it was begun. Longer than any network takes.
const NEWCOMER: Duration = Duration::from_secs(1);
/// What a connection beyond the limit gets.
const TURNED_AWAY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 21\r\nconnection: close\r\n\r\ntoo many connections\n";

/// What an entry does with requests.
pub(crate) trait Handler: 'static {
    /// The response to a request of this client.
    async fn handle(self: Rc<Self>, client: Client, request: Request<Incoming>) -> Response<Body>;
    /// Where requests are read, if those that are plain are passed on without hyper.
    fn scratch(&self) -> Option<&Scratch> {
        None
    }
    /// Passes on a request that may be plain, read from this stream.
    async fn quick(&self, _: &Client, _: &mut Lingering<Wire>, _: &[u8]) -> Quick {
        Quick::Else
    }
    /// Whether this client must begin its connection with the `PROXY` protocol.
    fn expects_announcement(&self, _: &Client) -> bool {
        false
    }
    /// Whether connections that were going elsewhere come here.
    fn captures(&self) -> bool {
        false
    }
    /// How much it takes on.
    fn limits(&self) -> Limits;
    /// How long things may take.
    fn timeouts(&self) -> Timeouts;
    /// Where it counts.
    fn tally(&self) -> &EntryTally;
}

/// Tells the connections of a thread that the proxy is to end, and knows when all have.
#[derive(Default)]
pub(crate) struct Stop {
    /// Since when it is to end.
    since: Cell<Option<Instant>>,
    stopping: Notify,
    open: Cell<usize>,
    closed: Notify,
}

impl Stop {
    /// From now on no connection is accepted, and none takes another request.
    pub(crate) fn stop(&self) {
        self.since.set(Some(Instant::now()));
        self.stopping.notify_waiters();
    }

    /// Whether it is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.since.get().is_some()
    }

    /// Until when a connection that is new is given time for its first request, if it is to end.
    pub(crate) fn newcomers_until(&self) -> Option<Instant> {
        self.since.get().map(|since| since + NEWCOMER)
    }

    /// When it is to end.
    pub(crate) async fn stopped(&self) {
        if !self.is_stopping() {
            self.stopping.notified().await;
        }
    }

    /// Whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.get() == 0
    }

    /// Waits until no connection is open.
    pub(crate) async fn all_closed(&self) {
        while self.open.get() > 0 {
            self.closed.notified().await;
        }
    }
}

/// The client of a request.
#[derive(Clone)]
pub(crate) struct Client {
    /// Its address.
    pub(crate) peer: SocketAddr,
    /// Its connection.
    pub(crate) open: Rc<Open>,
    /// How long it may read nothing of what it is sent.
    pub(crate) idle: Duration,
}

impl Client {
    /// The client's address: the one that a balancer in front announced, or the peer's.
    pub(crate) fn address(&self) -> SocketAddr {
        self.open.announced.get().unwrap_or(self.peer)
    }
}

/// Where clients' connections are counted: by entry, on all threads, and all.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) of_entry: Arc<AtomicUsize>,
    pub(crate) room: Arc<Room>,
}

/// A connection that is counted while it is open, by the thread and by the entry; and what its parts know of it.
pub(crate) struct Open {
    pub(crate) stop: Rc<Stop>,
    counts: Opened,
    /// Of the task that serves it.
    pub(crate) alarm: Alarm,
    /// What the client takes.
    pub(crate) writes: Arc<Writes>,
    /// Whether a request is under way.
    pub(crate) is_busy: Cell<bool>,
    /// Whether a request asks to go on with another protocol.
    pub(crate) expects_upgrade: Cell<bool>,
    /// Whether the last request that hyper read had a body.
    pub(crate) had_body: Cell<bool>,
    /// Whether what comes next of it was asked for, and the client has not sent it yet.
    pub(crate) awaits_body: Cell<bool>,
    /// What of a request was done before hyper got it.
    pub(crate) resume: RefCell<Option<Resume>>,
    /// Whether it was decided that the request under way is not logged.
    pub(crate) is_unlogged: Cell<bool>,
    idle_since: Cell<Option<Instant>>,
    /// The client's address, by a balancer in front.
    pub(crate) announced: Cell<Option<SocketAddr>>,
    /// Where it was going when it was captured.
    pub(crate) original: Cell<Option<SocketAddr>>,
    /// Of the request that is under way.
    pub(crate) record: Record,
}

impl Open {
    /// None at the entry's limit, or the process'.
    fn new(stop: &Rc<Stop>, counts: &Opened, most: usize) -> Option<Self> {
        let has_room = counts.room.enter();
        let before = counts.of_entry.fetch_add(1, Ordering::Relaxed);
        stop.open.set(stop.open.get() + 1);
        let open = Open {
            stop: stop.clone(),
            counts: counts.clone(),
            alarm: Alarm::default(),
            writes: Arc::default(),
            is_busy: Cell::new(false),
            expects_upgrade: Cell::new(false),
            had_body: Cell::new(false),
            awaits_body: Cell::new(false),
            resume: RefCell::default(),
            is_unlogged: Cell::new(false),
            idle_since: Cell::new(None),
            announced: Cell::new(None),
            original: Cell::new(None),
            record: Record::default(),
        };
        (has_room && before < most).then_some(open)
    }

    /// A request has come.
    pub(crate) fn begin(&self) {
        self.is_busy.set(true);
        self.idle_since.set(None);
    }

    /// When this was first asked since the last request, or the beginning.
    pub(crate) fn idle_since(&self) -> Instant {
        let since = self.idle_since.get().unwrap_or_else(Instant::now);
        self.idle_since.set(Some(since));
        since
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.counts.of_entry.fetch_sub(1, Ordering::Relaxed);
        self.counts.room.leave();
        self.stop.open.set(self.stop.open.get() - 1);
        if self.stop.is_stopping() {
            self.stop.closed.notify_one();
        }
    }
}

/// Serves what a listener accepts until the proxy is to end.
pub(crate) async fn listen<H: Handler>(
    listener: TcpListener,
    handler: Rc<H>,
    open: Opened,
    stop: Rc<Stop>,
) {
    let door = Door { handler, open, stop };
    let mut is_failing = false;
    loop {
        let accepted = tokio::select! {
            biased;
            () = door.stop.stopped() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                is_failing = false;
                door.enter(stream, peer);
            }
            Err(error) => {
                door.handler.tally().accept_failures.one_more();
                if !is_failing {
                    warn!(%error, "cannot accept connections; those that are open are served");
                }
                is_failing = true;
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Those that the kernel has accepted already would be reset with the listener.
    let Ok(listener) = listener.into_std() else { return };
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                let stream =
                    stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                if let Ok(stream) = stream {
                    door.enter(stream, peer);
                }
            }
            // One that its client has given up; others may wait behind it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => break,
        }
    }
}

fn builder(handler: &impl Handler) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Time-outs are those of the connection's task (`connection`), which arms no timer for each request.
    builder.header_read_timeout(None).max_buf_size(handler.limits().headers);
    builder
}

struct Door<H> {
    handler: Rc<H>,
    open: Opened,
    stop: Rc<Stop>,
}

impl<H: Handler> Door<H> {
    fn enter(&self, stream: TcpStream, peer: SocketAddr) {
        let Some(open) = Open::new(&self.stop, &self.open, self.handler.limits().connections)
        else {
            self.handler.tally().turned_away.one_more();
            // As much as fits without waiting: whoever floods is not waited for.
            let _ = stream.try_write(TURNED_AWAY);
            return;
        };
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "a connection was gone before it was served");
            return;
        }
        let idle = self.handler.timeouts().idle;
        let client = Client { peer, open: Rc::new(open), idle };
        // Anew for each: a reload may have changed limits and time-outs.
        let (builder, handler) = (Rc::new(builder(&*self.handler)), self.handler.clone());
        tokio::task::spawn_local(connection::serve(stream, builder, handler, client));
    }
}
