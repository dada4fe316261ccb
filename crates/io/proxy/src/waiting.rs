//! Requests of one pool of one entry that wait for room, on all its threads: [`WaitQueue`] behind a lock, taken only
//! where a request waits or begins to. Whoever sends requests reads one number.
//!
//! Each that waits has a [`Place`]. It is called with a [`Turn`]: by a request that has ended, by a response that says
//! there is room, by a newcomer, or by the attendant, a task that lives for as long as anybody waits. A place that is
//! dropped (its client has left) is out of the queue at once; a turn that it had not taken yet goes to the next.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_admission::{WaitOptions, WaitOptionsError, WaitQueue};
use plimsoll_model::Nanos;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::clock::Clock;

/// What a request that waited may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// All tries, as a newcomer has.
    Tries,
    /// One try: at this backend, which has room, or at any.
    One(Option<usize>),
    /// Its last tries: it has waited for as long as it may.
    Last,
}

/// The requests that wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    clock: Clock,
    timeout: Duration,
    /// How many wait. Written under the lock.
    length: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    queue: WaitQueue<u64>,
    /// Of those that wait: what calls them.
    calls: HashMap<u64, oneshot::Sender<Turn>>,
    last_ticket: u64,
    is_attended: bool,
}

impl Inner {
    /// Whether it was taken: a place that is being dropped gives it back by itself.
    fn call(&mut self, ticket: u64, turn: Turn) -> bool {
        self.calls.remove(&ticket).is_some_and(|call| call.send(turn).is_ok())
    }

    fn call_next(&mut self, now: Nanos, turn: Turn) {
        while let Some((_, ticket)) = self.queue.next(now) {
            if self.call(ticket, turn) {
                return;
            }
        }
    }

    /// Calls those whose time is over, and one where nothing was sent for long. When to look again, if anybody waits.
    fn attend(&mut self, now: Nanos) -> Option<Nanos> {
        while let Some(ticket) = self.queue.expired(now) {
            self.call(ticket, Turn::Last);
        }
        if let Some((_, ticket)) = self.queue.overdue(now) {
            self.call(ticket, Turn::One(None));
        }
        self.queue.due()
    }
}

impl Waiting {
    /// No request waits.
    ///
    /// # Errors
    /// When an option is out of range.
    pub(crate) fn new(options: &WaitOptions, clock: Clock) -> Result<Arc<Self>, WaitOptionsError> {
        let queue = WaitQueue::new(options)?;
        let (calls, timeout) = (HashMap::new(), Duration::from_millis(options.timeout_ms));
        let inner = Inner { queue, calls, last_ticket: 0, is_attended: false };
        let inner = Mutex::new(inner);
        Ok(Arc::new(Waiting { clock, timeout, length: AtomicUsize::new(0), inner }))
    }

    /// How many do.
    pub(crate) fn count(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    /// Whether none does.
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// A place for a request that first came here at this time, if there is one left.
    pub(crate) fn enter(self: &Arc<Self>, since: Option<Nanos>) -> Option<Place> {
        let now = self.clock.now();
        self.with(|inner| self.place(inner, now, since.unwrap_or(now)))
    }

    /// A place for a newcomer where others wait, if there is one left; the first of all has its tries. None where
    /// no request waits.
    pub(crate) fn enter_behind(self: &Arc<Self>) -> Option<Place> {
        let now = self.clock.now();
        self.with(|inner| {
            if inner.queue.is_empty() {
                return None;
            }
            let place = self.place(inner, now, now)?;
            inner.call_next(now, Turn::Tries);
            Some(place)
        })
    }

    /// A request that this backend had let in has ended after so long; `backend` is none where it failed.
    pub(crate) fn ended(&self, backend: Option<usize>, took: Duration) {
        if !self.is_empty() {
            let now = self.clock.now();
            self.with(|inner| {
                inner.queue.ended(took);
                inner.call_next(now, Turn::One(backend));
            });
        }
    }

    /// A backend says that it has room.
    pub(crate) fn has_room(&self, backend: usize) {
        if !self.is_empty() {
            let now = self.clock.now();
            self.with(|inner| inner.call_next(now, Turn::One(Some(backend))));
        }
    }

    /// Whoever had this turn has no use for it: it is the next one's.
    pub(crate) fn pass_on(&self, turn: Turn) {
        if turn != Turn::Last {
            let now = self.clock.now();
            self.with(|inner| inner.call_next(now, turn));
        }
    }

    fn place(self: &Arc<Self>, inner: &mut Inner, now: Nanos, since: Nanos) -> Option<Place> {
        let ticket = inner.last_ticket + 1;
        if !inner.queue.enter(now, since, ticket) {
            return None;
        }
        inner.last_ticket = ticket;
        let (call, turn) = oneshot::channel();
        inner.calls.insert(ticket, call);
        if !inner.is_attended {
            inner.is_attended = true;
            tokio::task::spawn_local(attend(Attendant { waiting: self.clone(), is_done: false }));
        }
        let until = Instant::now() + self.timeout.saturating_sub(now.since(since));
        Some(Place { waiting: self.clone(), since, until, ticket, turn, is_called: false })
    }

    /// What is done with the lock. No panic leaves it half done: whatever happens, those that wait have their own time.
    fn with<T>(&self, what: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner: MutexGuard<'_, Inner> =
            self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let done = what(&mut inner);
        self.length.store(inner.queue.len(), Ordering::Relaxed);
        done
    }
}

/// The task that looks after those that wait. Where its thread ends before them another is begun by the next that
/// comes; until then requests that end call them, and their own time.
struct Attendant {
    waiting: Arc<Waiting>,
    is_done: bool,
}

async fn attend(mut attendant: Attendant) {
    while let Some(due) = attendant.look() {
        let now = attendant.waiting.clock.now();
        tokio::time::sleep(due.since(now)).await;
    }
}

impl Attendant {
    fn look(&mut self) -> Option<Nanos> {
        let now = self.waiting.clock.now();
        let due = self.waiting.with(|inner| {
            let due = inner.attend(now);
            inner.is_attended = due.is_some();
            due
        });
        self.is_done = due.is_none();
        due
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        if !self.is_done {
            self.waiting.with(|inner| inner.is_attended = false);
        }
    }
}

/// A request's place among those that wait.
#[derive(Debug)]
pub(crate) struct Place {
    waiting: Arc<Waiting>,
    /// When it first came.
    pub(crate) since: Nanos,
    until: Instant,
    ticket: u64,
    turn: oneshot::Receiver<Turn>,
    /// Its turn has been taken.
    is_called: bool,
}

impl Place {
    /// Waits for its turn, at most until then.
    pub(crate) async fn turn(mut self, alarm: &Alarm, deadline: Instant) -> Turn {
        let until = self.until.min(deadline);
        let called = alarm.by(|| until, &mut self.turn).await;
        let turn = match called {
            Some(called) => called.unwrap_or(Turn::Last),
            None => self.take_out().unwrap_or(Turn::Last),
        };
        self.is_called = true;
        turn
    }

