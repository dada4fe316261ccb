use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_config::Address;
use plimsoll_model::Outcome;
use rustls::pki_types::ServerName;
use tokio::time::timeout;

use crate::conn::{Conn, Dialer};
use crate::exchange::{Answer, Broken, exchange};
use crate::failure::{Detail, Failure, LocalFault, Stop};
use crate::probe::Probe;
use crate::spec::SpecError;

/// Idle connections older than this are closed: servers close theirs after 5 s (Apache) to 75 s
/// (NGINX), and an unused connection costs both sides.
const MAX_IDLE_AGE: Duration = Duration::from_secs(60);

/// What one probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// Success, or which failure.
    pub outcome: Outcome,
    /// How long it took. On kept connections from just before the request is written to the last
    /// byte of the answer: connecting and the TLS handshake are not in it, not even for the first
    /// probe. With [`Connection::New`](crate::Connection::New) from the start of connecting. Of a
    /// failure: until it was known, which is no latency of the backend.
    pub latency: Duration,
    /// The status of the answer, if its head came.
    pub status: Option<u16>,
    /// What went wrong, for people; empty on success.
    pub detail: Detail,
}

/// Sends one probe to one backend, over and over, on connections that it keeps.
///
/// Any number of probes may run at once; each has a connection of its own. Dropping the prober closes
/// the idle connections, dropping a running probe closes its own.
#[derive(Debug)]
pub struct Prober {
    probe: Arc<Probe>,
    request: Box<[u8]>,
    server_name: Option<ServerName<'static>>,
    dialer: Arc<Dialer>,
    idle: Mutex<Vec<Idle>>,
    max_idle: usize,
}

#[derive(Debug)]
struct Idle {
    conn: Conn,
    since: Instant,
}

/// How far a probe has come, for the account of it when time runs out.
struct Progress {
    started: Instant,
    status: Option<u16>,
}

impl Prober {
    /// A prober of the backend at this address, which keeps `max_idle` connections at most between
    /// probes.
    ///
    /// # Errors
    /// [`SpecError::ServerName`] when the probe is HTTPS and the address gives no name to check.
    pub fn new(address: Address, probe: Arc<Probe>, max_idle: usize) -> Result<Self, SpecError> {
        Self::sharing(Arc::new(Dialer::new(address)), probe, max_idle)
    }

    /// As [`Prober::new`], with a dialer that others use too.
    pub(crate) fn sharing(
        dialer: Arc<Dialer>,
        probe: Arc<Probe>,
        max_idle: usize,
    ) -> Result<Self, SpecError> {
        let request = probe.request(dialer.resolver().address()).into_boxed_slice();
        let server_name = probe.server_name(dialer.resolver().address())?;
        Ok(Prober { probe, request, server_name, dialer, idle: Mutex::default(), max_idle })
    }

    /// Probes the backend once, within the time-out of its spec.
    ///
    /// A kept connection that turns out to have been closed, before any byte was answered, is not a
    /// failure of the backend: the request is sent once more on a new connection, whatever its
    /// method.
    ///
    /// A backend that owes the answers of several earlier probes is asked nothing more until it gives one: the result is
    /// a time-out, unless it does not even accept a connection.
    ///
    /// # Errors
    /// When this machine cannot probe at all; that tells nothing about the backend.
    pub async fn probe(&self) -> Result<ProbeResult, LocalFault> {
        self.probe_within(self.probe.timeout()).await
    }

    /// As [`Prober::probe`], with another time-out.
    ///
    /// # Errors
    /// As [`Prober::probe`].
    pub async fn probe_within(&self, limit: Duration) -> Result<ProbeResult, LocalFault> {
        let mut progress = Progress { started: Instant::now(), status: None };
        let done = match timeout(limit, self.attempt(&mut progress)).await {
            Ok(done) => done,
            Err(_) => Err(Failure::timeout().into()),
        };
        let latency = progress.started.elapsed();
        let failure = match done {
            Ok(None) => None,
            Ok(Some(failure)) | Err(Stop::Backend(failure)) => Some(failure),
            Err(Stop::Local(fault)) => return Err(fault),
        };
        let (outcome, detail) = match failure {
            None => (Outcome::Success, Detail::Borrowed("")),
            Some(failure) => (Outcome::Failure(failure.kind), failure.detail),
        };
        Ok(ProbeResult { outcome, latency, status: progress.status, detail })
    }

    /// How many connections are kept idle now.
    pub fn idle_connections(&self) -> usize {
        self.idle().len()
    }

    async fn attempt(&self, progress: &mut Progress) -> Result<Option<Failure>, Stop> {
        if let Some(conn) = self.take_idle() {
            match self.exchange_on(conn, progress).await {
                Err(broken) if is_stale(&broken) => {}
                done => return verdict(done),
            }
        }
        let conn = self.connect(progress).await?;
        verdict(self.exchange_on(conn, progress).await)
    }

    async fn connect(&self, progress: &mut Progress) -> Result<Conn, Stop> {
        let addrs = self.dialer.resolver().resolve().await?;
        progress.started = Instant::now();
        let stream = self.dialer.dial(&addrs).await?;
        // That it accepts connections was worth knowing: the host and its kernel are there.
        if self.dialer.is_overdue() {
            return Err(Failure::overdue().into());
        }
        match (self.probe.tls(), &self.server_name) {
            (Some(config), Some(name)) => Conn::secure(stream, config, name.clone()).await,
            _ => Ok(Conn::Plain(stream)),
        }
    }

    async fn exchange_on(&self, mut conn: Conn, progress: &mut Progress) -> Result<Answer, Broken> {
        if self.probe.keeps() {
            progress.started = Instant::now();
        }
        let answer = exchange(&mut conn, &self.request, &self.probe, &mut progress.status).await?;
        if answer.reusable && self.probe.keeps() {
            self.put_idle(conn);
        }
        Ok(answer)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        // A list of connections is whole between any two statements.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection used last: the others may age and be closed.
    fn take_idle(&self) -> Option<Conn> {
        let mut idle = self.idle();
        while let Some(mut last) = idle.pop() {
            if last.since.elapsed() < MAX_IDLE_AGE && last.conn.usable() {
                return Some(last.conn);
            }
        }
        None
    }

    fn put_idle(&self, conn: Conn) {
        let since = Instant::now();
        let mut idle = self.idle();
        // The oldest lies first: one a time keeps up, since one a time is added.
        if idle.first().is_some_and(|first| first.since.elapsed() >= MAX_IDLE_AGE) {
            idle.remove(0);
        }
        if idle.len() < self.max_idle {
            idle.push(Idle { conn, since });
        }
    }
}

/// A kept connection that the server had closed by the time the request came.
fn is_stale(broken: &Broken) -> bool {
    use plimsoll_model::FailureKind::Reset;
    !broken.answered && matches!(&broken.stop, Stop::Backend(failure) if failure.kind == Reset)
}

fn verdict(done: Result<Answer, Broken>) -> Result<Option<Failure>, Stop> {
    done.map(|answer| answer.failure).map_err(|broken| broken.stop)
}
