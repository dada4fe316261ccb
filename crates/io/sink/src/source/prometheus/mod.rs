//! Queries of a Prometheus, where the balancer tells nothing of its requests: rates and response times, each by one
//! instant query in which a label names the server.
//!
//! What it tells are means over the range of its queries, some seconds late, and not what is so at an instant. The
//! reports say so ([`Traffic::Averaged`]): no events are read from them. Requests are the integral of the rates, and what
//! is in flight follows by Little's law from rate and response time; it is no whole number, so that successive
//! reports alternate between the two next to it.

mod answer;
mod client;
mod known;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_config::Cursor;
use plimsoll_model::BackendId;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::relay::lock;
use answer::{Reading, Values};
use client::Place;
use known::Known;

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
        let known = Known::new(self.clone(), servers);
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
