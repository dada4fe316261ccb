//! Queries of a Prometheus, where the balancer tells nothing of its requests: rates and response times, each by one
//! instant query in which a label names the server.
//!
//! What it tells are means over the range of its queries, some seconds late, and not what is so at an instant. The
//! reports say so ([`Traffic::Averaged`]): no events are read from them. Requests are the integral of the rates, and what
//! is in flight follows by Little's law from rate and response time; it is no whole number, so that successive
//! reports alternate between the two next to it.

mod answer;
mod client;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_config::Cursor;
use plimsoll_model::{BackendId, BalancerReport, Nanos, ResponseTimes, ServerReport, Traffic};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::relay::{Feed, lock};
use answer::{Reading, Values};
use client::Place;

/// Default of `prometheus.interval`.
const INTERVAL: Duration = Duration::from_secs(5);
/// Its bounds.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(300);
/// A sample counts for so many intervals.
const FRESH_FOR: u32 = 3;
/// Default of `prometheus.timeout`, where the interval is no shorter.
const TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);
/// Bounds of `prometheus.range`, and its default where no query has one.
const RANGES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3_600);
const RANGE: Duration = Duration::from_secs(60);
/// The same trouble is said again after so long.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Between two reports no more than this passes: a process that stood still counts no requests for it.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// What a query is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Requests per second.
    Rate,
    /// Mean response time, seconds.
    Latency,
    /// Requests in flight.
    InFlight,
    /// Failed requests per second.
    Errors,
}

impl Signal {
    const ALL: [Signal; 4] = [Signal::Rate, Signal::Latency, Signal::InFlight, Signal::Errors];

    /// Its key in the configuration.
    pub fn key(self) -> &'static str {
        match self {
            Signal::Rate => "rate",
            Signal::Latency => "latency",
            Signal::InFlight => "in_flight",
            Signal::Errors => "errors",
        }
    }

    /// What it may be: beyond that it is no measurement.
    fn range(self) -> std::ops::RangeInclusive<f64> {
        match self {
            Signal::Rate | Signal::Errors => 0.0..=1e9,
            Signal::Latency => 1e-9..=86_400.0,
            Signal::InFlight => 0.0..=1e9,
        }
    }

    /// Whether this is what an idle server has: one without requests has no response time, which is NaN, or 0 in
    /// HAProxy's exporter.
    fn is_nothing(self, number: f64) -> bool {
        self == Signal::Latency && (number.is_nan() || number == 0.0)
    }

    /// What its numbers are, for people.
    pub fn unit(self) -> &'static str {
        match self {
            Signal::Rate => "requests per second",
            Signal::Latency => "seconds",
            Signal::InFlight => "in flight",
            Signal::Errors => "errors per second",
        }
    }
}

/// A Prometheus, and what to ask it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prometheus {
    place: Place,
    interval: Duration,
    timeout: Duration,
    /// Over how long its queries average.
    range: Duration,
    label: String,
    queries: Vec<(Signal, String)>,
}

/// What one query reported of the servers of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Which query.
    pub signal: Signal,
    /// How many servers it reported.
    pub servers: usize,
    /// The least and the greatest number; none where it reported none.
    pub between: Option<(f64, f64)>,
    /// What is wrong, one line for each kind.
    pub troubles: Vec<String>,
}

