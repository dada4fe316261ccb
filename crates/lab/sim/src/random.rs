//! Chance, from seeds alone: every part of a run draws from a stream of its own, so that taking one
//! fault away leaves the rng of all others as it was.

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, Poisson};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Above this mean a Poisson count is drawn from a rounded normal: the error of the law is far below
/// its own spread, and the draw costs the same however many requests there are.
const MANY: f64 = 50.0;

/// One stream of chance.
#[derive(Clone, Debug)]
pub struct RandomStream(Xoshiro256PlusPlus);

impl RandomStream {
    /// The stream of this number under this seed.
    pub fn new(seed: u64, number: u64) -> Self {
        // The golden ratio spreads neighbouring seeds and numbers over all bits.
        let mixed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        RandomStream(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// Between 0 and 1.
    pub fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// Between two numbers.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Between two numbers, every order of magnitude as likely as the next.
    pub fn log_between(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// One of `n`; 0 when there is none.
    pub fn index(&mut self, n: usize) -> usize {
        self.0.random_range(0..n.max(1))
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        let unit: f64 = Exp1.sample(&mut self.0);
        unit * mean
    }

    /// How many of something that happens this often on average.
    pub fn count(&mut self, mean: f64) -> u64 {
        if mean <= 0.0 {
            return 0;
        }
        if mean > MANY {
            let normal: f64 = rand_distr::StandardNormal.sample(&mut self.0);
            return (mean + normal * mean.sqrt()).round().max(0.0) as u64;
        }
        // A positive finite mean is all that the law asks for.
        Poisson::new(mean).map_or(0, |law| law.sample(&mut self.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_the_mean_and_the_spread_of_poisson() {
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
