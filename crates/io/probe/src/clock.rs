use std::time::Instant;

use plimsoll_model::Nanos;

/// Turns the machine's monotonic clock into the [`Nanos`] that the rest of Plimsoll counts in.
///
/// All parts of a daemon share one origin, so that their events can be put in order.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads [`Nanos::ZERO`] at `origin`.
    pub fn new(origin: Instant) -> Self {
        Clock { origin }
    }

    /// The present instant.
    pub fn now(&self) -> Nanos {
        self.at(Instant::now())
    }

    /// The same instant on this clock; an instant before the origin is the origin.
    pub fn at(&self, instant: Instant) -> Nanos {
        Nanos::ZERO + instant.saturating_duration_since(self.origin)
    }

    /// The machine's instant for a reading of this clock.
    pub(crate) fn instant(&self, at: Nanos) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.origin + at.since(Nanos::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn reads_nanoseconds_since_its_origin() {
        let origin = Instant::now();
        let clock = Clock::new(origin);
        assert_eq!(clock.at(origin + Duration::from_micros(3)), Nanos(3_000));
        assert_eq!(clock.instant(Nanos(3_000)).into_std(), origin + Duration::from_micros(3));
        assert!(clock.now() <= clock.now());
    }
}
