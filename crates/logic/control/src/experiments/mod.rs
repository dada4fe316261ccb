//! Loads given in order to measure: curves measured again, drain times.

pub(crate) mod drain;
pub(crate) mod refresh;

use std::time::Duration;

use plimsoll_model::Nanos;

use crate::backend::Backend;
use crate::experiments::drain::DrainTimes;
use crate::experiments::refresh::Refresh;

/// Measurements in progress, and what they have shown that concerns the whole pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Experiments {
    refreshes: Vec<Refresh>,
    /// A pin was set or removed: the next decision is programmed whatever gain it promises.
    pins_changed: bool,
    drain: DrainTimes,
}

impl Experiments {
    /// Whether pins were set or removed since the last plan that takes them up.
    pub fn has_new_pins(&self) -> bool {
        self.pins_changed
    }

    /// A plan takes up the pins as they are; returns whether that is news.
    pub fn take_new_pins(&mut self) -> bool {
        std::mem::take(&mut self.pins_changed)
    }

    /// The pool is another one, and its pins are gone.
    pub fn clear(&mut self) {
        self.refreshes.clear();
    }

    /// After every report: records the backends that have drained.
    pub fn note_drained(&mut self, now: Nanos, backends: &mut [Backend]) {
        self.drain.note_drained(now, backends);
    }

    /// The longest of the recent drain times.
    pub fn longest_drain(&self) -> Option<Duration> {
        self.drain.longest()
    }

    /// For how long measurements wait for a drain, where one was seen.
    pub fn drain_to_wait(&self) -> Option<Duration> {
        self.drain.to_wait()
    }
}
