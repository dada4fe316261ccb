//! Connections to backends: one thread's own, kept open between requests, the one used last first.
//!
//! None has a task of its own: whoever has a request on one drives it, so that a request costs no wake-up of another
//! task, and what it brings is taken in the poll that reads it. While it is parked it has no task: that the backend has
//! closed it is found at the next request, or at the upkeep.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::body::{Body as _, Bytes, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tracing::warn;

use crate::alarm::Alarm;
use crate::body::Outgoing;
use crate::wire::Wire;

/// Most idle connections that a thread keeps to one backend; more are closed.
const MOST_PARKED: usize = 1_024;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoConnection {
    /// The backend refused it, could not be reached, or did not answer in time.
    Backend,
    /// This process or machine has no socket left: says nothing of the backend.
    Here,
}

/// Connections to the backends of one pool, or to an application.
pub(crate) struct Connections {
    backends: Vec<Backend>,
    builder: http1::Builder,
    connect: Duration,
    idle: Duration,
    /// What new connections begin with.
    preamble: Vec<u8>,
    /// Others have taken their place: what becomes idle here is closed, for nobody would look after it.
    is_over: Cell<bool>,
}

struct Backend {
    address: SocketAddr,
    parked: RefCell<Vec<Parked>>,
}

struct Parked {
    connection: Idle,
    since: Instant,
}

/// A connection that waits for a request.
enum Idle {
    /// Without hyper.
    Bare(Wire),
    Http(Connection),
}

impl Idle {
    /// Whether the backend has closed it, or sent what was not asked for: whichever, a socket that has become readable
    /// is of no use. No system call is made.
    fn is_alive(&mut self) -> bool {
        match self {
            Idle::Bare(wire) => {
                !wire.has_unread() && wire.stream.poll_read_ready(&mut noop_context()).is_pending()
            }
            Idle::Http(connection) => {
                connection.driver.drive(&mut noop_context()) && !connection.sender.is_closed()
            }
        }
    }
}

/// Closed when it is dropped, whatever is under way.
struct Connection {
    sender: SendRequest<Outgoing>,
    driver: Driver,
}

/// hyper's connection.
enum Driver {
    Plain(Box<http1::Connection<TokioIo<Wire>, Outgoing>>),
    /// With a request that asks for another protocol: it has no name.
    Upgradeable(Pin<Box<dyn Future<Output = hyper::Result<()>>>>),
    Ended,
}

impl Driver {
    /// Does what there is to do, and has this task woken when there is more. What comes of it for `sender`, and for
    /// bodies, is there when this returns, so that those need not wake anybody: they are polled after it, with
    /// [`noop_context`]. Whether it goes on.
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        let polled = match self {
            Driver::Plain(connection) => Pin::new(connection.as_mut()).poll(cx),
            Driver::Upgradeable(connection) => connection.as_mut().poll(cx),
            Driver::Ended => return false,
        };
        if polled.is_ready() {
            // The task that waits for a response is woken.
            *self = Driver::Ended;
        }
        polled.is_pending()
    }

    fn expect_upgrade(&mut self) {
        *self = match std::mem::replace(self, Driver::Ended) {
            Driver::Plain(connection) => Driver::Upgradeable(Box::pin(connection.with_upgrades())),
            other => other,
        };
    }
}

fn noop_context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Connection {
    fn is_closed(&self) -> bool {
        matches!(self.driver, Driver::Ended) || self.sender.is_closed()
    }

    /// Waits until it takes a request; whether it does.
    async fn ready(&mut self) -> bool {
        // It may have to learn yet that its last response has been read.
        poll_fn(|cx| {
            if !self.sender.is_ready() {
                self.driver.drive(cx);
            }
            self.sender.poll_ready(&mut noop_context()).map(|ready| ready.is_ok())
        })
        .await
    }

    /// The connection without hyper, where nothing is under way on it.
    fn bare(self) -> Option<Wire> {
        let Connection { sender, driver } = self;
        let Driver::Plain(connection) = driver else { return None };
        if !sender.is_ready() {
            return None;
        }
        let parts = connection.into_parts();
        let mut wire = parts.io.into_inner();
        if wire.is_blocked() {
            // hyper has the rest of a request, which the backend answered early: without it, the next one on this wire
            // would be read as that rest.
            return None;
        }
        wire.send_again();
        (parts.read_buf.is_empty() && !wire.has_unread()).then_some(wire)
    }
}

impl Connections {
    /// To these backends; heads of responses may be of so many bytes.
    pub(crate) fn new(
        addresses: impl IntoIterator<Item = SocketAddr>,
        headers: usize,
        connect: Duration,
        idle: Duration,
    ) -> Rc<Self> {
        let mut builder = http1::Builder::new();
        // Requests are mostly heads alone, and go out by one `send`.
        builder.max_buf_size(headers).writev(false);
        let backend = |address| Backend { address, parked: RefCell::default() };
        let backends = addresses.into_iter().map(backend).collect();
        let is_over = Cell::new(false);
        Rc::new(Connections { backends, builder, connect, idle, preamble: Vec::new(), is_over })
    }

