//! The balancer's access log, sent by syslog: counters of requests that have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plimsoll_config::{Cursor, Once};
use plimsoll_model::{BackendId, BalancerReport, Nanos, ServerReport, Traffic};
use tokio::net::UdpSocket;

use super::flights::Flights;
use super::line::{self, LogFormat};
use super::relay::{Feed, lock};

/// The longest line that is read; syslog by UDP has no longer ones.
const MAX_LINE: usize = 65_536;
/// Default of `source.access_log.lag`: requests longer than this are counted late.
const LAG: Duration = Duration::from_secs(1);
/// Its bounds: no plan is made from what lies two seconds back.
const LAGS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_millis(1_500);
/// What was not understood is said so often.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// A log from which nothing has come for so long is named; one from which nothing has come while the balancer counted so
/// many requests tells nothing.
const SILENT: Duration = Duration::from_secs(30);
const UNLOGGED: Duration = Duration::from_secs(5);
const UNLOGGED_REQUESTS: u64 = 20;
/// Between two tries to listen where something else does.
const TRY_AGAIN: Duration = Duration::from_secs(1);

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

    /// Whether anybody else listens there.
    ///
    /// # Errors
    /// In words, when it cannot be listened to.
    pub fn try_to_listen(&self) -> Result<(), String> {
        std::net::UdpSocket::bind(self.listen).map(drop).map_err(|error| self.deaf(&error))
    }

    fn deaf(&self, error: &std::io::Error) -> String {
        format!("the access log cannot be listened to at {}: {error}", self.listen)
    }

    /// Listens from now on, on the runtime of the caller; where it cannot, again and again.
    pub(super) fn start(
        self,
        pools: BTreeSet<String>,
        servers: BTreeMap<String, BackendId>,
        origin: Instant,
    ) -> (Arc<Mutex<Known>>, tokio::task::JoinHandle<()>) {
        // At once: no line is missed that comes right after the start.
        let socket = bind(self.listen);
        let known = Known {
            log: self,
            pools,
            servers,
            flights: BTreeMap::new(),
            has_answers: true,
            lines: 0,
            deaf: None,
            bad: 0,
            first_bad: String::new(),
            said: None,
            heard: Instant::now(),
            said_silent: false,
            stranger: None,
            counted: None,
            unlogged: 0,
        };
        let known = Arc::new(Mutex::new(known));
        let listener = tokio::spawn(listen(socket, known.clone(), origin));
        (known, listener)
    }
}

/// What is known of the log's requests.
pub(super) struct Known {
    log: AccessLog,
    /// What the pool is called in each of its balancers.
    pools: BTreeSet<String>,
    /// By name, and by address where the format has that.
    servers: BTreeMap<String, BackendId>,
    flights: BTreeMap<BackendId, Flights>,
    has_answers: bool,
    lines: u64,
    /// Why it cannot be listened to.
    deaf: Option<String>,
    /// Lines that were not understood, or found no room.
    bad: u64,
    first_bad: String,
    /// When it was last said that lines were not understood.
    said: Option<Instant>,
    /// When the last line about one of the servers came, or the listening began; and that a silence since was said.
    heard: Instant,
    said_silent: bool,
    /// A server that lines have named since then, and that is none of ours.
    stranger: Option<String>,
    /// What the balancer itself had counted at the last report, and how many requests of it since the last line.
    counted: Option<u64>,
    unlogged: u64,
}

