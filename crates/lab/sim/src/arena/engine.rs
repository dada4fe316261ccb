//! The event loop. Five sources of events, each in order of its own: the timeline, the ends of service
//! (a heap), answers on their way back and requests on their way out (both take a constant time, so a
//! queue is in order), and arrivals. The earliest goes next; ties in that order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Policy, Request};
use plimsoll_queueing::ServiceTime;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::report::Collector;
use super::{Arena, ArenaReport, Change};

const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Serving,
    Failing { after_ns: u64 },
}

struct Server {
    cores: u32,
    ns_per_work: f64,
    state: State,
    busy: u32,
    waiting: VecDeque<u32>,
    busy_ns: u64,
    since: u64,
}

impl Server {
    /// Adds up the busy time so far, before the number of busy cores changes.
    fn settle(&mut self, now: u64) {
        self.busy_ns += u64::from(self.busy) * (now - self.since);
        self.since = now;
    }
}

#[derive(Clone, Copy)]
struct Flight {
    sent: u64,
    work: f64,
    backend: u32,
    balancer: u32,
    ok: bool,
    counted: bool,
}

enum Source {
    Change,
    Departure,
    Inbound,
    Outbound,
    Arrival,
}

pub(super) struct Engine<'a> {
    arena: &'a Arena,
    balancers: &'a mut [Box<dyn Policy>],
    servers: Vec<Server>,
    /// Arrivals and work; the policies draw from another stream.
    traffic: Xoshiro256PlusPlus,
    choice: Xoshiro256PlusPlus,
    flights: Vec<Flight>,
    free: Vec<u32>,
    departures: BinaryHeap<Reverse<(u64, u32)>>,
    outbound: VecDeque<(u64, u32)>,
    inbound: VecDeque<(u64, u32)>,
    network_ns: u64,
    gap_ns: f64,
    next_arrival: f64,
    arrived: u32,
    next_step: usize,
    measured_from: u64,
    /// Mean part of its cores that was busy, by backend; known at the last arrival.
    utilisation: Vec<f64>,
    collector: Collector,
}

impl<'a> Engine<'a> {
    pub(super) fn new(arena: &'a Arena, balancers: &'a mut [Box<dyn Policy>]) -> Self {
        let server = |b: &crate::BackendModel| Server {
            cores: b.cores,
            ns_per_work: arena.service_us * 1e3 / b.speed,
            state: State::Serving,
            busy: 0,
            waiting: VecDeque::new(),
            busy_ns: 0,
            since: 0,
        };
        let traffic = Xoshiro256PlusPlus::seed_from_u64(arena.seed);
        let mut choice = traffic.clone();
        choice.jump();
        let mut engine = Engine {
            servers: arena.pool.iter().map(server).collect(),
            traffic,
            choice,
            flights: Vec::new(),
            free: Vec::new(),
            departures: BinaryHeap::new(),
            outbound: VecDeque::new(),
            inbound: VecDeque::new(),
            network_ns: u64::try_from(arena.network.as_nanos()).unwrap_or(NEVER / 4),
            gap_ns: 1e9 / arena.rate_rps,
            next_arrival: 0.0,
            arrived: 0,
            next_step: 0,
            measured_from: 0,
            utilisation: vec![0.0; arena.pool.len()],
            collector: Collector::new(arena.pool.len(), arena.window_s),
            arena,
            balancers,
        };
        engine.draw_arrival();
        engine
    }

    pub(super) fn run(mut self) -> ArenaReport {
        while let Some((now, source)) = self.next() {
            match source {
                Source::Change => self.change(now),
                Source::Departure => self.depart(now),
                Source::Inbound => {
                    if let Some((_, slot)) = self.inbound.pop_front() {
                        self.finish(slot, now);
                    }
                }
                Source::Outbound => {
                    if let Some((_, slot)) = self.outbound.pop_front() {
                        self.reach(slot, now);
                    }
                }
                Source::Arrival => self.arrive(now),
            }
        }
        self.collector.done(self.utilisation.into_iter())
    }

    /// `None` when all requests have ended: what the timeline still holds then concerns nobody.
    fn next(&self) -> Option<(u64, Source)> {
        let departure = self.departures.peek().map_or(NEVER, |Reverse((t, _))| *t);
        let inbound = self.inbound.front().map_or(NEVER, |&(t, _)| t);
        let outbound = self.outbound.front().map_or(NEVER, |&(t, _)| t);
        let more = self.arrived < self.arena.requests;
        let arrival = if more { self.next_arrival as u64 } else { NEVER };
        let (mut now, mut source) = (departure, Source::Departure);
        if inbound < now {
            (now, source) = (inbound, Source::Inbound);
        }
        if outbound < now {
            (now, source) = (outbound, Source::Outbound);
        }
        if arrival < now {
            (now, source) = (arrival, Source::Arrival);
        }
        if now == NEVER {
            return None;
        }
        match self.arena.timeline.get(self.next_step).map(|s| (s.at_s * 1e9) as u64) {
            Some(change) if change <= now => Some((change, Source::Change)),
            _ => Some((now, source)),
        }
    }

    fn draw_arrival(&mut self) {
        self.next_arrival += ServiceTime::Exponential.draw(&mut self.traffic) * self.gap_ns;
    }

