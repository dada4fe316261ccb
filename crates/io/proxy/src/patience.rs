//! One request that may wait: when it does, and what it may do when it is called.

use std::rc::Rc;

use plimsoll_model::Nanos;
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::balance::Balancer;
use crate::tally::PoolTally;
use crate::waiting::{Place, Turn};

/// Of one request.
pub(crate) struct Patience<'a> {
    balancer: Rc<Balancer>,
    alarm: &'a Alarm,
    turn: Turn,
    /// When it began to wait, if it has.
    since: Option<Nanos>,
}

/// Counts a request as waiting while it does.
struct Waits<'a> {
    tally: &'a PoolTally,
    is_called: bool,
}

impl<'a> Patience<'a> {
    /// Of a request that has just come.
    pub(crate) fn new(balancer: Rc<Balancer>, alarm: &'a Alarm) -> Self {
        Patience { balancer, alarm, turn: Turn::Tries, since: None }
    }

    /// A newcomer waits behind those that wait, if there is a place. Whether it is to be tried, before the deadline.
    pub(crate) async fn wait_behind(&mut self, deadline: Instant) -> bool {
        let place = self.balancer.waiting.as_ref().and_then(|waiting| waiting.enter_behind());
        match place {
            Some(place) => self.wait_in(place, deadline).await,
            None => true,
        }
    }

    /// All its tries were refused: whether it has waited and is to be tried again, before the deadline.
    pub(crate) async fn wait(&mut self, deadline: Instant) -> bool {
        let place = match (self.turn, &self.balancer.waiting) {
            (Turn::Last, _) | (_, None) => None,
            (_, Some(waiting)) => waiting.enter(self.since),
        };
        match place {
            Some(place) => self.wait_in(place, deadline).await,
            None => false,
        }
    }

    async fn wait_in(&mut self, place: Place, deadline: Instant) -> bool {
        let tally = self.balancer.tally.clone();
        if self.since.is_none() {
            tally.queue.total.one_more();
        }
        self.since = Some(place.since);
        let mut waits = Waits::new(&tally);
        let turn = place.turn(self.alarm, deadline).await;
        waits.is_called = true;
        let is_in_time = Instant::now() < deadline;
        match &self.balancer.waiting {
            Some(waiting) if !is_in_time => waiting.pass_on(turn),
            _ => self.turn = turn,
        }
        is_in_time
    }

    /// It is refused for good.
    pub(crate) fn give_up(&self) {
        if self.since.is_some() {
            self.balancer.tally.queue.refused.one_more();
        }
    }

    /// The backend that has room for it, once.
    pub(crate) fn room(&mut self) -> Option<usize> {
        match &mut self.turn {
            Turn::One(backend) => backend.take(),
            Turn::Tries | Turn::Last => None,
        }
    }

    /// Whether it is not tried again after one more refusal, but waits on.
    pub(crate) fn has_one_try(&self) -> bool {
        matches!(self.turn, Turn::One(_))
    }
}

