//! Processor sharing by virtual time: with `n` requests each is served at
//! `rate = speed · min(1, cores / n)`, so `V += rate · dt` is the service that each one present
//! gets, and a request of work `S` that came at `V₀` is done when `V = V₀ + S`. O(log n) per request.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use plimsoll_model::Nanos;

use super::{Finished, Job};

#[derive(Clone, Copy, Debug)]
struct Present {
    /// Virtual time at which it is done.
    target: f64,
    order: u64,
    id: u64,
}

impl PartialEq for Present {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Present {}
impl PartialOrd for Present {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Present {
    fn cmp(&self, other: &Self) -> Ordering {
        self.target.total_cmp(&other.target).then(self.order.cmp(&other.order))
    }
}

#[derive(Debug)]
pub(crate) struct Ps {
    cores: u32,
    speed: f64,
    present: BinaryHeap<Reverse<Present>>,
    /// Done, not yet popped.
    done: VecDeque<Finished>,
    /// Virtual time; restarted from zero whenever it is empty, so that it stays exact.
    v: f64,
    /// Real time that `v` belongs to; fractions of a nanosecond count, since they add up.
    at: f64,
    arrivals: u64,
    busy: f64,
}

impl Ps {
    pub(crate) fn new(cores: u32, speed: f64, now: Nanos) -> Self {
        Ps {
            cores,
            speed,
            present: BinaryHeap::new(),
            done: VecDeque::new(),
            v: 0.0,
            at: now.0 as f64,
            arrivals: 0,
            busy: 0.0,
        }
    }

    fn busy_cores(&self) -> f64 {
        (self.present.len() as f64).min(f64::from(self.cores))
    }

    /// Service per nanosecond that each request present gets.
    fn rate(&self) -> f64 {
        self.speed * self.busy_cores() / self.present.len() as f64
    }

    fn next_in_heap(&self) -> Option<f64> {
        let next = self.present.peek()?.0;
        Some(self.at + (next.target - self.v).max(0.0) / self.rate())
    }

    /// Moves to `to`, collecting on the way the requests that are done.
    fn advance(&mut self, to: Nanos) {
        let to = to.0 as f64;
        while let Some(finish) = self.next_in_heap().filter(|f| f.round() <= to) {
            self.busy += (finish - self.at) * self.busy_cores();
            self.at = finish;
            if let Some(Reverse(job)) = self.present.pop() {
                self.v = job.target;
                self.done.push_back(Finished { id: job.id, at: Nanos(finish.round() as u64) });
            }
        }
        if self.present.is_empty() {
            self.v = 0.0;
            self.at = self.at.max(to);
        } else if to > self.at {
            self.busy += (to - self.at) * self.busy_cores();
            self.v += (to - self.at) * self.rate();
            self.at = to;
        }
    }

    pub(crate) fn arrive(&mut self, now: Nanos, job: Job) {
        self.advance(now);
        let order = self.arrivals;
        self.arrivals += 1;
        self.present.push(Reverse(Present { target: self.v + job.work, order, id: job.id }));
    }

    pub(crate) fn next_finish(&self) -> Option<Nanos> {
        let queued = self.done.front().map(|f| f.at);
        queued.or_else(|| self.next_in_heap().map(|t| Nanos(t.round() as u64)))
    }

    pub(crate) fn pop_finished(&mut self, now: Nanos) -> Option<Finished> {
        self.advance(now);
        self.done.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.present.len() + self.done.len()
    }

    pub(crate) fn busy(&self, now: Nanos) -> f64 {
        self.busy + (now.0 as f64 - self.at).max(0.0) * self.busy_cores()
    }

    pub(crate) fn take_jobs(&mut self, now: Nanos) -> Vec<Job> {
        self.advance(now);
        let mut present: Vec<Present> = self.present.drain().map(|p| p.0).collect();
        present.sort_by_key(|p| p.order);
        let done = self.done.drain(..).map(|f| Job { id: f.id, work: 0.0 });
        done.chain(present.iter().map(|p| Job { id: p.id, work: (p.target - self.v).max(0.0) }))
            .collect()
    }
}
