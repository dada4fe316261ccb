//! New flows fill cores to one level above what the flows already there will still hold.
//!
//! ```text
//! s         part of the young load that lasts:  Σ aging / Σ young, over all cores, an exponential mean
//! kept_i  = old_i + (young_i + aging_i) (1 - (1 - s) h / w)         h: the interval, at most w: the young age
//! level L:  Σ max(0, L - kept_i) / cost_i = R                        R: packets per second that start in h: Σ young h / w
//! weight_i ∝ max(0, L - kept_i) / cost_i
//! ```
//!
//! Weights act on new flows alone, so what is there is given, and the best that can be done with the rest is to
//! level it. No gain to tune, nothing to wind up. With mice that end young (s = 0) and h = w this fills above the
//! old flows alone; with flows that last (s = 1), above all load, as the least loaded core would be picked flow by flow.
//! Where the forwarder does not tell flows that age, s is taken to be 0 and h to be w. Cost: O(n log n) to sort.
//!
//! Where it fails: several forwarders with stale views would all fill the same core; flows that last long leave little
//! to move in an interval.

use crate::balance::{normalise, sane};
use crate::{Ages, Balancer, CoreLoad};

/// The least that is filled, fraction of a core: with no young flow in the last interval the next one still goes to
/// the least loaded cores.
const LEAST_FILL: f64 = 0.005;

/// Time constant of the means of young and aging load, seconds: long beside an interval's noise, short beside changes of
/// what flows are like.
const MEMORY_S: f64 = 0.5;

/// The policy.
#[derive(Clone, Debug)]
pub struct WaterFill {
    young_age: f64,
    /// Means of young and of aging load of all cores, and how much of them has been seen.
    young: f64,
    aging: f64,
    /// Load that stays on each core, and cores in its ascending order.
    kept: Vec<f64>,
    order: Vec<u32>,
}

impl Default for WaterFill {
    fn default() -> Self {
        let young_age = Ages::default().aging.as_secs_f64();
        WaterFill { young_age, young: 0.0, aging: 0.0, kept: Vec::new(), order: Vec::new() }
    }
}

impl WaterFill {
    /// The part of the young load that lasts beyond the young age, as seen lately.
    pub fn lasting(&self) -> f64 {
        if self.young > 0.0 { (self.aging / self.young).min(1.0) } else { 0.0 }
    }

    /// Sets what each core keeps; returns the packets per second that will start.
    fn keep(&mut self, interval: f64, cores: &[CoreLoad]) -> f64 {
        let sum =
            |load: fn(&CoreLoad) -> f64| cores.iter().map(|core| sane(load(core))).sum::<f64>();
        let gain = 1.0 - (-interval / MEMORY_S).exp();
        self.young += gain * (sum(|core| core.new) - self.young);
        self.aging += gain * (sum(aging) - self.aging);
        let told = cores.iter().any(|core| core.aging.is_some());
        let part = if told { (interval / self.young_age).min(1.0) } else { 1.0 };
        let stays = 1.0 - (1.0 - self.lasting()) * part;
        self.kept.clear();
        let kept = |core: &CoreLoad| sane(core.old) + (sane(core.new) + sane(aging(core))) * stays;
        self.kept.extend(cores.iter().map(kept));
        cores.iter().map(|core| sane(core.new) / cost(core)).sum::<f64>() * part
    }

    /// The level to which `rate` packets per second fill the cores.
    fn level(&self, rate: f64, cores: &[CoreLoad]) -> f64 {
        let (mut speed, mut held, mut level) = (0.0, 0.0, 0.0);
        for (place, &index) in self.order.iter().enumerate() {
            let packets = 1.0 / cost(&cores[index as usize]);
            speed += packets;
            held += self.kept[index as usize] * packets;
            level = (rate + held) / speed;
            let next = self.order.get(place + 1).map(|&next| self.kept[next as usize]);
            if next.is_none_or(|next| level <= next) {
                break;
            }
        }
        level
    }
}

fn aging(core: &CoreLoad) -> f64 {
    core.aging.unwrap_or(0.0)
}

/// A core whose cost is not known has that of any other: 1.
fn cost(core: &CoreLoad) -> f64 {
    if core.cost.is_finite() && core.cost > 0.0 { core.cost } else { 1.0 }
}

impl Balancer for WaterFill {
    fn update(&mut self, interval: f64, cores: &[CoreLoad], weights: &mut [f64]) {
        let starting = self.keep(sane(interval), cores);
        let WaterFill { order, kept, .. } = self;
        order.clear();
        order.extend((0..cores.len() as u32).filter(|&core| cores[core as usize].serves));
        order.sort_unstable_by(|&a, &b| kept[a as usize].total_cmp(&kept[b as usize]));
        let least = self.order.iter().map(|&i| LEAST_FILL / cost(&cores[i as usize]));
        let rate = starting.max(least.fold(0.0, f64::max));
        let level = self.level(rate, cores);
        for ((core, kept), weight) in cores.iter().zip(&self.kept).zip(weights.iter_mut()) {
            *weight = (level - kept).max(0.0) / cost(core);
        }
        normalise(cores, weights, 0.0);
    }
}
