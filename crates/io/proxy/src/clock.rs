//! The time that policies and admissions are given.

use std::time::Instant;

use plimsoll_model::Nanos;

/// Nanoseconds since the proxy was started: the same on all its threads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The machine's.
    Real {
        /// When it was started.
        origin: Instant,
    },
    /// One that a test moves.
    #[cfg(test)]
    Simulated(&'static std::sync::atomic::AtomicU64),
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock::Real { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Nanos {
        match self {
            Clock::Real { origin } => {
                Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
            #[cfg(test)]
            Clock::Simulated(now) => Nanos(now.load(std::sync::atomic::Ordering::Relaxed)),
        }
    }
}