    /// Others to the same backends, each of which begins with this.
    pub(crate) fn preceded_by(&self, preamble: Vec<u8>) -> Rc<Self> {
        let backend =
            |backend: &Backend| Backend { address: backend.address, parked: RefCell::default() };
        let backends = self.backends.iter().map(backend).collect();
        let Connections { connect, idle, .. } = *self;
        let (builder, is_over) = (self.builder.clone(), Cell::new(false));
        Rc::new(Connections { backends, builder, connect, idle, preamble, is_over })
    }

    /// A connection to this backend: an idle one unless `fresh`, or a new one.
    pub(crate) async fn get(
        self: &Rc<Self>,
        alarm: &Alarm,
        backend: usize,
        fresh: bool,
    ) -> Result<Lease, NoConnection> {
        let lease = |connection, is_reused| Lease {
            connections: self.clone(),
            backend,
            connection,
            is_reused,
            is_resumed: false,
        };
        while let Some(idle) = if fresh { None } else { self.unpark(backend) } {
            let mut connection = match idle {
                Idle::Http(connection) => connection,
                Idle::Bare(mut wire) => {
                    // Of what hyper could not be handed, since it has not asked for anything yet.
                    let is_alive = wire.stream.poll_read_ready(&mut noop_context()).is_pending();
                    match is_alive {
                        true => {
                            wire.send_again();
                            self.handshake(wire).await.map_err(|_| NoConnection::Here)?
                        }
                        false => continue,
                    }
                }
            };
            if connection.sender.is_ready() {
                return Ok(lease(connection, true));
            }
            // Whatever takes long is worth nothing.
            let until = Instant::now() + self.connect;
            if alarm.by(|| until, connection.ready()).await == Some(true) {
                return Ok(lease(connection, true));
            }
        }
        let until = Instant::now() + self.connect;
        loop {
            match alarm.by(|| until, self.connect(self.backends[backend].address)).await {
                Some(Ok(connection)) => {
                    HAS_NO_SOCKET.set(false);
                    return Ok(lease(connection, false));
                }
                // One that is idle to another backend is worth less than this request.
                Some(Err(error)) if takes_a_file(&error) && self.close_idle() => {}
                Some(Err(error)) if is_ours(&error) => {
                    say_no_socket(&error);
                    return Err(NoConnection::Here);
                }
                Some(Err(_)) | None => return Err(NoConnection::Backend),
            }
        }
    }

    /// Closes an idle connection, for its socket; whether there was any.
    fn close_idle(&self) -> bool {
        self.backends.iter().any(|backend| backend.parked.borrow_mut().pop().is_some())
    }

    /// Takes over idle connections of another's to what is the same backend here.
    pub(crate) fn take_over(&self, before: &Connections) {
        before.is_over.set(true);
        for (now, then) in self.backends.iter().zip(&before.backends) {
            if now.address == then.address {
                now.parked.borrow_mut().append(&mut then.parked.borrow_mut());
            }
        }
    }

    fn unpark(&self, backend: usize) -> Option<Idle> {
        let mut parked = self.backends[backend].parked.borrow_mut();
        while let Some(Parked { connection, .. }) = parked.pop() {
            match &connection {
                Idle::Http(http) if http.is_closed() => {}
                _ => return Some(connection),
            }
        }
        None
    }

    /// An idle connection to this backend, without hyper.
    pub(crate) fn bare(&self, backend: usize) -> Option<Wire> {
        loop {
            let wire = match self.unpark(backend)? {
                Idle::Bare(wire) => Some(wire),
                Idle::Http(connection) => connection.bare(),
            };
            let is_alive =
                |wire: &Wire| wire.stream.poll_read_ready(&mut noop_context()).is_pending();
            if let Some(wire) = wire.filter(is_alive) {
                return Some(wire);
            }
        }
    }

    /// One that was had by [`Self::bare`], or is no more hyper's: others may use it.
    pub(crate) fn park(&self, backend: usize, wire: Wire) {
        self.keep(backend, Idle::Bare(wire));
    }

    fn keep(&self, backend: usize, connection: Idle) {
        let mut parked = self.backends[backend].parked.borrow_mut();
        if parked.len() < MOST_PARKED && !self.is_over.get() {
            parked.push(Parked { connection, since: Instant::now() });
        }
    }

    /// One on which a request was sent, and so much read of what came, for hyper to go on with.
    ///
    /// # Errors
    /// None that hyper is known to have.
    pub(crate) async fn resume(
        self: &Rc<Self>,
        backend: usize,
        mut wire: Wire,
        read: Bytes,
    ) -> hyper::Result<Lease> {
        wire.unread(read);
        wire.expect_sent();
        let connection = self.handshake(wire).await?;
        Ok(Lease {
            connections: self.clone(),
            backend,
            connection,
            is_reused: true,
            is_resumed: true,
        })
    }

