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
            tally.waits.begun.one_more();
        }
        self.since = Some(place.since);
        let mut waits = Waits::new(&tally);
        self.turn = place.turn(self.alarm, deadline).await;
        waits.is_called = true;
        Instant::now() < deadline
    }

    /// It is refused for good.
    pub(crate) fn give_up(&self) {
        if self.since.is_some() {
            self.balancer.tally.waits.given_up.one_more();
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
        tally.waits.now.add(1);
        Waits { tally, is_called: false }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let waits = &self.tally.waits;
        waits.now.set(waits.now.get().saturating_sub(1));
        if !self.is_called {
            waits.left.one_more();
        }
    }
}
