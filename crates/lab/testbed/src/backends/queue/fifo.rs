//! First in, first out on `k` cores: `start = max(arrival, earliest core free)`,
//! `finish = start + work / speed`. O(log k) per request.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use plimsoll_model::Nanos;

use super::{Finished, Job};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Running {
    finish: Nanos,
    /// Order of arrival: ties finish in it, and jobs taken out come in it.
    order: u64,
    start: Nanos,
    id: u64,
}

#[derive(Debug)]
pub(crate) struct Fifo {
    cores: usize,
    speed: f64,
    running: BinaryHeap<Reverse<Running>>,
    waiting: VecDeque<(Nanos, Job)>,
    arrivals: u64,
    /// Core-nanoseconds of finished work, and of running work up to its start.
    finished_busy: f64,
}

impl Fifo {
    pub(crate) fn new(cores: u32, speed: f64) -> Self {
        Fifo {
            cores: cores as usize,
            speed,
            running: BinaryHeap::with_capacity(cores as usize),
            waiting: VecDeque::new(),
            arrivals: 0,
            finished_busy: 0.0,
        }
    }

    pub(crate) fn arrive(&mut self, now: Nanos, job: Job) {
        if self.running.len() < self.cores {
            self.start(now, job);
        } else {
            self.waiting.push_back((now, job));
        }
    }

    fn start(&mut self, start: Nanos, job: Job) {
        let span = Nanos((job.work / self.speed).round() as u64);
        let finish = Nanos(start.0.saturating_add(span.0));
        let order = self.arrivals;
        self.arrivals += 1;
        self.running.push(Reverse(Running { finish, order, start, id: job.id }));
    }

    pub(crate) fn next_finish(&self) -> Option<Nanos> {
        self.running.peek().map(|r| r.0.finish)
    }

    pub(crate) fn pop_finished(&mut self, now: Nanos) -> Option<Finished> {
        let next = self.running.peek()?.0;
        if next.finish > now {
            return None;
        }
        self.running.pop();
        self.finished_busy += (next.finish.0 - next.start.0) as f64;
        if let Some((arrived, job)) = self.waiting.pop_front() {
            // An arrival that was reported before an earlier finish was popped starts no sooner than it came.
            self.start(next.finish.max(arrived), job);
        }
        Some(Finished { id: next.id, at: next.finish })
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    pub(crate) fn busy(&self, now: Nanos) -> f64 {
        let running: u64 =
            self.running.iter().map(|r| now.min(r.0.finish).0.saturating_sub(r.0.start.0)).sum();
        self.finished_busy + running as f64
    }

    pub(crate) fn take_jobs(&mut self, now: Nanos) -> Vec<Job> {
        self.finished_busy = self.busy(now);
        let mut running: Vec<Running> = self.running.drain().map(|r| r.0).collect();
        running.sort_by_key(|r| r.order);
        let left = running.iter().map(|r| {
            let span = r.finish.0.saturating_sub(now.max(r.start).0);
            Job { id: r.id, work: span as f64 * self.speed }
        });
        left.chain(self.waiting.drain(..).map(|(_, job)| job)).collect()
    }
}
