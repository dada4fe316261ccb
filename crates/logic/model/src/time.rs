use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant, in nanoseconds since an origin of the caller's choosing (process start in the daemon,
/// zero in the simulator). It only ever grows: a step of the wall clock does not show here.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin.
    pub const ZERO: Nanos = Nanos(0);

    /// An instant this many seconds after the origin; negative values are the origin.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Nanos((seconds.max(0.0) * 1e9) as u64)
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time passed since `earlier`; zero when `earlier` lies ahead.
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Nanos {
    type Output = Nanos;
    fn add(self, span: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Nanos {
    type Output = Nanos;
    fn sub(self, span: Duration) -> Nanos {
        Nanos(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_never_go_negative() {
        let (early, late) = (Nanos(5), Nanos(9));
        assert_eq!(late.since(early), Duration::from_nanos(4));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early - Duration::from_secs(1), Nanos::ZERO);
        assert_eq!(Nanos(u64::MAX) + Duration::from_secs(1), Nanos(u64::MAX));
    }
}
