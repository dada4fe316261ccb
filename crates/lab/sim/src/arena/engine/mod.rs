//! The event loop. Sources of events, each in its own order: the timeline, updates of CPU utilisation, ends of service
//! (a heap), parcels back and out (both take a constant time, so a queue is in order), clients that give up and clients
//! that send again (likewise), and arrivals (the next of the process, or a heap of thinking users). The earliest event
//! is next; ties in that order.

mod change;
mod flight;
mod journey;
mod server;
mod wait;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use plimsoll_admission::Retries;
use plimsoll_model::Nanos;
use plimsoll_policy::{Ending, Policy, Probing, ServerLoad};
use plimsoll_queueing::ServiceTime;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::address::Addresses;
use super::report::Collector;
use super::{Arena, ArenaReport, Clients, Surroundings};
use flight::{Flight, Flights, NO_USER, Phase};
use server::Server;

const NEVER: u64 = u64::MAX;
/// A probe that no request waits for.
const NOTHING: u32 = u32::MAX;

/// A parcel from a balancer to a backend, or back.
#[derive(Clone, Copy)]
enum Parcel {
    Request(u32),
    /// `slot` waits for it, or [`NOTHING`] does, and for no further one if it is the `last`; `load` is `None` on the way
    /// out and from a dead backend.
    Probe {
        asked: Nanos,
        balancer: u32,
        backend: u32,
        slot: u32,
        last: bool,
        load: Option<ServerLoad>,
    },
}

enum Source {
    Change,
    News,
    Departure,
    Inbound,
    Outbound,
    Impatience,
    Again,
    Alarm,
    Arrival,
}

/// Whether a policy asks backends because of requests. What one gets every so often comes from hooks.
fn asks(probing: Probing) -> bool {
    matches!(probing, Probing::Beside | Probing::Before)
}

/// "Never" must not overflow.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(NEVER / 4)
}

pub(super) struct Engine<'a> {
    arena: &'a Arena,
    balancers: &'a mut [Box<dyn Policy>],
    around: Surroundings<'a>,
    /// By balancer.
    retries: Vec<Retries>,
    /// By balancer; empty where none wait.
    queues: Vec<wait::Queue>,
    /// When the queue of a balancer is to be looked at, the earliest of each in `alarm_at`.
    alarms: BinaryHeap<Reverse<(u64, u32)>>,
    alarm_at: Vec<u64>,
    servers: Vec<Server>,
    /// Random numbers of arrivals and work; other parts draw from other streams.
    traffic: Xoshiro256PlusPlus,
    choice: Xoshiro256PlusPlus,
    routing: Xoshiro256PlusPlus,
    /// Random numbers of senders.
    senders: Xoshiro256PlusPlus,
    addresses: Addresses,
    flights: Flights,
    departures: BinaryHeap<Reverse<(u64, u32)>>,
    outbound: VecDeque<(u64, Parcel)>,
    inbound: VecDeque<(u64, Parcel)>,
    impatience: VecDeque<(u64, u32, u32)>,
    /// Refused for good, until their clients send them again.
    away: VecDeque<(u64, u32)>,
    /// When users of a closed loop send their next request.
    thinking: BinaryHeap<Reverse<(u64, u32)>>,
    targets: Vec<usize>,
    /// Some policy uses reported loads.
    loads: bool,
    network_ns: u64,
    gap_ns: f64,
    next_arrival: f64,
    arrived: u32,
    next_step: usize,
    next_news: u64,
    next_window: u64,
    measured_from: u64,
    measured_s: f64,
    events: u64,
    /// Mean utilisation of the cores, by backend; known at the last arrival.
    utilisation: Vec<f64>,
    collector: Collector,
}

