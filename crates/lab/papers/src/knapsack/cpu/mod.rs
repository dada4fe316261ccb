//! Four equal backends of which one loses a quarter of its capacity (§6.5), and which balancers even that out.

pub mod agents;
pub mod controller;

use plimsoll_model::Curve;
use plimsoll_sim::BackendModel;

use super::baselines::changed::Happening;
use super::baselines::{Coming, Kind, Setting};
use crate::Provenance;

/// Mean service time at full speed, microseconds.
pub const SERVICE_US: f64 = 30_000.0;
/// A part of the capacity of the four while they are equal; the paper does not give it, and §6 has this.
pub const LOAD: f64 = 0.7;
/// The one that is slowed, and to what.
pub const SLOWED: (usize, f64) = (3, 0.75);
/// What counts as about the same utilisation: greatest less least, a part of capacity.
pub const SAME: f64 = 0.05;
/// Weights are good when the mean client waits at most this part longer than under the best ones …
pub const NEAR: f64 = 0.03;
/// … and keep being so for this long.
const LASTING_S: f64 = 30.0;

/// Four of four cores, so that a quarter is a core.
pub fn pool() -> Vec<BackendModel> {
    vec![BackendModel { cores: 4, speed: 1.0 }; 4]
}

/// The same afterwards.
pub fn pool_after() -> Vec<BackendModel> {
    let mut pool = pool();
    pool[SLOWED.0].speed = SLOWED.1;
    pool
}

/// What each can serve afterwards, requests per second.
pub fn capacities_after() -> Vec<f64> {
    pool_after().iter().map(|b| b.capacity_rps(SERVICE_US)).collect()
}

/// Before, for every method; an administrator's weights are equal.
pub fn setting(seed: u64) -> Setting {
    let kind = |i: usize| Kind { label: format!("backend {}", i + 1), backends: vec![i] };
    Setting {
        pool: pool(),
        kinds: (0..pool().len()).map(kind).collect(),
        service_us: SERVICE_US,
        load: LOAD,
        administrator: pool().iter().map(|b| b.cores).collect(),
        clients: Coming::Both,
        seed,
    }
}

/// What happens, for every method.
pub fn happening() -> Happening {
    Happening { slows: vec![SLOWED], traffic: 1.0, ..Happening::default() }
}

/// Requests per second, before and after.
pub fn rate_rps() -> f64 {
    LOAD * pool().iter().map(|b| b.capacity_rps(SERVICE_US)).sum::<f64>()
}

/// What one way did in one run after the change.
#[derive(Clone, Debug)]
pub struct Track {
    /// Where its numbers come from.
    pub provenance: Provenance,
    /// The weights programmed, each with the seconds since the change.
    pub weights: Vec<(f64, Vec<u32>)>,
    /// When it held its backends for even, or its work for done.
    pub stopped_s: Option<f64>,
    /// Iterations until then, or plans.
    pub iterations: usize,
    /// How long the run was after the change, seconds.
    pub end_s: f64,
    /// Clients' mean over the last minute, milliseconds.
    pub later_ms: f64,
}

impl Track {
    /// The spread of true utilisation over time: what these weights make of the true capacities, free of
    /// noise.
    pub fn spreads(&self) -> Vec<(f64, f64)> {
        self.weights.iter().map(|(at, weights)| (*at, spread(weights))).collect()
    }

    /// From when on the true utilisation is about the same everywhere; nothing where it never is for long.
    pub fn even_s(&self) -> Option<f64> {
        settled(self.spreads().into_iter().map(|(at, spread)| (at, spread <= SAME)), self.end_s)
    }

    /// From when on the mean client waits about as little as under the best weights, by the true curves.
    pub fn good_s(&self, best_us: f64) -> Option<f64> {
        let good = |weights: &[u32]| mean_us(&shares(weights)) <= (1.0 + NEAR) * best_us;
        settled(self.weights.iter().map(|(at, weights)| (*at, good(weights))), self.end_s)
    }
}

/// The first time from which on it is so for long. The last state lasts to the end.
fn settled(states: impl Iterator<Item = (f64, bool)>, end_s: f64) -> Option<f64> {
    let mut since: Option<f64> = None;
    for (at, good) in states {
        if since.is_some_and(|since| at - since >= LASTING_S) {
            return since;
        }
        since = if good { since.or(Some(at)) } else { None };
    }
    since.filter(|since| end_s - since >= LASTING_S)
}

fn shares(weights: &[u32]) -> Vec<f64> {
    let sum = f64::from(weights.iter().sum::<u32>());
    weights.iter().map(|&w| f64::from(w) / sum).collect()
}

/// What the mean client waits under this split of Poisson arrivals, by the true curves, microseconds.
pub fn mean_us(shares: &[f64]) -> f64 {
    let one = |(share, b): (&f64, BackendModel)| {
        let curve = b.curve(SERVICE_US);
        let rps = share * rate_rps();
        if rps < curve.capacity() { share * curve.latency_at(rps) } else { f64::INFINITY }
    };
    shares.iter().zip(pool_after()).map(one).sum()
}

/// Greatest less least utilisation under these weights, by true capacities.
fn spread(weights: &[u32]) -> f64 {
    let used = |(share, b): (f64, BackendModel)| share * rate_rps() / b.capacity_rps(SERVICE_US);
    let used: Vec<f64> = shares(weights).into_iter().zip(pool_after()).map(used).collect();
    let most = used.iter().copied().fold(0.0, f64::max);
    most - used.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Where even utilisation is: in proportion to capacity.
pub fn even_shares() -> Vec<f64> {
    let sum: f64 = pool_after().iter().map(|b| b.speed).sum();
    pool_after().iter().map(|b| b.speed / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_is_in_proportion_to_capacity_and_must_last() {
        assert!(spread(&[100, 100, 100, 75]) < 1e-12);
        assert!((spread(&[1, 1, 1, 1]) - (0.7 / 0.75 - 0.7)).abs() < 1e-12);
        let weights = |at, w| (at, vec![100, 100, 100, w]);
        let track = Track {
            provenance: Provenance::Simulated,
            weights: vec![weights(0.0, 100), weights(1.0, 75), weights(2.0, 90), weights(40.0, 76)],
            stopped_s: None,
            iterations: 0,
            end_s: 70.0,
            later_ms: 0.0,
        };
        assert_eq!(track.even_s(), Some(40.0));
        assert_eq!(track.good_s(mean_us(&even_shares())), Some(40.0));
        assert_eq!(track.good_s(0.5 * mean_us(&even_shares())), None);
        // What was so for long stays so, whatever comes later.
        let states = [(1.0, true), (2.0, true), (35.0, false)];
        assert_eq!(settled(states.into_iter(), 40.0), Some(1.0));
        // What begins at the very end says nothing.
        assert_eq!(settled([(39.0, true)].into_iter(), 40.0), None);
    }
}
