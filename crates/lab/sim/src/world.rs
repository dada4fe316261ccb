//! The simulated world: clients, a balancer, backends and the clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use plimsoll_control::{Action, BackendSpec, Controller, Event, Memory, Record, ServiceSpec};
use plimsoll_model::{
    Applied, BackendId, BalancerReport, FailureKind, Method as BalancerMethod, MethodKind, Nanos,
    Outcome, Plan, ServerReport, ServerStatus,
};
use plimsoll_queueing::{HaproxyLeastconn, Pick, ServiceTime, SmoothRoundRobin};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::pool::{BackendModel, Method, draw};

/// What to simulate.
#[derive(Clone, Debug)]
pub struct WorldSpec {
    /// The backends.
    pub pool: Vec<BackendModel>,
    /// Mean service time at speed 1, microseconds.
    pub service_us: f64,
    /// How service times scatter.
    pub service: ServiceTime,
    /// How the balancer picks.
    pub method: Method,
    /// Poisson arrivals, requests per second.
    pub rate_rps: f64,
    /// The weights that the balancer starts with.
    pub weights: Vec<u32>,
    /// How often the balancer is read.
    pub poll: Duration,
    /// The run's seed.
    pub seed: u64,
}

impl WorldSpec {
    /// This pool at this part of its capacity, 30 ms of exponential service, equal weights.
    pub fn new(pool: Vec<BackendModel>, method: Method, load: f64, seed: u64) -> Self {
        let service_us = 30_000.0;
        let capacity: f64 = pool.iter().map(|b| b.capacity_rps(service_us)).sum();
        WorldSpec {
            weights: vec![1; pool.len()],
            pool,
            service_us,
            service: ServiceTime::Exponential,
            method,
            rate_rps: load * capacity,
            poll: Duration::from_millis(100),
            seed,
        }
    }
}

/// One client's request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// When it was sent.
    pub sent: Nanos,
    /// How long it took, milliseconds.
    pub latency_ms: f64,
    /// Which backend served it.
    pub backend: usize,
    /// Whether the answer was the right one.
    pub ok: bool,
}

struct Server {
    model: BackendModel,
    busy: u32,
    queue: VecDeque<u64>,
    started_total: u64,
    errors_total: u64,
    weight: u32,
    alive: bool,
    status: ServerStatus,
    /// Answers every request with an error after a millisecond.
    fails_fast: bool,
}

impl Server {
    fn in_flight(&self) -> u32 {
        self.busy + self.queue.len() as u32
    }
}

enum Balancer {
    RoundRobin(SmoothRoundRobin),
    LeastConn(HaproxyLeastconn),
}

/// The simulated world.
pub struct World {
    spec: WorldSpec,
    now: u64,
    rng: Xoshiro256PlusPlus,
    servers: Vec<Server>,
    balancer: Balancer,
    /// (finish, server, sent, counts as success)
    departures: BinaryHeap<Reverse<(u64, usize, u64, bool)>>,
    next_arrival: u64,
    next_poll: u64,
    next_tick: u64,
    generation: u64,
    wrong_url: bool,
    /// No liveness check gets through, though the backends are well.
    blind: bool,
    controller: Option<Controller>,
    pending: Option<(u64, Plan)>,
    next_probe: Vec<u64>,
    probe_every: Vec<u64>,
    /// Every answer so far.
    pub answers: Vec<Answer>,
    /// Everything the controller recorded, with its time.
    pub records: Vec<(Nanos, Record)>,
    /// Every plan it programmed.
    pub plans: Vec<(Nanos, Plan)>,
}

const TICK: u64 = 100_000_000;
const PROGRAMMING: u64 = 3_000_000;

