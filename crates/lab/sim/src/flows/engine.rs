//! The event loop: Poisson arrivals, the ends of connections in one queue per duration, and ticks at given times. The
//! earliest event is next; ties: a tick, then an end, then an arrival.
//!
//! Cost of an event: a look at as many queues as there are durations, some 20 ns.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_model::Nanos;
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Durations;

/// Observes all events.
pub trait Watch {
    /// A connection begins. `slot` is its own until its end, small, and reused after it; `key` is the hash of its
    /// addresses. Those that begin before the system is steady are not `counted`.
    fn start(&mut self, slot: usize, key: u64, counted: bool, now: Nanos);

    /// A connection ends.
    fn end(&mut self, slot: usize, lasted: Duration, now: Nanos);

    /// One of the given ticks, by its number.
    fn tick(&mut self, index: usize, now: Nanos);
}

/// The connections of one run.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Mean number of open connections.
    pub active: f64,
    /// Durations of connections.
    pub durations: Durations,
    /// Time to wait before connections are counted, seconds, from when the longest of the first ones has ended: from
    /// there on their number is stationary.
    pub settle_s: f64,
    /// Time in which connections are counted, seconds.
    pub counted_s: f64,
    /// Whether to continue, with traffic as before, until all counted connections have ended.
    pub to_their_end: bool,
    /// Seed of arrivals, durations and keys.
    pub seed: u64,
}

struct Ends {
    /// By duration: the time of the end, and the slot.
    queues: Vec<VecDeque<(Nanos, u32)>>,
}

impl Ends {
    /// The next end, and its queue.
    fn next(&self) -> (Nanos, usize) {
        let mut next = (Nanos(u64::MAX), 0);
        for (place, queue) in self.queues.iter().enumerate() {
            if let Some(&(at, _)) = queue.front()
                && at < next.0
            {
                next = (at, place);
            }
        }
        next
    }
}

impl Traffic {
    /// From when on the number of connections is stationary.
    pub fn stationary_from(&self) -> Nanos {
        self.durations.longest()
    }

    /// From when on connections are counted.
    pub fn counted_from(&self) -> Nanos {
        self.stationary_from() + Duration::from_secs_f64(self.settle_s)
    }

    /// Until when connections are counted.
    pub fn counted_until(&self) -> Nanos {
        self.counted_from() + Duration::from_secs_f64(self.counted_s)
    }

    /// The end of the run.
    pub fn ends(&self) -> Nanos {
        let after = if self.to_their_end { self.durations.longest().0 } else { 0 };
        self.counted_until() + Duration::from_nanos(after)
    }

    /// Equidistant times to the end of the run.
    pub fn every(&self, period: Duration) -> Vec<Nanos> {
        let period = period.as_nanos() as u64;
        (1..=self.ends().0 / period).map(|n| Nanos(n * period)).collect()
    }

    /// Reports everything to `watch`, with a tick at each of these times, which are in order; returns the number of
    /// events.
    pub fn run(&self, ticks: &[Nanos], watch: &mut dyn Watch) -> u64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let gap_ns = self.durations.mean_s() * 1e9 / self.active;
        let (from, until, over) = (self.counted_from(), self.counted_until(), self.ends());
        let values = self.durations.values();
        let mut ends = Ends { queues: vec![VecDeque::new(); values.len()] };
        let (mut free, mut slots) = (Vec::new(), 0u32);
        let mut ticks = ticks.iter().copied().enumerate().peekable();
        let (mut arrival, mut events) = (0.0f64, 0u64);
        loop {
            let (end, queue) = ends.next();
            let arrives = Nanos(arrival as u64);
            let tick = ticks.peek().map_or(Nanos(u64::MAX), |(_, at)| *at);
            let now = tick.min(end).min(arrives);
            if now >= over {
                return events;
            }
            events += 1;
            if tick == now {
                ticks.next().into_iter().for_each(|(index, at)| watch.tick(index, at));
            } else if end == now {
                let Some((_, slot)) = ends.queues[queue].pop_front() else { return events };
                watch.end(slot as usize, values[queue].since(Nanos::ZERO), now);
                free.push(slot);
            } else {
                let slot = free.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                });
                watch.start(slot as usize, rng.next_u64(), (from..until).contains(&now), now);
                let kind = self.durations.draw(&mut rng);
                let lasts = values[kind].since(Nanos::ZERO);
                ends.queues[kind].push_back((now + lasts, slot));
                arrival += -(1.0 - rng.random::<f64>()).ln() * gap_ns;
            }
        }
    }
}
