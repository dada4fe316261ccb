//! Every method of balancing that the figures compare, on one pool at one load.
//!
//! [`simulated`] runs all of them in simulated time, under the same arrivals; [`emulated`] runs those
//! that HAProxy has, real HAProxys in front of emulated backends. Emulated and simulated backends burn no
//! CPU: their utilisation is busy cores over cores.
//!
//! ```text
//! method.rs      policies and their weights: the one list
//! both.rs        all of them simulated and emulated, as the figures take them
//! weights.rs     where weights come from, in simulation
//! simulated.rs   all of them, open and closed clients
//! emulated.rs    those of HAProxy, and Plimsoll's daemon
//! sweep.rs       what one method cuts off another's latency, over a property of the setting
//! changed/       all of them through a change of pool or traffic
//! show.rs        tables, plots and comparisons that the figures share
//! ```

mod both;
pub mod changed;
mod emulated;
mod method;
mod show;
mod simulated;
mod sweep;
mod weights;

use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{Arena, BackendModel, WorldSpec};

pub use both::Both;
pub use method::{METHODS, Method, UNWEIGHTED, Weights, lanes, method};
pub use simulated::{Size, build};
pub use sweep::Sweep;

use crate::Provenance;

/// Mean service time of a request to the pool of Table 3, on a core of speed 1: few requests per second
/// for the machine under the lab.
const SERVICE_US: f64 = 50_000.0;

/// F-series cores are 15-20 % faster (§6, set-up): the middle of that.
const SPEED_OF_F_SERIES: f64 = 1.175;

/// The pool of Table 3 as the paper measures it, at 70 %: what Figures 12 and 15 have in common.
pub fn thirty(seed: u64) -> Setting {
    Setting::table3(1.0, SPEED_OF_F_SERIES, seed)
}

/// Backends that a figure shows as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// What the figure calls them.
    pub label: String,
    /// Their places in the pool.
    pub backends: Vec<usize>,
}

/// A pool and its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The backends.
    pub pool: Vec<BackendModel>,
    /// How the figure groups them.
    pub kinds: Vec<Kind>,
    /// Mean service time on a core of speed 1, microseconds.
    pub service_us: f64,
    /// The part of the capacity that clients ask for.
    pub load: f64,
    /// The weights of the weighted methods: what an administrator would set.
    pub administrator: Vec<u32>,
    /// How clients come.
    pub clients: Coming,
    /// Seed of everything random.
    pub seed: u64,
}

/// The clients of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coming {
    /// Simulated both ways, emulated closed: as many closed ones as open ones are in the pool in the mean
    /// when they come at the load and are split as well as a static split can.
    Both,
    /// So many closed ones; weights are learned at the load.
    Closed(u32),
}

impl Setting {
    /// The pool of Table 3: 16 backends of one core, 8 of two, 4 of four, and 2 of eight, cores of these
    /// speeds; at 70 %. An administrator sets weights by cores.
    pub fn table3(speed_of_four: f64, speed_of_eight: f64, seed: u64) -> Self {
        let types = [(16, 1, 1.0), (8, 2, 1.0), (4, 4, speed_of_four), (2, 8, speed_of_eight)];
        let (mut pool, mut kinds) = (Vec::new(), Vec::new());
        for (count, cores, speed) in types {
            let label = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
            let backends = (pool.len()..pool.len() + count).collect();
            kinds.push(Kind { label, backends });
            pool.extend(std::iter::repeat_n(BackendModel { cores, speed }, count));
        }
        let administrator = pool.iter().map(|b| b.cores).collect();
        let (service_us, load, clients) = (SERVICE_US, 0.7, Coming::Both);
        Setting { pool, kinds, service_us, load, administrator, clients, seed }
    }

    /// So many requests per second.
    pub fn rate_rps(&self) -> f64 {
        self.load * self.pool.iter().map(|b| b.capacity_rps(self.service_us)).sum::<f64>()
    }

    /// So many at the most: closed clients may find all cores idle.
    fn most_rps(&self) -> f64 {
        match self.clients {
            Coming::Both => self.rate_rps(),
            Coming::Closed(_) => self.rate_rps() / self.load,
        }
    }

    /// The same pool at another load.
    pub fn at_load(&self, load: f64) -> Self {
        Setting { load, ..self.clone() }
    }

    /// For simulations by policy.
    pub fn arena(&self, requests: u32) -> Arena {
        let mut arena = Arena::new(self.pool.clone(), self.load, requests, self.seed);
        (arena.service_us, arena.service) = (self.service_us, ServiceTime::Exponential);
        arena.rate_rps = self.rate_rps();
        arena
    }

    /// For simulations of the controller.
    pub fn world(&self, method: plimsoll_sim::Method) -> WorldSpec {
        let mut spec = WorldSpec::new(self.pool.clone(), method, self.load, self.seed);
        (spec.service_us, spec.rate_rps) = (self.service_us, self.rate_rps());
        spec
    }
}

/// How clients come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// As a Poisson process, whatever becomes of earlier ones.
    Open,
    /// So many, each of which waits for its answer before it sends again.
    Closed(u32),
}

impl Clients {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Clients::Open => "open",
            Clients::Closed(_) => "closed",
        }
    }
}

/// One type of backend under one method.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindRan {
    /// Mean latency of what it served, milliseconds; none where it served nothing.
    pub latency_ms: Option<f64>,
    /// Busy cores over cores.
    pub utilisation: f64,
    /// Its part of the requests.
    pub share: f64,
}

/// One method on one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The method.
    pub method: &'static Method,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// How clients came.
    pub clients: Clients,
    /// Requests served per second.
    pub served_rps: f64,
    /// Mean latency of all clients, milliseconds.
    pub mean_ms: f64,
    /// Its standard error, where it was measured in batches.
    pub error_ms: Option<f64>,
    /// 99th percentile, milliseconds.
    pub p99_ms: f64,
    /// Requests without an answer.
    pub errors: u64,
    /// By type, in the order of the setting.
    pub kinds: Vec<KindRan>,
    /// Some backend is asked for more than it can serve: queues, and so latencies, grow with the time
    /// that one looks on.
    pub overload: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_3_is_the_papers() {
        let setting = Setting::table3(0.8, 1.15, 1);
        assert_eq!(setting.pool.len(), 30);
        assert_eq!(setting.pool.iter().map(|b| b.cores).sum::<u32>(), 64);
        let last = setting.kinds.last().unwrap();
        assert_eq!((last.label.as_str(), &last.backends[..]), ("8 cores", &[28, 29][..]));
        let arena = setting.arena(1000);
        assert!((arena.rate_rps * SERVICE_US / 1e6 - 0.7 * 63.2).abs() < 1e-9);
        let world = setting.world(plimsoll_sim::Method::RoundRobin);
        assert!((world.rate_rps - arena.rate_rps).abs() < 1e-9);
    }
}
