//! What a Prometheus has told of the servers of a service, and reports made from it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_model::{BackendId, BalancerReport, Nanos, ResponseTimes, ServerReport, Traffic};

use super::{Prometheus, Signal};
use crate::source::relay::Feed;

/// The same trouble is said again after so long.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Between two reports no more than this passes: a process that stood still counts no requests for it.
const LONGEST_STEP: Duration = Duration::from_secs(1);

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
pub(in crate::source) struct Known {
    source: Prometheus,
    /// By name, and by address.
    pub(super) servers: BTreeMap<String, BackendId>,
    pub(super) taken: BTreeMap<Signal, (Instant, BTreeMap<BackendId, f64>)>,
    counters: BTreeMap<BackendId, Counters>,
    /// When a report was last filled, since the daemon's start.
    filled: Option<Duration>,
    /// Of the last round of queries.
    pub(super) troubles: Vec<String>,
    said: Option<(Instant, Vec<String>)>,
}

impl Known {
    pub(super) fn new(source: Prometheus, servers: BTreeMap<String, BackendId>) -> Self {
        Known {
            source,
            servers,
            taken: BTreeMap::new(),
            counters: BTreeMap::new(),
            filled: None,
            troubles: Vec::new(),
            said: None,
        }
    }

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

    use super::super::client::Place;
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
        Known::new(source, BTreeMap::new())
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
