//! The paper's dynamic capacity: the mean number of requests in flight over 30 s, started anew every
//! 30 s, becomes the capacity of the next 30 s. In the first 30 s everything is admitted.
//!
//! Source: Bhattacharya, Gao, Wood (TAAS 2024), §4.4, literally. **It ratchets down**: a mean is below
//! the limit that produced it, so the next limit is lower still, until requests are refused that there
//! was room for. It is here to be compared with; the adaptive one is the default. Cost:
//! O(1).

use std::time::Duration;

use plimsoll_model::Nanos;

/// How long a mean is taken, and how long it then holds.
pub const AVERAGED_OVER: Duration = Duration::from_secs(30);

/// Mean of requests in flight, window by window.
#[derive(Clone, Debug, Default)]
pub struct Average {
    capacity: Option<f64>,
    since: Option<Nanos>,
    sum: f64,
    count: f64,
}

impl Average {
    /// Knows no capacity yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits all while absent.
    pub fn capacity(&self) -> Option<f64> {
        self.capacity
    }

    /// A request was admitted, which makes so many in flight.
    pub fn on_admitted(&mut self, now: Nanos, in_flight: u32) {
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= AVERAGED_OVER {
            self.capacity = (self.count > 0.0).then(|| self.sum / self.count);
            (self.since, self.sum, self.count) = (Some(now), 0.0, 0.0);
        }
        self.sum += f64::from(in_flight);
        self.count += 1.0;
    }
}