    /// Out of the queue, if it is in it; else the turn that it has not taken.
    fn take_out(&mut self) -> Option<Turn> {
        let (since, ticket) = (self.since, self.ticket);
        let was_waiting = self.waiting.with(|inner| {
            inner.calls.remove(&ticket);
            inner.queue.remove(since, ticket)
        });
        if was_waiting { None } else { self.turn.try_recv().ok() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_called {
            return;
        }
        if let Some(turn) = self.take_out() {
            self.waiting.pass_on(turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicU64;

    use tokio::task::LocalSet;

    use super::*;

    fn waiting(timeout_ms: u64, max_requests: u32) -> Arc<Waiting> {
        let clock = Clock::Simulated(Box::leak(Box::new(AtomicU64::new(1))));
        Waiting::new(&WaitOptions { timeout_ms, max_requests }, clock).expect("valid options")
    }

    fn taken(place: &mut Place) -> Option<Turn> {
        place.turn.try_recv().ok()
    }

    #[tokio::test]
    async fn the_end_of_a_request_calls_the_first_in_the_queue_and_an_unused_turn_goes_to_the_next()
    {
        let local = LocalSet::new();
        local
            .run_until(async {
                let waiting = waiting(60_000, 8);
                waiting.ended(Some(3), Duration::from_millis(1));
                assert!(waiting.enter_behind().is_none(), "nobody is there to wait behind");
                let first = waiting.enter(None).expect("a place");
                let mut second = waiting.enter(None).expect("a place");
                let mut third = waiting.enter(None).expect("a place");
                waiting.ended(Some(3), Duration::from_millis(1));
                assert_eq!((taken(&mut second), waiting.is_empty()), (None, false));
                // Called, but its client has left.
                drop(first);
                assert_eq!(taken(&mut second), Some(Turn::One(Some(3))));
                second.is_called = true;
                let newcomer = waiting.enter_behind().expect("a place");
                assert_eq!(taken(&mut third), Some(Turn::Tries));
                third.is_called = true;
                drop(newcomer);
                assert!(waiting.is_empty(), "who leaves is out at once");
            })
            .await;
    }

    #[tokio::test]
    async fn a_queue_timeout_ends_with_a_last_try_and_the_queue_is_bounded() {
        let local = LocalSet::new();
        let alarm = Alarm::default();
        local
            .run_until(async {
                let waiting = waiting(30, 1);
                let place = waiting.enter(None).expect("a place");
                assert!(waiting.enter(None).is_none(), "no more than one");
                let far = Instant::now() + Duration::from_secs(3_600);
                // The clock of the queue stands still: its own time calls it.
                let mut turn = pin!(place.turn(&alarm, far));
                let turn = alarm.wake(|cx| turn.as_mut().poll(cx)).await;
                assert_eq!((turn, waiting.is_empty()), (Turn::Last, true));
            })
            .await;
    }
}
