//! A pool of servers of some cores each, first in first out, behind a balancer that picks as HAProxy does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use plimsoll_control::{Action, BackendSpec, Controller, Event, Record, RecordKind, ServiceSpec};
use plimsoll_model::{
    Applied, BackendId, BalancerReport, FailureKind, Method, MethodKind, Nanos, Plan, ServerReport,
    ServerStatus, Traffic,
};
use plimsoll_queueing::{HaproxyLeastconn, Pick, ServiceTime, SmoothRoundRobin};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// Interval of readings and ticks.
const STEP_NS: u64 = 50_000_000;
/// Service time at speed 1.
const SERVICE_NS: f64 = 20e6;

pub struct Server {
    pub speed: f64,
    pub weight: u32,
    pub status: ServerStatus,
    /// When each of its cores has finished what it has.
    free_at: Vec<u64>,
    alive: bool,
    in_flight: u32,
    started: u64,
    errors: u64,
    check_every: Option<Duration>,
    next_check: u64,
}

pub struct Bed {
    pub controller: Controller,
    pub servers: Vec<Server>,
    pub kind: MethodKind,
    pub rate_rps: f64,
    /// Readings come so often, and so late.
    pub every: Duration,
    pub late: Duration,
    /// Whether the balancer refuses plans for good.
    pub refuses: bool,
    pub plans: Vec<Plan>,
    pub records: Vec<(Nanos, Record)>,
    now: u64,
    next_reading: u64,
    readings: Vec<BalancerReport>,
    next_arrival: u64,
    /// When requests end, and at which server.
    leaving: BinaryHeap<Reverse<(u64, usize)>>,
    picks: Box<dyn Pick>,
    rng: Xoshiro256PlusPlus,
}

pub fn spec(servers: usize) -> ServiceSpec {
    let backend = |i| BackendSpec { id: BackendId(i), name: format!("s{i}") };
    ServiceSpec::new("shop", (0..servers as u32).map(backend).collect())
}

impl Bed {
    /// Servers with so many cores of 50 requests per second each, all with weight 10.
    pub fn new(
        spec: ServiceSpec,
        cores: &[u32],
        kind: MethodKind,
        rate_rps: f64,
        seed: u64,
    ) -> Bed {
        let server = |&cores: &u32| Server {
            speed: 1.0,
            weight: 10,
            status: ServerStatus::Up,
            free_at: vec![0; cores as usize],
            alive: true,
            in_flight: 0,
            started: 0,
            errors: 0,
            check_every: None,
            next_check: 0,
        };
        let mut bed = Bed {
            controller: Controller::new(spec, None, Nanos::ZERO, seed),
            servers: cores.iter().map(server).collect(),
            kind,
            rate_rps,
            every: Duration::from_nanos(STEP_NS),
            late: Duration::ZERO,
            refuses: false,
            plans: Vec::new(),
            records: Vec::new(),
            now: 0,
            next_reading: 0,
            readings: Vec::new(),
            next_arrival: 0,
            leaving: BinaryHeap::new(),
            picks: Box::new(SmoothRoundRobin::new(&[])),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        };
        bed.weights_changed();
        bed
    }

    pub fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    pub fn weights(&self) -> Vec<u32> {
        self.servers.iter().map(|s| s.weight).collect()
    }

    /// Plans made from this time on.
    pub fn plans_since(&self, from: Nanos) -> impl Iterator<Item = &Plan> {
        self.plans.iter().filter(move |plan| plan.at >= from)
    }

    /// When the first record of this kind about this server was made from this time on.
    pub fn recorded(&self, kind: RecordKind, server: usize, from: Nanos) -> Option<Nanos> {
        let name = format!("s{server}");
        let is_it = |r: &Record| r.kind == kind && r.backend.as_ref() == Some(&name);
        self.records.iter().find(|(at, r)| *at >= from && is_it(r)).map(|(at, _)| *at)
    }

    pub fn set_alive(&mut self, i: usize, alive: bool) {
        let now = self.now;
        let server = &mut self.servers[i];
        server.alive = alive;
        server.free_at.iter_mut().for_each(|at| *at = now);
        // What was in flight is lost.
        server.errors += u64::from(std::mem::take(&mut server.in_flight));
        self.leaving.retain(|Reverse((_, at))| *at != i);
        self.picks.changed(i, 0);
    }

    /// The servers' weights or states have changed.
    pub fn weights_changed(&mut self) {
        let weight = |s: &Server| if s.status.takes_traffic() { s.weight } else { 0 };
        let weights: Vec<u32> = self.servers.iter().map(weight).collect();
        self.picks = match self.kind {
            MethodKind::InFlight => Box::new(HaproxyLeastconn::new(&weights)),
            _ => {
                let weights: Vec<f64> = weights.iter().map(|&w| f64::from(w)).collect();
                Box::new(SmoothRoundRobin::new(&weights))
            }
        };
        self.servers.iter().enumerate().for_each(|(i, s)| self.picks.changed(i, s.in_flight));
    }

