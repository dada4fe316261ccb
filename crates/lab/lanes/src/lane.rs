use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plimsoll_api::wire::Event;
use plimsoll_control::{BackendView, ServiceView};
use plimsoll_testbed::load::{self, Arrivals, LoadHandle, LoadReport, LoadSpec, Target};
use plimsoll_testbed::{BackendStats, Change, Lateness, Testbed};

use crate::daemon::{Daemon, Steered};
use crate::haproxy::{Haproxy, Server};
use crate::{Family, LaneError, LaneKind, Pool};

/// How long a client waits for its answer before it gives up, which counts as an error.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// A bound on the arrivals that no run reaches; runs end them.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// One pool, its HAProxy, its clients, and a daemon where Plimsoll steers it.
pub struct Lane {
    /// Who balances.
    pub kind: LaneKind,
    name: String,
    /// What HAProxy holds while no daemon runs, in the order of the pool.
    weights: Vec<u32>,
    /// What was decided by the end of the last daemon that rests.
    past: Vec<Event>,
    // In the order in which they are to end: nobody asks who is already gone.
    clients: Option<LoadHandle>,
    daemon: Option<Daemon>,
    haproxy: Haproxy,
    bed: Testbed,
    rate_rps: f64,
    seed: u64,
}

/// What remains of a lane.
pub struct Finished {
    /// Who balanced.
    pub kind: LaneKind,
    /// When the clock of the records read zero.
    pub started: Instant,
    /// What the clients saw, every request included.
    pub report: LoadReport,
    /// How late the emulation was.
    pub lateness: Lateness,
}

