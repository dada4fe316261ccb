//! Expected delay.

mod learner;
mod levels;

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::{Ending, Finish, Policy, Request};
use learner::{Learner, Pool};

/// How many times as dear as service time waiting is.
const WAIT: f32 = 3.0;
const OCCUPANCY: f32 = 0.03;

/// The least expected delay.
pub struct ExpectedDelay {
    weights: Vec<u32>,
    in_flight: Vec<u32>,
    learners: Vec<Learner>,
    keys: Vec<f32>,
    pool: Pool,
    finishes: u64,
    /// The next backend to be looked at again.
    cursor: usize,
    pub wait: f32,
}

impl ExpectedDelay {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        let mut policy = ExpectedDelay {
            weights: Vec::new(),
            in_flight: Vec::new(),
            learners: Vec::new(),
            keys: Vec::new(),
            pool: Pool { service_us: None, noise: 1.0 },
            finishes: 0,
            cursor: 0,
            wait: WAIT,
        };
        policy.set_weights(weights);
        policy
    }

    fn rekey(&mut self, i: usize) {
        let open = self.weights[i] > 0;
        let learner = &self.learners[i];
        let s = learner.service_us().unwrap_or(self.pool.service_us.unwrap_or(1_000.0));
        let n = self.in_flight[i] as f32 + 1.0;
        let occupied = n / learner.cores();
        self.keys[i] = if open {
            s * (1.0 + self.wait * (occupied - 1.0).max(0.0) + OCCUPANCY * occupied)
        } else {
            f32::INFINITY
        };
    }
    /// debug
    pub fn dump(&self) -> String {
        self.learners.iter().map(|l| format!("{:.1}x{} ", l.service_us().unwrap_or(0.0)/1e3, l.cores())).collect()
    }
}

impl Policy for ExpectedDelay {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        let n = weights.len().max(self.learners.len());
        self.weights.resize(n, 0);
        self.in_flight.resize(n, 0);
        self.learners.resize_with(n, Learner::new);
        self.keys.resize(n, 0.0);
        (0..n).for_each(|i| self.rekey(i));
    }

    fn pick(&mut self, request: &Request<'_>, _now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let n = self.keys.len();
        if n == 0 { return None; }
        let r = rng.next_u64() as usize % n;
        let (mut best, mut at) = (f32::INFINITY, None);
        for k in 0..n {
            let i = if k + r < n { k + r } else { k + r - n };
            if self.keys[i] < best && request.allows(i) {
                (best, at) = (self.keys[i], Some(i));
            }
        }
        at
    }

    fn on_start(&mut self, backend: usize, now: Nanos) {
        self.learners[backend].start(self.in_flight[backend], now);
        self.in_flight[backend] += 1;
        self.rekey(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight[backend] = self.in_flight[backend].saturating_sub(1);
        let took_ns = finish.latency.as_nanos() as u64;
        let found = self.learners[backend].found(took_ns, now);
        if let (Ending::Success, Some(found)) = (finish.ending, found) {
            self.learners[backend].success(found, took_ns as f32 / 1e3, &self.pool);
        }
        self.finishes += 1;
        self.cursor = if self.cursor + 1 < self.learners.len() { self.cursor + 1 } else { 0 };
        let next = self.cursor;
        self.learners[next].round(&self.pool);
        self.rekey(next);
        if self.finishes % 64 == 0 {
            let (mut sum, mut weight, mut us, mut k) = (0.0, 0.0, 0.0, 0.0);
            for l in &self.learners {
                let (n, noise) = l.noise();
                sum += n * noise; weight += n;
                if let Some(s) = l.service_us() { us += s; k += 1.0; }
            }
            self.pool.noise = ((sum + 100.0) / (weight + 100.0)).max(0.05);
            if k > 0.0 { self.pool.service_us = Some(us / k); }
        }
        self.rekey(backend);
    }
}
