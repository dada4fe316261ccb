//! The three backends for real: emulated servers behind a HAProxy, with a fixed number of clients.

use std::time::Duration;

use plimsoll_lanes::{Family, Haproxy, LaneError, PATIENCE, Server};
use plimsoll_testbed::load::{self, Arrivals, LoadHandle, LoadSpec, Target};
use plimsoll_testbed::{BackendSpec, Change, Service, Testbed, TestbedSpec};

use super::{BackendSeen, NAMES, SERVICE_MS, Seen, pool};
use crate::lanes::Moment;
use crate::{Context, Failure};

/// No run lasts so long; runs end their clients.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

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
    // In the order in which they are to end: no client asks a server that is already gone.
    clients: LoadHandle,
    haproxy: Haproxy,
    bed: Testbed,
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
    pub fn mark(&mut self) -> Result<Moment, Failure> {
        if let Some(ended) = self.haproxy.ended() {
            return Err(ended.into());
        }
        Moment::now(self.clients.snapshot(), self.bed.stats().map(|stats| stats.backends))
    }

    /// What was seen since.
    ///
    /// # Errors
    /// When a part of it has ended.
    pub fn since(&mut self, from: &Moment) -> Result<Seen, Failure> {
        Ok(between(from, &self.mark()?))
    }
}

fn between(from: &Moment, to: &Moment) -> Seen {
    let (all, all_ms) = to.served(from);
    let all = f64::max(all, 1.0);
    let mut backends = [BackendSeen::default(); 3];
    for (place, seen) in backends.iter_mut().enumerate() {
        let (count, ms, cpu) = to.served_by(place, from);
        let latency_ms = if count > 0.0 { ms / count } else { 0.0 };
        *seen = BackendSeen { cpu, latency_ms, share: count / all };
    }
    let (mean_ms, rps) = (all_ms / all, all / to.seconds(from));
    Seen { backends, mean_ms, rps, errors: to.errors(from) }
}