impl<'a> Engine<'a> {
    pub(super) fn new(
        arena: &'a Arena,
        balancers: &'a mut [Box<dyn Policy>],
        around: Surroundings<'a>,
    ) -> Self {
        let traffic = Xoshiro256PlusPlus::seed_from_u64(arena.seed);
        let mut choice = traffic.clone();
        choice.jump();
        let mut routing = choice.clone();
        routing.jump();
        let mut senders = routing.clone();
        senders.jump();
        let probes = balancers.iter().any(|b| asks(b.probing()));
        let backends = arena.pool.len();
        let retries = Retries::new(arena.retry).expect("valid retry options");
        let mut engine = Engine {
            retries: vec![retries; balancers.len()],
            queues: wait::queues(arena.wait.as_ref(), balancers.len()),
            alarms: BinaryHeap::new(),
            alarm_at: vec![NEVER; balancers.len()],
            servers: arena.pool.iter().map(|b| Server::new(b, arena.service_us)).collect(),
            traffic,
            choice,
            routing,
            senders,
            addresses: Addresses::new(arena.addresses),
            flights: Flights::default(),
            departures: BinaryHeap::new(),
            outbound: VecDeque::new(),
            inbound: VecDeque::new(),
            impatience: VecDeque::new(),
            away: VecDeque::new(),
            thinking: BinaryHeap::new(),
            targets: Vec::new(),
            loads: arena.tells_load || probes,
            network_ns: nanos(arena.network),
            gap_ns: 1e9 / arena.rate_rps,
            next_arrival: 0.0,
            arrived: 0,
            next_step: 0,
            next_news: arena.cpu_news.map_or(NEVER, nanos),
            next_window: arena.window_s.map_or(NEVER, |s| (s * 1e9) as u64),
            measured_from: 0,
            measured_s: 0.0,
            events: 0,
            utilisation: vec![0.0; backends],
            collector: Collector::new(backends, arena.window_s, arena.keeps_times),
            arena,
            balancers,
            around,
        };
        match arena.clients.users() {
            None => engine.draw_arrival(),
            Some((users, _)) => (0..users).for_each(|user| engine.think(user, 0)),
        }
        engine
    }

    pub(super) fn run(mut self) -> ArenaReport {
        while let Some((now, source)) = self.next() {
            self.events += 1;
            while now >= self.next_window {
                let queues = self.servers.iter().map(|s| s.in_flight);
                self.collector.queues(self.next_window, queues);
                self.next_window += self.arena.window_s.map_or(NEVER, |s| (s * 1e9) as u64);
            }
            match source {
                Source::Change => self.change(now),
                Source::News => self.tell_cpu(now),
                Source::Departure => self.depart(now),
                Source::Inbound => {
                    if let Some((_, parcel)) = self.inbound.pop_front() {
                        self.returned(parcel, now);
                    }
                }
                Source::Outbound => {
                    if let Some((_, parcel)) = self.outbound.pop_front() {
                        self.reached(parcel, now);
                    }
                }
                Source::Impatience => {
                    if let Some((_, slot, _)) = self.impatience.pop_front() {
                        self.give_up(slot, now);
                    }
                }
                Source::Again => {
                    if let Some((_, slot)) = self.away.pop_front() {
                        self.come_again(slot, now);
                    }
                }
                Source::Alarm => self.attend(now),
                Source::Arrival => self.arrive(now),
            }
        }
        self.collector.done(self.utilisation.into_iter(), self.measured_s, self.events)
    }

