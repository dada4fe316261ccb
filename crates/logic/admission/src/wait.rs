//! Requests that wait at the egress, because every try was refused or because their policy rather waits.
//!
//! A refusal that goes back to a client who sends again at once frees no core and costs tries: with as many users as a
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
//! Cost: O(1) per event, but for [`WaitQueue::enter`] and [`WaitQueue::remove`], which find a place in O(log n) by its
//! time; in the midst of the queue they move those on its shorter side by one. Newcomers come in at the end, and those
//! that have been out for a try or have waited for too long are near the front. Nothing is allocated beyond the greatest
//! length.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_model::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Weight of the newest in the mean latency.
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
    pub timeout_ms: u64,
    /// How many may wait at once, at least 1; one more is refused at once.
    pub max_requests: u32,
}

impl Default for WaitOptions {
    fn default() -> Self {
        WaitOptions { timeout_ms: 10_000, max_requests: 1_024 }
    }
}

/// An option outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WaitOptionsError {
    /// No request could wait.
    #[error("timeout_ms is 0, expected at least 1; for no waiting leave the group out")]
    Timeout,
    /// No request could wait.
    #[error("max_requests is 0, expected at least 1; for no waiting leave the group out")]
    MaxRequests,
}

impl WaitOptions {
    /// Says what is out of range, if anything is.
    pub fn check(&self) -> Result<(), WaitOptionsError> {
        match self {
            WaitOptions { timeout_ms: 0, .. } => Err(WaitOptionsError::Timeout),
            WaitOptions { max_requests: 0, .. } => Err(WaitOptionsError::MaxRequests),
            _ => Ok(()),
        }
    }
}

/// Those of one egress that wait, in the order in which they began to. `T` is what the caller knows a request by.
#[derive(Clone, Debug)]
pub struct WaitQueue<T> {
    timeout: Duration,
    max_requests: usize,
    waiting: VecDeque<(Nanos, T)>,
    /// Mean time of a try that was let in.
    took_s: Option<f64>,
    /// When one was last sent.
    sent: Nanos,
}

impl<T: Copy + PartialEq> WaitQueue<T> {
    /// No request waits.
    ///
    /// # Errors
    /// [`WaitOptionsError`] when an option is out of range.
    pub fn new(options: &WaitOptions) -> Result<Self, WaitOptionsError> {
        options.check()?;
        Ok(WaitQueue {
            timeout: Duration::from_millis(options.timeout_ms),
            max_requests: options.max_requests as usize,
            waiting: VecDeque::new(),
            took_s: None,
            sent: Nanos::ZERO,
        })
    }

    /// A request was refused by all its tries, or rather waits; `since` is when it first came here, for one that was out for a
    /// try. Whether it waits: not where too many do, or its time is over.
    pub fn enter(&mut self, now: Nanos, since: Nanos, request: T) -> bool {
        if self.waiting.len() >= self.max_requests || now.since(since) >= self.timeout {
            return false;
        }
        if self.waiting.is_empty() {
            self.sent = now;
        }
        let place = self.waiting.partition_point(|&(at, _)| at <= since);
        self.waiting.insert(place, (since, request));
        true
    }

    /// The one to be sent where there is room, with the time since when it waits.
    pub fn next(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        self.sent = now;
        self.waiting.pop_front()
    }

    /// One whose time is over, if there is one: it has its last try.
    pub fn expired(&mut self, now: Nanos) -> Option<T> {
        let over = |&&(since, _): &&(Nanos, T)| now.since(since) >= self.timeout;
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

    /// When to ask for [`WaitQueue::expired`] and [`WaitQueue::overdue`]; absent where no request waits.
    pub fn due(&self) -> Option<Nanos> {
        let &(since, _) = self.waiting.front()?;
        Some((since + self.timeout).min(self.sent + self.interval()))
    }

    /// A request of this egress that was let in has ended, after so long.
    pub fn ended(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let mean = self.took_s.get_or_insert(took);
        *mean += (took - *mean) * NEWEST;
    }

    /// A client has gone whose request first came at this time; whether it was waiting.
    pub fn remove(&mut self, since: Nanos, request: T) -> bool {
        let first = self.waiting.partition_point(|&(at, _)| at < since);
        let mut same = self.waiting.range(first..).take_while(|&&(at, _)| at == since);
        let place = same.position(|&(_, waiting)| waiting == request);
        place.and_then(|place| self.waiting.remove(first + place)).is_some()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// No request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn interval(&self) -> Duration {
        let mean = |s: f64| Duration::from_secs_f64(s.min(MOST.as_secs_f64()));
        self.took_s.map_or(FIRST, mean).max(LEAST)
    }
}

/// How fast requests of one egress end: by it a policy says whether a request rather waits.
#[derive(Clone, Debug, Default)]
pub struct Endings {
    between_s: Option<f64>,
    last: Nanos,
}

impl Endings {
    /// A request that was let in has ended.
    pub fn one(&mut self, now: Nanos) {
        let between = now.since(self.last).as_secs_f64();
        self.last = now;
        let mean = self.between_s.get_or_insert(between);
        *mean += (between - *mean) * NEWEST;
    }