impl Prometheus {
    /// Reads `prometheus`.
    pub(super) fn read(c: &Cursor<'_>) -> Option<Self> {
        let fields = c.fields(&[
            "url",
            "interval",
            "timeout",
            "range",
            "label",
            "rate",
            "latency",
            "in_flight",
            "errors",
        ])?;
        let place = fields.required("url", "where Prometheus answers", |c| {
            let what = "http://host:port";
            match Place::parse(c.text(what)?) {
                Ok(place) => Some(place),
                Err(expected) => c.expected(expected),
            }
        });
        let interval = fields.or("interval", INTERVAL, |c| c.duration(INTERVALS));
        let timeout = fields.optional("timeout", |c| c.duration(TIMEOUTS));
        let range = fields.optional("range", |c| c.duration(RANGES));
        let label = fields.or("label", "server".to_owned(), |c| {
            let what = "a label's name: letters, digits and _";
            let is_name = |name: &str| {
                !name.is_empty()
                    && !name.starts_with(|c: char| c.is_ascii_digit())
                    && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            };
            c.text_if(what, is_name).map(str::to_owned)
        });
        let mut queries = Vec::new();
        let mut are_good = true;
        for signal in Signal::ALL {
            let read = |c: &Cursor<'_>| {
                c.text_if("a query in PromQL", |query| !query.trim().is_empty()).map(str::to_owned)
            };
            let query = match signal {
                Signal::Rate => {
                    fields.required(signal.key(), "a query for requests per second", read).map(Some)
                }
                _ => fields.optional(signal.key(), read),
            };
            match query {
                Some(query) => queries.extend(query.map(|query| (signal, query))),
                None => are_good = false,
            }
        }
        let tells_times =
            queries.iter().any(|(signal, _)| matches!(signal, Signal::Latency | Signal::InFlight));
        if are_good && !tells_times {
            return c.expected(
                "besides rate one of latency (seconds) and in_flight: response times follow from either",
            );
        }
        let interval = interval?;
        let longest = queries.iter().filter_map(|(_, query)| longest_range(query)).max();
        Some(Prometheus {
            place: place?,
            interval,
            timeout: timeout?.unwrap_or(TIMEOUT.min(interval)),
            range: range?.or(longest).unwrap_or(RANGE),
            label: label?,
            queries: Some(queries).filter(|_| are_good)?,
        })
    }

    /// Where it is, for messages.
    pub fn place(&self) -> String {
        format!("Prometheus at {}", self.place)
    }

    /// For so long a change may not show: the range of the queries, and the time between two of them.
    pub fn lag(&self) -> Duration {
        self.range + self.interval
    }

    /// Asks every query once. Servers are known by these names, which may be several for one.
    pub async fn look(
        &self,
        servers: &BTreeMap<String, BackendId>,
    ) -> Vec<(Signal, Result<Told, String>)> {
        let mut all = Vec::new();
        for (signal, query) in &self.queries {
            let told = self.ask(*signal, query, servers).await.map(|values| Told {
                signal: *signal,
                servers: values.known.len(),
                between: values
                    .known
                    .values()
                    .copied()
                    .map(|one| (one, one))
                    .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
                troubles: values.troubles,
            });
            all.push((*signal, told));
        }
        all
    }

    async fn ask(
        &self,
        signal: Signal,
        query: &str,
        servers: &BTreeMap<String, BackendId>,
    ) -> Result<Values, String> {
        let (status, body) = client::ask(&self.place, query, self.timeout).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let max_age = self.max_age();
        let reading = Reading { signal, label: &self.label, servers, now, max_age };
        answer::read(status, &body, &reading)
    }

    fn max_age(&self) -> Duration {
        self.interval * FRESH_FOR
    }

    /// Asks from now on, on the runtime of the caller.
    pub(super) fn start(
        self,
        servers: BTreeMap<String, BackendId>,
    ) -> (Arc<Mutex<Known>>, JoinHandle<()>) {
        let known = Known {
            source: self.clone(),
            servers,
            taken: BTreeMap::new(),
            counters: BTreeMap::new(),
            filled: None,
            troubles: Vec::new(),
            said: None,
        };
        let known = Arc::new(Mutex::new(known));
        let asker = tokio::spawn(ask_on(self, known.clone()));
        (known, asker)
    }
}

/// The longest range in a query: `[30s]`, `[1m30s]`, `[5m:10s]`.
fn longest_range(query: &str) -> Option<Duration> {
    let ranges = query.split('[').skip(1).filter_map(|rest| rest.split([']', ':']).next());
    ranges.filter_map(span).max()
}

