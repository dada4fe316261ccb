//! Requests that were given up, and that the application still works on or has before others.
//!
//! When one is done is not seen. Applications take what comes first first, about: one that came later and was answered
//! shows that it is done. Where none is, it is taken for done at a time that was set when it was given up.
//!
//! Without this an ingress under overload counts too few: what is late leaves the count and not the queue, so more is
//! let in, which is late as well. And as only those are learned from that were answered in time, no request is seen to
//! take longer.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_model::Nanos;

/// No more are kept: the oldest is taken for done.
const MOST: usize = 4_096;

/// A request that no client waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    /// How many it found.
    pub(crate) found: u32,
    /// When it was let in.
    pub(crate) at: Nanos,
    /// When it is taken for done, if nothing has shown it before.
    pub(crate) until: Nanos,
    /// It was given up because its time was over: how long it takes is to be learned.
    pub(crate) is_late: bool,
}

/// They, in the order in which they were let in. O(1) for those that are given up in that order.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftBehind(VecDeque<Lost>);

impl LeftBehind {
    pub(crate) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    pub(crate) fn push(&mut self, lost: Lost) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        let after = self.0.iter().rev().take_while(|other| other.at > lost.at).count();
        self.0.insert(self.0.len() - after, lost);
    }

    /// One that was let in then is answered: those before it are done. `learn` gets those that were late.
    pub(crate) fn overtaken(&mut self, by: Nanos, mut learn: impl FnMut(Lost)) {
        while let Some(lost) = self.0.front().copied().filter(|lost| lost.at < by) {
            self.0.pop_front();
            if lost.is_late {
                learn(lost);
            }
        }
    }

    /// Those whose time is over are taken for done, and to have taken so long.
    pub(crate) fn expire(&mut self, now: Nanos, mut learn: impl FnMut(Lost, Duration)) {
        while let Some(lost) = self.0.front().copied().filter(|lost| lost.until <= now) {
            self.0.pop_front();
            if lost.is_late {
                learn(lost, lost.until.since(lost.at));
            }
        }
    }
}
