//! Requests that wait at the egress, because every try was refused or because their policy rather waits.
//!
//! A refusal that goes back to a client who sends again at once frees nobody and costs tries: with as many users as a
//! pool can hold and one more, that one alone is refused as often as it asks. Here the request waits instead, before any
//! backend has it, and goes where there is room first: where one of this egress' own requests has ended, a core was just
//! left free. That is late binding (Ousterhout and others, Sparrow, SOSP 2013): a request that waits here is behind no
//! long one, as it may be in a backend's queue. HAProxy's `maxconn` queues do the same by a static limit; here the
//! backend draws the line.
//!
//! First come, first served. A new request waits where others do, and the first of them has its tries. One is tried, too,
//! where nothing has been sent for as long as a request takes: an egress with nothing in flight sees no ending. Newest
//! first, once one has waited in vain, had a median a fifth lower in overload, and lost a third more of closed users'
//! requests: it is not here.
//!
//! Cost: O(1) per event, but for [`WaitQueue::enter`] of one that has been out for a try and [`WaitQueue::remove`], which
//! look through those that wait. Nothing is allocated beyond the greatest length.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_model::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Weight of the newest in the mean latency and the mean time between endings.
const NEWEST: f64 = 0.05;
/// How long until one is tried where nothing is sent, before anything is known, and the bounds of that.
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
        })
    }

    /// A request was refused by all its tries, or rather waits; `since` is when it first came here, for one that was out for a
    /// try. Whether it waits: not where too many do, or its time is over.
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
        self.waiting.pop_front()
    }

    /// One whose time is over, if there is one: it has its last try.
    pub fn expired(&mut self, now: Nanos) -> Option<T> {
        let over = |&&(since, _): &&(Nanos, T)| now.since(since) >= self.max_wait;
        self.waiting.front().filter(over)?;
        self.waiting.pop_front().map(|(_, request)| request)
    }

    /// The one to be tried because nothing was sent for as long as a request takes.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::ZERO + Duration::from_millis(ms)
    }

    fn queue(max_wait_ms: u64, most: u32) -> WaitQueue<u32> {
        WaitQueue::new(&WaitOptions { max_wait_ms, most }).expect("valid options")
    }

    #[test]
    fn who_came_first_is_first_even_after_a_try() {
        let mut queue = queue(1_000, 8);
        assert_eq!((queue.due(), queue.next(ms(0))), (None, None));
        assert!(queue.enter(ms(1), ms(1), 1) && queue.enter(ms(2), ms(2), 2));
        assert_eq!(queue.next(ms(3)), Some((ms(1), 1)));
        assert!(queue.enter(ms(4), ms(4), 3) && queue.enter(ms(5), ms(1), 1));
        let all: Vec<u32> = std::iter::from_fn(|| Some(queue.next(ms(6))?.1)).collect();
        assert_eq!(all, [1, 2, 3]);
    }

    #[test]
    fn it_holds_so_many_for_so_long() {
        let mut queue = queue(100, 2);
        assert!(queue.enter(ms(0), ms(0), 1) && queue.enter(ms(50), ms(50), 2));
        assert!(!queue.enter(ms(60), ms(60), 3), "too many");
        assert_eq!((queue.expired(ms(99)), queue.expired(ms(100))), (None, Some(1)));
        assert!(!queue.enter(ms(101), ms(0), 1), "its time is over");
        assert!(queue.remove(2) && !queue.remove(2) && queue.is_empty());
    }

    #[test]
    fn one_is_tried_where_nothing_was_sent_for_as_long_as_a_request_takes() {
        let mut queue = queue(10_000, 8);
        queue.ended(ms(0), Duration::from_millis(30));
        assert!(queue.enter(ms(10), ms(10), 1) && queue.enter(ms(20), ms(20), 2));
        assert_eq!(queue.due(), Some(ms(40)));
        assert_eq!((queue.overdue(ms(39)), queue.overdue(ms(40))), (None, Some((ms(10), 1))));
        assert_eq!(queue.due(), Some(ms(70)), "the other has its turn later");
    }

    #[test]
    fn the_wait_is_as_long_as_so_many_endings_take() {
        let mut queue = queue(10_000, 8);
        assert_eq!(queue.expected(ms(0)), None);
        (1..=200).for_each(|k| queue.ended(ms(10 * k), Duration::from_millis(30)));
        assert_eq!(queue.expected(ms(2_000)).map(|d| d.as_millis()), Some(10));
        assert!(queue.enter(ms(2_000), ms(2_000), 1));
        assert_eq!(queue.expected(ms(2_000)).map(|d| d.as_millis()), Some(20));
        let long = queue.expected(ms(2_100)).map(|d| d.as_millis());
        assert_eq!(long, Some(200), "none has ended for long");
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (max_wait_ms, most, name) in [(0, 1, "max_wait_ms"), (1, 0, "most")] {
            let error = WaitQueue::<u32>::new(&WaitOptions { max_wait_ms, most });
            assert!(error.expect_err("out of range").to_string().starts_with(name));
        }
    }
}
