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
}
