//! The process that the controller runs in: since when, with or without CPU time, and what it has warned of.

use std::time::Duration;

use crate::tuning::control::process::{SAVE_EVERY, STALL};
use plimsoll_model::Nanos;

/// The process and its clock.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    began_at: Nanos,
    saved_at: Nanos,
    last_step: Nanos,
    /// When it last had no CPU time for longer than [`STALL`].
    stalled_at: Nanos,
    warned_url: bool,
    warned_none_serves: bool,
    warned_errors: bool,
}

impl Process {
    pub fn new(now: Nanos) -> Self {
        Process {
            began_at: now,
            saved_at: now,
            last_step: now,
            stalled_at: now,
            warned_url: false,
            warned_none_serves: false,
            warned_errors: false,
        }
    }

    /// Takes the time of a step.
    pub fn note_step(&mut self, now: Nanos) {
        if now.since(self.last_step) > STALL {
            self.stalled_at = now;
        }
        self.last_step = now;
    }

    /// How long it has run.
    pub fn age(&self, now: Nanos) -> Duration {
        now.since(self.began_at)
    }

    /// Whether what began then may have timed out because the process had no CPU time.
    pub fn has_stalled_since(&self, began: Nanos) -> bool {
        began < self.stalled_at
    }

    /// Whether the memory is to be saved now.
    pub fn is_save_due(&mut self, now: Nanos) -> bool {
        let due = now.since(self.saved_at) >= SAVE_EVERY;
        if due {
            self.saved_at = now;
        }
        due
    }

    /// Whether to warn, once, that the work URL fails on every backend.
    pub fn may_warn_of_url(&mut self) -> bool {
        !std::mem::replace(&mut self.warned_url, true)
    }

    /// Whether to warn that no backend serves: once, until one returns.
    pub fn may_warn_that_none_serves(&mut self) -> bool {
        !std::mem::replace(&mut self.warned_none_serves, true)
    }

    /// Whether to warn that most backends answer with errors: once, until none does.
    pub fn may_warn_of_errors(&mut self) -> bool {
        !std::mem::replace(&mut self.warned_errors, true)
    }

    /// No backend answers with errors any longer.
    pub fn note_no_errors(&mut self) {
        self.warned_errors = false;
    }

    /// A backend has returned.
    pub fn note_return(&mut self) {
        self.warned_none_serves = false;
    }
}