/// A time as PromQL writes it.
fn span(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut all = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let (unit, millis) = units.iter().find(|(unit, _)| rest[digits..].starts_with(unit))?;
        all = all.checked_add(Duration::from_millis(number.checked_mul(*millis)?))?;
        rest = &rest[digits + unit.len()..];
    }
    Some(all).filter(|all| !all.is_zero())
}

async fn ask_on(source: Prometheus, known: Arc<Mutex<Known>>) {
    let mut tick = interval(source.interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let servers = lock(&known).servers.clone();
        let mut troubles = Vec::new();
        for (signal, query) in &source.queries {
            // What was asked a while ago is as old as that.
            let asked = Instant::now();
            match source.ask(*signal, query, &servers).await {
                Ok(values) => {
                    troubles.extend(
                        values.troubles.iter().map(|what| format!("{}: {what}", signal.key())),
                    );
                    lock(&known).taken.insert(*signal, (asked, values.known));
                }
                // What was reported before holds until it is too old.
                Err(why) => troubles.push(format!("{}: {why}", signal.key())),
            }
        }
        lock(&known).troubles = troubles;
    }
}

/// Requests of one server so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    begun: f64,
    failed: f64,
    /// Of those begun, the ones whose response time is known, and the sum of these.
    timed: f64,
    times_us: f64,
    /// What the reports of what is in flight have left out so far.
    owed: f64,
}

/// What is known of one server.
#[derive(Clone, Copy, Debug)]
struct Means {
    rate: f64,
    errors: f64,
    /// Response time. None: unknown, which is another thing than 0.
    seconds: Option<f64>,
}

impl Counters {
    /// Goes on by so many seconds, and shows where it is.
    fn advance(&mut self, means: Means, passed: f64, server: &mut ServerReport) {
        let Means { rate, errors, seconds } = means;
        self.begun += rate * passed;
        self.failed += errors * passed;
        if let Some(seconds) = seconds {
            // Whole requests, so that sum and count always belong together.
            let before = self.timed.floor();
            self.timed += rate * passed;
            self.times_us += (self.timed.floor() - before) * seconds * 1e6;
            self.owed += rate * seconds;
        }
        let shown = self.owed.floor().min(f64::from(u32::MAX));
        self.owed -= shown;
        server.in_flight = shown as u32;
        server.queued = 0;
        server.started_total = self.begun as u64;
        server.errors_total = self.failed as u64;
        // Means show no silence: an idle server and a dead one look alike in them.
        server.answered_total = None;
        server.response_times =
            Some(ResponseTimes { count: self.timed as u64, sum_us: self.times_us as u64 });
    }
}

/// What is known from a Prometheus.
pub(super) struct Known {
    source: Prometheus,
    /// By name, and by address.
    servers: BTreeMap<String, BackendId>,
    taken: BTreeMap<Signal, (Instant, BTreeMap<BackendId, f64>)>,
    counters: BTreeMap<BackendId, Counters>,
    /// When a report was last filled, since the daemon's start.
    filled: Option<Duration>,
    /// Of the last round of queries.
    troubles: Vec<String>,
    said: Option<(Instant, Vec<String>)>,
}

impl Known {
    fn fresh(&self, signal: Signal) -> Option<&BTreeMap<BackendId, f64>> {
        let (at, values) = self.taken.get(&signal)?;
        (at.elapsed() <= self.source.max_age()).then_some(values)
    }

    fn tells_rates(&self) -> bool {
        self.fresh(Signal::Rate).is_some_and(|rates| !rates.is_empty())
    }

