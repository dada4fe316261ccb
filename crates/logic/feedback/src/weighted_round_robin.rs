//! Fixed shares: the weights that it is given at first, between the cores that serve.
//!
//! The paper's static baseline. A core that joins gets an equal share.

use crate::balance::normalise;
use crate::{Balancer, CoreLoad};

/// The policy, with the shares that it keeps.
#[derive(Clone, Debug, Default)]
pub struct WeightedRoundRobin {
    shares: Vec<f64>,
}

impl WeightedRoundRobin {
    /// With these shares, in any unit.
    pub fn new(shares: &[f64]) -> Self {
        WeightedRoundRobin { shares: shares.to_vec() }
    }
}

impl Balancer for WeightedRoundRobin {
    fn update(&mut self, _interval: f64, cores: &[CoreLoad], weights: &mut [f64]) {
        for (index, weight) in weights.iter_mut().enumerate() {
            *weight = self.shares.get(index).copied().unwrap_or(1.0);
        }
        normalise(cores, weights, 0.0);
    }
}