impl World {
    /// A world at time zero, without a controller.
    pub fn new(spec: WorldSpec) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(spec.seed);
        let servers = spec
            .pool
            .iter()
            .zip(&spec.weights)
            .map(|(&model, &weight)| Server {
                model,
                busy: 0,
                queue: VecDeque::new(),
                started_total: 0,
                errors_total: 0,
                weight,
                alive: true,
                status: ServerStatus::Up,
                fails_fast: false,
            })
            .collect();
        let balancer = match spec.method {
            Method::RoundRobin => Balancer::RoundRobin(SmoothRoundRobin::new(
                &spec.weights.iter().map(|&w| f64::from(w)).collect::<Vec<_>>(),
            )),
            Method::LeastConn => Balancer::LeastConn(HaproxyLeastconn::new(&spec.weights)),
        };
        let n = spec.pool.len();
        World {
            now: 0,
            rng,
            servers,
            balancer,
            departures: BinaryHeap::new(),
            next_arrival: 0,
            next_poll: 0,
            next_tick: 0,
            generation: 1,
            wrong_url: false,
            blind: false,
            controller: None,
            pending: None,
            next_probe: vec![0; n],
            probe_every: vec![u64::MAX; n],
            answers: Vec::new(),
            records: Vec::new(),
            plans: Vec::new(),
            spec,
        }
    }

    /// The specification of a controller for this pool, with every default.
    pub fn service_spec(&self) -> ServiceSpec {
        let backends = (0..self.servers.len())
            .map(|i| BackendSpec { id: BackendId(i as u32), name: format!("s{i}") })
            .collect();
        ServiceSpec::new("sim", backends)
    }

    /// Puts a controller in charge.
    pub fn attach(&mut self, spec: ServiceSpec, memory: Option<Memory>) {
        self.controller = Some(Controller::new(spec, memory, Nanos(self.now), self.spec.seed));
    }

    /// The controller in charge.
    pub fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref()
    }

    /// Takes the controller away, as a crash does; the balancer goes on with its weights.
    pub fn detach(&mut self) -> Option<Controller> {
        self.pending = None;
        self.controller.take()
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    /// The weights that the balancer holds.
    pub fn weights(&self) -> Vec<u32> {
        self.servers.iter().map(|s| s.weight).collect()
    }

    /// Kills a backend or brings it back. Its requests in flight are lost.
    pub fn set_alive(&mut self, i: usize, alive: bool) {
        self.servers[i].alive = alive;
        if !alive {
            let (mine, others): (Vec<_>, Vec<_>) =
                self.departures.drain().partition(|Reverse((_, s, ..))| *s == i);
            self.departures = others.into();
            let sent: Vec<u64> = mine.into_iter().map(|Reverse((_, _, sent, _))| sent).collect();
            let waiting: Vec<u64> = self.servers[i].queue.drain(..).collect();
            self.servers[i].busy = 0;
            for sent in sent.into_iter().chain(waiting) {
                self.finish(i, sent, false);
            }
        }
    }

    /// Lets a backend answer every request with an error, at once.
    pub fn set_failing_fast(&mut self, i: usize, failing: bool) {
        self.servers[i].fails_fast = failing;
    }

    /// Lets an administrator drain a server, or give it back.
    pub fn set_status(&mut self, i: usize, status: ServerStatus) {
        self.servers[i].status = status;
    }

    /// Lets no liveness check through, though the backends are well.
    pub fn set_blind(&mut self, blind: bool) {
        self.blind = blind;
    }

    /// Points the probes at a URL that no backend knows.
    pub fn set_wrong_url(&mut self, wrong: bool) {
        self.wrong_url = wrong;
    }

    /// Tells the controller something, as its surroundings do.
    pub fn tell_controller(&mut self, event: Event) {
        self.tell(event);
    }

    /// Changes a backend's speed; requests being served finish as they were going to.
    pub fn set_speed(&mut self, i: usize, speed: f64) {
        self.servers[i].model.speed = speed;
    }

    /// Changes the traffic.
    pub fn set_rate(&mut self, rate_rps: f64) {
        self.spec.rate_rps = rate_rps;
    }

    /// Restarts the balancer: counters and weights begin anew.
    pub fn restart_balancer(&mut self) {
        self.generation += 1;
        for i in 0..self.servers.len() {
            self.servers[i].started_total = u64::from(self.servers[i].in_flight());
            self.servers[i].errors_total = 0;
        }
        let initial: Vec<(usize, u32)> = self.spec.weights.iter().copied().enumerate().collect();
        self.set_weights(&initial);
    }

    /// Changes a weight behind the controller's back.
    pub fn set_foreign_weight(&mut self, i: usize, weight: u32) {
        self.set_weights(&[(i, weight)]);
    }

    /// Runs until `seconds` of simulated time have passed.
    pub fn run_for(&mut self, seconds: f64) {
        let end = self.now + (seconds * 1e9) as u64;
        loop {
            let departure = self.departures.peek().map_or(u64::MAX, |Reverse((t, ..))| *t);
            let programming = self.pending.as_ref().map_or(u64::MAX, |(t, _)| *t);
            let next = departure
                .min(self.next_arrival)
                .min(self.next_poll)
                .min(self.next_tick)
                .min(programming);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            if next == departure {
                if let Some(Reverse((_, i, sent, ok))) = self.departures.pop() {
                    self.depart(i, sent, ok);
                }
            } else if next == self.next_arrival {
                self.arrive();
            } else if next == programming {
                self.carry_out();
            } else if next == self.next_poll {
                self.next_poll += self.spec.poll.as_nanos() as u64;
                let report = self.report();
                self.tell(Event::Balancer(report));
            } else {
                self.next_tick += TICK;
                self.tick();
            }
        }
    }

    /// Mean, 99th percentile (milliseconds) and errors of the answers to requests sent since.
    pub fn since(&self, from: Nanos) -> (f64, f64, usize) {
        let mut times: Vec<f64> = Vec::new();
        let mut errors = 0;
        for a in self.answers.iter().rev() {
            // Answers come in order of their end: a minute covers the slowest.
            if a.sent.0 + 60_000_000_000 < from.0 {
                break;
            }
            if a.sent >= from {
                if a.ok { times.push(a.latency_ms) } else { errors += 1 }
            }
        }
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(0.0);
        (mean, p99, errors)
    }

    fn uniform(&mut self) -> f64 {
        ((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn arrive(&mut self) {
        let gap = -self.uniform().ln() / self.spec.rate_rps * 1e9;
        self.next_arrival = self.now + (gap as u64).max(1);
        let picked = match &mut self.balancer {
            Balancer::RoundRobin(rr) => rr.pick(),
            Balancer::LeastConn(lc) => lc.pick(),
        };
        let Some(i) = picked else {
            let answer =
                Answer { sent: Nanos(self.now), latency_ms: 0.0, backend: usize::MAX, ok: false };
            self.answers.push(answer);
            return;
        };
        let now = self.now;
        self.servers[i].started_total += 1;
        if !self.servers[i].alive {
            self.finish(i, now, false);
            return;
        }
        if self.servers[i].fails_fast {
            self.servers[i].busy += 1;
            self.departures.push(Reverse((now + 1_000_000, i, now, false)));
        } else if self.servers[i].busy < self.servers[i].model.cores {
            self.servers[i].busy += 1;
            self.serve(i, now);
        } else {
            self.servers[i].queue.push_back(now);
        }
        self.changed(i);
    }

    fn serve(&mut self, i: usize, sent: u64) {
        let model = self.servers[i].model;
        let took = draw(self.spec.service, &model, self.spec.service_us, &mut self.rng);
        self.departures.push(Reverse((self.now + took, i, sent, true)));
    }

    fn depart(&mut self, i: usize, sent: u64, ok: bool) {
        self.finish(i, sent, ok);
        match self.servers[i].queue.pop_front() {
            Some(next) => self.serve(i, next),
            None => self.servers[i].busy -= 1,
        }
        self.changed(i);
    }

    fn finish(&mut self, i: usize, sent: u64, ok: bool) {
        if !ok {
            self.servers[i].errors_total += 1;
        }
        self.answers.push(Answer {
            sent: Nanos(sent),
            latency_ms: (self.now - sent) as f64 / 1e6,
            backend: i,
            ok,
        });
    }

    fn changed(&mut self, i: usize) {
        let n = self.servers[i].in_flight();
        match &mut self.balancer {
            Balancer::RoundRobin(rr) => rr.changed(i, n),
            Balancer::LeastConn(lc) => lc.changed(i, n),
        }
    }

    fn set_weights(&mut self, weights: &[(usize, u32)]) {
        for &(i, w) in weights {
            self.servers[i].weight = w;
        }
        match &mut self.balancer {
            Balancer::RoundRobin(rr) => {
                let all: Vec<f64> = self.servers.iter().map(|s| f64::from(s.weight)).collect();
                rr.set_weights(&all);
            }
            Balancer::LeastConn(lc) => {
                for &(i, w) in weights {
                    lc.set_weight(i, w, self.servers[i].in_flight());
                }
            }
        }
    }

    fn report(&self) -> BalancerReport {
        let (name, kind) = match self.spec.method {
            Method::RoundRobin => ("roundrobin", MethodKind::Split),
            Method::LeastConn => ("leastconn", MethodKind::InFlight),
        };
        let servers = self.servers.iter().enumerate().map(|(i, s)| ServerReport {
            backend: BackendId(i as u32),
            weight: s.weight,
            status: s.status,
            in_flight: s.in_flight(),
            queued: 0,
            started_total: s.started_total,
            errors_total: s.errors_total,
        });
        BalancerReport {
            at: Nanos(self.now),
            method: BalancerMethod { name: name.to_owned(), kind },
            generation: self.generation,
            servers: servers.collect(),
        }
    }

    /// A tick: liveness rounds, probes that are due, and time passing.
    fn tick(&mut self) {
        for i in 0..self.servers.len() {
            let (alive, seen) = (self.servers[i].alive, !self.blind);
            self.tell(Event::Liveness {
                backend: BackendId(i as u32),
                successes: if alive && seen { 3 } else { 0 },
                failure: match (alive, seen) {
                    (_, false) => Some(FailureKind::Timeout),
                    (false, true) => Some(FailureKind::Refused),
                    (true, true) => None,
                },
                started: Nanos(self.now),
            });
            if self.now >= self.next_probe[i] && self.probe_every[i] != u64::MAX {
                self.next_probe[i] = self.now + self.probe_every[i];
                self.probe(i);
            }
        }
        self.tell(Event::Tick);
    }

    /// A probe, as if it went ahead of the queue: its load is too small to matter here.
    fn probe(&mut self, i: usize) {
        let model = self.servers[i].model;
        let service = draw(self.spec.service, &model, self.spec.service_us, &mut self.rng);
        let waiting = f64::from(self.servers[i].in_flight().saturating_sub(model.cores - 1));
        let wait_us = waiting * self.spec.service_us / model.speed / f64::from(model.cores);
        let fails = self.servers[i].fails_fast || self.wrong_url;
        let outcome = match (self.servers[i].alive, fails) {
            (false, _) => Outcome::Failure(FailureKind::Refused),
            (true, true) => Outcome::Failure(FailureKind::Status),
            (true, false) => Outcome::Success,
        };
        self.tell(Event::Probe {
            backend: BackendId(i as u32),
            outcome,
            latency_us: service as f64 / 1e3 + wait_us,
            detail: String::new(),
        });
    }

    fn carry_out(&mut self) {
        let Some((_, plan)) = self.pending.take() else { return };
        let before = self.weights();
        let weights: Vec<(usize, u32)> =
            plan.entries.iter().map(|e| (e.backend.0 as usize, e.weight)).collect();
        self.set_weights(&weights);
        let commands = weights.iter().filter(|&&(i, w)| before[i] != w).count() as u32;
        let held = self.servers.iter().enumerate().map(|(i, s)| (BackendId(i as u32), s.weight));
        let applied = Applied { epoch: plan.epoch, weights: held.collect(), commands };
        self.tell(Event::Applied(applied));
    }

    fn tell(&mut self, event: Event) {
        let now = Nanos(self.now);
        let Some(controller) = &mut self.controller else { return };
        for action in controller.step(now, event) {
            match action {
                Action::Program(plan) => {
                    self.plans.push((now, plan.clone()));
                    self.pending = Some((self.now + PROGRAMMING, plan));
                }
                Action::ProbeRate { backend, interval, .. } => {
                    self.probe_every[backend.0 as usize] = interval.as_nanos() as u64;
                }
                Action::Record(record) => self.records.push((now, record)),
                Action::SaveMemory => {}
            }
        }
    }
}