impl Lane {
    /// Everything but the clients. Names are unique within a family: files are called after them.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub fn start(
        family: &Family,
        pool: &Pool,
        kind: LaneKind,
        name: &str,
    ) -> Result<Self, LaneError> {
        Lane::start_with(family, pool, kind, kind.weights(pool)?, name)
    }

    /// The same with other weights than those of its kind, in the order of the pool.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub fn start_with(
        family: &Family,
        pool: &Pool,
        kind: LaneKind,
        weights: Vec<u32>,
        name: &str,
    ) -> Result<Self, LaneError> {
        let bed = Testbed::start(pool.testbed())?;
        let server = |((name, address), &weight): (&(String, SocketAddr), &u32)| Server {
            name: name.clone(),
            address: *address,
            weight,
        };
        let servers: Vec<Server> = bed.addresses().iter().zip(&weights).map(server).collect();
        let haproxy =
            Haproxy::start(family, &format!("{name}-haproxy"), kind.balance(), &servers, PATIENCE)?;
        let mut lane = Lane {
            kind,
            name: name.to_owned(),
            weights,
            past: Vec::new(),
            clients: None,
            daemon: None,
            haproxy,
            bed,
            rate_rps: pool.rate_rps,
            seed: pool.seed,
        };
        lane.steer(family)?;
        Ok(lane)
    }

    /// Starts the daemon where there should be one and is none. It knows what the last one knew.
    fn steer(&mut self, family: &Family) -> Result<(), LaneError> {
        if self.kind.is_steered() && self.daemon.is_none() {
            let steered = Steered {
                servers: self.bed.addresses(),
                socket: self.haproxy.socket(),
                exploration: self.kind.exploration(),
            };
            let name = format!("{}-plimsoll", self.name);
            self.daemon = Some(Daemon::start(family, &name, &steered)?);
        }
        Ok(())
    }

    /// Lets the clients come, for the first time or after a pause, and the daemon again where it rested.
    ///
    /// # Errors
    /// When the system refuses a thread or a process, or the clients have ended.
    pub fn open(&mut self, family: &Family) -> Result<(), LaneError> {
        if let Some(clients) = &self.clients {
            clients.set_rate(self.rate_rps)?;
            return self.steer(family);
        }
        self.clients = Some(load::start(self.load()?)?);
        Ok(())
    }

    /// Instead of [`Lane::open`]: lets so many clients come, each of which sends its next request when
    /// its last one has ended. They cannot be paused.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn open_closed(&mut self, clients: usize) -> Result<(), LaneError> {
        let mut spec = self.load()?;
        (spec.arrivals, spec.concurrency) = (Arrivals::Closed, Some(clients));
        self.clients = Some(load::start(spec)?);
        Ok(())
    }

    /// Poisson clients at the pool's rate.
    fn load(&self) -> Result<LoadSpec, LaneError> {
        let target = Target::resolve(&format!("http://{}/work", self.haproxy.address()))
            .map_err(|problem| load::LoadError::Invalid(vec![problem]))?;
        let mut spec = LoadSpec::poisson(target, self.rate_rps, LONGEST);
        (spec.timeout, spec.seed, spec.keep_records) = (PATIENCE, self.seed, true);
        Ok(spec)
    }

    /// Ends the daemon, if there is one: HAProxy keeps its weights, and the next one begins with what
    /// this one has learned.
    pub fn rest(&mut self) {
        self.weights = self.held(self.view().as_ref());
        if let Some(daemon) = self.daemon.take() {
            self.past = daemon.events();
            daemon.end();
        }
    }

    /// No more clients come; those who wait are still served.
    ///
    /// # Errors
    /// When the clients have ended.
    pub fn pause(&self) -> Result<(), LaneError> {
        self.set_rate(0.0)
    }

    /// Lets open clients come at another rate from now on.
    ///
    /// # Errors
    /// When the rate is not possible, or the clients have ended.
    pub fn set_rate(&self, rate_rps: f64) -> Result<(), LaneError> {
        self.clients.as_ref().map_or(Ok(()), |clients| Ok(clients.set_rate(rate_rps)?))
    }

    /// When the clock of its clients read zero; nothing before the first has come.
    pub fn started(&self) -> Option<Instant> {
        self.clients.as_ref().map(LoadHandle::started)
    }

    /// What its clients saw so far, without single requests.
    pub fn so_far(&self) -> Option<LoadReport> {
        self.clients.as_ref()?.snapshot()
    }

    /// What its backends did so far, in the order of the pool; nothing when they have stopped.
    pub fn backends(&self) -> Option<Vec<BackendStats>> {
        self.bed.stats().map(|stats| stats.backends)
    }

    /// Changes one of its backends while it serves.
    ///
    /// # Errors
    /// When it has no such backend, or the change is not valid.
    pub fn change(&self, backend: &str, change: Change) -> Result<(), LaneError> {
        Ok(self.bed.set(backend, change)?)
    }

    /// What Plimsoll knows and does here; nothing where it does not steer or does not answer.
    pub fn view(&self) -> Option<ServiceView> {
        self.daemon.as_ref()?.view()
    }

    /// The weights that HAProxy holds: what this view says is programmed, or the last that are known.
    pub fn held(&self, view: Option<&ServiceView>) -> Vec<u32> {
        let programmed = |b: &BackendView| b.programmed.unwrap_or(b.weight);
        view.map_or_else(|| self.weights.clone(), |v| v.backends.iter().map(programmed).collect())
    }

    /// Plimsoll's decisions so far, the last thousand: a daemon also keeps those of the ones before it.
    pub fn events(&self) -> Vec<Event> {
        self.daemon.as_ref().map_or_else(|| self.past.clone(), Daemon::events)
    }

    /// Whether every part of it still lives.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&mut self) -> Result<(), LaneError> {
        let daemon = self.daemon.as_mut().and_then(Daemon::ended);
        daemon.or_else(|| self.haproxy.ended()).map_or(Ok(()), Err)
    }

    /// Ends the arrivals for good, so that several lanes can wait for their last clients together.
    pub fn close(&self) {
        if let Some(clients) = &self.clients {
            clients.stop();
        }
    }

    /// Waits for the last client, which takes no longer than its patience, and ends everything.
    ///
    /// # Errors
    /// When the clients or the backends have died.
    pub fn finish(mut self) -> Result<Finished, LaneError> {
        let clients = self.clients.take().ok_or(load::LoadError::Ended)?;
        clients.stop();
        let started = clients.started();
        let report = clients.join()?;
        let lateness = self.bed.stats().ok_or(LaneError::BackendsStopped)?.lateness;
        Ok(Finished { kind: self.kind, started, report, lateness })
    }
}
