use rand::RngCore;

/// How long requests take on one core of speed 1, as multiples of their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceTime {
    /// All alike.
    Deterministic,
    /// Memoryless.
    Exponential,
    /// One request in twenty takes nineteen times as long as the others (the mean stays 1).
    Bimodal,
    /// The exponential of a normal variable, scaled to a mean of 1.
    Lognormal {
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// The power law `P(X > x) ∝ x^−α`, scaled to a mean of 1: now and then a request takes hundreds of times as long.
    Pareto {
        /// The exponent α, above 1. The variance is infinite up to 2.
        alpha: f64,
    },
}

impl ServiceTime {
    /// Draws one service time, in multiples of the mean.
    pub fn draw<R: RngCore + ?Sized>(self, rng: &mut R) -> f64 {
        match self {
            ServiceTime::Deterministic => 1.0,
            ServiceTime::Exponential => exponential(rng),
            ServiceTime::Bimodal => {
                if uniform(rng) < 0.05 {
                    10.0
                } else {
                    10.0 / 19.0
                }
            }
            // E[exp(σZ)] = exp(σ²/2), which is divided out.
            ServiceTime::Lognormal { sigma } => (sigma * normal(rng) - sigma * sigma / 2.0).exp(),
            // The least is (α − 1)/α.
            ServiceTime::Pareto { alpha } => {
                (alpha - 1.0) / alpha * uniform(rng).powf(-1.0 / alpha)
            }
        }
    }

    /// Squared coefficient of variation; infinite where there is none.
    pub fn squared_variation(self) -> f64 {
        match self {
            ServiceTime::Deterministic => 0.0,
            ServiceTime::Exponential => 1.0,
            // E[X²] − 1 of 10 (one in twenty) and 10/19.
            ServiceTime::Bimodal => 0.05 * 100.0 + 0.95 * (10.0f64 / 19.0).powi(2) - 1.0,
            ServiceTime::Lognormal { sigma } => (sigma * sigma).exp() - 1.0,
            ServiceTime::Pareto { alpha } if alpha > 2.0 => {
                (alpha - 1.0) * (alpha - 1.0) / (alpha * (alpha - 2.0)) - 1.0
            }
            ServiceTime::Pareto { .. } => f64::INFINITY,
        }
    }
}

/// A number from the half-open interval (0, 1].
pub(crate) fn uniform<R: RngCore + ?Sized>(rng: &mut R) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// An exponential variate of mean 1.
pub(crate) fn exponential<R: RngCore + ?Sized>(rng: &mut R) -> f64 {
    -uniform(rng).ln()
}

/// A standard normal variate, by Box and Muller; the second of the pair is thrown away.
fn normal<R: RngCore + ?Sized>(rng: &mut R) -> f64 {
    let radius = (2.0 * exponential(rng)).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn every_kind_has_mean_one_and_its_own_spread() {
        for (service, variance) in [
            (ServiceTime::Deterministic, 0.0),
            (ServiceTime::Exponential, 1.0),
            (ServiceTime::Bimodal, 4.263),
            (ServiceTime::Lognormal { sigma: 0.5 }, 0.25f64.exp() - 1.0),
        ] {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
            let draws: Vec<f64> = (0..400_000).map(|_| service.draw(&mut rng)).collect();
            let n = draws.len() as f64;
            let mean = draws.iter().sum::<f64>() / n;
            let spread = draws.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / n;
            assert!((mean - 1.0).abs() < 0.02, "{service:?}: mean {mean}");
            assert!((spread - variance).abs() <= 0.05 * variance, "{service:?}: {spread}");
        }
    }
}