impl<'a> Waits<'a> {
    fn new(tally: &'a PoolTally) -> Self {
        tally.queue.now.add(1);
        Waits { tally, is_called: false }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let queue = &self.tally.queue;
        queue.now.set(queue.now.get().saturating_sub(1));
        if !self.is_called {
            queue.client_left.one_more();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use plimsoll_policy::PolicyKind;
    use tokio::task::LocalSet;

    use super::*;
    use crate::balance::tests::{copies_with, pool};
    use crate::clock::Clock;
    use crate::waiting::Waiting;

    const MS: Duration = Duration::from_millis(1);

    /// A balancer of three backends, where up to two requests wait; the clock stands still.
    fn standing() -> (Rc<Balancer>, Arc<Waiting>) {
        let clock = Clock::Simulated(Box::leak(Box::new(AtomicU64::new(1))));
        let options = plimsoll_admission::WaitOptions { timeout_ms: 60_000, max_requests: 2 };
        let waiting = Waiting::new(&options, clock).expect("valid options");
        let pool = pool(PolicyKind::Random, 3);
        let balancer = copies_with(&pool, 1, clock, Some(waiting.clone())).remove(0);
        (balancer, waiting)
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// How many wait, have waited, were refused, have left.
    fn counts(balancer: &Balancer) -> [u64; 4] {
        let queue = &balancer.tally.queue;
        [&queue.now, &queue.total, &queue.refused, &queue.client_left].map(|count| count.get())
    }

    #[tokio::test]
    async fn a_turn_that_comes_at_the_deadline_is_the_next_ones() {
        let waits = async {
            let ((balancer, waiting), alarm) = (standing(), Alarm::default());
            let mut late = Patience::new(balancer.clone(), &alarm);
            let mut next = Patience::new(balancer.clone(), &alarm);
            let deadline = Instant::now();
            let mut late_waits = Box::pin(late.wait(deadline));
            assert!(poll(late_waits.as_mut()).is_pending());
            let mut next_waits = Box::pin(next.wait(far()));
            assert!(poll(next_waits.as_mut()).is_pending());
            waiting.ended(Some(2), MS);
            assert_eq!(poll(late_waits.as_mut()), Poll::Ready(false));
            assert_eq!(poll(next_waits.as_mut()), Poll::Ready(true), "nobody else has the turn");
            drop((late_waits, next_waits));
            assert_eq!((late.room(), next.room()), (None, Some(2)));
            late.give_up();
            assert_eq!(counts(&balancer), [0, 2, 1, 0]);
        };
        LocalSet::new().run_until(waits).await;
    }

    #[tokio::test]
    async fn one_that_is_called_has_one_try_at_that_backend_and_waits_on_in_its_place() {
        let waits = async {
            let ((balancer, waiting), alarm) = (standing(), Alarm::default());
            let mut first = Patience::new(balancer.clone(), &alarm);
            assert!(first.wait_behind(far()).await, "nobody is there to wait behind");
            assert_eq!((first.has_one_try(), counts(&balancer)), (false, [0; 4]));
            {
                let mut waits = pin!(first.wait(far()));
                assert!(poll(waits.as_mut()).is_pending() && balancer.others_wait());
                // One that fails: any backend will do.
                waiting.ended(None, MS);
                assert_eq!(poll(waits), Poll::Ready(true));
            }
            assert!(first.has_one_try() && !balancer.others_wait());
            assert_eq!(first.room(), None);
            {
                let mut waits = pin!(first.wait(far()));
                assert!(poll(waits.as_mut()).is_pending());
                balancer.has_room(1);
                assert_eq!(poll(waits), Poll::Ready(true));
            }
            assert_eq!([first.room(), first.room()], [Some(1), None], "once");
            assert_eq!(counts(&balancer), [0, 1, 0, 0]);
        };
        LocalSet::new().run_until(waits).await;
    }

    #[tokio::test]
    async fn a_newcomer_waits_behind_others_which_have_its_tries() {
        let waits = async {
            let ((balancer, _), alarm) = (standing(), Alarm::default());
            let mut first = Patience::new(balancer.clone(), &alarm);
            let mut newcomer = Patience::new(balancer.clone(), &alarm);
            let mut first_waits = Box::pin(first.wait(far()));
            assert!(poll(first_waits.as_mut()).is_pending());
            let mut newcomer_waits = Box::pin(newcomer.wait_behind(far()));
            assert!(poll(newcomer_waits.as_mut()).is_pending());
            assert_eq!(poll(first_waits.as_mut()), Poll::Ready(true));
            drop(first_waits);
            assert!(!first.has_one_try() && first.room().is_none());
            assert_eq!(counts(&balancer), [1, 2, 0, 0]);
            // Its client leaves.
            drop(newcomer_waits);
            assert!(!balancer.others_wait());
            assert_eq!(counts(&balancer), [0, 2, 0, 1]);
        };
        LocalSet::new().run_until(waits).await;
    }

    #[tokio::test]
    async fn one_too_many_is_refused_at_once_and_one_after_its_last_tries() {
        let waits = async {
            let ((balancer, waiting), alarm) = (standing(), Alarm::default());
            let held = [waiting.enter(None), waiting.enter(None)];
            let mut third = Patience::new(balancer.clone(), &alarm);
            assert!(!third.wait(far()).await, "there are places for two");
            third.give_up();
            assert_eq!(counts(&balancer), [0; 4], "it did not wait");
            drop(held);
            third.turn = Turn::Last;
            assert!(!third.wait(far()).await && !balancer.others_wait());
        };
        LocalSet::new().run_until(waits).await;
    }
}
