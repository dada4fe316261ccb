//! Clients of a service: short requests over connections that are kept open, and long downloads.
//!
//! Each connection remembers which server answered first. One that is reset, closed early, silent for too long or
//! answered by another server is broken, and is counted by how. Only a connection that the client itself
//! ends, or that is still well when the load is over, is not.

mod connection;
mod drive;
mod report;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use report::{Break, BrokenConnection, ClientReport, Second};

use super::{Namespace, NetError};

/// When connections of short requests begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Sessions {
    /// So many clients; each begins its next connection when the last one has ended.
    Closed {
        /// How many.
        clients: usize,
    },
    /// At times of their own, by a Poisson process.
    Open {
        /// Connections that begin in a second.
        connections_per_s: f64,
    },
    /// As listed, in the order of their beginnings. Each sends a request at once, one after every pause,
    /// and a last one when its time is up.
    Listed(Vec<Session>),
}

/// A connection to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// When it begins, since the load did.
    pub begins: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

/// A load of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSpec {
    /// The service.
    pub target: SocketAddr,
    /// When connections of short requests begin.
    pub sessions: Sessions,
    /// Requests of one such connection, unless it is listed.
    pub requests: u32,
    /// The mean pause between two of them; pauses are exponential, but of those listed constant.
    pub pause: Duration,
    /// What they ask for.
    pub path: String,
    /// Clients that do nothing but download, one after another over one connection.
    pub downloads: usize,
    /// What they download.
    pub download_path: String,
    /// A connection that brings nothing for so long, while something is due, is broken.
    pub patience: Duration,
    /// The same seed gives the same arrivals and pauses.
    pub seed: u64,
}

impl ClientSpec {
    /// Twenty clients with twenty requests to a connection, 100 ms apart, and no downloads.
    pub fn new(target: SocketAddr) -> Self {
        ClientSpec {
            target,
            sessions: Sessions::Closed { clients: 20 },
            requests: 20,
            pause: Duration::from_millis(100),
            path: "/".to_owned(),
            downloads: 0,
            download_path: "/long".to_owned(),
            patience: Duration::from_secs(5),
            seed: 1,
        }
    }
}

/// What tasks and the handle share.
struct Shared {
    spec: ClientSpec,
    began: Instant,
    over: AtomicBool,
    report: Mutex<ClientReport>,
}

impl Shared {
    fn report(&self) -> MutexGuard<'_, ClientReport> {
        // Counters are whole after every statement.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Clients at work, on a thread of their own; dropped, they end.
pub struct Clients {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Clients {
    /// Sends them off in a namespace.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(namespace: &Namespace, spec: ClientSpec) -> Result<Self, NetError> {
        let shared = Arc::new(Shared {
            spec,
            began: Instant::now(),
            over: AtomicBool::new(false),
            report: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(NetError::system("start clients"))?;
        let (namespace, theirs) = (namespace.clone(), Arc::clone(&shared));
        let (entered, answer) = std::sync::mpsc::channel();
        let body = move || {
            let inside = namespace.enter();
            let goes = inside.is_ok();
            // The receiver is gone only if the starter is.
            let _ = entered.send(inside);
            if goes {
                runtime.block_on(drive::all(&theirs));
            }
        };
        let thread = std::thread::Builder::new().name("clients".into()).spawn(body);
        let thread = thread.map_err(NetError::system("start a thread"))?;
        let clients = Clients { shared, thread: Some(thread) };
        match answer.recv() {
            Ok(inside) => inside.map(|()| clients),
            Err(_) => Err(NetError::system("start clients")(std::io::Error::other("it panicked"))),
        }
    }

    /// When they began: the times of the report count from here.
    pub fn began(&self) -> Instant {
        self.shared.began
    }

    /// The numbers so far.
    pub fn report(&self) -> ClientReport {
        self.shared.report().clone()
    }

    /// Ends them, and returns their numbers. What is open and well is not broken.
    pub fn finish(mut self) -> ClientReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of theirs has been written to standard error.
            let _ = thread.join();
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.end();
    }
}
