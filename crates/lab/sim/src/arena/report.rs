use plimsoll_admission::Retry;

use crate::BackendModel;

/// One backend, from the end of the warm-up to the last arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendReport {
    /// Requests it served.
    pub requests: u64,
    /// Requests that failed there.
    pub errors: u64,
    /// Mean latency of those served, microseconds; 0 where none was.
    pub mean_us: f64,
    /// Mean utilisation of its cores, 0…1.
    pub utilisation: f64,
    /// Its part of all requests that were sent, failures included.
    pub share: f64,
}

/// One window of time, by the end of requests, warm-up included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Requests that came, those that came again included once.
    pub arrived: u64,
    /// Tries sent to a backend.
    pub tries: u64,
    /// Requests served.
    pub requests: u64,
    /// Requests failed, including those without a picked backend.
    pub errors: u64,
    /// Requests refused for good.
    pub dropped: u64,
    /// Clients that gave up.
    pub abandoned: u64,
    /// Mean latency of those served, microseconds; 0 where none was.
    pub mean_us: f64,
    /// Requests that ended, served or not, by backend.
    pub by_backend: Vec<u32>,
    /// Requests at each backend at the end of the window.
    pub in_flight: Vec<u32>,
}

/// All backends with the same number of cores.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeReport {
    /// Cores of each.
    pub cores: u32,
    /// How many there are.
    pub backends: usize,
    /// Requests they served.
    pub requests: u64,
    /// Mean latency of these, microseconds; 0 where none was.
    pub mean_us: f64,
    /// Mean of their utilisations.
    pub utilisation: f64,
}

/// The results of a run, as seen by clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArenaReport {
    /// Requests served, without warm-up (as in all below except `windows`).
    pub requests: u64,
    /// Requests that failed at a backend.
    pub errors: u64,
    /// Requests for which no backend was picked.
    pub unserved: u64,
    /// Requests that were refused on their last try.
    pub dropped: u64,
    /// Requests whose client gave up.
    pub abandoned: u64,
    /// Refusals by backends; one request may meet several.
    pub refusals: u64,
    /// Tries sent to a backend.
    pub tries: u64,
    /// Tries after a refusal or a failure.
    pub retries: u64,
    /// Requests without a further try because the budget was used up.
    pub over_budget: u64,
    /// Refused requests that clients sent again ([`Arena::comes_again`](super::Arena)).
    pub came_again: u64,
    /// Probes sent.
    pub probes: u64,
    /// Requests served in time, per second.
    pub goodput_rps: f64,
    /// Mean latency of those served, microseconds, network included.
    pub mean_us: f64,
    /// 10th percentile, microseconds.
    pub p10_us: f64,
    /// Median, microseconds.
    pub p50_us: f64,
    /// 90th percentile, microseconds.
    pub p90_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// In the order of the pool.
    pub backends: Vec<BackendReport>,
    /// In order from the start, if windows are configured.
    pub windows: Vec<Window>,
    /// Latencies of those served, microseconds, ascending, if configured.
    pub times_us: Vec<f32>,
    /// Events of the whole run, warm-up included.
    pub events: u64,
}

impl ArenaReport {
    /// Requests that arrived and ended, in any way.
    pub fn offered(&self) -> u64 {
        self.requests + self.errors + self.unserved + self.dropped + self.abandoned
    }

    /// Tries per request, those included that follow after a wait or because a client came again: 1 without refusals.
    pub fn tries_per_request(&self) -> f64 {
        mean(self.tries as f64, self.offered())
    }

    /// The most tries per request that arrived in any so many windows in a row that began after this one; none where
    /// there are not as many.
    pub fn most_tries(&self, after: usize, in_a_row: usize) -> Option<f64> {
        // The last window is a part of one.
        let whole = self.windows.len().saturating_sub(1);
        let measured = self.windows.get(after + 1..whole)?.windows(in_a_row);
        let sum = |those: &[Window], of: fn(&Window) -> u64| those.iter().map(of).sum::<u64>();
        let tries =
            measured.map(|those| mean(sum(those, |w| w.tries) as f64, sum(those, |w| w.arrived)));
        tries.max_by(f64::total_cmp)
    }

    /// The part of all requests that was refused for good.
    pub fn drop_ratio(&self) -> f64 {
        mean(self.dropped as f64, self.offered())
    }

    /// BLOC's load imbalance (Fig. 4b, 11b): the standard deviation over backends of requests ended in a
    /// window, averaged over the windows; 0 without windows.
    pub fn imbalance(&self) -> f64 {
        let deviation = |w: &Window| {
            let n = w.by_backend.len() as f64;
            let mean = w.by_backend.iter().map(|&k| f64::from(k)).sum::<f64>() / n;
            let square = |&k: &u32| (f64::from(k) - mean).powi(2);
            (w.by_backend.iter().map(square).sum::<f64>() / n).sqrt()
        };
        mean(self.windows.iter().map(deviation).sum(), self.windows.len() as u64)
    }

    /// Backends grouped by their cores, ascending.
    pub fn by_cores(&self, pool: &[BackendModel]) -> Vec<TypeReport> {
        let mut kinds: Vec<u32> = pool.iter().map(|b| b.cores).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let of = |cores| {
            let group: Vec<&BackendReport> = pool
                .iter()
                .zip(&self.backends)
                .filter_map(|(b, report)| (b.cores == cores).then_some(report))
                .collect();
            let requests = group.iter().map(|r| r.requests).sum();
            let sum_us: f64 = group.iter().map(|r| r.mean_us * r.requests as f64).sum();
            let busy: f64 = group.iter().map(|r| r.utilisation).sum();
            TypeReport {
                cores,
                backends: group.len(),
                requests,
                mean_us: mean(sum_us, requests),
                utilisation: busy / group.len() as f64,
            }
        };
        kinds.into_iter().map(of).collect()
    }
}

