//! The stationary law of a backend that serves Poisson arrivals with exponential times on `c` cores
//! (M/M/c): how many requests are in it.
//!
//! `P(n) ∝ a^n/n!` below `c`, `P(c + k) ∝ a^c/c! · ρ^k` from there on, `a = λ/v`, `ρ = a/c`
//! (Kleinrock, Queueing Systems I, §3.5). Making a law costs O(c), drawing from it O(c) at the most.

use crate::random::RandomStream;

/// From this utilisation on the stationary law is not used: queues are simulated instead.
pub const BUSIEST: f64 = 0.97;

/// The law of one backend under one load.
#[derive(Clone, Debug)]
pub struct Law {
    /// Arrivals and the completions of one busy core, per second.
    pub lambda: f64,
    /// See `lambda`.
    pub speed: f64,
    /// `P(N ≤ n)` for `n < c`.
    below: Vec<f64>,
    utilisation: f64,
    /// Relaxation time of the number in flight, seconds.
    relaxation_s: f64,
}

impl Law {
    /// The law of `cores` cores that each complete `speed` requests per second, at an arrival rate of `lambda`.
    pub fn new(lambda: f64, speed: f64, cores: u32) -> Self {
        let c = f64::from(cores);
        let a = lambda / speed;
        let utilisation = a / c;
        let mut terms = Vec::with_capacity(cores as usize);
        let mut term = 1.0;
        for n in 0..cores {
            if n > 0 {
                term *= a / f64::from(n);
            }
            terms.push(term);
        }
        let full = term * a / c;
        let tail = if utilisation < 1.0 { full / (1.0 - utilisation) } else { f64::INFINITY };
        let total: f64 = terms.iter().sum::<f64>() + tail;
        let mut sum = 0.0;
        let below = terms
            .iter()
            .map(|t| {
                sum += t / total;
                sum
            })
            .collect();
        let slack = (1.0 - utilisation.min(BUSIEST).sqrt()).powi(2);
        let relaxation_s = 1.0 / (speed * c * slack).min(speed);
        Law { lambda, speed, below, utilisation, relaxation_s }
    }

    /// Utilisation of the cores; above 1 the queue grows without bound.
    pub fn utilisation(&self) -> f64 {
        self.utilisation
    }

    /// More in flight than this is a backlog and not noise: the tail beyond it is a millionth.
    pub fn high(&self) -> f64 {
        let tail =
            if self.utilisation < BUSIEST { -14.0 / self.utilisation.max(0.05).ln() } else { 0.0 };
        self.below.len() as f64 + tail + 2.0
    }

    /// The weight of the past after this time.
    pub fn memory(&self, seconds: f64) -> f64 {
        (-seconds / self.relaxation_s).exp()
    }

    /// Draws a number in flight.
    pub fn draw(&self, rng: &mut RandomStream) -> u32 {
        let u = rng.uniform();
        if let Some(n) = self.below.iter().position(|&p| u < p) {
            return n as u32;
        }
        let over = rng.uniform().max(1e-12).ln() / self.utilisation.clamp(1e-9, BUSIEST).ln();
        self.below.len() as u32 + over as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::Curve;
    use plimsoll_queueing::MmcCurve;

    #[test]
    fn draws_have_the_mean_that_little_and_erlang_give() {
        let mut rng = RandomStream::new(3, 1);
        for (cores, load) in [(1, 0.5), (1, 0.9), (4, 0.8), (8, 0.95)] {
            let curve = MmcCurve { service_us: 30_000.0, cores };
            let lambda = load * curve.capacity();
            let law = Law::new(lambda, 1e6 / 30_000.0, cores);
            let exact = lambda * curve.latency_at(lambda) / 1e6;
            let n = 200_000;
            let drawn: f64 =
                (0..n).map(|_| f64::from(law.draw(&mut rng))).sum::<f64>() / f64::from(n);
            assert!((drawn / exact - 1.0).abs() < 0.02, "{cores} at {load}: {drawn}, {exact}");
        }
    }
}
