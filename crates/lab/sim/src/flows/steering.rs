//! Which server gets a packet.

use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{Policy, Request};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Update;

/// A method of steering packets. `None`: no server takes it.
pub trait Steering {
    /// The server of a connection's SYN.
    fn first(&mut self, slot: usize, key: u64, now: Nanos) -> Option<usize>;

    /// The server that a later packet of it would reach now.
    fn later(&mut self, slot: usize, key: u64, now: Nanos) -> Option<usize>;

    /// The connection is over.
    fn end(&mut self, _slot: usize, _server: usize, _lasted: Duration, _now: Nanos) {}

    /// The weights have changed: servers that take new connections have a weight above 0.
    fn update(&mut self, update: Update, weights: &[u32]);
}

/// A policy of the product that hashes: every packet goes where its key says.
pub struct ByKey {
    policy: Box<dyn Policy>,
    rng: Xoshiro256PlusPlus,
}

impl ByKey {
    /// This one; it sees keys alone.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        ByKey { policy, rng: Xoshiro256PlusPlus::seed_from_u64(0) }
    }
}

impl Steering for ByKey {
    fn first(&mut self, _slot: usize, key: u64, now: Nanos) -> Option<usize> {
        self.policy.pick(&Request::with_key(key), now, &mut self.rng)
    }

    fn later(&mut self, slot: usize, key: u64, now: Nanos) -> Option<usize> {
        self.first(slot, key, now)
    }

    fn update(&mut self, _update: Update, weights: &[u32]) {
        self.policy.set_weights(weights);
    }
}
