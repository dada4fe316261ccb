//! What §6.4 and §6.5 share: the pool of Table 3, what happens to it, and what reacts to that.

pub mod emulated;
pub mod episode;
pub mod optimum;
pub mod quiet;
pub mod seen;
pub mod tables;

use std::ops::Range;

use plimsoll_control::{DriftTest, ServiceSpec};
use plimsoll_sim::knapsack::ExploreMode;
use plimsoll_sim::{BackendModel, Method, World};

use super::baselines::changed::Happening;
use super::baselines::{Setting, thirty};

/// Mean service time on a core of speed 1 in simulated runs, microseconds.
pub const SERVICE_US: f64 = 30_000.0;
/// The paper's load (§6): a part of the capacity.
pub const LOAD: f64 = 0.7;
/// Backends that fail in Fig. 16(a): DIP-25 and DIP-26.
pub const FAILING: Range<usize> = 24..26;
/// Backends that lose a core in Fig. 16(b): DIP-25 to DIP-28.
pub const SHRINKING: Range<usize> = 24..28;
/// What is left of those: three of four cores.
pub const SHRUNK: f64 = 0.75;
/// What traffic grows by in Fig. 17.
pub const GROWN: f64 = 1.1;

/// The types of Table 3, with the two that fail apart from the two of their type that do not.
pub const GROUPS: [(&str, Range<usize>); 5] = [
    ("1-16 (1 core)", 0..16),
    ("17-24 (2 cores)", 16..24),
    ("25, 26 (4 cores)", 24..26),
    ("27, 28 (4 cores)", 26..28),
    ("29, 30 (8 cores)", 28..30),
];

/// The pool of Table 3 at the paper's load.
pub fn setting(seed: u64) -> Setting {
    Setting { service_us: SERVICE_US, load: LOAD, ..thirty(seed) }
}

/// Its backends: equal within a type, as the paper's virtual machines are meant to be.
pub fn table3() -> Vec<BackendModel> {
    thirty(0).pool
}

/// What a pool can serve, requests per second.
pub fn capacity_rps(pool: &[BackendModel]) -> f64 {
    pool.iter().map(|b| b.capacity_rps(SERVICE_US)).sum()
}

/// What happens to the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disturbance {
    /// Nothing: for false alarms.
    Nothing,
    /// DIP-25 and DIP-26 die.
    Failure,
    /// DIP-25 to DIP-28 go on with three quarters of their capacity.
    Capacity,
    /// A tenth more requests.
    Traffic,
}

impl Disturbance {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Disturbance::Nothing => "nothing",
            Disturbance::Failure => "25 and 26 fail",
            Disturbance::Capacity => "25 to 28 at 75 %",
            Disturbance::Traffic => "traffic +10 %",
        }
    }

    /// The backends that it concerns itself with.
    pub fn concerned(self) -> Range<usize> {
        match self {
            Disturbance::Failure => FAILING,
            Disturbance::Capacity => SHRINKING,
            Disturbance::Nothing | Disturbance::Traffic => 0..0,
        }
    }

    /// The pool afterwards, without the dead, each with its place in the pool before.
    pub fn pool_after(self) -> Vec<(usize, BackendModel)> {
        let concerned = self.concerned();
        let after = |(i, b): (usize, BackendModel)| match self {
            Disturbance::Failure if concerned.contains(&i) => None,
            Disturbance::Capacity if concerned.contains(&i) => {
                Some((i, BackendModel { speed: SHRUNK * b.speed, ..b }))
            }
            _ => Some((i, b)),
        };
        table3().into_iter().enumerate().filter_map(after).collect()
    }

    /// The same for every method.
    pub fn happening(self) -> Happening {
        let concerned = self.concerned();
        let (dies, slows) = match self {
            Disturbance::Failure => (concerned.collect(), Vec::new()),
            _ => (Vec::new(), concerned.map(|i| (i, SHRUNK)).collect()),
        };
        Happening { dies, slows, traffic: self.traffic() }
    }

    /// How many times as many requests come afterwards.
    fn traffic(self) -> f64 {
        if self == Disturbance::Traffic { GROWN } else { 1.0 }
    }

    /// Whether a plan for so much traffic, if that is known, may be the answer to it, where so much came
    /// before, both requests per second. More traffic is answered by plans for most of what is more; of
    /// other changes the rate tells nothing.
    pub fn may_be_answered_by(self, planned_rps: Option<f64>, before_rps: f64) -> bool {
        let half_rps = (1.0 + self.traffic()) / 2.0 * before_rps;
        self != Disturbance::Traffic || planned_rps.is_some_and(|rps| rps > half_rps)
    }

    /// Requests per second afterwards.
    pub fn rate_after(self) -> f64 {
        self.traffic() * LOAD * capacity_rps(&table3())
    }
}

