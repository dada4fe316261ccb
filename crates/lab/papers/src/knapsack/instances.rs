//! Problems for the solvers: pools whose curves are known, and the menus that the paper makes of them.
//!
//! A backend of c cores is an M/M/c queue, latency over its rate; a weight is the part of the whole
//! traffic. `w_max` is where latency has grown five-fold, the paper's sign of overload (§4.3).

use plimsoll_model::Curve;
use plimsoll_pack::{Choice, CurveBackend, CurveProblem};
use plimsoll_queueing::MmcCurve;
use plimsoll_sim::paper_pool;

/// Integer units of weight for the whole traffic.
pub const UNITS: i64 = 1_000_000_000;
/// The paper's load in §6.7: a part of the capacity.
pub const LOAD: f64 = 0.8;
/// A backend counts as overloaded from this multiple of its idle latency on (§4.3).
const OVERLOADED: f64 = 5.0;
/// Mean service time on one core of speed 1, microseconds. Only ratios matter here.
const SERVICE_US: f64 = 30_000.0;
/// Cores of the backends that are all alike: the paper's F-series machines.
const CORES: u32 = 8;

/// A pool under load.
pub struct Instance {
    curves: Vec<MmcCurve>,
    /// The most that each may get, requests per second.
    limits: Vec<f64>,
    /// What comes, requests per second.
    pub total_rps: f64,
}

impl Instance {
    /// Backends of the paper's fastest type, all alike.
    pub fn alike(backends: usize) -> Self {
        Self::of(vec![MmcCurve { service_us: SERVICE_US, cores: CORES }; backends])
    }

    /// The mix of Table 3, repeated: sizes 1, 2, 4 and 8 cores, speeds ±40 %.
    pub fn mixed(backends: usize, seed: u64) -> Self {
        let models = (0u64..).flat_map(|round| paper_pool(seed.wrapping_add(round)));
        Self::of(models.take(backends).map(|model| model.curve(SERVICE_US)).collect())
    }

    fn of(curves: Vec<MmcCurve>) -> Self {
        let total_rps = LOAD * curves.iter().map(Curve::capacity).sum::<f64>();
        let limits = curves.iter().map(most_rps).collect();
        Instance { curves, limits, total_rps }
    }

    /// For the continuous solver.
    pub fn backends(&self) -> Vec<CurveBackend<'_>> {
        let pairs = self.curves.iter().zip(&self.limits);
        pairs.map(|(curve, &max_load)| CurveBackend { curve, max_load }).collect()
    }

    /// The problem of these backends.
    pub fn problem<'a>(&self, backends: &'a [CurveBackend<'a>]) -> CurveProblem<'a> {
        CurveProblem { backends, total: self.total_rps, theta: None }
    }

    /// So many weights between 0 and `w_max` for each (§4.4).
    pub fn menus(&self, points: usize) -> Vec<Vec<Choice>> {
        let pairs = self.curves.iter().zip(&self.limits);
        pairs.map(|(curve, &most)| self.menu(curve, most, points)).collect()
    }

    /// So many weights between 0 and the whole traffic for each (Fig. 8). Beyond its capacity a backend
    /// has no latency: such weights get one that grows steeply, and that no packing takes if another
    /// remains.
    pub fn whole_range_menus(&self, points: usize) -> Vec<Vec<Choice>> {
        self.curves.iter().map(|curve| self.menu(curve, self.total_rps, points)).collect()
    }

    fn menu(&self, curve: &MmcCurve, most_rps: f64, points: usize) -> Vec<Choice> {
        let choice = |i: usize| {
            let rps = most_rps * i as f64 / (points - 1) as f64;
            let weight = (rps / self.total_rps * UNITS as f64).round() as i64;
            Choice { weight, cost: finite_latency(curve, rps) }
        };
        (0..points).map(choice).collect()
    }

    /// Whether one of these weights is more than its backend can serve at all.
    pub fn overloads(&self, weights: &[i64]) -> bool {
        let rps = |weight: i64| weight as f64 / UNITS as f64 * self.total_rps;
        weights.iter().zip(&self.curves).any(|(&w, curve)| rps(w) >= curve.capacity())
    }
}

/// The greatest rate before latency has grown five-fold.
fn most_rps(curve: &MmcCurve) -> f64 {
    let (mut good, mut bad) = (0.0, curve.capacity());
    let bound = OVERLOADED * curve.latency_at(0.0);
    for _ in 0..60 {
        let middle = (good + bad) / 2.0;
        if curve.latency_at(middle) < bound { good = middle } else { bad = middle }
    }
    good
}

fn finite_latency(curve: &MmcCurve, rps: f64) -> f64 {
    let most = 1e3 * curve.latency_at(0.0);
    if rps < curve.capacity() {
        curve.latency_at(rps).min(most)
    } else {
        most * (1.0 + rps / curve.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn menus_reach_the_load_and_end_where_latency_has_grown_five_fold() {
        let instance = Instance::mixed(40, 3);
        let menus = instance.menus(10);
        let most: i64 = menus.iter().map(|menu| menu[9].weight).sum();
        assert!(most > UNITS && menus.iter().all(|menu| menu.len() == 10 && menu[0].weight == 0));
        for (menu, curve) in menus.iter().zip(&instance.curves) {
            assert!((menu[9].cost / curve.latency_at(0.0) - 5.0).abs() < 1e-6);
        }
    }

    #[test]
    fn a_weight_beyond_the_capacity_is_an_overload() {
        let instance = Instance::alike(10);
        // Capacity is an eighth of the traffic: 1 / (10 · 0.8).
        let share = |part: f64| (part * UNITS as f64) as i64;
        assert!(!instance.overloads(&[share(0.124); 10]));
        assert!(instance.overloads(&[share(0.01), share(0.126)]));
        let menu = &instance.whole_range_menus(11)[0];
        assert!(menu.windows(2).all(|pair| pair[0].cost < pair[1].cost));
        assert_eq!(menu[10].weight, UNITS);
    }
}
