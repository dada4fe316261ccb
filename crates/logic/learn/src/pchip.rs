//! Isotonic regression, then monotone cubic interpolation through its values.
//!
//! Pool-adjacent-violators makes the points non-decreasing; Fritsch–Carlson slopes (PCHIP) keep the cubic between them
//! non-decreasing as well. Before the first point the curve is constant. Past the last it follows a hyperbola that
//! meets the last point with at least the cubic's slope there, and has its pole at the capacity of a hyperbola through
//! all points: so the marginal cost keeps rising past the data and does not fall where the two meet. Cost O(points). It
//! fails under noise: it follows every point, so it is used only where cross-validation prefers it.

use plimsoll_model::{Curve, Hyperbola};
use serde::{Deserialize, Serialize};

use crate::hyperbola::Weighted;

/// A point the curve passes through.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knot {
    /// Load.
    pub load: f64,
    /// Latency there, microseconds.
    pub latency_us: f64,
    /// Derivative there, microseconds per unit of load; never negative.
    pub slope: f64,
}

/// Monotone cubic through knots, continued by a hyperbola.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pchip {
    /// Ascending in load, non-decreasing in latency.
    pub knots: Vec<Knot>,
    /// The curve past the last knot. Its `a` may be negative; its latency there is not.
    pub tail: Hyperbola,
}

impl Pchip {
    /// Fits points of ascending, distinct loads; `outer` is a hyperbola through the same points.
    pub(crate) fn fit(points: &[Weighted], outer: &Hyperbola) -> Pchip {
        let latencies = isotonic(points);
        let loads: Vec<f64> = points.iter().map(|p| p.load).collect();
        let slopes = monotone_slopes(&loads, &latencies);
        let knots: Vec<Knot> = loads
            .iter()
            .zip(&latencies)
            .zip(&slopes)
            .map(|((&load, &latency_us), &slope)| Knot { load, latency_us, slope })
            .collect();
        let tail = knots.last().map_or(*outer, |last| {
            let room = outer.c - last.load;
            let slope = last.slope.max(outer.b / (room * room));
            Hyperbola { a: last.latency_us - slope * room, b: slope * room * room, c: outer.c }
        });
        Pchip { knots, tail }
    }

    /// The same curve with the load axis stretched by `factor`.
    pub fn rescaled_load(&self, factor: f64) -> Pchip {
        let knots = self
            .knots
            .iter()
            .map(|k| Knot { load: k.load * factor, slope: k.slope / factor, ..*k })
            .collect();
        let Hyperbola { a, b, c } = self.tail;
        Pchip { knots, tail: Hyperbola { a, b: b * factor, c: c * factor } }
    }

    fn value_and_slope(&self, load: f64) -> (f64, f64) {
        let after = self.knots.partition_point(|k| k.load <= load);
        let (Some(left), right) =
            (after.checked_sub(1).map(|i| self.knots[i]), self.knots.get(after))
        else {
            let first =
                self.knots.first().map_or_else(|| self.tail.latency_at(load), |k| k.latency_us);
            return (first, 0.0);
        };
        let Some(right) = right else {
            let room = self.tail.c - load;
            return (self.tail.latency_at(load), self.tail.b / (room * room));
        };
        let width = right.load - left.load;
        let t = (load - left.load) / width;
        let rise = right.latency_us - left.latency_us;
        let (m0, m1) = (left.slope * width, right.slope * width);
        // Hermite form around the left knot: y0 + t·(m0 + t·(u + t·v)).
        let (u, v) = (3.0 * rise - 2.0 * m0 - m1, m0 + m1 - 2.0 * rise);
        let value = left.latency_us + t * (m0 + t * (u + t * v));
        let slope = (m0 + t * (2.0 * u + t * 3.0 * v)) / width;
        (value.clamp(left.latency_us, right.latency_us), slope.max(0.0))
    }
}

impl Curve for Pchip {
    fn latency_at(&self, load: f64) -> f64 {
        if load >= self.tail.c { f64::INFINITY } else { self.value_and_slope(load).0 }
    }

    fn marginal_at(&self, load: f64) -> f64 {
        if load >= self.tail.c {
            return f64::INFINITY;
        }
        let (value, slope) = self.value_and_slope(load);
        value + load * slope
    }

    fn capacity(&self) -> f64 {
        self.tail.c
    }
}

