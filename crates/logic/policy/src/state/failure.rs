//! How failures count, so that a backend which fails fast does not look fast.
//!
//! Let `S` be the mean latency of recent successes of the whole pool. A failure counts as a request
//! that takes [`FAILURE_FACTOR`]·`S`:
//! * estimates of latency are given `max(observed, 10·S)` as its sample ([`super::LatencyTable`],
//!   peak EWMA);
//! * counts of requests in flight keep it for what is left of `10·S` ([`super::InFlight`]).
//!
//! By Little's law both say the same; a policy that looks at both counts both. The penalty has no unit of its own to set, it is proportional to
//! the failures (1 % of them make a backend look 9 % slower), and it ends by itself when they do. A
//! backend that fails always gets a tenth of its part or less, which is what finds out that it is well
//! again. Policies that look neither at latency nor at what is in flight need no such rule: a failure
//! changes nothing for them. Health checks and ejection (weight 0) are other layers' work.

/// How many mean successes long a failure counts.
const FAILURE_FACTOR: f64 = 10.0;
/// The mean remembers about so many successes: enough to be steady, few enough to follow a day's load.
const MEMORY: f64 = 256.0;
/// Before the first success nothing is known; a second is linkerd's default round trip.
const UNKNOWN_US: f64 = 1e6;

/// Mean latency of the pool's recent successes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuccessLatency {
    mean_us: f64,
    seen: f64,
}

impl SuccessLatency {
    pub(crate) fn new() -> Self {
        SuccessLatency { mean_us: UNKNOWN_US, seen: 0.0 }
    }

    pub(crate) fn record(&mut self, latency_us: f64) {
        self.seen = (self.seen + 1.0).min(MEMORY);
        self.mean_us += (latency_us - self.mean_us) / self.seen;
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.mean_us
    }

    /// How long a failure counts.
    pub(crate) fn failure_us(&self) -> f64 {
        FAILURE_FACTOR * self.mean_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows() {
        let mut mean = SuccessLatency::new();
        assert_eq!(mean.failure_us(), 1e7);
        mean.record(100.0);
        mean.record(300.0);
        assert_eq!(mean.mean_us(), 200.0);
        (0..2_000).for_each(|_| mean.record(50.0));
        assert!((mean.mean_us() - 50.0).abs() < 1.0, "{}", mean.mean_us());
    }
}
