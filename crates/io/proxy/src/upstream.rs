//! Connections to backends: one thread's own, kept open between requests, the one used last first.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::body::Outgoing;

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
}

struct Backend {
    address: SocketAddr,
    parked: RefCell<Vec<Parked>>,
}

struct Parked {
    connection: Connection,
    since: Instant,
}

/// Closed when it is dropped, whatever is under way.
struct Connection {
    sender: SendRequest<Outgoing>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
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
        builder.max_buf_size(headers);
        let backend = |address| Backend { address, parked: RefCell::default() };
        let backends = addresses.into_iter().map(backend).collect();
        Rc::new(Connections { backends, builder, connect, idle })
    }

    /// A connection to this backend: an idle one unless `fresh`, or a new one.
    pub(crate) async fn get(
        self: &Rc<Self>,
        backend: usize,
        fresh: bool,
    ) -> Result<Lease, NoConnection> {
        let lease = |connection, is_reused| Lease {
            connections: self.clone(),
            backend,
            connection,
            is_reused,
        };
        while let Some(mut connection) = if fresh { None } else { self.unpark(backend) } {
            // It may have to learn yet that its last response has been read. Whatever takes longer is worth nothing.
            if let Ok(Ok(())) = timeout(self.connect, connection.sender.ready()).await {
                return Ok(lease(connection, true));
            }
        }
        match timeout(self.connect, self.connect(self.backends[backend].address)).await {
            Ok(Ok(connection)) => Ok(lease(connection, false)),
            Ok(Err(error)) if is_ours(&error) => Err(NoConnection::Here),
            Ok(Err(_)) | Err(_) => Err(NoConnection::Backend),
        }
    }

    /// Takes over idle connections of another's to what is the same backend here.
    pub(crate) fn take_over(&self, before: &Connections) {
        for (now, then) in self.backends.iter().zip(&before.backends) {
            if now.address == then.address {
                now.parked.borrow_mut().append(&mut then.parked.borrow_mut());
            }
        }
    }

    fn unpark(&self, backend: usize) -> Option<Connection> {
        let mut parked = self.backends[backend].parked.borrow_mut();
        while let Some(Parked { connection, .. }) = parked.pop() {
            if !connection.sender.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, task) =
            self.builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let task = tokio::task::spawn_local(async move {
            // Whoever waits for a response is told.
            let _ = task.with_upgrades().await;
        });
        let task = task.abort_handle();
        // Made before it is waited for: dropped in the midst of it, it is closed.
        let wait = sender.ready().await;
        let connection = Connection { sender, task };
        wait.map_err(io::Error::other)?;
        Ok(connection)
    }

    /// Closes what has been idle for too long, and forgets what backends have closed. To be called now and then.
    pub(crate) fn upkeep(&self) {
        let now = Instant::now();
        for backend in &self.backends {
            let is_good = |parked: &mut Parked| {
                !parked.connection.sender.is_closed() && now - parked.since < self.idle
            };
            backend.parked.borrow_mut().retain_mut(is_good);
        }
    }
}

/// Whether a failure to connect is this machine's.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    let ours = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::AGAIN,
    ];
    ours.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A connection while a request is on it. Dropped without more, it is closed, and the backend sees its request
/// cancelled.
pub(crate) struct Lease {
    connections: Rc<Connections>,
    backend: usize,
    connection: Connection,
    is_reused: bool,
}

impl Lease {
    /// Whether it had been used before.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) fn send(
        &mut self,
        request: Request<Outgoing>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Outgoing>>>> + use<>
    {
        self.connection.sender.try_send_request(request)
    }

    /// Both its request and its response are complete: others may use it.
    pub(crate) fn give_back(self) {
        let Lease { connections, backend, connection, .. } = self;
        let mut parked = connections.backends[backend].parked.borrow_mut();
        if !connection.sender.is_closed() && parked.len() < MOST_PARKED {
            parked.push(Parked { connection, since: Instant::now() });
        }
    }
}
