//! How a backend's cores share its requests, on an ideal schedule.
//!
//! Time is an argument, and a finish has the time at which it *would* happen on perfect cores. Who
//! learns of it late (a timer of a real machine) replies late, but the next request has started on
//! time: a late timer costs no capacity. With a schedule that follows the timers, 1 ms of lateness
//! costs 3 % of a backend that needs 30 ms for a request.

mod fifo;
mod ps;

use plimsoll_model::Nanos;
use serde::{Deserialize, Serialize};

use fifo::Fifo;
use ps::Ps;

/// The order of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// First in, first out: a request waits for a core and then has it for itself.
    #[default]
    Fifo,
    /// Processor sharing: all requests are in service, and each gets `min(1, cores / n)` of a core.
    Ps,
}

/// A request to serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Job {
    /// The caller's own number for it.
    pub id: u64,
    /// What is left to do: nanoseconds on a core of speed 1.
    pub work: f64,
}

/// A request that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// As in [`Job`].
    pub id: u64,
    /// When, on the ideal schedule.
    pub at: Nanos,
}

/// The cores of one backend and the requests at them.
#[derive(Debug)]
pub(crate) enum Queue {
    Fifo(Fifo),
    Ps(Ps),
}

impl Queue {
    /// Idle cores; `speed` is work done per nanosecond and core.
    pub(crate) fn new(discipline: Discipline, cores: u32, speed: f64, now: Nanos) -> Self {
        match discipline {
            Discipline::Fifo => Queue::Fifo(Fifo::new(cores, speed)),
            Discipline::Ps => Queue::Ps(Ps::new(cores, speed, now)),
        }
    }

    /// Takes a request in. Time must not run backwards between calls.
    pub(crate) fn arrive(&mut self, now: Nanos, job: Job) {
        match self {
            Queue::Fifo(q) => q.arrive(now, job),
            Queue::Ps(q) => q.arrive(now, job),
        }
    }

    /// When the next request will be done, if none arrives before.
    pub(crate) fn next_finish(&self) -> Option<Nanos> {
        match self {
            Queue::Fifo(q) => q.next_finish(),
            Queue::Ps(q) => q.next_finish(),
        }
    }

    /// The earliest request that is done by `now`, once.
    pub(crate) fn pop_finished(&mut self, now: Nanos) -> Option<Finished> {
        match self {
            Queue::Fifo(q) => q.pop_finished(now),
            Queue::Ps(q) => q.pop_finished(now),
        }
    }

    /// Requests waiting and in service.
    pub(crate) fn len(&self) -> usize {
        match self {
            Queue::Fifo(q) => q.len(),
            Queue::Ps(q) => q.len(),
        }
    }

    /// Core-nanoseconds spent working. Whatever is done by `now` must have been popped.
    pub(crate) fn busy(&self, now: Nanos) -> f64 {
        match self {
            Queue::Fifo(q) => q.busy(now),
            Queue::Ps(q) => q.busy(now),
        }
    }

    /// Empties the queue: what is left of each request, in order of arrival. Whatever is done by `now`
    /// should have been popped before; it is handed out as having no work left.
    pub(crate) fn take_jobs(&mut self, now: Nanos) -> Vec<Job> {
        match self {
            Queue::Fifo(q) => q.take_jobs(now),
            Queue::Ps(q) => q.take_jobs(now),
        }
    }
}

#[cfg(test)]
mod tests;
