use std::str::FromStr;

use plimsoll_model::{Method as BalancerMethod, MethodKind};
use plimsoll_queueing::{MmcCurve, ServiceTime};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A backend of the simulated pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackendModel {
    /// Cores.
    pub cores: u32,
    /// Speed of a core; 1 serves a mean request in the pool's service time.
    pub speed: f64,
}

impl BackendModel {
    /// The backend's exact latency curve for exponential service of this mean, microseconds.
    pub fn curve(&self, service_us: f64) -> MmcCurve {
        MmcCurve { service_us: service_us / self.speed, cores: self.cores }
    }

    /// Requests per second it can serve.
    pub fn capacity_rps(&self, service_us: f64) -> f64 {
        f64::from(self.cores) * self.speed * 1e6 / service_us
    }
}

/// How the simulated balancer picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// HAProxy's roundrobin.
    RoundRobin,
    /// HAProxy's leastconn.
    LeastConn,
}

impl Method {
    /// What its weights mean.
    pub fn kind(self) -> MethodKind {
        match self {
            Method::RoundRobin => MethodKind::Split,
            Method::LeastConn => MethodKind::InFlight,
        }
    }

    /// The method as a balancer reports it.
    pub fn describe(self) -> BalancerMethod {
        let name = match self {
            Method::RoundRobin => "roundrobin",
            Method::LeastConn => "leastconn",
        };
        BalancerMethod { name: name.to_owned(), kind: self.kind() }
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "roundrobin" => Ok(Method::RoundRobin),
            "leastconn" => Ok(Method::LeastConn),
            _ => Err(format!("{name}: expected roundrobin or leastconn")),
        }
    }
}

/// The pool that the examples call so: `paper`, one drawing of [`paper_pool`], or `small`.
///
/// # Errors
/// For any other name, a line that says what was expected.
pub fn pool_named(name: &str) -> Result<Vec<BackendModel>, String> {
    match name {
        "paper" => Ok(paper_pool(11)),
        "small" => Ok(small_pool()),
        _ => Err(format!("{name}: expected paper or small")),
    }
}

/// How service times scatter, by the name that commands and examples call it: `exponential`, `regular` (all alike) or
/// `bimodal` (one in twenty takes 19 times as long as the others).
///
/// # Errors
/// For any other name, a line that says what was expected.
pub fn service_named(name: &str) -> Result<ServiceTime, String> {
    match name {
        "exponential" => Ok(ServiceTime::Exponential),
        "regular" => Ok(ServiceTime::Deterministic),
        "bimodal" => Ok(ServiceTime::Bimodal),
        _ => Err(format!("{name}: expected exponential, regular or bimodal")),
    }
}

/// The pool of KnapsackLB's Table 3: 16 backends of one core, 8 of two, 4 of four and 2 of eight (15 %
/// faster), their speeds spread by ±40 %.
pub fn paper_pool(seed: u64) -> Vec<BackendModel> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut pool = Vec::new();
    for (count, cores) in [(16, 1), (8, 2), (4, 4), (2, 8)] {
        for _ in 0..count {
            let spread = 0.6 + 0.8 * ((rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64);
            let family = if cores == 8 { 1.15 } else { 1.0 };
            pool.push(BackendModel { cores, speed: family * spread });
        }
    }
    pool
}

/// Six unequal backends: what fits a demonstration.
pub fn small_pool() -> Vec<BackendModel> {
    [(1, 1.0), (1, 0.7), (1, 1.2), (2, 1.0), (2, 0.8), (4, 1.1)]
        .map(|(cores, speed)| BackendModel { cores, speed })
        .to_vec()
}
