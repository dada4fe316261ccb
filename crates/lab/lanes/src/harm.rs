use std::ops::Range;
use std::time::Duration;

use plimsoll_testbed::load::Record;
use serde::Serialize;

use crate::measured::within;

/// What learning cost the clients who were there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Harm {
    /// Requests slower than the 99th percentile of the later steady state, less the 1 % that are so
    /// anyway; never below 0.
    pub slow_requests: f64,
    /// Requests without the answer they wanted.
    pub lost_requests: u64,
    /// All requests of the time.
    pub requests: u64,
}

impl Harm {
    /// Slow and lost ones together.
    pub fn total(&self) -> f64 {
        self.slow_requests + self.lost_requests as f64
    }
}

/// The harm during this stretch, given the 99th percentile of the steady state that followed.
pub fn harm(records: &[Record], stretch: &Range<Duration>, steady_p99_ms: f64) -> Harm {
    let during = within(records, stretch);
    let lost = during.iter().filter(|r| !r.ok).count();
    let slow = during.iter().filter(|r| r.ok && f64::from(r.latency_us) > steady_p99_ms * 1e3);
    let expected = 0.01 * (during.len() - lost) as f64;
    Harm {
        slow_requests: (slow.count() as f64 - expected).max(0.0),
        lost_requests: lost as u64,
        requests: during.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::record;

    #[test]
    fn slow_beyond_what_is_usual_and_lost_count() {
        let stretch = Duration::ZERO..Duration::from_secs(10);
        // 1,000 requests: 50 slower than 100 ms, 10 lost; of the 990 answered 9.9 were to be expected.
        let records: Vec<Record> = (0..1000)
            .map(|i| record(i * 10, if i % 20 == 0 { 101 } else { 100 }, i % 100 != 7))
            .collect();
        let harm = super::harm(&records, &stretch, 100.0);
        assert_eq!((harm.requests, harm.lost_requests), (1000, 10));
        assert!((harm.slow_requests - 40.1).abs() < 1e-9, "{harm:?}");
        assert!((harm.total() - 50.1).abs() < 1e-9);
        // Quieter than the steady state: no harm, and none below zero.
        assert_eq!(super::harm(&records, &stretch, 500.0).slow_requests, 0.0);
        // What came later does not count.
        let short = Duration::ZERO..Duration::from_secs(1);
        assert_eq!(super::harm(&records, &short, 100.0).requests, 100);
    }
}
