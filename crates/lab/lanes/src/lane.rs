use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use plimsoll_testbed::load::LoadReport;
use plimsoll_testbed::{BackendStats, Change, Lateness, Testbed};

use crate::haproxy::Server;
use crate::{Family, Front, FrontSpec, LaneError, LaneKind, Lb, Pool};

/// An emulated pool behind a [`Front`] of its own, which it is used as.
pub struct Lane {
    /// The balancer.
    pub kind: LaneKind,
    front: Front,
    bed: Testbed,
}

/// What remains of a lane.
pub struct Finished {
    /// The balancer.
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

    /// The same behind this balancer.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub fn start_behind(
        family: &Family,
        pool: &Pool,
        kind: LaneKind,
        lb: Lb,
        name: &str,
    ) -> Result<Self, LaneError> {
        Lane::start_on(family, pool, (kind, lb), kind.weights(pool)?, name)
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
        Lane::start_on(family, pool, (kind, Lb::Haproxy), weights, name)
    }

    fn start_on(
        family: &Family,
        pool: &Pool,
        (kind, lb): (LaneKind, Lb),
        weights: Vec<u32>,
        name: &str,
    ) -> Result<Self, LaneError> {
        let bed = Testbed::start(pool.testbed())?;
        let server = |((name, address), &weight): (&(String, SocketAddr), &u32)| Server {
            name: name.clone(),
            address: *address,
            weight,
        };
        let spec = FrontSpec {
            name: name.to_owned(),
            lb,
            balance: kind.balance(),
            servers: bed.addresses().iter().zip(&weights).map(server).collect(),
            balancers: 1,
            steering: kind.steering(),
            rate_rps: pool.rate_rps,
            work: None,
            seed: pool.seed,
        };
        Ok(Lane { kind, front: Front::start(family, spec)?, bed })
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

    /// Waits for the last client, which takes no longer than its patience, and ends everything.
    ///
    /// # Errors
    /// When the clients or the backends have died.
    pub fn finish(self) -> Result<Finished, LaneError> {
        let (started, report) = self.front.finish()?;
        let lateness = self.bed.stats().ok_or(LaneError::BackendsStopped)?.lateness;
        Ok(Finished { kind: self.kind, started, report, lateness })
    }
}

impl Deref for Lane {
    type Target = Front;

    fn deref(&self) -> &Front {
        &self.front
    }
}

impl DerefMut for Lane {
    fn deref_mut(&mut self) -> &mut Front {
        &mut self.front
    }
}