    /// Requests begin and end until this time.
    fn serve(&mut self, until: u64) {
        loop {
            let ends = self.leaving.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let next = ends.min(self.next_arrival);
            if next > until {
                return;
            }
            if next == ends {
                if let Some(Reverse((_, i))) = self.leaving.pop() {
                    self.servers[i].in_flight -= 1;
                    self.picks.changed(i, self.servers[i].in_flight);
                }
                continue;
            }
            let gap = ServiceTime::Exponential.draw(&mut self.rng) / self.rate_rps * 1e9;
            self.next_arrival = next + gap as u64 + 1;
            let work = ServiceTime::Exponential.draw(&mut self.rng);
            let Some(i) = self.picks.pick() else { continue };
            let server = &mut self.servers[i];
            server.started += 1;
            if !server.alive {
                server.errors += 1;
                continue;
            }
            let took = (work * SERVICE_NS / server.speed) as u64;
            let core = server.free_at.iter_mut().min().expect("a core");
            *core = next.max(*core) + took;
            self.leaving.push(Reverse((*core, i)));
            server.in_flight += 1;
            self.picks.changed(i, server.in_flight);
        }
    }

    fn report(&self) -> BalancerReport {
        let servers = self.servers.iter().enumerate().map(|(i, s)| ServerReport {
            in_flight: s.in_flight,
            started_total: s.started,
            errors_total: s.errors,
            answered_total: Some(s.started - s.errors - u64::from(s.in_flight)),
            ..ServerReport::new(BackendId(i as u32), s.weight, s.status)
        });
        let name = if self.kind == MethodKind::InFlight { "leastconn" } else { "roundrobin" };
        BalancerReport {
            at: self.now(),
            method: Method { name: name.to_owned(), kind: self.kind },
            generation: 1,
            traffic: Traffic::Counted,
            servers: servers.collect(),
        }
    }

    /// Gives the controller an event, and does what it asks for.
    pub fn step(&mut self, event: Event) {
        let mut answer = None;
        for action in self.controller.step(self.now(), event) {
            match action {
                Action::Program(plan) | Action::Correct(plan) => answer = Some(self.program(plan)),
                Action::Record(record) => self.records.push((self.now(), record)),
                Action::CheckRate { backend, interval, at_once } => {
                    let server = &mut self.servers[backend.0 as usize];
                    server.check_every = interval;
                    let wait = interval.filter(|_| !at_once).unwrap_or_default();
                    server.next_check = server.next_check.min(self.now + wait.as_nanos() as u64);
                }
                Action::ProbeRate { .. } | Action::SaveMemory => {}
            }
        }
        if let Some(answer) = answer {
            self.step(answer);
        }
    }

    fn program(&mut self, plan: Plan) -> Event {
        let epoch = plan.epoch;
        let mut commands = 0;
        for entry in plan.entries.iter().filter(|_| !self.refuses) {
            let held = &mut self.servers[entry.backend.0 as usize].weight;
            commands += u32::from(*held != entry.weight);
            *held = entry.weight;
        }
        self.plans.push(plan);
        if self.refuses {
            let reason = "the socket's level may not set weights".to_owned();
            return Event::ApplyFailed { epoch, reason, retryable: false };
        }
        self.weights_changed();
        let held = self.servers.iter().enumerate();
        let weights = held.map(|(i, s)| (BackendId(i as u32), s.weight)).collect();
        Event::Applied(Applied { epoch, weights, commands })
    }

    /// Checks a server's liveness.
    pub fn check(&mut self, i: usize) {
        let failure = (!self.servers[i].alive).then_some(FailureKind::Refused);
        let (backend, started) = (BackendId(i as u32), self.now());
        let successes = u32::from(failure.is_none());
        self.step(Event::Liveness { backend, successes, failure, started });
    }

    pub fn run_for(&mut self, seconds: f64) {
        self.run_with(seconds, |_| {});
    }

    /// Runs so long, and looks after every step.
    pub fn run_with(&mut self, seconds: f64, mut look: impl FnMut(&Bed)) {
        for _ in 0..(seconds * 1e9) as u64 / STEP_NS {
            self.now += STEP_NS;
            self.serve(self.now);
            if self.now >= self.next_reading {
                self.next_reading = self.now + self.every.as_nanos() as u64;
                self.readings.push(self.report());
            }
            let due = self.now().0.saturating_sub(self.late.as_nanos() as u64);
            let read: Vec<_> = self.readings.extract_if(.., |report| report.at.0 <= due).collect();
            read.into_iter().for_each(|report| self.step(Event::Balancer(report)));
            for i in 0..self.servers.len() {
                let server = &mut self.servers[i];
                if let Some(every) = server.check_every.filter(|_| self.now >= server.next_check) {
                    server.next_check = self.now + every.as_nanos() as u64;
                    self.check(i);
                }
            }
            self.step(Event::Tick);
            look(self);
        }
    }
}
