//! How much more completions scatter than a Poisson process would: service times that are not
//! exponential, and busy time known from polls only. Estimated from the samples, in batches, so that what
//! hangs together within seconds counts as it does in an excursion.

/// Variance of a batch (so many completions, where busy time is known), intervals in it, and how many times the time of
/// a service it is long: what is in service at its ends is little beside what is done in it.
const BATCH: (f64, u32, f64) = (15.0, 6, 10.0);
/// Batches remembered.
const MEMORY: f64 = 300.0;
/// The belief to begin with, and how many batches it is worth.
const BELIEF: (f64, f64) = (1.1, 5.0);
/// Batches without which it is no more than a belief.
const ENOUGH: f64 = 15.0;
/// Never taken for less: regular service evens out over a batch, but not within the polls of a short
/// excursion.
const LEAST: f64 = 1.0;

/// Dispersion of completions, as far as it is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Noise {
    /// Squared errors in units of the expectation, and batches: settled, and not yet.
    settled: (f64, f64),
    open: (f64, f64),
    /// The batch that is being filled: error, the variance that is expected of it, intervals, times of a service.
    batch: (f64, f64, u32, f64),
}

impl Noise {
    /// An interval, so many times as long as a service.
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

    /// What was noted since the last time belongs to the backend as it is known.
    pub fn settle(&mut self) {
        let kept = (-self.open.1 / MEMORY).exp();
        self.settled.0 = self.settled.0 * kept + self.open.0;
        self.settled.1 = self.settled.1 * kept + self.open.1;
        self.open = (0.0, 0.0);
    }

    /// What was noted since belongs to another backend.
    pub fn drop_open(&mut self) {
        self.open = (0.0, 0.0);
        self.batch = (0.0, 0.0, 0, 0.0);
    }

    /// Whether there were batches enough to say.
    pub fn is_known(&self) -> bool {
        self.settled.1 >= ENOUGH
    }

    /// Variance over mean.
    pub fn dispersion(&self) -> f64 {
        let (sum, count) = self.settled;
        ((BELIEF.0 * BELIEF.1 + sum) / (BELIEF.1 + count)).max(LEAST)
    }
}