    /// How long one more would wait behind so many: as long as it takes until they and one more have ended; absent where
    /// that is not known.
    pub fn expected(&self, now: Nanos, waiting: usize) -> Option<Duration> {
        let between = self.between_s?.max(now.since(self.last).as_secs_f64());
        Some(Duration::from_secs_f64(between * (waiting + 1) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::ZERO + Duration::from_millis(ms)
    }

    fn queue(timeout_ms: u64, max_requests: u32) -> WaitQueue<u32> {
        WaitQueue::new(&WaitOptions { timeout_ms, max_requests }).expect("valid options")
    }

    #[test]
    fn the_queue_is_first_come_first_served_even_after_a_try() {
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
        assert!(queue.remove(ms(50), 2) && !queue.remove(ms(50), 2) && queue.is_empty());
    }

    #[test]
    fn one_is_tried_where_nothing_was_sent_for_as_long_as_a_request_takes() {
        let mut queue = queue(10_000, 8);
        queue.ended(Duration::from_millis(30));
        assert!(queue.enter(ms(10), ms(10), 1) && queue.enter(ms(20), ms(20), 2));
        assert_eq!(queue.due(), Some(ms(40)));
        assert_eq!((queue.overdue(ms(39)), queue.overdue(ms(40))), (None, Some((ms(10), 1))));
        assert_eq!(queue.due(), Some(ms(70)), "the other has its turn later");
    }

    thread_local! {
        static COMPARED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }

    #[derive(Clone, Copy)]
    struct Counted(u64);

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    #[test]
    fn one_that_leaves_is_found_by_its_time() {
        let options = WaitOptions { timeout_ms: 60_000, max_requests: 1_000 };
        let mut queue = WaitQueue::new(&options).expect("valid options");
        // Two come at each time.
        assert!((0..1_000).all(|k| queue.enter(ms(k / 2), ms(k / 2), Counted(k))));
        for k in (0..1_000).rev().step_by(3) {
            assert!(queue.remove(ms(k / 2), Counted(k)) && !queue.remove(ms(k / 2), Counted(k)));
        }
        assert!(!queue.remove(ms(5_000), Counted(1)) && queue.len() == 666);
        assert!(COMPARED.get() <= 3 * 334, "{} comparisons", COMPARED.get());
        let left: Vec<u64> = std::iter::from_fn(|| Some(queue.next(ms(501))?.1.0)).collect();
        assert!(left.is_sorted() && left.iter().all(|k| k % 3 != 0), "{left:?}");
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (timeout_ms, max_requests, name) in [(0, 1, "timeout_ms"), (1, 0, "max_requests")] {
            let error = WaitQueue::<u32>::new(&WaitOptions { timeout_ms, max_requests });
            assert!(error.expect_err("out of range").to_string().starts_with(name));
        }
    }

    #[test]
    fn the_wait_is_as_long_as_so_many_endings_take() {
        let mut endings = Endings::default();
        assert_eq!(endings.expected(ms(0), 0), None);
        (1..=200).for_each(|k| endings.one(ms(10 * k)));
        let expected = |at, waiting| endings.expected(ms(at), waiting).map(|wait| wait.as_millis());
        assert_eq!((expected(2_000, 0), expected(2_000, 1)), (Some(10), Some(20)));
        assert_eq!(expected(2_100, 1), Some(200), "none has ended for long");
    }
}
