//! The paper's cluster (§5.4), simulated: a gateway spreads requests over frontends at random, each of which
//! balances over backends that serve one request at a time, and knows of its own requests alone.

use std::time::Duration;

use plimsoll_admission::{AdmissionOptions, RetryOptions};
use plimsoll_model::Nanos;
use plimsoll_policy::{Policy, Settings};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{
    AdmissionDoor, Arena, ArenaReport, BackendModel, Clients, Ingress, Patience, Surroundings,
};

use super::methods::{Balance, Method};
use super::views::{Jsq, Judged, Truth};
use crate::{Context, Failure};

/// Backends behind the frontends.
pub const BACKENDS: usize = 10;
/// What a request takes (§5.5), milliseconds: 10 backends serve 40 requests per second.
pub const SERVICE_MS: f64 = 250.0;
/// Frontends, where the paper has many.
pub const FRONTENDS: u32 = 40;
/// `hey -c 100`.
const USERS: u32 = 100;
/// From frontend to backend and back, each.
const NETWORK: Duration = Duration::from_millis(1);
/// From an answer to the user's next request, in the mean: a new connection through the gateway. The paper
/// does not give it. A refused user comes back so soon, and is refused again: it decides how many
/// requests are dropped, and is chosen so that admission alone drops the paper's third (bloc-fig12).
const BETWEEN: Duration = Duration::from_millis(150);
/// Requests are counted over windows of this length, seconds (§2).
const WINDOW_S: f64 = 2.0;

/// The clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many users, each of whom sends again when answered.
    Closed(u32),
    /// Poisson arrivals, requests per second.
    Open(f64),
}

/// A cluster and its load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// How many balance.
    pub frontends: u32,
    /// How many serve.
    pub backends: usize,
    /// What a request takes in the mean, milliseconds.
    pub service_ms: f64,
    /// How that scatters.
    pub service: ServiceTime,
    /// The clients.
    pub load: Load,
    /// From an answer to a closed user's next request, in the mean.
    pub between: Duration,
    /// How long clients wait; backends do not learn that one has gone.
    pub patience: Option<Duration>,
    /// From one to the next of these.
    pub network: Duration,
    /// How many requests.
    pub requests: u32,
    /// How many of them, the first, do not count; `None` for a tenth.
    pub warm_up: Option<u32>,
    /// Seed of everything random.
    pub seed: u64,
}

impl Cluster {
    /// The paper's: 40 frontends, ten backends of 250 ms, a hundred users.
    pub fn new(context: &Context) -> Self {
        Cluster {
            frontends: FRONTENDS,
            backends: BACKENDS,
            service_ms: SERVICE_MS,
            service: ServiceTime::Deterministic,
            load: Load::Closed(USERS),
            between: BETWEEN,
            patience: None,
            network: NETWORK,
            requests: context.pick(8_000, 200_000),
            warm_up: None,
            seed: context.seed,
        }
    }

    /// The same under Poisson arrivals.
    pub fn open(self, rate_rps: f64) -> Self {
        Cluster { load: Load::Open(rate_rps), ..self }
    }

    /// Requests per second that it can serve.
    pub fn capacity_rps(&self) -> f64 {
        self.backends as f64 * 1e3 / self.service_ms
    }

    /// What is simulated.
    pub fn arena(&self) -> Arena {
        let pool = vec![BackendModel { cores: 1, speed: 1.0 }; self.backends];
        let (rate_rps, clients) = match self.load {
            Load::Open(rate_rps) => (rate_rps, Clients::Open),
            Load::Closed(users) => {
                (self.capacity_rps(), Clients::Roaming { users, think: self.between })
            }
        };
        let arena = Arena::new(pool, 1.0, self.requests, self.seed);
        Arena {
            service_us: self.service_ms * 1e3,
            service: self.service,
            rate_rps,
            clients,
            network: self.network,
            patience: self.patience.map(|after| Patience { after, cancels: false }),
            keeps_times: true,
            window_s: Some(WINDOW_S),
            warm_up: self.warm_up.unwrap_or(arena.warm_up),
            ..arena
        }
    }
}

/// What one run showed.
#[derive(Debug)]
pub struct Seen {
    /// What clients and backends saw.
    pub report: ArenaReport,
    /// How good picks were.
    pub truth: Truth,
}

/// Runs it.
pub fn run(cluster: &Cluster, method: Method) -> Result<Seen, Failure> {
    run_in(&cluster.arena(), method, cluster.frontends)
}

/// The same in an arena that is the caller's.
pub fn run_in(arena: &Arena, method: Method, frontends: u32) -> Result<Seen, Failure> {
    let backends = arena.pool.len();
    let warm_up_s = f64::from(arena.warm_up) / arena.rate_rps;
    let truth = Truth::new(backends, Nanos::from_secs_f64(warm_up_s));
    let one = || -> Result<Box<dyn Policy>, Failure> {
        let policy: Box<dyn Policy> = match method.balance {
            Balance::Jsq => Box::new(Jsq::new(truth.clone(), backends)),
            Balance::By(kind) => kind
                .build(&vec![1; backends], &Settings::default())
                .map_err(|e| Failure::Other(e.to_string()))?,
        };
        Ok(Box::new(Judged { policy, truth: truth.clone() }))
    };
    let mut balancers = (0..frontends).map(|_| one()).collect::<Result<Vec<_>, _>>()?;
    let mut ingress: Vec<Box<dyn Ingress>> = Vec::new();
    if let Some(capacity) = method.door.capacity() {
        let options = AdmissionOptions { capacity, deadline_ms: None };
        ingress = AdmissionDoor::for_each(&arena.pool, &options)
            .map_err(|e| Failure::Other(e.to_string()))?;
    }
    let arena = Arena { retry: RetryOptions::of_refusals(method.tries - 1), ..arena.clone() };
    let around = Surroundings { ingress: &mut ingress };
    let report = arena.run_with(&mut balancers, around);
    Ok(Seen { report, truth })
}

#[cfg(test)]
mod tests {
    use plimsoll_lanes::Interrupt;

    use super::super::methods::{BLOC, JSQ, LC, P2C};
    use super::*;

    fn paper() -> Cluster {
        Cluster::new(&Context::new(3, true, Interrupt::never()))
    }

    #[test]
    fn one_balancer_knows_as_much_as_all_and_a_hundred_know_little() {
        let open = Cluster { requests: 60_000, network: Duration::ZERO, ..paper() }.open(36.0);
        let p99 =
            |method, frontends| run(&Cluster { frontends, ..open }, method).unwrap().report.p99_us;
        let (jsq, one, many) = (p99(JSQ, 100), p99(LC, 1), p99(LC, 100));
        assert!((one / jsq - 1.0).abs() < 0.05, "{one} {jsq}");
        assert!(many > 3.0 * jsq, "{many} {jsq}");
    }

    #[test]
    fn bloc_keeps_to_its_capacity_and_answers_within_a_narrower_range() {
        let range = |method| {
            let report = run(&paper(), method).unwrap().report;
            assert!(report.goodput_rps > 35.0 && report.goodput_rps <= 40.5, "{report:?}");
            (report.p90_us - report.p10_us, report.times_us.last().copied().unwrap_or(0.0))
        };
        let (blind, bloc) = (range(P2C), range(BLOC));
        assert!(bloc.0 < 0.5 * blind.0, "{bloc:?} {blind:?}");
        // Ten requests of 250 ms, and what the tries before cost.
        assert!(bloc.1 < 2.6e6 && blind.1 > 3.5e6, "{bloc:?} {blind:?}");
    }
}
