//! A backend of several cores in closed form:
//!
//! `l(x) = S·(1 + κ/c · ρ^e / (1 − ρ))`, `ρ = x·S/c`, `e = √(2(c+1)) − 1`.
//!
//! Source: Sakasegawa, "An approximation formula Lq ≃ α·ρ^β/(1−ρ)" (Ann. Inst. Stat. Math. 29, 1977),
//! with Kingman's factor κ for how irregular arrivals and service are (1: both exponential). Exact for
//! one core; within a few percent of the wait of M/M/c. Costs one power. It fails where latency does
//! not come from a queue (lock contention, swapping): there a fitted hyperbola or PCHIP is better.

use plimsoll_model::Curve;
use serde::{Deserialize, Serialize};

/// Newton's method ends with a step below this: its next one would be below rounding.
const LAST_STEP: f64 = 1e-7;
/// Four or five do.
const MOST_STEPS: usize = 60;

/// Latency of a backend known by its service time, its cores and how irregular its load is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueCurve {
    /// Mean service time on one core, microseconds.
    pub service_us: f64,
    /// How many requests it works on at once; need not be whole.
    pub cores: f64,
    /// Kingman's factor: the wait relative to that of Poisson arrivals and exponential service.
    pub variability: f64,
}

impl QueueCurve {
    fn exponent(&self) -> f64 {
        (2.0 * (self.cores + 1.0)).sqrt() - 1.0
    }

    /// The wait at this rate if the variability were 1, microseconds.
    pub fn unit_wait_at(&self, load: f64) -> f64 {
        let rho = load.max(0.0) / self.capacity();
        if rho >= 1.0 {
            return f64::INFINITY;
        }
        self.service_us / self.cores * rho.powf(self.exponent()) / (1.0 - rho)
    }
}

impl Curve for QueueCurve {
    fn latency_at(&self, load: f64) -> f64 {
        self.service_us + self.variability * self.unit_wait_at(load)
    }

    fn marginal_at(&self, load: f64) -> f64 {
        let rho = load.max(0.0) / self.capacity();
        if rho >= 1.0 {
            return f64::INFINITY;
        }
        // x·wait ∝ ρ^(e+1)/(1−ρ); its derivative over ρ is ρ^e·((e+1)(1−ρ) + ρ)/(1−ρ)².
        let e = self.exponent();
        let slope = rho.powf(e) * ((e + 1.0) * (1.0 - rho) + rho) / ((1.0 - rho) * (1.0 - rho));
        self.service_us * (1.0 + self.variability / self.cores * slope)
    }

    fn capacity(&self) -> f64 {
        self.cores * 1e6 / self.service_us
    }

    /// By Newton's method in `z = ln(ρ/(1−ρ))`, where the logarithm of the marginal wait
    /// `ρ^e·((e+1)(1−ρ) + ρ)/(1−ρ)²` is nearly straight: its slope goes from `e` to 2.
    fn load_at_marginal(&self, marginal: f64) -> Option<(f64, f64)> {
        if !(self.variability > 0.0 && self.cores > 0.0) {
            return None;
        }
        let unit = self.variability / self.cores;
        let wanted = (marginal / self.service_us - 1.0) / unit;
        if wanted <= 0.0 {
            return Some((0.0, 0.0));
        }
        let (e, target) = (self.exponent(), wanted.ln());
        let at_half = (2.0 - e) * std::f64::consts::LN_2 + (0.5 * e).ln_1p();
        let beyond = target - at_half;
        let mut z = beyond / if beyond > 0.0 { 2.0 } else { e };
        for _ in 0..MOST_STEPS {
            let odds = (-z).exp();
            let rho = 1.0 / (1.0 + odds);
            let (idle, rest) = (odds * rho, e + 1.0 - e * rho);
            let slope = 2.0 - (2.0 - e) * idle - e * rho * idle / rest;
            let step = (target - 2.0 * z - (2.0 - e) * odds.ln_1p() - rest.ln()) / slope;
            z += step;
            if step.abs() <= LAST_STEP {
                let odds = (-z).exp();
                let rho = 1.0 / (1.0 + odds);
                let growth = rho * odds * rho / (slope * wanted) / (self.service_us * unit);
                return Some((self.capacity() * rho, self.capacity() * growth));
            }
        }
        None
    }

    /// `ρ^(e+1)/(1−ρ)` is convex, `e` being above 0.
    fn marginal_rises(&self) -> bool {
        self.variability >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MmcCurve;

    #[test]
    fn close_to_erlang_c_where_it_matters() {
        for cores in [1u32, 2, 4, 8, 16] {
            let exact = MmcCurve { service_us: 30_000.0, cores };
            let close =
                QueueCurve { service_us: 30_000.0, cores: f64::from(cores), variability: 1.0 };
            for rho in [0.3, 0.5, 0.7, 0.85, 0.95] {
                let x = rho * exact.capacity();
                let ratio = close.latency_at(x) / exact.latency_at(x);
                assert!((ratio - 1.0).abs() < 0.05, "{cores} cores at {rho}: {ratio}");
            }
        }
    }

    #[test]
    fn marginal_is_the_derivative() {
        let curve = QueueCurve { service_us: 20_000.0, cores: 3.3, variability: 0.7 };
        for rho in [0.01, 0.4, 0.9] {
            let (x, d) = (rho * curve.capacity(), 1e-4);
            let numeric =
                ((x + d) * curve.latency_at(x + d) - (x - d) * curve.latency_at(x - d)) / (2.0 * d);
            assert!((numeric / curve.marginal_at(x) - 1.0).abs() < 1e-5, "at {rho}");
        }
    }

    #[test]
    fn a_marginal_cost_tells_its_load() {
        for cores in [0.5, 1.0, 3.3, 8.0, 64.0, 500.0] {
            for variability in [0.05, 1.0, 20.0] {
                let curve = QueueCurve { service_us: 20_000.0, cores, variability };
                for rho in [1e-3, 0.1, 0.5, 0.9, 0.999, 0.999_999] {
                    let load = rho * curve.capacity();
                    let marginal = curve.marginal_at(load);
                    // Where load costs nothing that can be distinguished from 0, no cost shows it.
                    if marginal < curve.service_us * (1.0 + 1e-3) {
                        continue;
                    }
                    let (found, growth) = curve.load_at_marginal(marginal).expect("it converges");
                    assert!((found / load - 1.0).abs() < 1e-11, "{curve:?} at {rho}: {found}");
                    let d = 1e-4 * (marginal - curve.service_us);
                    let numeric = [marginal + d, marginal - d]
                        .map(|m| curve.load_at_marginal(m).expect("it converges").0);
                    let numeric = (numeric[0] - numeric[1]) / (2.0 * d);
                    assert!((growth / numeric - 1.0).abs() < 1e-3, "{curve:?} at {rho}: {growth}");
                }
                assert_eq!(curve.load_at_marginal(curve.service_us), Some((0.0, 0.0)));
                let (most, _) = curve.load_at_marginal(f64::MAX).expect("it converges");
                assert!((most / curve.capacity() - 1.0).abs() < 1e-12, "{curve:?}: {most}");
            }
        }
        let flat = QueueCurve { service_us: 20_000.0, cores: 1.0, variability: 0.0 };
        assert_eq!(flat.load_at_marginal(30_000.0), None);
    }
}
