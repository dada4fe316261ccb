//! A draw in proportion to weight; knows nothing of load. O(log n).
//!
//! Each backend sees its part of a Poisson stream as a Poisson stream, so queues are longer than under
//! round robin, which spaces arrivals evenly. It needs no state at all: any number of balancers do as
//! well as one.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{Sampler, Taken};
use crate::{Policy, Request};

/// A draw in proportion to weight.
pub struct Random {
    sampler: Sampler,
}

impl Random {
    /// Over backends of these weights.
    pub fn new(weights: &[u32]) -> Self {
        Random { sampler: Sampler::new(weights.iter().copied()) }
    }
}

impl Policy for Random {
    fn set_weights(&mut self, weights: &[u32]) {
        self.sampler.set(weights.iter().copied());
    }

    fn pick(&mut self, request: &Request<'_>, _now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        self.sampler.draw(&mut Taken::new(request), rng)
    }
}
