//! Weights that another party sets: corrected at once, but not in a fight.

use crate::tuning::commit::foreign::{FOREIGN_LIMIT, MINUTE};
use crate::tuning::gate::decide::STEADY_EVERY;
use plimsoll_model::Nanos;

/// Counts the changes that another party makes.
#[derive(Clone, Debug)]
pub(crate) struct ForeignChanges {
    /// When the current minute began, and how many changes it had.
    minute_began: Nanos,
    count: u32,
    /// Until then contested weights are not programmed again.
    wait_until: Nanos,
}

impl ForeignChanges {
    pub fn new(now: Nanos) -> Self {
        ForeignChanges { minute_began: now, count: 0, wait_until: now }
    }

    /// Counts one more; returns whether it is the first of a fight.
    pub fn note(&mut self, now: Nanos) -> bool {
        if now.since(self.minute_began) > MINUTE {
            (self.minute_began, self.count) = (now, 0);
        }
        self.count += 1;
        self.count == FOREIGN_LIMIT + 1
    }

    /// In a fight the next answer is at the usual interval after the last change.
    pub fn wait(&mut self, changed_at: Nanos) {
        if self.count > FOREIGN_LIMIT {
            self.wait_until = changed_at + STEADY_EVERY;
        }
    }

    /// Whether contested weights may be programmed again.
    pub fn may_answer(&self, now: Nanos) -> bool {
        now >= self.wait_until
    }
}
