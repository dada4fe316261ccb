//! The arena: any [`Policy`] over a pool, request by request, fast enough to compare all of them.
//!
//! Requests arrive as a Poisson process, or from users who think before the next one; each is assigned by one of the
//! balancers (drawn at random, or the user's own; they share no state), travels for a constant time, may be refused by
//! admission and tried at another backend, waits in the backend's queue, first in first out, is served by one of its
//! cores, and travels back with a chip and the backend's load, where configured. Policies that probe get their answers
//! after a round trip. Clients may give up. The work of a request is drawn on arrival from a stream of its own: runs
//! that differ only in the policy have the same traffic. A timeline changes rate, speeds and weights (weight 0 and
//! back: backends leave and join), and makes backends fail and return. A run is determined by its seed.
//!
//! Five to eight million events per second on one core, most of which is the policy's own choice.

mod address;
mod door;
mod engine;
mod hooks;
mod one_queue;
mod report;
mod shortest_delay;
#[cfg(test)]
mod tests;
mod yardsticks;

pub use door::AdmissionDoor;
pub use hooks::{Ingress, Offer, Refusal, StaticLimit, Surroundings};
pub use one_queue::OneQueue;
pub use report::{ArenaReport, BackendReport, TypeReport, Window};
pub use shortest_delay::{InFlightBy, ShortestDelay};
pub use yardsticks::{Yardsticks, integer_weights, static_shares, yardsticks};

use std::time::Duration;

use plimsoll_admission::{RetryOptions, WaitOptions};
use plimsoll_policy::{MAX_AVOID, Policy};
use plimsoll_queueing::ServiceTime;

use crate::BackendModel;

/// A change of the pool, its load or its balancers.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A backend's cores have this speed from now on; requests in service finish as scheduled.
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
    /// A backend dies: its requests fail at once, and so do those sent to it until it returns.
    Kill {
        /// Which.
        backend: usize,
    },
    /// A backend answers requests with failures from now on, after this time.
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

/// A [`Change`] with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Seconds from the start.
    pub at_s: f64,
    /// The change.
    pub change: Change,
}

/// Where requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// A Poisson process of [`Arena::rate_rps`], each request to a balancer drawn at random.
    Open,
    /// This many users, spread evenly over the balancers, who send one request each, wait for its end, think, and send
    /// the next one. [`Arena::rate_rps`] is ignored.
    Closed {
        /// Number of users.
        users: u32,
        /// Mean thinking time, exponential; zero: none.
        think: Duration,
    },
    /// The same, but a gateway sends each of their requests to a balancer drawn at random.
    Roaming {
        /// Number of users.
        users: u32,
        /// Mean thinking time, exponential; zero: none.
        think: Duration,
    },
}

impl Clients {
    /// The number of users and their thinking time; `None` for an open process.
    fn users(self) -> Option<(u32, Duration)> {
        match self {
            Clients::Open => None,
            Clients::Closed { users, think } | Clients::Roaming { users, think } => {
                Some((users, think))
            }
        }
    }
}

/// How long a client waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From its arrival at the balancer, all tries included.
    pub after: Duration,
    /// Whether the backend learns of it and drops a request that still waits; otherwise it is served in vain.
    pub cancels: bool,
}

/// The specification of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Arena {
    /// The backends.
    pub pool: Vec<BackendModel>,
    /// Mean service time on a core of speed 1, microseconds.
    pub service_us: f64,
    /// Distribution of service times.
    pub service: ServiceTime,
    /// Poisson arrivals, requests per second.
    pub rate_rps: f64,
    /// Number of requests.
    pub requests: u32,
    /// The first requests of these, which are not counted: the pool starts empty.
    pub warm_up: u32,
    /// Delay from balancer to backend and back, each.
    pub network: Duration,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Changes during the run, in order of time.
    pub timeline: Vec<Step>,
    /// Length of the windows in [`ArenaReport::windows`], seconds; `None`: no windows.
    pub window_s: Option<f64>,
    /// Where requests come from.
    pub clients: Clients,
    /// How long clients wait; `None`: without limit.
    pub patience: Option<Patience>,
    /// A client whose request was finally refused sends it again after this time, to the same balancer, until it is
    /// served: then methods that refuse can be compared with those that do not, because dropping does not reduce the
    /// load. `None`: it is not sent again. With more load than capacity such runs end late.
    pub comes_again: Option<Duration>,
    /// How often a refused or failed request is tried again, each time at another backend, and every balancer's budgets
    /// for that; at most [`MAX_AVOID`] times in all.
    pub retry: RetryOptions,
    /// How requests wait at their balancer that all their tries refused; `None`: they are refused for good.
    pub wait: Option<WaitOptions>,
    /// Number of client addresses. Each request comes from one of them, equally likely, and the hash of that address is
    /// its key. 0: requests have no key.
    pub addresses: u32,
    /// Interval at which every balancer gets the CPU utilisation of every backend, as from a registry; `None`: never.
    pub cpu_news: Option<Duration>,
    /// Whether responses and refusals carry the backend's load.
    pub tells_load: bool,
    /// Whether [`ArenaReport::times_us`] is kept.
    pub keeps_times: bool,
}

impl Arena {
    /// Exponential service of 30 ms, no network delay, no timeline; a tenth of the requests is warm-up. `load` is a
    /// part of the pool's capacity.
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
            clients: Clients::Open,
            patience: None,
            comes_again: None,
            retry: RetryOptions::of_refusals(0),
            wait: None,
            addresses: 0,
            cpu_news: None,
            tells_load: false,
            keeps_times: false,
        }
    }

    /// Each backend's capacity at its initial speed, requests per second.
    pub fn capacities_rps(&self) -> Vec<f64> {
        self.pool.iter().map(|b| b.capacity_rps(self.service_us)).collect()
    }

    /// Runs to the end of the last request, without admission.
    ///
    /// # Panics
    /// As [`Arena::run_with`].
    pub fn run(&self, balancers: &mut [Box<dyn Policy>]) -> ArenaReport {
        self.run_with(balancers, Surroundings::default())
    }

    /// Runs to the end of the last request.
    ///
    /// # Panics
    /// Without balancers, with a rate that is not above 0, with too many retries or invalid options for
    /// them, with surroundings of another number, or with a timeline out of order or naming a backend that is
    /// not in the pool.
    pub fn run_with(
        &self,
        balancers: &mut [Box<dyn Policy>],
        surroundings: Surroundings<'_>,
    ) -> ArenaReport {
        assert!(!balancers.is_empty(), "an arena needs a balancer");
        assert!(self.rate_rps > 0.0, "rate_rps is {}, expected above 0", self.rate_rps);
        let retries = self.retry.refusals.most + self.retry.failures.most;
        assert!(retries <= MAX_AVOID as u32, "{retries} retries, expected at most {MAX_AVOID}");
        let doors = surroundings.ingress.len();
        assert!(doors == 0 || doors == self.pool.len(), "{doors} ingresses for the pool");
        let ordered = self.timeline.windows(2).all(|w| w[0].at_s <= w[1].at_s);
        assert!(ordered, "the timeline is not in order of time");
        for step in &self.timeline {
            let known = step.change.backend().is_none_or(|i| i < self.pool.len());
            assert!(known, "{step:?}: the pool has {} backends", self.pool.len());
        }
        engine::Engine::new(self, balancers, surroundings).run()
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