/// What sets the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// Plimsoll with every default.
    Plimsoll,
    /// The same without any test for changes.
    Untested,
    /// KnapsackLB's own controller: its exploration with the stopping rule mended, curves of degree two, the bare
    /// threshold of ±20 % on latency, the least unweighted sum of latencies.
    PaperMended,
    /// The same with Algorithm 1 as printed.
    PaperPrinted,
    /// No controller: the weights that Plimsoll had before.
    Frozen,
    /// The same, but the balancer's own health check takes dead backends out; the others share their
    /// traffic by the weights they have.
    HealthCheck,
}

impl Steering {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Steering::Plimsoll => "Plimsoll",
            Steering::Untested => "Plimsoll, no test",
            Steering::PaperMended => "KnapsackLB, mended",
            Steering::PaperPrinted => "KnapsackLB, as printed",
            Steering::Frozen => "frozen weights",
            Steering::HealthCheck => "frozen, health check",
        }
    }

    /// Starts its controller; false where there is none.
    pub fn attach(self, world: &mut World) -> bool {
        let default = world.service_spec();
        match self {
            Steering::Plimsoll => world.attach(default, None),
            Steering::Untested => {
                world.attach(ServiceSpec { drift: DriftTest::Off, ..default }, None);
            }
            Steering::PaperMended => world.attach_knapsack(ExploreMode::Bisect),
            Steering::PaperPrinted => world.attach_knapsack(ExploreMode::Literal),
            Steering::Frozen | Steering::HealthCheck => return false,
        }
        true
    }
}

/// What sets the weights, and HAProxy's method; a quick run has the first two. The first five are plotted.
pub const STEERINGS: [(Method, Steering); 8] = [
    (Method::RoundRobin, Steering::Plimsoll),
    (Method::RoundRobin, Steering::Frozen),
    (Method::RoundRobin, Steering::HealthCheck),
    (Method::LeastConn, Steering::Plimsoll),
    (Method::LeastConn, Steering::Frozen),
    (Method::RoundRobin, Steering::Untested),
    (Method::RoundRobin, Steering::PaperMended),
    (Method::RoundRobin, Steering::PaperPrinted),
];

/// For tables.
pub fn method_name(method: Method) -> &'static str {
    match method {
        Method::RoundRobin => "roundrobin",
        Method::LeastConn => "leastconn",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_that_of_table_3_and_changes_as_the_paper_says() {
        let pool = table3();
        let cores: u32 = pool.iter().map(|b| b.cores).sum();
        assert_eq!((pool.len(), cores), (30, 64));
        assert!(FAILING.chain(SHRINKING).all(|i| pool[i].cores == 4));
        assert_eq!(Disturbance::Failure.pool_after().len(), 28);
        let after: Vec<BackendModel> =
            Disturbance::Capacity.pool_after().into_iter().map(|(_, b)| b).collect();
        // Four cores are gone.
        let lost = capacity_rps(&pool) - capacity_rps(&after);
        assert!((lost - 4.0 * 1e6 / SERVICE_US).abs() < 1e-9);
        assert_eq!(GROUPS.map(|(_, range)| range.len()).iter().sum::<usize>(), 30);
    }

    #[test]
    fn more_traffic_is_answered_by_a_plan_for_more_of_it() {
        let answers = |what: Disturbance, rps| what.may_be_answered_by(rps, 1000.0);
        assert!(answers(Disturbance::Traffic, Some(1060.0)));
        assert!(!answers(Disturbance::Traffic, Some(1040.0)));
        assert!(!answers(Disturbance::Traffic, None));
        assert!(
            answers(Disturbance::Capacity, Some(1000.0)) && answers(Disturbance::Failure, None)
        );
    }
}
