//! The time that policies and admissions are given.

use std::time::Instant;

use plimsoll_model::Nanos;

/// Nanoseconds since the proxy was started: the same on all its threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
