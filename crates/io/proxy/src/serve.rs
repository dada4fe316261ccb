//! Clients' connections: accepted up to a limit, served by hyper, ended when the proxy is to end.
//!
//! A client that closes its connection, or its sending half, while a request is under way is taken to have left: the
//! request is dropped then, which closes the connection to the backend and counts it down. Not noticed while bytes of a
//! next request that were sent ahead wait to be read.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_io_timeout::TimeoutStream;
use tracing::{debug, warn};

use crate::body::Body;
use crate::config::{Limits, Timeouts};
use crate::linger::Lingering;
use crate::tally::EntryTally;

/// Pause after a failed accept: the cause (no file descriptors left, say) does not go away at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What a connection beyond the limit gets.
const TURNED_AWAY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 21\r\nconnection: close\r\n\r\ntoo many connections\n";

/// What an entry does with requests.
pub(crate) trait Handler: 'static {
    /// The response to a request of this client.
    async fn handle(self: Rc<Self>, client: Client, request: Request<Incoming>) -> Response<Body>;
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
    is_stopping: Cell<bool>,
    stopping: Notify,
    open: Cell<usize>,
    closed: Notify,
}

impl Stop {
    /// From now on no connection is accepted, and none takes another request.
    pub(crate) fn stop(&self) {
        self.is_stopping.set(true);
        self.stopping.notify_waiters();
    }

    async fn stopped(&self) {
        if !self.is_stopping.get() {
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

/// Who sends a request.
#[derive(Clone)]
pub(crate) struct Client {
    /// Its address.
    pub(crate) peer: SocketAddr,
    /// Counts its connection.
    pub(crate) open: Rc<Open>,
}

/// A connection that is counted while it is open: by the thread, and by the entry.
pub(crate) struct Open {
    stop: Rc<Stop>,
    of_entry: Arc<AtomicUsize>,
}

impl Open {
    /// None at the limit.
    fn new(stop: &Rc<Stop>, of_entry: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let before = of_entry.fetch_add(1, Ordering::Relaxed);
        stop.open.set(stop.open.get() + 1);
        let open = Open { stop: stop.clone(), of_entry: of_entry.clone() };
        (before < most).then_some(open)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.of_entry.fetch_sub(1, Ordering::Relaxed);
        self.stop.open.set(self.stop.open.get() - 1);
        if self.stop.is_stopping.get() {
            self.stop.closed.notify_one();
        }
    }
}

/// Serves what a listener accepts until the proxy is to end; `open` counts the entry's connections on all threads.
pub(crate) async fn listen<H: Handler>(
    listener: TcpListener,
    handler: Rc<H>,
    open: Arc<AtomicUsize>,
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
    poll_fn(|cx| {
        while let Poll::Ready(Ok((stream, peer))) = listener.poll_accept(cx) {
            door.enter(stream, peer);
        }
        Poll::Ready(())
    })
    .await;
}

fn builder(handler: &impl Handler) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(handler.timeouts().idle)
        .max_buf_size(handler.limits().headers);
    builder
}

struct Door<H> {
    handler: Rc<H>,
    open: Arc<AtomicUsize>,
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
        let mut stream = TimeoutStream::new(stream);
        // A client that does not read its response: what it is sent waits no longer than this.
        stream.set_write_timeout(Some(self.handler.timeouts().idle));
        let handler = self.handler.clone();
        let open = Rc::new(open);
        let client = Client { peer, open: open.clone() };
        let service = service_fn(move |request| {
            let (handler, client) = (handler.clone(), client.clone());
            async move { Ok::<_, Infallible>(handler.handle(client, request).await) }
        });
        // Anew for each: a reload may have changed limits and time-outs.
        let connection = builder(&*self.handler)
            .serve_connection(TokioIo::new(Lingering::new(Box::pin(stream))), service)
            .with_upgrades();
        tokio::task::spawn_local(async move {
            let mut connection = pin!(connection);
            let served = tokio::select! {
                biased;
                served = connection.as_mut() => served,
                () = open.stop.stopped() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = served {
                debug!(%peer, %error, "a client's connection ended early");
            }
            drop(open);
        });
    }
}
