//! Dispersion of completions relative to a Poisson process: service times that are not exponential, and busy time known
//! from polls only. Estimated from the samples, in batches, so that correlation over seconds counts as it does in an
//! excursion.

/// Least size of a batch: its variance (in completions, where busy time is known), its intervals, and its length in
/// service times, so that requests in service at its ends matter little.
const BATCH: (f64, u32, f64) = (15.0, 6, 10.0);
/// Batches that the estimate remembers.
const MEMORY: f64 = 300.0;
/// The prior, and its weight in batches.
const BELIEF: (f64, f64) = (1.1, 5.0);
/// Batches without which the estimate is only the prior.
const ENOUGH: f64 = 15.0;
/// Lower bound: regular service averages out over a batch, but not within the polls of a short excursion.
const LEAST: f64 = 1.0;

/// Dispersion of completions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Noise {
    /// Squared errors in units of the expectation, and batches: settled, and not yet.
    settled: (f64, f64),
    open: (f64, f64),
    /// The open batch: error, expected variance, intervals, service times.
    batch: (f64, f64, u32, f64),
}

impl Noise {
    /// Takes an interval that is this many service times long.
    pub fn note(&mut self, error: f64, variance: f64, services: f64) {
        self.batch.0 += error;
        self.batch.1 += variance;
        self.batch.2 += 1;
        self.batch.3 += services;
        let (error, variance, intervals, services) = self.batch;
        if variance >= BATCH.0 && intervals >= BATCH.1 && services >= BATCH.2 {
            self.open.0 += error * error / variance;
            self.open.1 += 1.0;
            self.batch = (0.0, 0.0, 0, 0.0);
        }
    }

    /// Everything noted so far belongs to the backend as it is known.
    pub fn settle(&mut self) {
        let kept = (-self.open.1 / MEMORY).exp();
        self.settled.0 = self.settled.0 * kept + self.open.0;
        self.settled.1 = self.settled.1 * kept + self.open.1;
        self.open = (0.0, 0.0);
    }

    /// What was noted since the last `settle` belongs to a backend that has changed.
    pub fn drop_open(&mut self) {
        self.open = (0.0, 0.0);
        self.batch = (0.0, 0.0, 0, 0.0);
    }

    /// Whether there were enough batches.
    pub fn is_known(&self) -> bool {
        self.settled.1 >= ENOUGH
    }

    /// Variance over mean.
    pub fn dispersion(&self) -> f64 {
        let (sum, count) = self.settled;
        ((BELIEF.0 * BELIEF.1 + sum) / (BELIEF.1 + count)).max(LEAST)
    }
}