    /// `None` when all requests have ended: the rest of the timeline has no effect then.
    fn next(&mut self) -> Option<(u64, Source)> {
        let departure = self.departures.peek().map_or(NEVER, |Reverse((t, _))| *t);
        let inbound = self.inbound.front().map_or(NEVER, |&(t, _)| t);
        let outbound = self.outbound.front().map_or(NEVER, |&(t, _)| t);
        let (mut now, mut source) = (departure, Source::Departure);
        if inbound < now {
            (now, source) = (inbound, Source::Inbound);
        }
        if outbound < now {
            (now, source) = (outbound, Source::Outbound);
        }
        while let Some(&(at, slot, generation)) = self.impatience.front() {
            if self.flights.generation(slot) == generation {
                if at < now {
                    (now, source) = (at, Source::Impatience);
                }
                break;
            }
            self.impatience.pop_front();
        }
        if let Some(&(at, _)) = self.away.front().filter(|(at, _)| *at < now) {
            (now, source) = (at, Source::Again);
        }
        if let Some(&Reverse((at, _))) = self.alarms.peek().filter(|alarm| alarm.0.0 < now) {
            (now, source) = (at, Source::Alarm);
        }
        if self.arrived < self.arena.requests {
            let arrival = match self.arena.clients {
                Clients::Open => self.next_arrival as u64,
                _ => self.thinking.peek().map_or(NEVER, |Reverse((t, _))| *t),
            };
            if arrival < now {
                (now, source) = (arrival, Source::Arrival);
            }
        }
        if now == NEVER {
            return None;
        }
        match self.arena.timeline.get(self.next_step).map(|s| (s.at_s * 1e9) as u64) {
            Some(change) if change <= now.min(self.next_news) => Some((change, Source::Change)),
            _ if self.next_news <= now => Some((self.next_news, Source::News)),
            _ => Some((now, source)),
        }
    }

    fn draw_arrival(&mut self) {
        self.next_arrival += ServiceTime::Exponential.draw(&mut self.traffic) * self.gap_ns;
    }

    /// A user thinks before the next request.
    fn think(&mut self, user: u32, now: u64) {
        let Some((_, think)) = self.arena.clients.users() else { return };
        if user == NO_USER {
            return;
        }
        let mut next = now;
        if !think.is_zero() {
            let part = ServiceTime::Exponential.draw(&mut self.routing);
            next += (part * think.as_nanos() as f64) as u64;
        }
        self.thinking.push(Reverse((next, user)));
    }

    /// The user of the next request, and its balancer.
    fn sender(&mut self) -> (u32, u32) {
        let balancers = self.balancers.len() as u64;
        let user = match self.arena.clients {
            Clients::Open => None,
            _ => self.thinking.pop().map(|Reverse((_, user))| user),
        };
        if let (Clients::Closed { .. }, Some(user)) = (self.arena.clients, user) {
            return (user, (u64::from(user) % balancers) as u32);
        }
        let drawn = match balancers {
            1 => 0,
            n => ((u128::from(self.routing.next_u64()) * u128::from(n)) >> 64) as u32,
        };
        (user.unwrap_or(NO_USER), drawn)
    }

    fn arrive(&mut self, now: u64) {
        let counted = self.arrived >= self.arena.warm_up;
        if self.arrived == self.arena.warm_up {
            self.measure_from(now);
        }
        self.arrived += 1;
        self.collector.arrived(now);
        let work = self.arena.service.draw(&mut self.traffic);
        if self.arena.clients == Clients::Open {
            self.draw_arrival();
        }
        if self.arrived == self.arena.requests {
            self.measure_to(now);
        }
        let (user, balancer) = self.sender();
        let key = self.addresses.draw(&mut self.senders);
        let slot = self.flights.add(Flight {
            came: now,
            sent: now,
            reached: now,
            work,
            backend: 0,
            balancer,
            user,
            key,
            found: 0,
            refusals: 0,
            failures: 0,
            phase: Phase::Choosing,
            ending: Ending::Success,
            let_in: false,
            hopeless: false,
            chip: None,
            load: None,
            counted,
            waits_since: None,
            woken: false,
            last: false,
            is_to_wait: false,
            asked_again: false,
            gone: false,
        });
        if let Some(patience) = self.arena.patience {
            let at = now + nanos(patience.after);
            self.impatience.push_back((at, slot, self.flights.generation(slot)));
        }
        self.retries[balancer as usize].begin();
        self.begin(slot, now);
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
        self.measured_s = span / 1e9;
        for (server, part) in self.servers.iter_mut().zip(&mut self.utilisation) {
            server.settle(now);
            *part = server.busy_ns as f64 / (span * f64::from(server.cores));
        }
    }
}
