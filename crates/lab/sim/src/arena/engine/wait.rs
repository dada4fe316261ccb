//! Requests that wait at their balancer for room, by [`WaitQueue`].

use std::cmp::Reverse;
use std::time::Duration;

use plimsoll_admission::{WaitOptions, WaitQueue};
use plimsoll_model::Nanos;

use super::flight::{Flight, Phase};
use super::{Engine, NEVER};

/// Tries that one who may still wait has left: a backend draws its line at its cores then.
const MANY: u32 = 4;

pub(super) fn queues(options: Option<&WaitOptions>, balancers: usize) -> Vec<WaitQueue<u32>> {
    let queue = |options| WaitQueue::new(options).expect("valid options for waiting");
    options.map_or_else(Vec::new, |options| vec![queue(options); balancers])
}

fn env(name: &str) -> u32 {
    const N: [&str; 4] = ["W_ARRIVAL", "W_WOKEN", "W_MANY", "W_CHECK"];
    static A: std::sync::OnceLock<[u32; 4]> = std::sync::OnceLock::new();
    let all = A.get_or_init(|| {
        N.map(|n| std::env::var(n).ok().and_then(|v| v.parse().ok()).unwrap_or(0))
    });
    N.iter().position(|n| *n == name).map_or(0, |k| all[k])
}

impl Engine<'_> {
    /// A new request: it waits where others do, and has its tries otherwise.
    pub(super) fn begin(&mut self, slot: u32, now: u64) {
        let balancer = self.flights[slot].balancer as usize;
        if env("W_ARRIVAL") > 0 && self.queues.get(balancer).is_some_and(|queue| !queue.is_empty()) {
            if self.wait(slot, now) {
                if env("W_ARRIVAL") == 1 {
                    if let Some((_, head)) = self.queues[balancer].next(Nanos(now)) {
                        self.flights[head].phase = Phase::Choosing;
                        self.choose(head, now);
                    }
                }
                return;
            }
        }
        self.choose(slot, now);
    }

    /// Whether it is held although there is a backend for it.
    pub(super) fn rather_waits(&mut self, slot: u32, backend: usize, now: u64) -> bool {
        let balancer = self.flights[slot].balancer as usize;
        let here = self.queues.get(balancer).and_then(|queue| queue.expected(Nanos(now)));
        let policy = &mut self.balancers[balancer];
        here.is_some_and(|here| policy.rather_waits(backend, here, Nanos(now)))
    }

    /// What a backend is told of further tries.
    pub(super) fn tries_left(&self, flight: &Flight) -> u32 {
        let left = self.retries[flight.balancer as usize].tries_left(flight.refusals);
        match (self.queues.is_empty(), flight.last) {
            (true, _) => left,
            (_, true) => 0,
            _ if flight.woken && env("W_WOKEN") > 0 => env("W_WOKEN") - 1,
            _ => left.max(MANY.saturating_sub(env("W_MANY"))),
        }
    }

    /// A request was refused by all its tries; whether it waits.
    pub(super) fn wait(&mut self, slot: u32, now: u64) -> bool {
        let flight = &mut self.flights[slot];
        let balancer = flight.balancer as usize;
        let Some(queue) = self.queues.get_mut(balancer).filter(|_| !flight.last) else {
            return false;
        };
        let since = *flight.waits_since.get_or_insert(Nanos(now));
        if !queue.enter(Nanos(now), since, slot) {
            return false;
        }
        (flight.phase, flight.woken, flight.refusals) = (Phase::Queued, false, 0);
        self.set_alarm(balancer);
        true
    }

    /// A request of this balancer has ended, and has left a core free.
    pub(super) fn left_room(&mut self, ended: &Flight, now: u64) {
        let Some(queue) = self.queues.get_mut(ended.balancer as usize) else { return };
        queue.answered(Nanos(now), Duration::from_nanos(now - ended.sent));
        if let Some((_, slot)) = queue.next(Nanos(now)) {
            if env("W_CHECK") == 2 {
                self.flights[slot].phase = Phase::Choosing;
                return self.choose(slot, now);
            }
            self.flights[slot].woken = true;
            self.dispatch(slot, ended.backend as usize, now);
        }
    }

    /// Looks at the queue whose time has come.
    pub(super) fn attend(&mut self, now: u64) {
        let Some(Reverse((_, balancer))) = self.alarms.pop() else { return };
        let balancer = balancer as usize;
        self.alarm_at[balancer] = NEVER;
        while let Some(slot) = self.queues[balancer].expired(Nanos(now)) {
            (self.flights[slot].phase, self.flights[slot].last) = (Phase::Choosing, true);
            self.choose(slot, now);
        }
        if let Some((_, slot)) = self.queues[balancer].overdue(Nanos(now)) {
            self.flights[slot].phase = Phase::Choosing;
            self.choose(slot, now);
        }
        self.set_alarm(balancer);
    }

    fn set_alarm(&mut self, balancer: usize) {
        let Some(Nanos(due)) = self.queues[balancer].due() else { return };
        if due < self.alarm_at[balancer] {
            self.alarm_at[balancer] = due;
            self.alarms.push(Reverse((due, balancer as u32)));
        }
    }
}
