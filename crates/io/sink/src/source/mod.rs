//! What tells of requests where the balancer itself does not: its access log, sent by syslog. A source tells and does not
//! steer; it takes the place of the counters in what any sink reports, and leaves it the weights.

mod flights;
mod line;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_config::{Cursor, Once};
use plimsoll_model::{BackendId, BalancerReport, Nanos};
use tokio::net::UdpSocket;
use tokio::sync::Notify;

pub use line::{LogFormat, NGINX_FORMAT};

use crate::SinkError;
use crate::steer::{SinkHandle, SinkReport};
use flights::Flights;

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
pub struct Source {
    /// Where it comes to, by UDP.
    pub listen: SocketAddr,
    /// How its lines are written.
    pub format: LogFormat,
    /// How far back the reports lie: a request longer than this is counted when its line comes.
    pub lag: Duration,
}

impl Source {
    /// Reads `source`: `{ access_log: { listen: …, format: … } }`. Nobody else of `taken` listens there.
    pub fn read(cursor: &Cursor<'_>, taken: &mut Once<String>) -> Option<Self> {
        let fields = cursor.fields(&["access_log"])?;
        let what = "{ listen: …, format: … }";
        fields.required("access_log", what, |c| {
            let fields = c.fields(&["listen", "format", "lag"])?;
            let listen = fields.required("listen", "an IP address and a port", |c| {
                let listen = c.listen()?;
                let what = "an address at which no other service listens";
                taken.take(format!("udp {listen}"), c, what)?;
                Some(listen)
            });
            let format = fields.required("format", "haproxy or nginx", |c| {
                c.one_of(&[("haproxy", LogFormat::Haproxy), ("nginx", LogFormat::Nginx)])
            });
            let lag = fields.or("lag", LAG, |c| c.duration(LAGS));
            Some(Source { listen: listen?, format: format?, lag: lag? })
        })
    }
}

/// What is known of the log's requests.
struct Known {
    format: LogFormat,
    pool: String,
    /// By name, and by address where the format has that.
    servers: BTreeMap<String, BackendId>,
    flights: BTreeMap<BackendId, Flights>,
    has_answers: bool,
    lines: u64,
    /// Lines that were not understood, or found no room.
    bad: u64,
    first_bad: String,
}

impl Known {
    fn take(&mut self, text: &str, now: Nanos) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            self.lines += 1;
            let Known { servers, flights, pool, has_answers, .. } = self;
            let mut has_room = true;
            let read = line::read(self.format, line, |attempt| {
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
                let shown: String = line.chars().take(120).collect();
                self.first_bad = format!("{why}: {shown}");
            }
        }
    }

    /// Puts what the log tells in the place of the balancer's own counters.
    fn fill(&mut self, report: &mut BalancerReport, then: Nanos) {
        report.at = then;
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
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stands between a sink's task and its service.
pub(crate) struct Sourced {
    pub(crate) source: Source,
    pub(crate) pool: String,
    /// Names and addresses by which lines call the servers.
    pub(crate) servers: Vec<(String, BackendId)>,
    pub(crate) origin: Instant,
}

/// Starts it on the runtime of the caller; it ends when the handle is dropped.
///
/// # Errors
/// [`SinkError::Unreachable`] when it cannot listen.
pub(crate) fn start(sourced: Sourced, sink: SinkHandle) -> Result<SinkHandle, SinkError> {
    let Sourced { source, pool, servers, origin } = sourced;
    let cannot = |error: std::io::Error| SinkError::Unreachable {
        socket: format!("access log at {}", source.listen),
        reason: format!("cannot listen: {error}"),
        source: Some(error),
    };
    let socket = std::net::UdpSocket::bind(source.listen).map_err(cannot)?;
    socket.set_nonblocking(true).map_err(cannot)?;
    let socket = UdpSocket::from_std(socket).map_err(cannot)?;
    let known = Known {
        format: source.format,
        pool,
        servers: servers.into_iter().collect(),
        flights: BTreeMap::new(),
        has_answers: true,
        lines: 0,
        bad: 0,
        first_bad: String::new(),
    };
    let known = Arc::new(Mutex::new(known));
    let (handle, end) = SinkHandle::new();
    let listener = tokio::spawn(listen(socket, known.clone(), origin));
    tokio::spawn(async move {
        pass(source, known, sink, end, origin).await;
        listener.abort();
    });
    Ok(handle)
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

async fn pass(
    source: Source,
    known: Arc<Mutex<Known>>,
    mut sink: SinkHandle,
    end: crate::steer::SinkEnd,
    origin: Instant,
) {
    let bell = Arc::new(Notify::new());
    end.mailbox.ring(&bell);
    let (mut said, mut silence) = (Instant::now() - SAY_EVERY, Some(Instant::now()));
    loop {
        tokio::select! {
            biased;
            () = bell.notified() => {
                let Some(orders) = end.mailbox.take() else { continue };
                if orders.closed {
                    return;
                }
                if let Some(servers) = orders.servers {
                    let mut known = lock(&known);
                    known.servers.retain(|_, id| servers.iter().any(|(other, _)| other == id));
                    known.servers.extend(servers.iter().map(|(id, name)| (name.clone(), *id)));
                    drop(known);
                    sink.set_servers(servers);
                }
                if let Some(plan) = orders.plan {
                    sink.program(plan);
                }
            }
            report = sink.reports.recv() => match report {
                None => return,
                Some(SinkReport::Read(mut report, took)) => {
                    let then = Nanos::ZERO + origin.elapsed().saturating_sub(source.lag);
                    if then == Nanos::ZERO {
                        continue;
                    }
                    let mut known = lock(&known);
                    known.fill(&mut report, then);
                    let note = note(&mut known, &source, &mut said, &mut silence);
                    drop(known);
                    if let Some(note) = note {
                        end.tell(SinkReport::Note(note));
                    }
                    end.tell(SinkReport::Read(report, took));
                }
                Some(other) => end.tell(other),
            },
        }
    }
}

/// What people should know of the log.
fn note(
    known: &mut Known,
    source: &Source,
    said: &mut Instant,
    silence: &mut Option<Instant>,
) -> Option<String> {
    if known.lines > 0 {
        *silence = None;
    }
    if silence.is_some_and(|since| since.elapsed() > SILENT) {
        *silence = None;
        return Some(format!(
            "no line of an access log has come to {} in {SILENT:?}: does the balancer send it there by UDP?",
            source.listen
        ));
    }
    if known.bad == 0 || said.elapsed() < SAY_EVERY {
        return None;
    }
    *said = Instant::now();
    let (bad, first) = (std::mem::take(&mut known.bad), std::mem::take(&mut known.first_bad));
    Some(format!("{bad} of {} lines of the access log were not understood ({first})", known.lines))
}
