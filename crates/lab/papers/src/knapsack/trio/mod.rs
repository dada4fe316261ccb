//! The pool of §2.1: three backends of two cores, two alike, one with a part of their capacity.
//!
//! Clients are a fixed number, each sending its next request when it has an answer. The paper does not
//! say so, but at the rate that fills three equal backends to 80 %, two and a fifth of them would be
//! overloaded whatever the method, and the latencies it shows are finite.

pub mod others;
pub mod rig;
pub mod sweep;

use plimsoll_policy::{Policy, RoundRobin};
use plimsoll_sim::{Arena, ArenaReport, BackendModel};

use super::closed::closed;

/// Their names, in HAProxy as well: the paper's DIP-HC, twice, and DIP-LC.
pub const NAMES: [&str; 3] = ["hc-1", "hc-2", "lc"];
/// Cores of each.
pub const CORES: u32 = 2;
/// Mean service time on a core of full speed, milliseconds; exponential.
pub const SERVICE_MS: u64 = 30;

/// What was seen of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BackendSeen {
    /// The part of its cores that was busy, 0…1.
    pub cpu: f64,
    /// Mean latency of the requests it served, milliseconds.
    pub latency_ms: f64,
    /// Its part of all requests, 0…1.
    pub share: f64,
}

/// What was seen of all three.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// In the order of [`NAMES`].
    pub backends: [BackendSeen; 3],
    /// Over all requests, milliseconds.
    pub mean_ms: f64,
    /// Requests served per second.
    pub rps: f64,
    /// Requests without the answer they wanted.
    pub errors: u64,
}

impl Seen {
    /// The mean of the two equal ones.
    pub fn high(&self) -> BackendSeen {
        let [one, two, _] = self.backends;
        let requests = (one.share + two.share).max(f64::MIN_POSITIVE);
        BackendSeen {
            cpu: (one.cpu + two.cpu) / 2.0,
            latency_ms: (one.share * one.latency_ms + two.share * two.latency_ms) / requests,
            share: requests / 2.0,
        }
    }

    /// The third.
    pub fn low(&self) -> BackendSeen {
        self.backends[2]
    }

    /// How many times the third's latency is that of the others.
    pub fn latency_ratio(&self) -> f64 {
        self.low().latency_ms / self.high().latency_ms
    }
}

/// The three, the third with this part of the others' speed.
pub fn pool(ratio: f64) -> [BackendModel; 3] {
    [1.0, 1.0, ratio].map(|speed| BackendModel { cores: CORES, speed })
}

/// Answers counted in a simulation: means are good to about 1 %.
const SIMULATED: u32 = 200_000;
/// The least and the most clients that are tried.
const CLIENTS: std::ops::Range<u32> = 1..60;

/// The three as the simulator knows them. Of the rate only experiments with open clients take notice.
pub fn arena(ratio: f64, requests: u32, seed: u64) -> Arena {
    let arena = Arena::new(pool(ratio).to_vec(), 0.7, requests + requests / 20, seed);
    Arena { service_us: SERVICE_MS as f64 * 1e3, warm_up: requests / 20, ..arena }
}

/// What so many clients see under this policy, or of one central queue; simulated.
pub fn simulate(policy: Option<Box<dyn Policy>>, ratio: f64, clients: u32, seed: u64) -> Seen {
    seen(&closed(&arena(ratio, SIMULATED, seed), clients, policy))
}

fn seen(report: &ArenaReport) -> Seen {
    let mut backends = [BackendSeen::default(); 3];
    for (seen, backend) in backends.iter_mut().zip(&report.backends) {
        *seen = BackendSeen {
            cpu: backend.utilisation,
            latency_ms: backend.mean_us / 1e3,
            share: backend.share,
        };
    }
    let (mean_ms, rps) = (report.mean_us / 1e3, report.goodput_rps);
    Seen { backends, mean_ms, rps, errors: report.errors }
}

/// How many clients keep the two equal backends this busy under round robin; simulated.
pub fn clients_for(cpu: f64, ratio: f64, seed: u64) -> u32 {
    let (mut best, mut nearest) = (CLIENTS.start, f64::INFINITY);
    for clients in CLIENTS {
        let arena = arena(ratio, SIMULATED / 10, seed);
        let report = closed(&arena, clients, Some(Box::new(RoundRobin::new(&[1, 1, 1]))));
        let off = (seen(&report).high().cpu - cpu).abs();
        if off > nearest {
            break;
        }
        (best, nearest) = (clients, off);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_clients_as_make_three_equal_backends_busy() {
        let clients = clients_for(0.8, 1.0, 3);
        let seen = simulate(Some(Box::new(RoundRobin::new(&[1, 1, 1]))), 1.0, clients, 5);
        assert!((seen.high().cpu - 0.8).abs() < 0.03, "{clients}: {seen:?}");
        // As many are under way as there are clients.
        assert!((seen.rps * seen.mean_ms / 1e3 / f64::from(clients) - 1.0).abs() < 0.01);
        assert!((seen.low().share - 1.0 / 3.0).abs() < 1e-3);
    }
}
