use std::time::Duration;

use plimsoll_control::Phase;

/// A controller counts as steady when it has been so for this long without a break.
pub const STEADY_FOR: Duration = Duration::from_secs(10);

/// Watches one controller until it is steady.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learning {
    since: Option<Duration>,
    learned: Option<Duration>,
}

impl Learning {
    /// It was in this phase at this time since its start.
    pub fn saw(&mut self, at: Duration, phase: Phase) {
        if phase != Phase::Steady {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(at);
        if at.saturating_sub(since) >= STEADY_FOR {
            self.learned.get_or_insert(since);
        }
    }

    /// When the first steady stretch of [`STEADY_FOR`] began; nothing before it is over.
    pub fn learned(&self) -> Option<Duration> {
        self.learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_starts_the_wait_anew_and_what_was_learned_stays_so() {
        let mut learning = Learning::default();
        let mut saw = |second, phase| {
            learning.saw(Duration::from_secs(second), phase);
            learning.learned()
        };
        assert_eq!(saw(1, Phase::Exploring), None);
        assert_eq!(saw(5, Phase::Steady), None);
        assert_eq!(saw(14, Phase::Steady), None);
        assert_eq!(saw(15, Phase::Exploring), None);
        assert_eq!(saw(20, Phase::Steady), None);
        assert_eq!(saw(29, Phase::Steady), None);
        assert_eq!(saw(30, Phase::Steady), Some(Duration::from_secs(20)));
        assert_eq!(saw(31, Phase::ShortOfCapacity), Some(Duration::from_secs(20)));
    }
}
