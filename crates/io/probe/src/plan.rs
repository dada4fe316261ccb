use std::time::Duration;

/// How often a backend is probed: `requests` in every `interval`, spread evenly over it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbePlan {
    interval: Duration,
    requests: u32,
    jitter: f64,
}

/// Why a [`ProbePlan`] or a [`LivenessSpec`](crate::LivenessSpec) cannot be followed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Zero, or more than a day.
    #[error("the interval must lie within 1 ms and 1 day")]
    Interval,
    /// More than 100,000 a second to one backend, or for liveness not 1…16 a round.
    #[error("so many requests in an interval are no measurement but an attack")]
    Requests,
    /// Not a number within 0…1.
    #[error("jitter must lie within 0 and 1")]
    Jitter,
    /// Zero, or more than a minute.
    #[error("the time-out must lie within 1 ms and 1 min")]
    Timeout,
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const MAX_RATE: f64 = 100_000.0;

impl ProbePlan {
    /// No probes at all.
    pub const PAUSED: ProbePlan =
        ProbePlan { interval: Duration::from_secs(1), requests: 0, jitter: 0.0 };

    /// A plan of `requests` per `interval`. `jitter` is how much of the gap between two probes chance
    /// may shift them by: 0 is a metronome, 1 lets each fall anywhere within its gap.
    ///
    /// # Errors
    /// When a value is outside what [`PlanError`] says.
    pub fn new(interval: Duration, requests: u32, jitter: f64) -> Result<Self, PlanError> {
        if !(Duration::from_millis(1)..=DAY).contains(&interval) {
            return Err(PlanError::Interval);
        }
        if f64::from(requests) / interval.as_secs_f64() > MAX_RATE {
            return Err(PlanError::Requests);
        }
        if !(0.0..=1.0).contains(&jitter) {
            return Err(PlanError::Jitter);
        }
        Ok(ProbePlan { interval, requests, jitter })
    }

    /// The time between two probes; `None` when paused.
    pub fn gap(&self) -> Option<Duration> {
        (self.requests > 0).then(|| self.interval / self.requests)
    }

    /// The part of the gap that chance may shift a probe by, 0…1.
    pub fn jitter(&self) -> f64 {
        self.jitter
    }

    /// Probes per second, in the long run.
    pub fn rate_rps(&self) -> f64 {
        f64::from(self.requests) / self.interval.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_rate() {
        let plan = ProbePlan::new(Duration::from_secs(1), 20, 0.5).unwrap();
        assert_eq!(plan.gap(), Some(Duration::from_millis(50)));
        assert_eq!(plan.rate_rps(), 20.0);
        assert_eq!(ProbePlan::PAUSED.gap(), None);
    }

    #[test]
    fn plans_that_cannot_be_followed_are_refused() {
        let second = Duration::from_secs(1);
        let plan = |interval, requests, jitter| ProbePlan::new(interval, requests, jitter).err();
        assert_eq!(plan(Duration::ZERO, 1, 0.0), Some(PlanError::Interval));
        assert_eq!(plan(DAY * 2, 1, 0.0), Some(PlanError::Interval));
        assert_eq!(plan(second, 100_001, 0.0), Some(PlanError::Requests));
        for jitter in [-0.1, 1.1, f64::NAN] {
            assert_eq!(plan(second, 1, jitter), Some(PlanError::Jitter));
        }
    }
}
