//! Random numbers from seeds: every part of a run has a stream of its own, so that leaving one fault out does not
//! change the random numbers of the others.

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, Poisson};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Above this mean a Poisson count is drawn as a rounded normal: its error is far below the standard deviation, and the
/// cost is the same for any number of requests.
const MANY: f64 = 50.0;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct RandomStream(Xoshiro256PlusPlus);

impl RandomStream {
    /// The stream of this number under this seed.
    pub fn new(seed: u64, number: u64) -> Self {
        // The golden ratio spreads neighbouring seeds and numbers over all bits.
        let mixed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        RandomStream(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// Uniform between 0 and 1.
    pub fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// Uniform between two numbers.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Log-uniform between two numbers.
    pub fn log_between(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Uniform index below `n`; 0 when `n` is 0.
    pub fn index(&mut self, n: usize) -> usize {
        self.0.random_range(0..n.max(1))
    }

    /// One of these, each as likely.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        let unit: f64 = Exp1.sample(&mut self.0);
        unit * mean
    }

    /// Poisson count with this mean.
    pub fn count(&mut self, mean: f64) -> u64 {
        if mean <= 0.0 {
            return 0;
        }
        if mean > MANY {
            let normal: f64 = rand_distr::StandardNormal.sample(&mut self.0);
            return (mean + normal * mean.sqrt()).round().max(0.0) as u64;
        }
        // The distribution requires a positive finite mean.
        Poisson::new(mean).map_or(0, |law| law.sample(&mut self.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_the_mean_and_variance_of_poisson() {
        let mut rng = RandomStream::new(1, 2);
        for mean in [0.3, 7.0, 200.0] {
            let n = 20_000;
            let draws: Vec<f64> = (0..n).map(|_| rng.count(mean) as f64).collect();
            let average = draws.iter().sum::<f64>() / f64::from(n);
            let spread = draws.iter().map(|d| (d - average).powi(2)).sum::<f64>() / f64::from(n);
            assert!((average / mean - 1.0).abs() < 0.05, "{average} for {mean}");
            assert!((spread / mean - 1.0).abs() < 0.08, "{spread} for {mean}");
        }
        assert_eq!(rng.count(0.0), 0);
    }

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, number| RandomStream::new(seed, number).uniform();
        assert_eq!(draw(4, 1), draw(4, 1));
        assert_ne!(draw(4, 1), draw(4, 2));
        assert_ne!(draw(4, 1), draw(5, 1));
    }
}