    /// What is known of all servers now.
    fn means(&self) -> impl Fn(BackendId) -> Means {
        let [rates, latencies, in_flights, errors] = Signal::ALL.map(|signal| self.fresh(signal));
        move |id| {
            let of = |values: Option<&BTreeMap<BackendId, f64>>| values?.get(&id).copied();
            let rate = of(rates).unwrap_or(0.0);
            // Little's law.
            let by_flight = || of(in_flights).filter(|_| rate > 0.0).map(|count| count / rate);
            let seconds = of(latencies).or_else(by_flight);
            Means { rate, errors: of(errors).unwrap_or(0.0).min(rate), seconds }
        }
    }
}

impl Feed for Known {
    fn fill(&mut self, report: &mut BalancerReport, now: Duration) -> bool {
        let passed = self.filled.map_or(Duration::ZERO, |then| now.saturating_sub(then));
        let passed = passed.min(LONGEST_STEP).as_secs_f64();
        self.filled = Some(now);
        report.at = Nanos::ZERO + now;
        report.traffic = match self.tells_rates() {
            true => Traffic::Averaged { lag: self.source.lag() },
            false => Traffic::Unknown,
        };
        let means: Vec<Means> =
            report.servers.iter().map(|s| s.backend).map(self.means()).collect();
        for (server, means) in report.servers.iter_mut().zip(means) {
            self.counters.entry(server.backend).or_default().advance(means, passed, server);
        }
        true
    }

    fn note(&mut self) -> Option<String> {
        let is_new = match &self.said {
            Some((at, said)) => {
                *said != self.troubles && at.elapsed() >= self.source.interval
                    || !said.is_empty() && at.elapsed() >= SAY_EVERY
            }
            None => !self.troubles.is_empty(),
        };
        if !is_new {
            return None;
        }
        self.said = Some((Instant::now(), self.troubles.clone()));
        let place = self.source.place();
        Some(match self.troubles.is_empty() {
            true => format!("{place} tells what it is asked again"),
            false => format!("{place}: {}", self.troubles.join("; ")),
        })
    }

    /// Not before its first answer.
    fn trouble(&self) -> Option<String> {
        let is_mute = !self.troubles.is_empty() && !self.tells_rates();
        is_mute.then(|| {
            format!("{} tells no rates: nothing is learned, weights stay", self.source.place())
        })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Method, MethodKind, ServerStatus};

    use super::*;

    fn known() -> Known {
        let source = Prometheus {
            place: Place::parse("http://127.0.0.1:9").expect("a URL"),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            range: Duration::from_secs(30),
            label: "server".to_owned(),
            queries: Vec::new(),
        };
        Known {
            source,
            servers: BTreeMap::new(),
            taken: BTreeMap::new(),
            counters: BTreeMap::new(),
            filled: None,
            troubles: Vec::new(),
            said: None,
        }
    }

    fn report() -> BalancerReport {
        let server = |id| ServerReport {
            backend: BackendId(id),
            weight: 7,
            status: ServerStatus::Up,
            checked: false,
            in_flight: 99,
            queued: 9,
            started_total: 9_999,
            errors_total: 999,
            answered_total: Some(9),
            response_times: None,
        };
        BalancerReport {
            at: Nanos::ZERO,
            method: Method { name: "roundrobin".to_owned(), kind: MethodKind::Split },
            generation: 1,
            traffic: Traffic::default(),
            servers: vec![server(1), server(2)],
        }
    }

