//! New flows in proportion to the predicted capacity that is left: `w_i ∝ max(floor, 1 - load_i)`.
//!
//! What Spotlight (SoCC '18) does with the capacity that servers report. Where it fails: the load that it looks at is what
//! it caused itself, so with short flows it overshoots and swings between cores.

use crate::balance::{FLOOR, normalise, sane};
use crate::{Balancer, CoreLoad};

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Residual;

impl Balancer for Residual {
    fn update(&mut self, _interval: f64, cores: &[CoreLoad], weights: &mut [f64]) {
        for (core, weight) in cores.iter().zip(weights.iter_mut()) {
            *weight = (1.0 - sane(core.predicted)).max(FLOOR);
        }
        normalise(cores, weights, FLOOR);
    }
}
