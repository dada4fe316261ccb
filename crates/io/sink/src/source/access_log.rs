//! The balancer's access log, sent by syslog: counters of requests that have ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plimsoll_config::{Cursor, Once};
use plimsoll_model::{BackendId, BalancerReport, Nanos, Traffic};
use tokio::net::UdpSocket;

use super::flights::Flights;
use super::line::{self, LogFormat};
use super::relay::{Feed, lock};
use crate::SinkError;

/// The longest line that is read; syslog by UDP has no longer ones.
const MAX_LINE: usize = 65_536;
/// Default of `source.access_log.lag`: requests longer than this are counted late.
const LAG: Duration = Duration::from_secs(1);
/// Its bounds: no plan is made from what lies two seconds back.
const LAGS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_millis(1_500);
/// What was not understood is said so often.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// A log from which nothing has come for so long is named.
const SILENT: Duration = Duration::from_secs(30);

/// An access log that comes by syslog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where it comes to, by UDP.
    pub listen: SocketAddr,
    /// How its lines are written.
    pub format: LogFormat,
    /// How far back the reports lie: a request longer than this is counted when its line comes.
    pub lag: Duration,
}

impl AccessLog {
    /// Reads `access_log`: `{ listen: …, format: … }`. No other of `taken` listens there.
    pub(super) fn read(c: &Cursor<'_>, taken: &mut Once<String>) -> Option<Self> {
        let fields = c.fields(&["listen", "format", "lag"])?;
        let listen = fields.required("listen", "an IP address and a port", |c| {
            let listen = c.listen()?;
            let what = "an address at which no other service listens";
            taken.take(format!("udp {listen}"), c, what)?;
            Some(listen)
        });
        let format = fields.required("format", "haproxy, nginx or envoy", |c| {
            c.one_of(&[
                ("haproxy", LogFormat::Haproxy),
                ("nginx", LogFormat::Nginx),
                ("envoy", LogFormat::Envoy),
            ])
        });
        let lag = fields.or("lag", LAG, |c| c.duration(LAGS));
        Some(AccessLog { listen: listen?, format: format?, lag: lag? })
    }

    /// Listens from now on, on the runtime of the caller.
    ///
    /// # Errors
    /// [`SinkError::Unreachable`] when it cannot.
    pub(super) fn start(
        self,
        pool: String,
        servers: BTreeMap<String, BackendId>,
        origin: Instant,
    ) -> Result<(Arc<Mutex<Known>>, tokio::task::JoinHandle<()>), SinkError> {
        let cannot = |error: std::io::Error| SinkError::Unreachable {
            socket: format!("access log at {}", self.listen),
            reason: format!("cannot listen: {error}"),
            source: Some(error),
        };
        let socket = std::net::UdpSocket::bind(self.listen).map_err(cannot)?;
        socket.set_nonblocking(true).map_err(cannot)?;
        let socket = UdpSocket::from_std(socket).map_err(cannot)?;
        let known = Known {
            log: self,
            pool,
            servers,
            flights: BTreeMap::new(),
            has_answers: true,
            lines: 0,
            bad: 0,
            first_bad: String::new(),
            said: None,
            silence: Some(Instant::now()),
        };
        let known = Arc::new(Mutex::new(known));
        let listener = tokio::spawn(listen(socket, known.clone(), origin));
        Ok((known, listener))
    }
}

/// What is known of the log's requests.
pub(super) struct Known {
    log: AccessLog,
    pool: String,
    /// By name, and by address where the format has that.
    servers: BTreeMap<String, BackendId>,
    flights: BTreeMap<BackendId, Flights>,
    has_answers: bool,
    lines: u64,
    /// Lines that were not understood, or found no room.
    bad: u64,
    first_bad: String,
    /// When it was last said that lines were not understood.
    said: Option<Instant>,
    /// Since when no line has come, until one does or it is said.
    silence: Option<Instant>,
}

impl Known {
    fn take(&mut self, text: &str, now: Nanos) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            self.lines += 1;
            let Known { servers, flights, pool, has_answers, .. } = self;
            let mut has_room = true;
            let read = line::read(self.log.format, line, |attempt| {
                let ours = attempt.pool.is_none_or(|named| named == pool);
                let Some(id) = servers.get(attempt.server).filter(|_| ours) else { return };
                let began = Nanos(now.0.saturating_sub(attempt.took.as_nanos() as u64));
                let answered = attempt.answered.unwrap_or(true);
                *has_answers = attempt.answered.is_some();
                let flights = flights.entry(*id).or_default();
                has_room &= flights.record(began, now, attempt.failed, answered);
            });
            let why = match read {
                Err(why) => why,
                Ok(()) if !has_room => "more requests than can be kept",
                Ok(()) => continue,
            };
            self.bad += 1;
            if self.bad == 1 {
                let shown: String = line.chars().take(60).collect();
                self.first_bad = format!("{why}: {shown}");
            }
        }
    }
}

impl Feed for Known {
    fn fill(&mut self, report: &mut BalancerReport, now: Duration) -> bool {
        let then = Nanos::ZERO + now.saturating_sub(self.log.lag);
        if then == Nanos::ZERO {
            return false;
        }
        report.at = then;
        report.traffic = Traffic::Counted;
        for server in &mut report.servers {
            let flights = self.flights.entry(server.backend).or_default();
            server.in_flight = flights.advance(then);
            server.queued = 0;
            server.started_total = flights.begun;
            server.errors_total = flights.failed;
            server.answered_total = self.has_answers.then_some(flights.answered);
            // The balancer's own would be of other requests than those counted here.
            server.response_times = None;
        }
        true
    }

    fn note(&mut self) -> Option<String> {
        if self.lines > 0 {
            self.silence = None;
        }
        if self.silence.is_some_and(|since| since.elapsed() > SILENT) {
            self.silence = None;
            return Some(format!(
                "no line of an access log has come to {} in {SILENT:?}: does the balancer send it there by UDP?",
                self.log.listen
            ));
        }
        if self.bad == 0 || self.said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            return None;
        }
        self.said = Some(Instant::now());
        let (bad, first) = (std::mem::take(&mut self.bad), std::mem::take(&mut self.first_bad));
        Some(format!(
            "{bad} of {} lines of the access log were not understood ({first})",
            self.lines
        ))
    }
}

async fn listen(socket: UdpSocket, known: Arc<Mutex<Known>>, origin: Instant) {
    let mut line = vec![0; MAX_LINE];
    loop {
        match socket.recv_from(&mut line).await {
            Ok((length, _)) => {
                let text = String::from_utf8_lossy(&line[..length]);
                lock(&known).take(&text, Nanos::ZERO + origin.elapsed());
            }
            // What the system tells of datagrams sent is none of ours; do not spin on it.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