    #[test]
    fn reports_have_the_means_that_were_queried() {
        let mut known = known();
        let id = BackendId(1);
        let at = Instant::now();
        known.taken.insert(Signal::Rate, (at, [(id, 10.5)].into()));
        known.taken.insert(Signal::Latency, (at, [(id, 0.03)].into()));
        known.taken.insert(Signal::Errors, (at, [(id, 2.0)].into()));
        let mut sum = 0.0;
        let steps = 4_000_u32;
        let mut last = report();
        for step in 0..=steps {
            last = report();
            assert!(known.fill(&mut last, Duration::from_millis(25) * step));
            sum += f64::from(last.servers[0].in_flight);
        }
        assert_eq!(last.traffic, Traffic::Averaged { lag: Duration::from_secs(35) });
        let [one, other] = &last.servers[..] else { panic!("{last:?}") };
        assert_eq!((one.started_total, one.errors_total, one.answered_total), (1_050, 200, None));
        assert!((sum / f64::from(steps) - 10.5 * 0.03).abs() < 1e-3, "{sum}");
        assert_eq!((one.weight, one.queued), (7, 0));
        assert_eq!((other.started_total, other.in_flight), (0, 0), "nothing was told of it");
        assert_eq!(one.response_times, Some(ResponseTimes { count: 1_050, sum_us: 31_500_000 }));
        // A process that stood still has counted nothing meanwhile.
        known.fill(&mut last, Duration::from_secs(10_000));
        assert_eq!(last.servers[0].started_total, 1_060);
    }

    #[test]
    fn a_missing_response_time_is_unknown_and_not_zero() {
        let mut known = known();
        let id = BackendId(1);
        known.taken.insert(Signal::Rate, (Instant::now(), [(id, 10.0)].into()));
        let mut last = report();
        let mut go_on = |known: &mut Known, seconds| {
            known.fill(&mut last, Duration::from_secs(seconds));
            let server = &last.servers[0];
            (server.started_total, server.response_times.map(|times| (times.count, times.sum_us)))
        };
        go_on(&mut known, 0);
        assert_eq!(go_on(&mut known, 1), (10, Some((0, 0))), "ten requests, none of them timed");
        known.taken.insert(Signal::Latency, (Instant::now(), [(id, 0.02)].into()));
        assert_eq!(go_on(&mut known, 2), (20, Some((10, 200_000))));
        known.taken.insert(Signal::Latency, (Instant::now(), BTreeMap::new()));
        assert_eq!(go_on(&mut known, 3), (30, Some((10, 200_000))));
        // The other signal tells of it.
        known.taken.insert(Signal::InFlight, (Instant::now(), [(id, 0.5)].into()));
        assert_eq!(go_on(&mut known, 4), (40, Some((20, 700_000))), "0.5 of 10 per second: 50 ms");
    }

    #[test]
    fn what_is_too_old_is_unknown_and_counters_stand() {
        let mut known = known();
        let old = Instant::now().checked_sub(Duration::from_secs(16)).expect("a running machine");
        known.taken.insert(Signal::Rate, (old, [(BackendId(1), 10.0)].into()));
        let mut last = report();
        known.fill(&mut last, Duration::from_secs(1));
        known.fill(&mut last, Duration::from_secs(2));
        assert_eq!(last.traffic, Traffic::Unknown);
        assert_eq!((last.servers[0].started_total, last.servers[0].in_flight), (0, 0));
    }

    #[test]
    fn the_longest_range_of_a_query_is_found() {
        for (query, seconds) in [
            ("rate(x[30s])", Some(30)),
            ("sum(rate(a[1m30s])) / sum(rate(b[10s]))", Some(90)),
            ("max_over_time(x[5m:10s])", Some(300)),
            ("x", None),
            ("x[", None),
            ("x[y]", None),
            ("x[99999999999999999999s]", None),
            ("x[é]", None),
        ] {
            assert_eq!(longest_range(query), seconds.map(Duration::from_secs), "{query}");
        }
    }

    #[test]
    fn one_that_never_told_rates_is_a_trouble_once_it_was_asked() {
        let mut known = known();
        assert_eq!(known.trouble(), None, "not asked yet");
        known.troubles = vec!["rate: cannot connect".to_owned()];
        let trouble = known.trouble().expect("a trouble");
        assert!(trouble.contains("127.0.0.1:9 tells no rates"), "{trouble}");
        known.taken.insert(Signal::Rate, (Instant::now(), [(BackendId(1), 1.0)].into()));
        assert_eq!(known.trouble(), None, "what it told before still counts");
    }
}
