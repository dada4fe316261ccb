use std::time::Duration;

/// What remains of the budget after the last client: its patience, and the end of the processes.
const TAIL: Duration = Duration::from_secs(11);
/// The part of the time that learning may take.
const LEARNING_SHARE: f64 = 0.45;
/// Learning takes no longer than this, however much time there is.
const LEARN_AT_MOST: Duration = Duration::from_secs(180);

/// When what happens, counted from the first client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Measuring begins at the latest.
    pub learn_at_most: Duration,
    /// The last client comes, and measuring ends.
    pub whole: Duration,
}

impl Timeline {
    /// What fits this budget, of which so much is spent already.
    pub fn within(budget: Duration, spent: Duration) -> Self {
        // At least a second, should the start have taken nearly all of a small budget.
        let whole = budget.saturating_sub(spent + TAIL).max(Duration::from_secs(1));
        Timeline { learn_at_most: whole.mul_f64(LEARNING_SHARE).min(LEARN_AT_MOST), whole }
    }

    /// Whether measuring begins now.
    pub fn learning_is_over(&self, passed: Duration, all_learned: bool) -> bool {
        all_learned || passed >= self.learn_at_most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn phases_fit_the_budget() {
        for budget in [40, 240, 3600] {
            let timeline = Timeline::within(seconds(budget), seconds(2));
            assert!(timeline.whole + TAIL + seconds(2) <= seconds(budget));
            // Measuring is never the shorter part.
            assert!(timeline.learn_at_most < timeline.whole - timeline.learn_at_most);
        }
        let usual = Timeline::within(seconds(240), seconds(2));
        assert!(
            usual.learn_at_most > seconds(90) && usual.whole - usual.learn_at_most > seconds(120)
        );
        assert_eq!(Timeline::within(seconds(3600), seconds(2)).learn_at_most, LEARN_AT_MOST);
        assert_eq!(Timeline::within(seconds(40), seconds(60)).whole, seconds(1));
    }

    #[test]
    fn measuring_begins_when_all_have_learned_or_time_is_up() {
        let timeline = Timeline::within(seconds(240), seconds(2));
        assert!(!timeline.learning_is_over(seconds(50), false));
        assert!(timeline.learning_is_over(seconds(50), true));
        assert!(timeline.learning_is_over(timeline.learn_at_most, false));
    }
}
