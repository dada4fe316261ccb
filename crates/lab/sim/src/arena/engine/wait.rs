//! Requests that wait at their balancer for room, by [`WaitQueue`]: those that all their tries refused, and those whose
//! policy rather waits than sends them where it knows of no room.

use std::cmp::Reverse;
use std::time::Duration;

use plimsoll_admission::{Endings, WaitOptions, WaitQueue};
use plimsoll_model::Nanos;
use plimsoll_policy::Probing;

use super::flight::{Flight, Phase};
use super::{Engine, NEVER};

/// Requests that wait at one balancer, and how fast its requests end.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) waiting: WaitQueue<u32>,
    endings: Endings,
}

/// One per balancer, none where none wait.
pub(super) fn queues(options: Option<&WaitOptions>, balancers: usize) -> Vec<Queue> {
    options.map_or_else(Vec::new, |options| vec![Queue::new(options); balancers])
}

impl Queue {
    fn new(options: &WaitOptions) -> Self {
        let waiting = WaitQueue::new(options).expect("valid options for waiting");
        Queue { waiting, endings: Endings::default() }
    }
}

impl Engine<'_> {
    /// A new request. Where others wait it does, too, and the first of them has its tries.
    pub(super) fn begin(&mut self, slot: u32, now: u64) {
        let balancer = self.flights[slot].balancer as usize;
        let others = self.queues.get(balancer).is_some_and(|queue| !queue.waiting.is_empty());
        if !others || !self.wait(slot, now) {
            return self.choose(slot, now);
        }
        if let Some((_, first)) = self.queues[balancer].waiting.next(Nanos(now)) {
            (self.flights[first].phase, self.flights[first].woken) = (Phase::Choosing, false);
            self.choose(first, now);
        }
    }

    /// Whether a request is held although there is a backend for it.
    pub(super) fn rather_waits(&mut self, slot: u32, backend: usize, now: u64) -> bool {
        let flight = &self.flights[slot];
        let balancer = flight.balancer as usize;
        let queue = self.queues.get(balancer).filter(|_| !flight.last);
        let here = queue.and_then(|queue| queue.endings.expected(Nanos(now), queue.waiting.len()));
        let policy = &mut self.balancers[balancer];
        here.is_some_and(|here| policy.rather_waits(backend, here, Nanos(now)))
    }

    /// How many further tries are announced to a backend: none by one that was woken, which has this try only, or that
    /// goes where it has to wait: its balancer knows of nothing better.
    pub(super) fn tries_left(&self, flight: &Flight) -> u32 {
        match flight.woken || flight.is_to_wait {
            true => 0,
            false => self.retries[flight.balancer as usize].tries_left(flight.refusals),
        }
    }

    /// A request was refused by all its tries, or rather waits; whether it does.
    pub(super) fn wait(&mut self, slot: u32, now: u64) -> bool {
        let flight = &mut self.flights[slot];
        let balancer = flight.balancer as usize;
        let Some(queue) = self.queues.get_mut(balancer).filter(|_| !flight.last) else {
            return false;
        };
        let since = *flight.waits_since.get_or_insert(Nanos(now));
        if !queue.waiting.enter(Nanos(now), since, slot) {
            return false;
        }
        (flight.phase, flight.refusals) = (Phase::Queued, 0);
        self.set_alarm(balancer);
        true
    }

    /// A request of this balancer has ended, and has left a core free.
    pub(super) fn left_room(&mut self, ended: &Flight, now: u64) {
        let balancer = ended.balancer as usize;
        let Some(queue) = self.queues.get_mut(balancer) else { return };
        queue.endings.one(Nanos(now));
        queue.waiting.ended(Duration::from_nanos(now - ended.sent));
        let Some((_, slot)) = queue.waiting.next(Nanos(now)) else { return };
        let (policy, backend) = (&mut self.balancers[balancer], ended.backend as usize);
        // One that asks anyhow finds out whether another has more room by now.
        if policy.probing() == Probing::Before || policy.is_closed(backend, Nanos(now)) {
            return self.wake(slot, now);
        }
        (self.flights[slot].woken, self.flights[slot].is_to_wait) = (true, false);
        self.dispatch(slot, backend, now);
    }

    /// Looks at the queue whose time has come.
    pub(super) fn attend(&mut self, now: u64) {
        let Some(Reverse((_, balancer))) = self.alarms.pop() else { return };
        let balancer = balancer as usize;
        self.alarm_at[balancer] = NEVER;
        while let Some(slot) = self.queues[balancer].waiting.expired(Nanos(now)) {
            let flight = &mut self.flights[slot];
            (flight.phase, flight.woken, flight.last) = (Phase::Choosing, false, true);
            self.choose(slot, now);
        }
        if let Some((_, slot)) = self.queues[balancer].waiting.overdue(Nanos(now)) {
            self.wake(slot, now);
        }
        self.set_alarm(balancer);
    }

    fn wake(&mut self, slot: u32, now: u64) {
        (self.flights[slot].phase, self.flights[slot].woken) = (Phase::Choosing, true);
        self.choose(slot, now);
    }

    fn set_alarm(&mut self, balancer: usize) {
        let Some(Nanos(due)) = self.queues[balancer].waiting.due() else { return };
        if due < self.alarm_at[balancer] {
            self.alarm_at[balancer] = due;
            self.alarms.push(Reverse((due, balancer as u32)));
        }
    }
}
