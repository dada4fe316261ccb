//! Two methods of comparison that are no policies of the product, for they are told what nobody is told: every
//! backend's cores and speed.

use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Policy, Request};
use plimsoll_sim::BackendModel;
use rand::RngCore;

/// What is known of the requests that a backend has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counts {
    /// This balancer's own.
    Own,
    /// What the backend's last response to this balancer carried, and what this balancer has sent there since.
    Piggybacked,
}

/// The shortest expected delay: `s · max(1, (n + 1)/c)` for service time `s`, cores `c` and `n` in flight. Ties
/// are broken at random, or balancers that do not know of each other would all choose the same.
pub struct ShortestDelay {
    pool: Vec<BackendModel>,
    counts: Counts,
    in_flight: Vec<u32>,
}

impl ShortestDelay {
    pub fn new(pool: &[BackendModel], counts: Counts) -> Self {
        ShortestDelay { pool: pool.to_vec(), counts, in_flight: vec![0; pool.len()] }
    }

    fn delay(&self, backend: usize) -> f64 {
        let BackendModel { cores, speed } = self.pool[backend];
        let turns = f64::from(self.in_flight[backend] + 1) / f64::from(cores);
        turns.max(1.0) / speed
    }
}

impl Policy for ShortestDelay {
    fn set_weights(&mut self, _: &[u32]) {}

    fn pick(&mut self, request: &Request<'_>, _: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let (mut best, mut least, mut equals) = (None, f64::INFINITY, 0);
        for backend in (0..self.pool.len()).filter(|&backend| !request.avoided().contains(&backend))
        {
            let delay = self.delay(backend);
            equals = if delay < least { 1 } else { equals + u64::from(delay == least) };
            if delay < least || delay == least && rng.next_u64().is_multiple_of(equals) {
                (best, least) = (Some(backend), delay);
            }
        }
        best
    }

    fn on_start(&mut self, backend: usize, _: Nanos) {
        self.in_flight[backend] += 1;
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, _: Nanos) {
        let counted = &mut self.in_flight[backend];
        match (self.counts, finish.load) {
            (Counts::Piggybacked, Some(load)) => *counted = load.in_flight,
            _ => *counted = counted.saturating_sub(1),
        }
    }
}
