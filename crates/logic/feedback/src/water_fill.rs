//! New flows fill cores to one level above what old flows hold.
//!
//! ```text
//! level L:  Σ max(0, L - old_i) / cost_i = R          R: packets per second of young flows, all cores together
//! weight_i ∝ max(0, L - old_i) / cost_i
//! ```
//!
//! Weights act on new flows alone, so what old flows hold is given, and the best that can be done with the rest is to
//! level it. No gain to tune, no state, nothing to wind up. Cost: O(n log n) to sort the cores.
//!
//! Where it fails: an elephant is young at first, and counts with what can be moved until it is old; flows that last
//! long leave little to move in an interval.

use crate::balance::{normalise, sane};
use crate::{Balancer, CoreLoad};

/// The least that is filled, fraction of a core: with no young flow in the last interval the next one still goes to
/// the least loaded cores.
const LEAST_FILL: f64 = 0.005;

/// The policy; it remembers nothing between intervals but its buffer.
#[derive(Clone, Debug, Default)]
pub struct WaterFill {
    order: Vec<u32>,
}

impl WaterFill {
    /// The level to which `rate` packets per second fill cores, given as load and cost of a packet; cores in ascending
    /// order of load.
    fn level(&self, rate: f64, cores: &[CoreLoad]) -> f64 {
        let (mut speed, mut held, mut level) = (0.0, 0.0, 0.0);
        for (place, &index) in self.order.iter().enumerate() {
            let (old, packets) =
                (sane(cores[index as usize].old), 1.0 / cost(&cores[index as usize]));
            speed += packets;
            held += old * packets;
            level = (rate + held) / speed;
            let next = self.order.get(place + 1).map(|&next| sane(cores[next as usize].old));
            if next.is_none_or(|next| level <= next) {
                break;
            }
        }
        level
    }
}

/// A core whose cost is not known has that of any other: 1.
fn cost(core: &CoreLoad) -> f64 {
    if core.cost.is_finite() && core.cost > 0.0 { core.cost } else { 1.0 }
}

impl Balancer for WaterFill {
    fn update(&mut self, _interval: f64, cores: &[CoreLoad], weights: &mut [f64]) {
        self.order.clear();
        self.order.extend((0..cores.len() as u32).filter(|&i| cores[i as usize].serves));
        self.order.sort_unstable_by(|&a, &b| {
            sane(cores[a as usize].old).total_cmp(&sane(cores[b as usize].old))
        });
        let young: f64 = cores.iter().map(|core| sane(core.new) / cost(core)).sum();
        let least = self.order.iter().map(|&i| LEAST_FILL / cost(&cores[i as usize]));
        let rate = young.max(least.fold(0.0, f64::max));
        let level = self.level(rate, cores);
        for (core, weight) in cores.iter().zip(weights.iter_mut()) {
            *weight = (level - sane(core.old)).max(0.0) / cost(core);
        }
        normalise(cores, weights, 0.0);
    }
}
