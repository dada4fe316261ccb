//! Changes by the timeline, and periodic updates of the balancers.

use std::cmp::Reverse;

use plimsoll_model::Nanos;
use plimsoll_policy::Ending;

use super::super::Change;
use super::flight::Phase;
use super::server::State;
use super::{Engine, NEVER, nanos};

impl Engine<'_> {
    pub(super) fn change(&mut self, now: u64) {
        let arena = self.arena;
        let step = &arena.timeline[self.next_step];
        self.next_step += 1;
        match &step.change {
            Change::Speed { backend, speed } => {
                self.servers[*backend].ns_per_work = arena.service_us * 1e3 / speed;
            }
            Change::Rate(rate_rps) => {
                // Arrivals are memoryless: the rest of the gap is scaled, not drawn again.
                let gap_ns = 1e9 / rate_rps;
                let left = (self.next_arrival - now as f64).max(0.0);
                self.next_arrival = now as f64 + left * gap_ns / self.gap_ns;
                self.gap_ns = gap_ns;
            }
            Change::Weights(weights) => {
                self.balancers.iter_mut().for_each(|b| b.set_weights(weights));
            }
            Change::Kill { backend } => self.kill(*backend, now),
            Change::FailFast { backend, after } => {
                let after_ns = nanos(*after);
                self.servers[*backend].state = State::Failing { after_ns };
            }
            Change::Return { backend } => self.servers[*backend].state = State::Serving,
        }
    }

    /// Gives every balancer the CPU utilisation of every backend.
    pub(super) fn tell_cpu(&mut self, now: u64) {
        self.next_news = self.arena.cpu_news.map_or(NEVER, |every| now + nanos(every));
        for (backend, server) in self.servers.iter_mut().enumerate() {
            server.settle(now);
            let load = server.load(0);
            self.balancers.iter_mut().for_each(|b| b.on_probe(backend, load, Nanos(now)));
        }
    }

    fn kill(&mut self, backend: usize, now: u64) {
        let server = &mut self.servers[backend];
        server.settle(now);
        server.busy = 0;
        server.state = State::Failing { after_ns: 0 };
        let mut lost: Vec<u32> = server.waiting.drain(..).collect();
        let flights = &self.flights;
        self.departures.retain(|Reverse((_, slot))| {
            let here = flights[*slot].backend as usize == backend;
            if here {
                lost.push(*slot);
            }
            !here
        });
        // The heap's inner order is not one of time; the order of the slots is at least repeatable.
        lost.sort_unstable();
        let cancels = self.arena.patience.is_some_and(|p| p.cancels);
        for slot in lost {
            let flight = self.flights[slot];
            let has_left = flight.gone && cancels && flight.phase == Phase::Waiting;
            if flight.let_in && !has_left {
                self.leave(slot, now);
            }
            self.flights[slot].ending = Ending::Failure;
            self.answer(slot, now);
        }
        debug_assert_eq!(self.servers[backend].in_flight, 0, "all have left");
    }
}