/// Collects results during the run.
pub(super) struct Collector {
    report: ArenaReport,
    window_ns: Option<f64>,
    keeps_times: bool,
    times_us: Vec<f32>,
}

fn mean(sum: f64, count: u64) -> f64 {
    if count > 0 { sum / count as f64 } else { 0.0 }
}

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lost {
    Unserved,
    Dropped,
    Abandoned,
}

impl Collector {
    pub(super) fn new(backends: usize, window_s: Option<f64>, keeps_times: bool) -> Self {
        let report = ArenaReport {
            backends: vec![BackendReport::default(); backends],
            ..ArenaReport::default()
        };
        let window_ns = window_s.map(|s| s * 1e9);
        Collector { report, window_ns, keeps_times, times_us: Vec::new() }
    }

    fn window(&mut self, now: u64) -> Option<&mut Window> {
        let at = (now as f64 / self.window_ns?) as usize;
        let backends = self.report.backends.len();
        while self.report.windows.len() <= at {
            let by_backend = vec![0; backends];
            let in_flight = vec![0; backends];
            self.report.windows.push(Window { by_backend, in_flight, ..Window::default() });
        }
        Some(&mut self.report.windows[at])
    }

    /// The queues at the end of a window.
    pub(super) fn queues(&mut self, window_end: u64, in_flight: impl Iterator<Item = u32>) {
        if let Some(window) = self.window(window_end.saturating_sub(1)) {
            window.in_flight.clear();
            window.in_flight.extend(in_flight);
        }
    }

    pub(super) fn arrived(&mut self, now: u64) {
        if let Some(window) = self.window(now) {
            window.arrived += 1;
        }
    }

    pub(super) fn tried(&mut self, now: u64, counted: bool) {
        self.report.tries += u64::from(counted);
        if let Some(window) = self.window(now) {
            window.tries += 1;
        }
    }

    pub(super) fn lost(&mut self, why: Lost, now: u64, counted: bool) {
        if let Some(window) = self.window(now) {
            match why {
                Lost::Unserved => window.errors += 1,
                Lost::Dropped => window.dropped += 1,
                Lost::Abandoned => window.abandoned += 1,
            }
        }
        let count = u64::from(counted);
        match why {
            Lost::Unserved => self.report.unserved += count,
            Lost::Dropped => self.report.dropped += count,
            Lost::Abandoned => self.report.abandoned += count,
        }
    }

    pub(super) fn retried(&mut self, rejected: bool, verdict: Retry, counted: bool) {
        self.report.refusals += u64::from(counted && rejected);
        self.report.retries += u64::from(counted && verdict == Retry::Again);
        self.report.over_budget += u64::from(counted && verdict == Retry::Budget);
    }

    pub(super) fn came_again(&mut self, counted: bool) {
        self.report.came_again += u64::from(counted);
    }

    pub(super) fn probed(&mut self, probes: usize, counted: bool) {
        self.report.probes += if counted { probes as u64 } else { 0 };
    }

    pub(super) fn finish(&mut self, i: usize, now: u64, took: u64, ok: bool, counted: bool) {
        let us = took as f64 / 1e3;
        if let Some(window) = self.window(now) {
            window.by_backend[i] += 1;
            window.requests += u64::from(ok);
            window.errors += u64::from(!ok);
            window.mean_us += if ok { us } else { 0.0 };
        }
        if !counted {
            return;
        }
        let backend = &mut self.report.backends[i];
        if ok {
            backend.requests += 1;
            backend.mean_us += us;
            self.times_us.push(us as f32);
        } else {
            backend.errors += 1;
        }
    }

    /// `utilisation` in the order of the pool; `measured_s` is from the end of the warm-up to the last arrival.
    pub(super) fn done(
        mut self,
        utilisation: impl Iterator<Item = f64>,
        measured_s: f64,
        events: u64,
    ) -> ArenaReport {
        let report = &mut self.report;
        let sum_us: f64 = report.backends.iter().map(|b| b.mean_us).sum();
        report.requests = report.backends.iter().map(|b| b.requests).sum();
        report.errors = report.backends.iter().map(|b| b.errors).sum();
        report.mean_us = mean(sum_us, report.requests);
        report.goodput_rps =
            if measured_s > 0.0 { report.requests as f64 / measured_s } else { 0.0 };
        report.events = events;
        let sent = report.requests + report.errors;
        for (backend, busy) in report.backends.iter_mut().zip(utilisation) {
            backend.mean_us = mean(backend.mean_us, backend.requests);
            backend.share = mean((backend.requests + backend.errors) as f64, sent);
            backend.utilisation = busy;
        }
        for window in &mut report.windows {
            window.mean_us = mean(window.mean_us, window.requests);
        }
        for (quantile_us, q) in [
            (&mut report.p10_us, 0.1),
            (&mut report.p50_us, 0.5),
            (&mut report.p90_us, 0.9),
            (&mut report.p99_us, 0.99),
        ] {
            *quantile_us = quantile(&mut self.times_us, q);
        }
        if self.keeps_times {
            self.times_us.sort_unstable_by(f32::total_cmp);
            report.times_us = self.times_us;
        }
        self.report
    }
}

fn quantile(times_us: &mut [f32], q: f64) -> f64 {
    if times_us.is_empty() {
        return 0.0;
    }
    let rank = ((times_us.len() - 1) as f64 * q) as usize;
    f64::from(*times_us.select_nth_unstable_by(rank, f32::total_cmp).1)
}
