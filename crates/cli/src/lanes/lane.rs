use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plimsoll_api::wire::Event;
use plimsoll_control::{BackendView, ServiceView};
use plimsoll_testbed::load::{self, LoadHandle, LoadReport, LoadSpec, Target};
use plimsoll_testbed::{Lateness, Testbed};

use super::daemon::{Daemon, Steered};
use super::haproxy::{Haproxy, Server};
use super::{Family, LaneError, LaneKind, Pool};

/// How long a client waits for its answer before it gives up, which counts as an error.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// A bound on the arrivals that no run reaches; runs end them.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// One pool, its HAProxy, its clients, and a daemon where Plimsoll steers it.
pub struct Lane {
    /// Who balances.
    pub kind: LaneKind,
    /// The weights HAProxy began with, in the order of the pool.
    weights: Vec<u32>,
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
        let weights = kind.weights(pool)?;
        let bed = Testbed::start(pool.testbed())?;
        let server = |((name, address), &weight): (&(String, SocketAddr), &u32)| Server {
            name: name.clone(),
            address: *address,
            weight,
        };
        let servers: Vec<Server> = bed.addresses().iter().zip(&weights).map(server).collect();
        let haproxy =
            Haproxy::start(family, &format!("{name}-haproxy"), kind.balance(), &servers, PATIENCE)?;
        let steered = Steered {
            servers: bed.addresses(),
            socket: haproxy.socket(),
            exploration: kind.exploration(),
        };
        let daemon = match kind.is_steered() {
            true => Some(Daemon::start(family, &format!("{name}-plimsoll"), &steered)?),
            false => None,
        };
        let (rate_rps, seed) = (pool.rate_rps, pool.seed);
        Ok(Lane { kind, weights, clients: None, daemon, haproxy, bed, rate_rps, seed })
    }

    /// Lets the clients come, for the first time or after a pause.
    ///
    /// # Errors
    /// When the system refuses a thread, or the clients have ended.
    pub fn open(&mut self) -> Result<(), LaneError> {
        if let Some(clients) = &self.clients {
            return Ok(clients.set_rate(self.rate_rps)?);
        }
        let target = Target::resolve(&format!("http://{}/work", self.haproxy.address()))
            .map_err(|problem| load::LoadError::Invalid(vec![problem]))?;
        let mut spec = LoadSpec::poisson(target, self.rate_rps, LONGEST);
        (spec.timeout, spec.seed, spec.keep_records) = (PATIENCE, self.seed, true);
        self.clients = Some(load::start(spec)?);
        Ok(())
    }

    /// No more clients come; those who wait are still served.
    ///
    /// # Errors
    /// When the clients have ended.
    pub fn pause(&self) -> Result<(), LaneError> {
        self.clients.as_ref().map_or(Ok(()), |clients| Ok(clients.set_rate(0.0)?))
    }

    /// When the clock of its clients read zero; nothing before the first has come.
    pub fn started(&self) -> Option<Instant> {
        self.clients.as_ref().map(LoadHandle::started)
    }

    /// What its clients saw so far, without single requests.
    pub fn so_far(&self) -> Option<LoadReport> {
        self.clients.as_ref()?.snapshot()
    }

    /// What Plimsoll knows and does here; nothing where it does not steer or does not answer.
    pub fn view(&self) -> Option<ServiceView> {
        self.daemon.as_ref()?.view()
    }

    /// The weights that HAProxy holds: those of its start, or what Plimsoll has programmed by this view.
    pub fn held(&self, view: Option<&ServiceView>) -> Vec<u32> {
        let programmed = |b: &BackendView| b.programmed.unwrap_or(b.weight);
        view.map_or_else(|| self.weights.clone(), |v| v.backends.iter().map(programmed).collect())
    }

    /// Plimsoll's last decisions.
    pub fn events(&self, most: usize) -> Vec<Event> {
        self.daemon.as_ref().map_or_else(Vec::new, |daemon| daemon.events(most))
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