impl Known {
    fn take(&mut self, text: &str, now: Nanos) {
        let lag = self.log.lag.as_nanos() as u64;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            self.lines += 1;
            let Known { servers, flights, pools, has_answers, stranger, .. } = self;
            let (mut has_room, mut is_ours) = (true, false);
            let read = line::read(self.log.format, line, |attempt| {
                if attempt.pool.is_some_and(|named| !pools.contains(named)) {
                    return;
                }
                let Some(id) = servers.get(attempt.server) else {
                    // Lines about other pools may be most of them: one name is enough.
                    stranger.get_or_insert_with(|| attempt.server.chars().take(60).collect());
                    return;
                };
                is_ours = true;
                let began = Nanos(now.0.saturating_sub(attempt.took.as_nanos() as u64));
                let answered = attempt.answered.unwrap_or(true);
                *has_answers = attempt.answered.is_some();
                let flights = flights.entry(*id).or_default();
                has_room &= flights.record(began, now, attempt.failed, answered);
                // While the balancer does not report nobody else does.
                flights.advance(Nanos(now.0.saturating_sub(lag)));
            });
            if is_ours {
                (self.heard, self.said_silent, self.unlogged) = (Instant::now(), false, 0);
                self.stranger = None;
            }
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
        self.note_counted(report);
        report.at = then;
        report.traffic = if self.trouble().is_some() { Traffic::Unknown } else { Traffic::Counted };
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

    fn trouble(&self) -> Option<String> {
        let unlogged = self.unlogged >= UNLOGGED_REQUESTS && self.heard.elapsed() >= UNLOGGED;
        let is_mute = || {
            let stranger = self.stranger.as_ref();
            let stranger = stranger.map(|name| format!("; one names {name}")).unwrap_or_default();
            format!(
                "the balancer has counted {} requests since a line of the access log at {} named a server of this \
                 service{stranger}: nothing is learned, weights stay",
                self.unlogged, self.log.listen
            )
        };
        self.deaf.clone().or_else(|| unlogged.then(is_mute))
    }

    fn note(&mut self) -> Option<String> {
        if self.trouble().is_none() && !self.said_silent && self.heard.elapsed() > SILENT {
            self.said_silent = true;
            let listen = self.log.listen;
            return Some(match &self.stranger {
                None => format!(
                    "no line of an access log has come to {listen} in {SILENT:?}: is there no traffic, or does the \
                     balancer not send it there by UDP?"
                ),
                Some(stranger) => format!(
                    "no line of the access log at {listen} has named a server of this service in {SILENT:?}: one names \
                     {stranger}"
                ),
            });
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

impl Known {
    /// Counts what has ended by the balancer's own counters since the last line: a line comes at a request's end.
    fn note_counted(&mut self, report: &BalancerReport) {
        let ended = |s: &ServerReport| s.started_total.saturating_sub(u64::from(s.in_flight));
        let own = report.servers.iter().fold(0u64, |sum, s| sum.saturating_add(ended(s)));
        let before = self.counted.replace(own).filter(|_| report.traffic == Traffic::Counted);
        self.unlogged += before.map_or(0, |before| own.saturating_sub(before));
    }
}

fn bind(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

async fn listen(mut socket: std::io::Result<UdpSocket>, known: Arc<Mutex<Known>>, origin: Instant) {
    let mut line = vec![0; MAX_LINE];
    let address = lock(&known).log.listen;
    let socket = loop {
        match socket {
            Ok(socket) => break socket,
            Err(error) => {
                let mut known = lock(&known);
                known.deaf = Some(known.log.deaf(&error));
            }
        }
        tokio::time::sleep(TRY_AGAIN).await;
        socket = bind(address);
    };
    let listens = |known: &mut Known| (known.deaf, known.heard) = (None, Instant::now());
    listens(&mut lock(&known));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_of_every_balancers_pool_count_and_no_others() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let log = AccessLog { listen, format: LogFormat::Haproxy, lag: LAG };
        let pools = ["shop", "pool"].map(str::to_owned).into();
        let servers = BTreeMap::from([("s1".to_owned(), BackendId(1))]);
        let (known, listener) = log.start(pools, servers, Instant::now());
        let mut known = lock(&known);
        for pool in ["shop", "pool", "other"] {
            let text = format!(
                "haproxy[7]: 127.0.0.1:1234 [25/Nov/2026:09:00:00.123] front {pool}/s1 0/0/0/1/1 200 1 - - ---- 1/1/0/0/0 0/0 \"x\""
            );
            known.take(&text, Nanos(5_000_000_000));
        }
        assert_eq!((known.lines, known.bad), (3, 0), "{}", known.first_bad);
        let flights = known.flights.get_mut(&BackendId(1)).expect("counted");
        flights.advance(Nanos(6_000_000_000));
        assert_eq!(flights.begun, 2);
        listener.abort();
    }
}
