//! The arena: any [`Policy`] over a pool, request by request, fast enough to compare all of them.
//!
//! Requests arrive as a Poisson process, or from users who think before the next; each is picked for by
//! one of the balancers (drawn at random, or the user's own; they know nothing of each other), travels for
//! a constant time, may be refused at the door and try elsewhere, waits in the backend's queue, first in
//! first out, is served by one of its cores, and travels back with a chip and the backend's load, where
//! asked for. Policies that probe are answered after a round trip. Clients may give up. How much work a
//! request is, is drawn on arrival from a stream of its own: runs that differ in policy only share their
//! rng. A timeline changes rate, speeds and weights (weight 0 and back: backends leave and come), and makes
//! backends fail and return. A run is its seed.
//!
//! Five to eight million events a second on one core, most of it the policy's own choice.

mod address;
mod door;
mod engine;
mod hooks;
mod report;
mod shortest_delay;
#[cfg(test)]
mod tests;
mod yardsticks;

pub use door::AdmissionDoor;
pub use hooks::{Ingress, Offer, Refusal, StaticLimit, Surroundings};
pub use report::{ArenaReport, BackendReport, TypeReport, Window};
pub use shortest_delay::{InFlightBy, ShortestDelay};
pub use yardsticks::{Yardsticks, integer_weights, static_shares, yardsticks};

use std::time::Duration;

use plimsoll_admission::RetryOptions;
use plimsoll_policy::{MAX_AVOID, Policy};
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

/// Where requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// A Poisson process of [`Arena::rate_rps`], each request to a balancer drawn at random.
    Open,
    /// So many users, spread evenly over the balancers, who send one request each, wait for how it ends,
    /// think, and send the next. [`Arena::rate_rps`] is not heeded.
    Closed {
        /// How many.
        users: u32,
        /// How long they think on average, exponentially; zero for not at all.
        think: Duration,
    },
    /// The same, but a gateway sends each of their requests to a balancer drawn at random.
    Roaming {
        /// How many.
        users: u32,
        /// As above.
        think: Duration,
    },
}

impl Clients {
    /// How many users there are, and how long they think; nothing where clients are open.
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
    /// Whether the backend learns of it and drops the request while it still waits; else it is served for
    /// nobody.
    pub cancels: bool,
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
    /// What rng.
    pub seed: u64,
    /// What happens on the way, in order of time.
    pub timeline: Vec<Step>,
    /// How long the windows of [`ArenaReport::windows`] are, seconds; `None` for none.
    pub window_s: Option<f64>,
    /// Where requests come from.
    pub clients: Clients,
    /// How long clients wait; `None`: for ever.
    pub patience: Option<Patience>,
    /// A client whose request was refused for good sends it again after this time, to the same balancer, until
    /// it is served: nothing is spared by dropping, so methods that refuse can be held against those that do
    /// not. `None`: it does not come again. With more load than can be served such runs end late.
    pub comes_again: Option<Duration>,
    /// How often a request that was refused or failed is tried again, each time elsewhere, and the budgets
    /// that every balancer has for that; [`MAX_AVOID`] times at most in all.
    pub retry: RetryOptions,
    /// How many client addresses there are. Each request comes from one of them, all alike, and the hash of that
    /// address is its key. 0: requests have no key.
    pub addresses: u32,
    /// How often every balancer is told the CPU of every backend, as a registry would that watches them; `None`
    /// for never.
    pub cpu_news: Option<Duration>,
    /// Whether responses and refusals carry the backend's load.
    pub tells_load: bool,
    /// Whether [`ArenaReport::times_us`] is kept.
    pub keeps_times: bool,
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
            clients: Clients::Open,
            patience: None,
            comes_again: None,
            retry: RetryOptions::of_refusals(0),
            addresses: 0,
            cpu_news: None,
            tells_load: false,
            keeps_times: false,
        }
    }

    /// Requests per second that each backend can serve at its first speed.
    pub fn capacities_rps(&self) -> Vec<f64> {
        self.pool.iter().map(|b| b.capacity_rps(self.service_us)).collect()
    }

    /// Runs it to the end of the last request; nobody refuses.
    ///
    /// # Panics
    /// As [`Arena::run_with`].
    pub fn run(&self, balancers: &mut [Box<dyn Policy>]) -> ArenaReport {
        self.run_with(balancers, Surroundings::default())
    }

    /// Runs it to the end of the last request.
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