    fn arrive(&mut self, now: u64) {
        let counted = self.arrived >= self.arena.warm_up;
        if self.arrived == self.arena.warm_up {
            self.measure_from(now);
        }
        self.arrived += 1;
        let work = self.arena.service.draw(&mut self.traffic);
        self.draw_arrival();
        if self.arrived == self.arena.requests {
            self.measure_to(now);
        }
        let balancer = match self.balancers.len() as u64 {
            1 => 0,
            n => ((u128::from(self.choice.next_u64()) * u128::from(n)) >> 64) as usize,
        };
        let policy = &mut self.balancers[balancer];
        let Some(i) = policy.pick(&Request::default(), Nanos(now), &mut self.choice) else {
            self.collector.unserved(now, counted);
            return;
        };
        policy.on_start(i, Nanos(now));
        let (backend, balancer) = (i as u32, balancer as u32);
        let flight = Flight { sent: now, work, backend, balancer, ok: true, counted };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.flights[slot as usize] = flight;
                slot
            }
            None => {
                self.flights.push(flight);
                (self.flights.len() - 1) as u32
            }
        };
        if self.network_ns == 0 {
            self.reach(slot, now);
        } else {
            self.outbound.push_back((now + self.network_ns, slot));
        }
    }

    /// A request has come to its backend.
    fn reach(&mut self, slot: u32, now: u64) {
        let flight = self.flights[slot as usize];
        let server = &mut self.servers[flight.backend as usize];
        match server.state {
            State::Failing { after_ns } => {
                self.flights[slot as usize].ok = false;
                self.departures.push(Reverse((now + after_ns, slot)));
            }
            State::Serving if server.busy < server.cores => {
                server.settle(now);
                server.busy += 1;
                let done = now + (flight.work * server.ns_per_work) as u64;
                self.departures.push(Reverse((done, slot)));
            }
            State::Serving => server.waiting.push_back(slot),
        }
    }

    /// A backend has answered; a core of it takes the next request.
    fn depart(&mut self, now: u64) {
        let Some(Reverse((_, slot))) = self.departures.pop() else { return };
        let flight = self.flights[slot as usize];
        // A quick failure holds no core.
        if flight.ok {
            let server = &mut self.servers[flight.backend as usize];
            if let Some(next) = server.waiting.pop_front() {
                let work = self.flights[next as usize].work;
                let done = now + (work * server.ns_per_work) as u64;
                self.departures.push(Reverse((done, next)));
            } else {
                server.settle(now);
                server.busy -= 1;
            }
        }
        self.answer(slot, now);
    }

    fn answer(&mut self, slot: u32, now: u64) {
        if self.network_ns == 0 {
            self.finish(slot, now);
        } else {
            self.inbound.push_back((now + self.network_ns, slot));
        }
    }

    /// The balancer has the answer.
    fn finish(&mut self, slot: u32, now: u64) {
        let flight = self.flights[slot as usize];
        let (i, took) = (flight.backend as usize, now - flight.sent);
        let latency = Duration::from_nanos(took);
        let finish = if flight.ok { Finish::success(latency) } else { Finish::failure(latency) };
        self.balancers[flight.balancer as usize].on_finish(i, &finish, Nanos(now));
        self.collector.finish(i, now, took, flight.ok, flight.counted);
        self.free.push(slot);
    }

    fn change(&mut self, now: u64) {
        let arena = self.arena;
        let step = &arena.timeline[self.next_step];
        self.next_step += 1;
        match &step.change {
            Change::Speed { backend, speed } => {
                self.servers[*backend].ns_per_work = arena.service_us * 1e3 / speed;
            }
            Change::Rate(rate_rps) => {
                // Memoryless: what is left of the gap is stretched, not drawn again.
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
                let after_ns = u64::try_from(after.as_nanos()).unwrap_or(NEVER / 4);
                self.servers[*backend].state = State::Failing { after_ns };
            }
            Change::Return { backend } => self.servers[*backend].state = State::Serving,
        }
    }

    fn kill(&mut self, backend: usize, now: u64) {
        let server = &mut self.servers[backend];
        server.settle(now);
        server.busy = 0;
        server.state = State::Failing { after_ns: 0 };
        let mut lost: Vec<u32> = server.waiting.drain(..).collect();
        let flights = &mut self.flights;
        self.departures.retain(|Reverse((_, slot))| {
            let here = flights[*slot as usize].backend as usize == backend;
            if here {
                lost.push(*slot);
            }
            !here
        });
        // The heap's inner order is not one of time; that of the slots is at least repeatable.
        lost.sort_unstable();
        for slot in lost {
            self.flights[slot as usize].ok = false;
            self.answer(slot, now);
        }
    }

    fn measure_from(&mut self, now: u64) {
        self.measured_from = now;
        for server in &mut self.servers {
            server.settle(now);
            server.busy_ns = 0;
        }
    }

    fn measure_to(&mut self, now: u64) {
        let span = (now - self.measured_from).max(1) as f64;
        for (server, part) in self.servers.iter_mut().zip(&mut self.utilisation) {
            server.settle(now);
            *part = server.busy_ns as f64 / (span * f64::from(server.cores));
        }
    }
}