/// Weighted isotonic regression of the latencies: the nearest non-decreasing sequence, by pooling
/// adjacent violators. Relative errors count, so a pool's value is its precision-weighted mean of
/// logarithms.
fn isotonic(points: &[Weighted]) -> Vec<f64> {
    let mut pools: Vec<(f64, f64, usize)> = Vec::with_capacity(points.len());
    for point in points {
        let mut pool = (point.latency.ln(), point.precision, 1);
        while let Some(&(value, weight, count)) = pools.last() {
            if value <= pool.0 {
                break;
            }
            pools.pop();
            let both = weight + pool.1;
            pool = ((value * weight + pool.0 * pool.1) / both, both, count + pool.2);
        }
        pools.push(pool);
    }
    pools.iter().flat_map(|&(value, _, count)| std::iter::repeat_n(value.exp(), count)).collect()
}

/// Slopes that keep the cubic monotone: weighted harmonic means inside, limited three-point ends.
fn monotone_slopes(loads: &[f64], values: &[f64]) -> Vec<f64> {
    let n = loads.len();
    if n < 2 {
        return vec![0.0; n];
    }
    let widths: Vec<f64> = loads.windows(2).map(|w| w[1] - w[0]).collect();
    let secants: Vec<f64> =
        values.windows(2).zip(&widths).map(|(v, width)| (v[1] - v[0]) / width).collect();
    if n == 2 {
        return vec![secants[0]; 2];
    }
    let mut slopes = vec![0.0; n];
    slopes[0] = end_slope(widths[0], widths[1], secants[0], secants[1]);
    slopes[n - 1] = end_slope(widths[n - 2], widths[n - 3], secants[n - 2], secants[n - 3]);
    for i in 1..n - 1 {
        let (before, after) = (secants[i - 1], secants[i]);
        if before > 0.0 && after > 0.0 {
            let (w1, w2) = (2.0 * widths[i] + widths[i - 1], widths[i] + 2.0 * widths[i - 1]);
            slopes[i] = (w1 + w2) / (w1 / before + w2 / after);
        }
    }
    slopes
}

fn end_slope(near: f64, far: f64, secant_near: f64, secant_far: f64) -> f64 {
    let slope = ((2.0 * near + far) * secant_near - near * secant_far) / (near + far);
    slope.clamp(0.0, 3.0 * secant_near)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighted(pairs: &[(f64, f64)]) -> Vec<Weighted> {
        pairs.iter().map(|&(load, latency)| Weighted { load, latency, precision: 1.0 }).collect()
    }

    const OUTER: Hyperbola = Hyperbola { a: 5.0, b: 2.0, c: 1.5 };

    #[test]
    fn adjacent_violators_are_pooled() {
        let got = isotonic(&weighted(&[(0.0, 1.0), (1.0, 8.0), (2.0, 2.0), (3.0, 9.0)]));
        assert_eq!(got.len(), 4);
        assert!((got[1] - 4.0).abs() < 1e-9 && (got[2] - 4.0).abs() < 1e-9, "{got:?}");
        assert!((got[0] - 1.0).abs() < 1e-9 && (got[3] - 9.0).abs() < 1e-9);
    }

    #[test]
    fn curve_passes_through_monotone_points_and_never_falls() {
        let pairs = [(0.0, 10.0), (0.3, 10.5), (0.6, 30.0), (0.9, 31.0), (1.0, 80.0)];
        let curve = Pchip::fit(&weighted(&pairs), &OUTER);
        for (x, y) in pairs {
            assert!((curve.latency_at(x) / y - 1.0).abs() < 1e-9, "at {x}");
        }
        let mut last = 0.0;
        for i in 0..150 {
            let x = f64::from(i) / 100.0;
            let now = curve.latency_at(x);
            assert!(now.is_finite() && now >= last - 1e-9, "at {x}");
            let (d, here) = (1e-7, curve.marginal_at(x));
            let numeric = ((x + d) * curve.latency_at(x + d) - x * now) / d;
            assert!((numeric / here - 1.0).abs() < 1e-3, "marginal at {x}: {numeric} {here}");
            last = now;
        }
        assert_eq!(curve.latency_at(1.5), f64::INFINITY);
    }

    #[test]
    fn marginal_cost_does_not_fall_past_the_data() {
        let curve = Pchip::fit(&weighted(&[(0.1, 10.0), (0.5, 10.0), (1.0, 10.0)]), &OUTER);
        let mut last = curve.marginal_at(0.999_999);
        for i in 100..150 {
            let now = curve.marginal_at(f64::from(i) / 100.0);
            assert!(now >= last, "at {i}");
            last = now;
        }
        let wider = curve.rescaled_load(4.0);
        assert!((wider.latency_at(5.6) / curve.latency_at(1.4) - 1.0).abs() < 1e-9);
        assert_eq!(wider.capacity(), 6.0);
    }
}
