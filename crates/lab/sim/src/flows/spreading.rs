//! How evenly a policy spreads connections: the maximum of a server over the mean of all, read at every tick (Cheetah
//! paper, §2.1: the *system imbalance*, and its mean over time).

use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Policy, Request};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Watch;

/// Weights computed from the servers' connections.
#[derive(Clone, Copy, Debug)]
pub struct Reweigh {
    /// At every this many ticks.
    pub every: usize,
    /// The function.
    pub weights: fn(&[u32]) -> Vec<u32>,
}

/// A policy with the connections of its servers.
pub struct Spreading {
    policy: Box<dyn Policy>,
    reweigh: Option<Reweigh>,
    rng: Xoshiro256PlusPlus,
    /// By slot.
    holders: Vec<u32>,
    /// By server.
    open: Vec<u32>,
    counted_from: Nanos,
    imbalance: f64,
    ticks: u32,
}

impl Spreading {
    /// The imbalance is read at the ticks of the run, from `counted_from` on.
    pub fn new(
        policy: Box<dyn Policy>,
        reweigh: Option<Reweigh>,
        servers: usize,
        counted_from: Nanos,
        seed: u64,
    ) -> Self {
        Spreading {
            policy,
            reweigh,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            holders: Vec::new(),
            open: vec![0; servers],
            counted_from,
            imbalance: 0.0,
            ticks: 0,
        }
    }

    /// Mean over time of the maximum over the mean, minus one, in percent.
    pub fn imbalance_percent(&self) -> f64 {
        100.0 * self.imbalance / f64::from(self.ticks.max(1))
    }
}

/// The most over the mean, less one.
pub(super) fn imbalance(open: &[u32]) -> f64 {
    let all: u64 = open.iter().map(|&n| u64::from(n)).sum();
    let most = open.iter().copied().max().unwrap_or(0);
    if all == 0 { 0.0 } else { f64::from(most) * open.len() as f64 / all as f64 - 1.0 }
}

impl Watch for Spreading {
    fn start(&mut self, slot: usize, key: u64, _counted: bool, now: Nanos) {
        let picked = self.policy.pick(&Request::with_key(key), now, &mut self.rng);
        if slot >= self.holders.len() {
            self.holders.resize(slot + 1, u32::MAX);
        }
        self.holders[slot] = picked.map_or(u32::MAX, |server| server as u32);
        if let Some(server) = picked {
            self.open[server] += 1;
            self.policy.on_start(server, now);
        }
    }

    fn end(&mut self, slot: usize, lasted: Duration, now: Nanos) {
        let server = self.holders[slot] as usize;
        if let Some(open) = self.open.get_mut(server) {
            *open -= 1;
            self.policy.on_finish(server, &Finish::success(lasted), now);
        }
    }

    fn tick(&mut self, index: usize, now: Nanos) {
        if now >= self.counted_from {
            self.imbalance += imbalance(&self.open);
            self.ticks += 1;
        }
        if let Some(reweigh) = self.reweigh.filter(|reweigh| index.is_multiple_of(reweigh.every)) {
            self.policy.set_weights(&(reweigh.weights)(&self.open));
        }
    }
}
