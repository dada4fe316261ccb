//! Problems for the solvers: pools whose curves are known, and the menus that the paper makes of them.
//!
//! A backend of c cores is a queue (Sakasegawa's approximation of M/M/c), latency over its rate; a
//! weight is the part of the whole traffic. `w_max` is where latency has grown five-fold, the paper's sign of overload (§4.3).

use plimsoll_model::Curve;
use plimsoll_pack::{Choice, CurveBackend, CurveProblem};
use plimsoll_queueing::QueueCurve;
use plimsoll_sim::{BackendModel, paper_pool};

/// Integer units of weight for the whole traffic.
pub const UNITS: i64 = 1_000_000_000;
/// The paper's load in §6.7: a part of the capacity.
pub const LOAD: f64 = 0.8;
/// A backend counts as overloaded from this multiple of its idle latency on (§4.3).
const OVERLOADED: f64 = 5.0;
/// How far the second step looks around the first, as a part of `w_max` (§4.4).
const AROUND: f64 = 0.1;
/// The part of capacity up to which a curve is believed beyond that.
const EXTRAPOLATED: f64 = 0.985;
/// Mean service time on one core of speed 1, microseconds. Only ratios matter here.
const SERVICE_US: f64 = 30_000.0;
/// Steps through the thirty backends of Table 3 such that every size comes early; prime to 30.
const STRIDE: usize = 7;
/// Cores of the backends that are all alike: the paper's F-series machines.
const CORES: u32 = 8;

/// A pool under load.
pub struct Instance {
    curves: Vec<QueueCurve>,
    /// The most that each may get, requests per second.
    limits: Vec<f64>,
    /// What comes, requests per second.
    pub total_rps: f64,
}

impl Instance {
    /// Backends of the paper's fastest type, all alike.
    pub fn alike(backends: usize) -> Self {
        Self::of(vec![curve(&BackendModel { cores: CORES, speed: 1.0 }); backends])
    }

    /// The mix of Table 3, repeated: sizes 1, 2, 4 and 8 cores, speeds ±40 %. Any number of them has
    /// about the same mix.
    pub fn mixed(backends: usize, seed: u64) -> Self {
        let models = (0u64..).flat_map(|round| {
            let pool = paper_pool(seed.wrapping_add(round));
            (0..pool.len()).map(|i| pool[i * STRIDE % pool.len()]).collect::<Vec<_>>()
        });
        Self::of(models.take(backends).map(|model| curve(&model)).collect())
    }

    fn of(curves: Vec<QueueCurve>) -> Self {
        let total_rps = LOAD * curves.iter().map(Curve::capacity).sum::<f64>();
        let limits = curves.iter().map(most_rps).collect();
        Instance { curves, limits, total_rps }
    }

    /// Lets weights grow to 98.5 % of capacity, whatever the latency there: what is done for a pool
    /// whose load cannot be carried otherwise.
    pub fn extrapolate(&mut self) {
        self.limits = self.curves.iter().map(|curve| EXTRAPOLATED * curve.capacity()).collect();
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
        pairs.map(|(curve, &most)| self.menu(curve, (0.0, most), points)).collect()
    }

    /// So many weights between 0 and the whole traffic for each (Fig. 8). Beyond its capacity a backend
    /// has no latency: such weights get one that grows steeply, and that no packing takes if another
    /// remains.
    pub fn whole_range_menus(&self, points: usize) -> Vec<Vec<Choice>> {
        self.curves.iter().map(|curve| self.menu(curve, (0.0, self.total_rps), points)).collect()
    }

    /// So many weights for each within 10 % of its `w_max` around what it was given: the second step
    /// (§4.4).
    pub fn menus_around(&self, weights: &[i64], points: usize) -> Vec<Vec<Choice>> {
        let pairs = self.curves.iter().zip(&self.limits).zip(weights);
        pairs
            .map(|((curve, &most), &weight)| {
                let middle = weight as f64 / UNITS as f64 * self.total_rps;
                let range = ((middle - AROUND * most).max(0.0), (middle + AROUND * most).min(most));
                self.menu(curve, range, points)
            })
            .collect()
    }

    fn menu(&self, curve: &QueueCurve, (from, to): (f64, f64), points: usize) -> Vec<Choice> {
        let choice = |i: usize| {
            let rps = from + (to - from) * i as f64 / (points - 1) as f64;
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

fn curve(model: &BackendModel) -> QueueCurve {
    let (service_us, cores) = (SERVICE_US / model.speed, f64::from(model.cores));
    QueueCurve { service_us, cores, variability: 1.0 }
}

/// The greatest rate before latency has grown five-fold.
fn most_rps(curve: &QueueCurve) -> f64 {
    let (mut good, mut bad) = (0.0, curve.capacity());
    let bound = OVERLOADED * curve.latency_at(0.0);
    for _ in 0..60 {
        let middle = (good + bad) / 2.0;
        if curve.latency_at(middle) < bound { good = middle } else { bad = middle }
    }
    good
}

fn finite_latency(curve: &QueueCurve, rps: f64) -> f64 {
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
