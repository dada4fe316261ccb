//! The paper's family (KnapsackLB §4.2): polynomial regression of degree two, then the running maximum,
//! so that latency never falls as load grows.
//!
//! Plain least squares as printed: no weights. Cost O(points). It fails near saturation, where latency
//! has a pole and a parabola has none: at 80 % load and 5 % noise it costs clients about a sixth of
//! their mean on M/M/c backends. A polynomial has no capacity either: it ends where measurements do.

use plimsoll_model::Curve;
use serde::{Deserialize, Serialize};

use crate::hyperbola::Weighted;

/// `max over 0 ≤ z ≤ x of k0 + k1·z + k2·z²`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Poly2 {
    /// Coefficients of 1, x and x²: microseconds per power of the unit of load.
    pub coefficients: [f64; 3],
    /// Lower bound of the curve, microseconds: the regression may fall below zero.
    pub floor_us: f64,
    /// Where the curve ends: just past the greatest measured load.
    pub capacity: f64,
}

impl Poly2 {
    /// Fits points of at least one distinct load; two loads give a line, one a constant.
    pub(crate) fn fit(points: &[Weighted], capacity: f64) -> Poly2 {
        let scale = points.last().map_or(1.0, |p| p.load).max(f64::MIN_POSITIVE);
        let mut moments = [0.0; 5];
        let mut targets = [0.0; 3];
        for point in points {
            let x = point.load / scale;
            let mut power = 1.0;
            for (k, moment) in moments.iter_mut().enumerate() {
                *moment += power;
                if let Some(target) = targets.get_mut(k) {
                    *target += power * point.latency;
                }
                power *= x;
            }
        }
        let [k0, k1, k2] = regress(&moments, &targets, points.len().min(3));
        let least = points.iter().map(|p| p.latency).fold(f64::INFINITY, f64::min);
        Poly2 {
            coefficients: [k0, k1 / scale, k2 / (scale * scale)],
            // 1 % of the least measured latency: positive, and too low to affect the paper's curve.
            floor_us: 0.01 * least,
            capacity,
        }
    }

    /// The same curve with the load axis stretched by `factor`.
    pub fn rescaled_load(&self, factor: f64) -> Poly2 {
        let [k0, k1, k2] = self.coefficients;
        Poly2 {
            coefficients: [k0, k1 / factor, k2 / (factor * factor)],
            floor_us: self.floor_us,
            capacity: self.capacity * factor,
        }
    }

    /// The running maximum at `load`, and its derivative.
    fn value_and_slope(&self, load: f64) -> (f64, f64) {
        let [k0, k1, k2] = self.coefficients;
        let at = |x: f64| k0 + k1 * x + k2 * x * x;
        let turn = if k2 == 0.0 { 0.0 } else { -k1 / (2.0 * k2) };
        let (value, slope) = if k2 < 0.0 && turn > 0.0 && load > turn {
            (at(turn), 0.0)
        } else if at(load) >= at(0.0) {
            (at(load), (k1 + 2.0 * k2 * load).max(0.0))
        } else {
            (at(0.0), 0.0)
        };
        if value < self.floor_us { (self.floor_us, 0.0) } else { (value, slope) }
    }
}

impl Curve for Poly2 {
    fn latency_at(&self, load: f64) -> f64 {
        if load >= self.capacity { f64::INFINITY } else { self.value_and_slope(load).0 }
    }

    fn marginal_at(&self, load: f64) -> f64 {
        if load >= self.capacity {
            return f64::INFINITY;
        }
        let (value, slope) = self.value_and_slope(load);
        value + load * slope
    }

    fn capacity(&self) -> f64 {
        self.capacity
    }
}

/// Solves the normal equations of `size` unknowns by elimination; falls back to a lower degree when
/// they are singular to working precision.
fn regress(moments: &[f64; 5], targets: &[f64; 3], size: usize) -> [f64; 3] {
    if size <= 1 {
        return [targets[0] / moments[0], 0.0, 0.0];
    }
    let mut rows = [[0.0; 4]; 3];
    for (i, row) in rows.iter_mut().enumerate() {
        row[..3].copy_from_slice(&moments[i..i + 3]);
        row[3] = targets[i];
    }
    for pivot in 0..size {
        let head = rows[pivot];
        if head[pivot] <= 1e-12 * moments[0] {
            return regress(moments, targets, size - 1);
        }
        for row in rows.iter_mut().take(size).skip(pivot + 1) {
            let factor = row[pivot] / head[pivot];
            for (cell, above) in row.iter_mut().zip(head) {
                *cell -= factor * above;
            }
        }
    }
    let mut out = [0.0; 3];
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size).map(|j| rows[i][j] * out[j]).sum();
        out[i] = (rows[i][3] - known) / rows[i][i];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighted(pairs: &[(f64, f64)]) -> Vec<Weighted> {
        pairs.iter().map(|&(load, latency)| Weighted { load, latency, precision: 1.0 }).collect()
    }

    #[test]
    fn a_parabola_is_recovered() {
        let truth = |x: f64| 5.0 + 2.0 * x + 30.0 * x * x;
        let pairs: Vec<_> = [0.0, 0.1, 0.2, 0.35].map(|x| (x, truth(x))).to_vec();
        let curve = Poly2::fit(&weighted(&pairs), 0.4);
        for x in [0.05, 0.3, 0.39] {
            assert!((curve.latency_at(x) / truth(x) - 1.0).abs() < 1e-9, "at {x}");
        }
        assert_eq!(curve.latency_at(0.4), f64::INFINITY);
        let wider = curve.rescaled_load(2.0);
        assert!((wider.latency_at(0.6) - curve.latency_at(0.3)).abs() < 1e-9);
    }

    #[test]
    fn latency_never_falls() {
        for pairs in [[(0.0, 9.0), (0.5, 4.0), (1.0, 8.0)], [(0.0, 2.0), (0.5, 9.0), (1.0, 4.0)]] {
            let curve = Poly2::fit(&weighted(&pairs), 1.1);
            let mut last = 0.0;
            for i in 0..=100 {
                let now = curve.latency_at(f64::from(i) / 100.0);
                assert!(now >= last - 1e-9, "{pairs:?} at {i}");
                last = now;
            }
        }
    }

    #[test]
    fn two_loads_make_a_line_and_equal_ones_a_constant() {
        let line = Poly2::fit(&weighted(&[(1.0, 10.0), (2.0, 20.0)]), 3.0);
        assert!((line.latency_at(1.5) - 15.0).abs() < 1e-9);
        let flat = Poly2::fit(&weighted(&[(1.0, 10.0)]), 3.0);
        assert_eq!(flat.latency_at(2.0), 10.0);
    }
}
