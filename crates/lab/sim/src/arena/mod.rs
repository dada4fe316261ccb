//! The arena: any [`Policy`] over a pool, request by request, fast enough to compare all of them.
//!
//! Requests arrive as a Poisson process; each is picked for on arrival by one of the balancers (drawn at
//! random; they know nothing of each other), travels for a constant time, waits in the backend's queue,
//! first in first out, is served by one of its cores, and travels back. How much work it is, is drawn on
//! arrival from a stream of its own: runs that differ in policy only share their luck. A timeline
//! changes rate, speeds and weights, and makes backends fail and return. A run is its seed.
//!
//! A million and more requests a second on one core, most of it the policy's own scan of 30 backends.

mod engine;
mod report;
#[cfg(test)]
mod tests;
mod yardsticks;

pub use report::{ArenaReport, BackendReport, TypeReport, Window};
pub use yardsticks::{Yardsticks, integer_weights, static_shares, yardsticks};

use std::time::Duration;

use plimsoll_policy::Policy;
use plimsoll_queueing::ServiceTime;

use crate::BackendModel;

/// Something that happens to the pool, its load or its balancers.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A backend's cores have this speed from now on; what they work on ends as it was to.
    Speed {
        /// Which.
        backend: usize,
        /// As [`BackendModel::speed`].
        speed: f64,
    },
    /// Requests per second, of all balancers together.
    Rate(f64),
    /// Every balancer is given these weights.
    Weights(Vec<u32>),
    /// A backend dies: what it has fails at once, and so does what it is sent, until it returns.
    Kill {
        /// Which.
        backend: usize,
    },
    /// A backend answers what it is sent from now on with a failure, after this time.
    FailFast {
        /// Which.
        backend: usize,
        /// How long such an answer takes, network not included.
        after: Duration,
    },
    /// A backend serves again.
    Return {
        /// Which.
        backend: usize,
    },
}

/// A [`Change`] and when it happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Seconds from the start.
    pub at_s: f64,
    /// What happens.
    pub change: Change,
}

/// What to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Arena {
    /// The backends.
    pub pool: Vec<BackendModel>,
    /// Mean service time on a core of speed 1, microseconds.
    pub service_us: f64,
    /// How service times are spread.
    pub service: ServiceTime,
    /// Poisson arrivals, requests per second.
    pub rate_rps: f64,
    /// How many requests.
    pub requests: u32,
    /// How many of them, the first to arrive, do not count: the pool starts empty.
    pub warm_up: u32,
    /// From balancer to backend and from backend to balancer, each.
    pub network: Duration,
    /// What luck.
    pub seed: u64,
    /// What happens on the way, in order of time.
    pub timeline: Vec<Step>,
    /// How long the windows of [`ArenaReport::windows`] are, seconds; `None` for none.
    pub window_s: Option<f64>,
}

impl Arena {
    /// Exponential service of 30 ms, no network delay, no timeline; a tenth of the requests warms up.
    /// `load` is the part of the pool's capacity.
    pub fn new(pool: Vec<BackendModel>, load: f64, requests: u32, seed: u64) -> Self {
        let service_us = 30_000.0;
        let capacity: f64 = pool.iter().map(|b| b.capacity_rps(service_us)).sum();
        Arena {
            pool,
            service_us,
            service: ServiceTime::Exponential,
            rate_rps: load * capacity,
            requests,
            warm_up: requests / 10,
            network: Duration::ZERO,
            seed,
            timeline: Vec::new(),
            window_s: None,
        }
    }

    /// Requests per second that each backend can serve at its first speed.
    pub fn capacities_rps(&self) -> Vec<f64> {
        self.pool.iter().map(|b| b.capacity_rps(self.service_us)).collect()
    }

    /// Runs it to the end of the last request.
    ///
    /// # Panics
    /// Without balancers, with a rate that is not above 0, or with a timeline out of order or naming a
    /// backend that is not in the pool.
    pub fn run(&self, balancers: &mut [Box<dyn Policy>]) -> ArenaReport {
        assert!(!balancers.is_empty(), "an arena needs a balancer");
        assert!(self.rate_rps > 0.0, "rate_rps is {}, expected above 0", self.rate_rps);
        let ordered = self.timeline.windows(2).all(|w| w[0].at_s <= w[1].at_s);
        assert!(ordered, "the timeline is not in order of time");
        for step in &self.timeline {
            let known = step.change.backend().is_none_or(|i| i < self.pool.len());
            assert!(known, "{step:?}: the pool has {} backends", self.pool.len());
        }
        engine::Engine::new(self, balancers).run()
    }
}

impl Change {
    fn backend(&self) -> Option<usize> {
        match *self {
            Change::Speed { backend, .. }
            | Change::Kill { backend }
            | Change::FailFast { backend, .. }
            | Change::Return { backend } => Some(backend),
            Change::Rate(_) | Change::Weights(_) => None,
        }
    }
}
