//! The three backends for real: emulated servers behind a HAProxy, with a fixed number of clients.

use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, Haproxy, LaneError, PATIENCE, Server};
use plimsoll_testbed::load::{self, Arrivals, LoadHandle, LoadReport, LoadSpec, Summary, Target};
use plimsoll_testbed::{BackendSpec, Change, Service, Testbed, TestbedSpec, TestbedStats};

use super::{BackendSeen, NAMES, SERVICE_MS, Seen, pool};
use crate::{Context, Failure};

/// No run lasts so long; runs end their clients.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Between two looks at whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to set up.
pub struct Setup {
    /// Unique within the family: files are called after it.
    pub name: String,
    /// HAProxy's `balance`.
    pub balance: &'static str,
    /// Speed of the third backend.
    pub ratio: f64,
    /// Clients, each with one request under way.
    pub clients: u32,
    /// Whether every request comes on a connection, and so from a port, of its own.
    pub fresh_connections: bool,
}

/// A running one.
pub struct Rig {
    // In the order in which they are to end: nobody asks who is already gone.
    clients: LoadHandle,
    haproxy: Haproxy,
    bed: Testbed,
}

/// Counters at one instant.
pub struct Mark {
    load: LoadReport,
    bed: TestbedStats,
}

impl Rig {
    /// Everything, clients included.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub fn start(context: &Context, family: &Family, setup: &Setup) -> Result<Self, Failure> {
        let service = Service::exponential(Duration::from_millis(SERVICE_MS));
        let backend = |(name, model): (&str, plimsoll_sim::BackendModel)| {
            let mut spec = BackendSpec::new(name, service);
            (spec.cores, spec.speed, spec.seed) = (model.cores, model.speed, context.seed);
            spec
        };
        let backends = NAMES.into_iter().zip(pool(setup.ratio)).map(backend).collect();
        let bed = Testbed::start(TestbedSpec { admin: None, backends }).map_err(LaneError::from)?;
        let servers: Vec<Server> = bed
            .addresses()
            .iter()
            .map(|(name, address)| Server { name: name.clone(), address: *address, weight: 1 })
            .collect();
        let haproxy = Haproxy::start(family, &setup.name, setup.balance, &servers, PATIENCE)?;
        let target = Target::resolve(&format!("http://{}/work", haproxy.address()));
        let mut spec = LoadSpec::poisson(target.map_err(Failure::Other)?, 1.0, LONGEST);
        spec.arrivals = Arrivals::Closed;
        spec.concurrency = Some(setup.clients as usize);
        (spec.timeout, spec.seed) = (PATIENCE, context.seed);
        if setup.fresh_connections {
            spec.headers.push(("Connection".to_owned(), "close".to_owned()));
        }
        let clients = load::start(spec).map_err(LaneError::from)?;
        Ok(Rig { clients, haproxy, bed })
    }

    /// Gives the third backend this speed, as a neighbour does that comes or goes.
    ///
    /// # Errors
    /// When the backends have stopped.
    pub fn set_ratio(&self, ratio: f64) -> Result<(), Failure> {
        let set = self.bed.set(NAMES[2], Change::speed(ratio));
        set.map_err(|error| Failure::Other(error.to_string()))
    }

    /// The counters now.
    ///
    /// # Errors
    /// When a part of it has ended.
    pub fn mark(&mut self) -> Result<Mark, Failure> {
        if let Some(ended) = self.haproxy.ended() {
            return Err(ended.into());
        }
        let load = self.clients.snapshot().ok_or(LaneError::Load(load::LoadError::Ended))?;
        let bed = self.bed.stats().ok_or(LaneError::BackendsStopped)?;
        Ok(Mark { load, bed })
    }

    /// What was seen since.
    ///
    /// # Errors
    /// When a part of it has ended.
    pub fn since(&mut self, from: &Mark) -> Result<Seen, Failure> {
        Ok(between(from, &self.mark()?))
    }
}

/// Waits, telling of it, from the part `done.0` of the whole run to `done.1`.
pub fn wait(
    context: &Context,
    length: Duration,
    done: (f64, f64),
    what: &str,
) -> Result<(), Failure> {
    let begin = Instant::now();
    while begin.elapsed() < length {
        let part = begin.elapsed().as_secs_f64() / length.as_secs_f64();
        context.progress(done.0 + (done.1 - done.0) * part, what)?;
        std::thread::sleep(LOOK_EVERY.min(length.saturating_sub(begin.elapsed())));
    }
    Ok(())
}

/// Requests answered and the sum of their latencies, milliseconds.
fn answered(summary: Option<&Summary>) -> (f64, f64) {
    summary.map_or((0.0, 0.0), |s| {
        let count = (s.requests - s.errors) as f64;
        (count, count * s.mean_ms.unwrap_or(0.0))
    })
}

fn between(from: &Mark, to: &Mark) -> Seen {
    let span = to.bed.uptime_seconds - from.bed.uptime_seconds;
    let mut backends = [BackendSeen::default(); 3];
    let (mut all, mut all_ms) = (0.0, 0.0);
    for (i, (seen, name)) in backends.iter_mut().zip(NAMES).enumerate() {
        let (before, before_ms) = answered(from.load.by_backend.get(name));
        let (after, after_ms) = answered(to.load.by_backend.get(name));
        let (count, ms) = (after - before, after_ms - before_ms);
        let (earlier, later) = (&from.bed.backends[i], &to.bed.backends[i]);
        let busy = later.busy_core_seconds - earlier.busy_core_seconds;
        seen.cpu = busy / (span * f64::from(later.cores));
        seen.latency_ms = if count > 0.0 { ms / count } else { 0.0 };
        seen.share = count;
        (all, all_ms) = (all + count, all_ms + ms);
    }
    let all = f64::max(all, 1.0);
    backends.iter_mut().for_each(|seen| seen.share /= all);
    let errors = to.load.total.errors - from.load.total.errors;
    Seen { backends, mean_ms: all_ms / all, rps: all / span, errors }
}