    async fn handshake(&self, wire: Wire) -> hyper::Result<Connection> {
        let (sender, driver) = self.builder.handshake(TokioIo::new(wire)).await?;
        Ok(Connection { sender, driver: Driver::Plain(Box::new(driver)) })
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Connection> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        if !self.preamble.is_empty() {
            stream.write_all(&self.preamble).await?;
        }
        let handshake = self.handshake(Wire::new(stream)).await;
        let mut connection = handshake.map_err(io::Error::other)?;
        match connection.ready().await {
            true => Ok(connection),
            false => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Closes what has been idle for too long, and forgets what backends have closed. To be called now and then.
    pub(crate) fn upkeep(&self) {
        let now = Instant::now();
        for backend in &self.backends {
            let is_good = |parked: &mut Parked| {
                now - parked.since < self.idle && parked.connection.is_alive()
            };
            backend.parked.borrow_mut().retain_mut(is_good);
        }
    }
}

thread_local! {
    /// No socket was left for the last connection that this thread was to make.
    static HAS_NO_SOCKET: Cell<bool> = const { Cell::new(false) };
}

fn say_no_socket(error: &io::Error) {
    if !HAS_NO_SOCKET.replace(true) {
        warn!(%error, "no socket is left for a connection to a backend; requests that need one are answered 503");
    }
}

/// Whether a failure to connect is this machine's.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    // No port is left towards that address.
    takes_a_file(error) || is_one_of(error, &[Errno::ADDRNOTAVAIL, Errno::AGAIN])
}

/// Whether there would be a connection if another were closed.
fn takes_a_file(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM])
}

fn is_one_of(error: &io::Error, errnos: &[Errno]) -> bool {
    errnos.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A connection while a request is on it. Dropped without more, it is closed, and the backend sees its request
/// cancelled.
pub(crate) struct Lease {
    connections: Rc<Connections>,
    backend: usize,
    connection: Connection,
    is_reused: bool,
    /// Whether the request was sent before hyper had it.
    is_resumed: bool,
}

impl Lease {
    /// Whether it had been used before.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Sends a request and waits for the head of its response, which may say that it goes on with another protocol
    /// where that is expected.
    pub(crate) async fn send(
        &mut self,
        request: Request<Outgoing>,
        expects_upgrade: bool,
    ) -> Result<Response<Incoming>, TrySendError<Request<Outgoing>>> {
        let Connection { sender, driver } = &mut self.connection;
        if expects_upgrade {
            driver.expect_upgrade();
        }
        let mut response = pin!(sender.try_send_request(request));
        poll_fn(|cx| {
            driver.drive(cx);
            response.as_mut().poll(&mut noop_context())
        })
        .await
    }

    /// The next of its response's body.
    pub(crate) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let driver = &mut self.connection.driver;
        // What has been read already, first: to ask for it makes room for more.
        match Pin::new(&mut *body).poll_frame(&mut noop_context()) {
            Poll::Pending => {}
            frame => return frame,
        }
        driver.drive(cx);
        Pin::new(body).poll_frame(&mut noop_context())
    }

    /// Drives it until it has ended, or goes on with another protocol.
    pub(crate) async fn end(&mut self) {
        poll_fn(|cx| match self.connection.driver.drive(cx) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Both its request and its response are complete: others may use it.
    pub(crate) fn give_back(self) {
        let Lease { connections, backend, connection, is_resumed, .. } = self;
        if is_resumed {
            if let Some(wire) = connection.bare() {
                connections.park(backend, wire);
            }
        } else if !connection.is_closed() {
            connections.keep(backend, Idle::Http(connection));
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// What a backend that answers before it has read leaves for the next request.
    async fn bare_after(request: Request<Outgoing>) -> Option<Wire> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let long = Duration::from_secs(60);
        let address = listener.local_addr().unwrap();
        let connections = Connections::new([address], 32 << 10, long, long);
        let alarm = Alarm::default();
        let (lease, accepted) = tokio::join!(connections.get(&alarm, 0, false), listener.accept());
        let (mut lease, mut backend) = (lease.unwrap(), accepted.unwrap().0);
        let answer = async {
            // Its beginning has come.
            assert_eq!(backend.read_exact(&mut [0; 4]).await.unwrap(), 4);
            backend.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        };
        let (response, ()) = tokio::join!(lease.send(request, false), answer);
        assert!(response.is_ok_and(|response| response.status() == 200));
        assert!(lease.connection.ready().await, "hyper takes it for idle");
        lease.give_back();
        let bare = connections.bare(0);
        drop(backend);
        bare
    }

    #[tokio::test]
    async fn a_request_that_is_not_all_sent_is_never_followed_by_another() {
        let mut request = Request::new(Outgoing::again(None));
        assert!(bare_after(request).await.is_some());
        // More than sockets hold.
        let long = HeaderValue::from_bytes(&vec![b'x'; 64 << 20]).unwrap();
        request = Request::new(Outgoing::again(None));
        request.headers_mut().insert("x-long", long);
        assert!(bare_after(request).await.is_none());
    }
}
