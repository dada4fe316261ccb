//! The paper's cluster (§5.4), simulated: a gateway spreads requests over frontends at random, each of which
//! balances over ten backends that serve one request at a time, and knows of its own requests alone.

use plimsoll_model::Nanos;
use plimsoll_policy::{Policy, PolicyKind, Settings};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{Arena, ArenaReport, BackendModel};

use super::views::{Jsq, Judged, Truth};
use crate::Failure;

/// Backends behind the frontends.
pub const BACKENDS: usize = 10;
/// What a request takes (§5.5), milliseconds: 10 backends serve 40 requests per second.
pub const SERVICE_MS: f64 = 250.0;

/// Who picks in every frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// The shortest of all queues, which are known.
    Jsq,
    /// By what a frontend sees itself.
    By(PolicyKind),
}

/// A way of balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// For tables.
    pub name: &'static str,
    /// Who picks.
    pub balance: Balance,
}

/// The paper's ideal.
pub const JSQ: Way = Way { name: "JSQ", balance: Balance::Jsq };
/// The paper's baseline in §3: the fewest of the frontend's own requests, over all backends.
pub const LC: Way = Way { name: "LC", balance: Balance::By(PolicyKind::LeastConnections) };
/// Ways that need nothing of the backends.
pub const BLIND: [Way; 5] = [
    Way { name: "P2C LC", balance: Balance::By(PolicyKind::PowerOfN) },
    Way { name: "random", balance: Balance::By(PolicyKind::Random) },
    Way { name: "round robin", balance: Balance::By(PolicyKind::RoundRobin) },
    Way { name: "P2 by latency", balance: Balance::By(PolicyKind::PowerOfNLatency) },
    Way { name: "peak EWMA", balance: Balance::By(PolicyKind::PeakEwma) },
];

/// What one run showed.
pub struct Seen {
    /// What clients and backends saw.
    pub report: ArenaReport,
    /// How good picks were.
    pub truth: Truth,
}

/// Ten backends under open clients that ask for this part of their capacity.
pub fn open(load: f64, service: ServiceTime, requests: u32, seed: u64) -> Arena {
    let pool = vec![BackendModel { cores: 1, speed: 1.0 }; BACKENDS];
    let arena = Arena::new(pool, 1.0, requests, seed);
    let service_us = SERVICE_MS * 1e3;
    let rate_rps = load * BACKENDS as f64 / (service_us / 1e6);
    Arena { service_us, service, rate_rps, ..arena }
}

/// Runs it with so many frontends.
pub fn run(arena: &Arena, way: Way, frontends: u32) -> Result<Seen, Failure> {
    let backends = arena.pool.len();
    let warm_up_s = f64::from(arena.warm_up) / arena.rate_rps;
    let truth = Truth::new(backends, Nanos::from_secs_f64(warm_up_s));
    let one = || -> Result<Box<dyn Policy>, Failure> {
        let policy: Box<dyn Policy> = match way.balance {
            Balance::Jsq => Box::new(Jsq::new(truth.clone(), backends)),
            Balance::By(kind) => kind
                .build(&vec![1; backends], &Settings::default())
                .map_err(|e| Failure::Other(e.to_string()))?,
        };
        Ok(Box::new(Judged { policy, truth: truth.clone() }))
    };
    let mut balancers = (0..frontends).map(|_| one()).collect::<Result<Vec<_>, _>>()?;
    Ok(Seen { report: arena.run(&mut balancers), truth })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_balancer_knows_as_much_as_all_and_a_hundred_know_little() {
        let arena = open(0.9, ServiceTime::Deterministic, 60_000, 3);
        let p99 = |way, frontends| run(&arena, way, frontends).unwrap().report.p99_us;
        let (jsq, one, many) = (p99(JSQ, 100), p99(LC, 1), p99(LC, 100));
        assert!((one / jsq - 1.0).abs() < 0.05, "{one} {jsq}");
        assert!(many > 3.0 * jsq, "{many} {jsq}");
        // 36 requests per second are 90 % of 10 / 250 ms.
        assert!((arena.rate_rps - 36.0).abs() < 1e-9);
    }
}
