//! Requests that wait at the egress because every try was refused.
//!
//! A refusal that goes back to its client at once is worth little where the client sends again at once: it has cost
//! tries, and nobody waits less. Here the request waits instead, before any backend has it, and goes to the one that has
//! room first: where one of this egress' own requests has ended, a core was just left free. That is late binding (Sparrow,
//! SOSP 2013): a request that waits here is behind no long one, as it may be in a backend's queue. HAProxy's `maxconn`
//! queues do the same with a static limit; here the backend draws the line.
//!
//! Cost: O(1) per event, but for [`WaitQueue::enter`] of one that has been out for a try and [`WaitQueue::remove`], which
//! look through those that wait. Nothing is allocated beyond the greatest length.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_model::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Weight of the newest latency in the mean that sets how often is tried where nothing ends.
const NEWEST: f64 = 0.05;
/// The interval before anything is known, and its bounds.
const FIRST: Duration = Duration::from_millis(100);
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_secs(1);

/// How requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WaitOptions {
    /// How long one may wait, milliseconds, at least 1. After that it has one last try, by the backend's whole limit.
    pub max_wait_ms: u64,
    /// How many may wait at once, at least 1; the client of one more is told at once that it was refused.
    pub most: u32,
}

impl Default for WaitOptions {
    fn default() -> Self {
        WaitOptions { max_wait_ms: 5_000, most: 1_024 }
    }
}

/// An option outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WaitOptionsError {
    /// Nobody could wait.
    #[error("max_wait_ms is 0, expected at least 1; for no waiting leave the group out")]
    MaxWait,
    /// Nobody could wait.
    #[error("most is 0, expected at least 1; for no waiting leave the group out")]
    Most,
}

impl WaitOptions {
    /// Says what is out of range, if anything is.
    pub fn check(&self) -> Result<(), WaitOptionsError> {
        match self {
            WaitOptions { max_wait_ms: 0, .. } => Err(WaitOptionsError::MaxWait),
            WaitOptions { most: 0, .. } => Err(WaitOptionsError::Most),
            _ => Ok(()),
        }
    }
}

/// Those of one egress that wait, in the order in which they began to. `T` is what the caller knows a request by.
#[derive(Clone, Debug)]
pub struct WaitQueue<T> {
    max_wait: Duration,
    most: usize,
    waiting: VecDeque<(Nanos, T)>,
    /// Mean time of a try that was let in, and between their endings.
    took_s: Option<f64>,
    between_s: Option<f64>,
    ended: Nanos,
    /// When one was last sent.
    sent: Nanos,
    /// One has waited in vain since there was last nobody.
    newest_first: bool,
}

impl<T: Copy + PartialEq> WaitQueue<T> {
    /// Nobody waits.
    ///
    /// # Errors
    /// [`WaitOptionsError`] when an option is out of range.
    pub fn new(options: &WaitOptions) -> Result<Self, WaitOptionsError> {
        options.check()?;
        Ok(WaitQueue {
            max_wait: Duration::from_millis(options.max_wait_ms),
            most: options.most as usize,
            waiting: VecDeque::new(),
            took_s: None,
            between_s: None,
            ended: Nanos::ZERO,
            sent: Nanos::ZERO,
            newest_first: false,
        })
    }

    /// A request was refused by all its tries; `since` is when it first came here, for one that was out for a try. Whether
    /// it waits: not where too many do, or its time is over.
    pub fn enter(&mut self, now: Nanos, since: Nanos, request: T) -> bool {
        if self.waiting.len() >= self.most || now.since(since) >= self.max_wait {
            return false;
        }
        if self.waiting.is_empty() {
            self.sent = now;
        }
        let place = self.waiting.iter().position(|&(at, _)| at > since);
        self.waiting.insert(place.unwrap_or(self.waiting.len()), (since, request));
        true
    }

    /// The one to be sent where there is room, with the time since when it waits.
    pub fn next(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        self.sent = now;
        let next = match self.newest_first {
            true => self.waiting.pop_back(),
            false => self.waiting.pop_front(),
        };
        self.newest_first &= !self.waiting.is_empty();
        next
    }

    /// One whose time is over, if there is one: it has its last try.
    pub fn expired(&mut self, now: Nanos) -> Option<T> {
        let over = |&&(since, _): &&(Nanos, T)| now.since(since) >= self.max_wait;
        self.waiting.front().filter(over)?;
        let (_, request) = self.waiting.pop_front()?;
        self.newest_first = std::env::var("NF").is_err() && !self.waiting.is_empty();
        Some(request)
    }

    /// The one to be tried because nothing has ended here for as long as one takes.
    pub fn overdue(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        if now.since(self.sent) < self.interval() {
            return None;
        }
        self.next(now)
    }

    /// When to ask for [`WaitQueue::expired`] and [`WaitQueue::overdue`]; absent where nobody waits.
    pub fn due(&self) -> Option<Nanos> {
        let &(since, _) = self.waiting.front()?;
        Some((since + self.max_wait).min(self.sent + self.interval()))
    }

    /// A request of this egress that was let in has ended, after so long.
    pub fn ended(&mut self, now: Nanos, took: Duration) {
        let between = now.since(self.ended).as_secs_f64();
        self.ended = now;
        let mean = self.between_s.get_or_insert(between);
        *mean += (between - *mean) * NEWEST;
        let took = took.as_secs_f64();
        let mean = self.took_s.get_or_insert(took);
        *mean += (took - *mean) * NEWEST;
    }

    /// How long one more would wait: as long as it takes until so many have ended; absent where that is not known.
    pub fn expected(&self, now: Nanos) -> Option<Duration> {
        let between = self.between_s?.max(now.since(self.ended).as_secs_f64());
        Some(Duration::from_secs_f64(between * (self.waiting.len() + 1) as f64))
    }

    /// A client has gone; whether its request was waiting.
    pub fn remove(&mut self, request: T) -> bool {
        let place = self.waiting.iter().position(|&(_, waiting)| waiting == request);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn interval(&self) -> Duration {
        let mean = |s: f64| Duration::from_secs_f64(s.min(MOST.as_secs_f64()));
        self.took_s.map_or(FIRST, mean).max(LEAST)
    }
}
