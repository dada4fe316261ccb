//! The pool, its balancer, its clients and, where one is attached, its controller.

use std::collections::VecDeque;

use plimsoll_control::{Action, BackendSpec, Controller, Event, Record, ServiceSpec};
use plimsoll_model::{
    Applied, BackendId, BalancerReport, Nanos, Plan, ServerReport, ServerStatus, Traffic,
};
use plimsoll_queueing::{HaproxyLeastconn, Pick};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::server::Container;
use crate::pool::Method;
use plimsoll_queueing::HaproxyRoundRobin;

const STEP_NS: u64 = 200_000;
const TICK_NS: u64 = 50_000_000;
const PROGRAMMING_NS: u64 = 3_000_000;
/// Clients give up after this.
const PATIENCE_S: f64 = 10.0;
/// Interval at which clients that gave up are looked for.
const LOOK_NS: u64 = 10_000_000;

/// The specification of a simulated pool.
#[derive(Clone, Debug)]
pub struct ContainerPoolSpec {
    /// The quota of each server, in cores.
    pub quotas: Vec<f64>,
    /// Mean CPU time of a request, seconds; exponential.
    pub cpu_s: f64,
    /// Processes of each server that work to the end on what clients have given up; see [`Container::with_workers`].
    pub workers: Option<usize>,
    /// The most requests that the balancer has at one server at once (HAProxy's `maxconn` of a server): more wait at the
    /// balancer for whichever server is free first, and leave when their clients give up.
    pub maxconn: Option<u32>,
    /// How the balancer picks.
    pub method: Method,
    /// The initial weights.
    pub weights: Vec<u32>,
    /// Poisson arrivals, requests per second.
    pub rate_rps: f64,
    /// The run's seed: arrivals and work do not depend on which server they go to.
    pub seed: u64,
}

impl ContainerPoolSpec {
    /// Capacity of each server, requests per second.
    pub fn capacities(&self) -> Vec<f64> {
        self.quotas.iter().map(|quota| quota / self.cpu_s).collect()
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// When it was sent, seconds.
    pub sent_s: f64,
    /// Its response time, milliseconds; `None`: the client gave up.
    pub latency_ms: Option<f64>,
}

enum Balancer {
    RoundRobin(HaproxyRoundRobin),
    LeastConn(HaproxyLeastconn),
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    started: u64,
    answered: u64,
    errors: u64,
}

/// The simulated pool.
pub struct ContainerPool {
    spec: ContainerPoolSpec,
    now: u64,
    servers: Vec<Container>,
    counts: Vec<Count>,
    weights: Vec<u32>,
    balancer: Balancer,
    traffic: Xoshiro256PlusPlus,
    next_arrival: f64,
    controller: Option<Controller>,
    pending: Option<(u64, Plan)>,
    next_poll: u64,
    /// Requests that wait at the balancer: when each was sent, and its CPU time, seconds.
    waiting: VecDeque<(f64, f64)>,
    check_every: Vec<Option<u64>>,
    next_check: Vec<u64>,
    /// Every request so far.
    pub outcomes: Vec<Outcome>,
    /// Everything the controller recorded, with its time in seconds.
    pub records: Vec<(f64, Record)>,
}

impl ContainerPool {
    /// A pool at time zero, without a controller.
    pub fn new(spec: ContainerPoolSpec) -> Self {
        let n = spec.quotas.len();
        let phase = |i: usize| (i as f64 * 0.37).fract().max(0.01);
        let balancer = match spec.method {
            Method::RoundRobin => Balancer::RoundRobin(HaproxyRoundRobin::new(&spec.weights)),
            Method::LeastConn => Balancer::LeastConn(HaproxyLeastconn::new(&spec.weights)),
        };
        ContainerPool {
            now: 0,
            servers: spec
                .quotas
                .iter()
                .enumerate()
                .map(|(i, &q)| Container::new(q, phase(i)).with_workers(spec.workers))
                .collect(),
            counts: vec![Count::default(); n],
            weights: spec.weights.clone(),
            balancer,
            traffic: Xoshiro256PlusPlus::seed_from_u64(spec.seed),
            next_arrival: 0.0,
            controller: None,
            pending: None,
            next_poll: 0,
            waiting: VecDeque::new(),
            check_every: vec![None; n],
            next_check: vec![0; n],
            outcomes: Vec::new(),
            records: Vec::new(),
            spec,
        }
    }

    /// Starts a controller without memory.
    pub fn attach(&mut self) {
        let backend = |i| BackendSpec { id: BackendId(i), name: format!("s{i}") };
        let backends = (0..self.servers.len() as u32).map(backend).collect();
        let spec = ServiceSpec::new("pool", backends);
        self.controller = Some(Controller::new(spec, None, Nanos(self.now), self.spec.seed));
    }

    /// The controller, if one runs.
    pub fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref()
    }

    /// Seconds since the beginning.
    pub fn now_s(&self) -> f64 {
        self.now as f64 / 1e9
    }

    /// The weights that the balancer holds.
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Changes a server's quota, in cores.
    pub fn set_quota(&mut self, i: usize, quota: f64) {
        self.servers[i].set_quota(quota);
    }

    /// Stops a server for this time.
    pub fn pause(&mut self, i: usize, seconds: f64) {
        let until = self.now_s() + seconds;
        self.servers[i].pause_until(until);
    }

    /// Changes the traffic, requests per second.
    pub fn set_rate(&mut self, rate_rps: f64) {
        self.spec.rate_rps = rate_rps;
    }

    /// Simulates this many seconds.
    pub fn run_for(&mut self, seconds: f64) {
        let end = self.now + (seconds * 1e9) as u64;
        let poll = self.spec.method.kind().poll_interval().as_nanos() as u64;
        let mut answered = Vec::new();
        while self.now < end {
            let now = self.now_s();
            while self.next_arrival <= now {
                self.arrive();
            }
            for i in 0..self.servers.len() {
                self.servers[i].advance(now, STEP_NS as f64 / 1e9, &mut answered);
                if !answered.is_empty() {
                    self.counts[i].answered += answered.len() as u64;
                    let ended = now + STEP_NS as f64 / 1e9;
                    let outcome =
                        |sent_s: f64| Outcome { sent_s, latency_ms: Some((ended - sent_s) * 1e3) };
                    self.outcomes.extend(answered.drain(..).map(outcome));
                    self.changed(i);
                    self.send();
                }
            }
            self.now += STEP_NS;
            if self.now.is_multiple_of(LOOK_NS) {
                self.give_up();
            }
            if self.pending.as_ref().is_some_and(|(at, _)| self.now >= *at) {
                self.carry_out();
            }
            if self.controller.is_none() {
                continue;
            }
            if self.now >= self.next_poll {
                self.next_poll = self.now + poll;
                let report = self.report();
                self.tell(Event::Balancer(report));
            }
            if self.now.is_multiple_of(TICK_NS) {
                self.tell(Event::Tick);
            }
            for i in 0..self.servers.len() {
                if let Some(every) = self.check_every[i].filter(|_| self.now >= self.next_check[i])
                {
                    self.next_check[i] = self.now + every;
                    // The kernel accepts connections, whatever the server does.
                    let (backend, started) = (BackendId(i as u32), Nanos(self.now));
                    let failure = None;
                    self.tell(Event::Liveness { backend, successes: 1, failure, started });
                }
            }
        }
    }

    fn arrive(&mut self) {
        let mut exponential = || -(1.0 - self.traffic.random::<f64>()).ln();
        let sent = self.next_arrival;
        let cpu_s = exponential() * self.spec.cpu_s;
        self.next_arrival += exponential() / self.spec.rate_rps;
        self.waiting.push_back((sent, cpu_s));
        self.send();
    }

    /// Sends what waits to servers that have room for it. Without any server that has weight it fails.
    fn send(&mut self) {
        while !self.waiting.is_empty() {
            if self.weights.iter().all(|&weight| weight == 0) {
                let lost = self.waiting.drain(..);
                let lost = lost.map(|(sent_s, _)| Outcome { sent_s, latency_ms: None });
                self.outcomes.extend(lost);
                return;
            }
            let Some(i) = self.pick() else { return };
            let Some((sent, cpu_s)) = self.waiting.pop_front() else { return };
            self.counts[i].started += 1;
            self.servers[i].take(sent, cpu_s);
            self.changed(i);
        }
    }

    /// The server for the next request; `None`: all are full. A full one misses its turn.
    fn pick(&mut self) -> Option<usize> {
        let servers = &self.servers;
        let most = self.spec.maxconn.unwrap_or(u32::MAX);
        let has_room = |i: usize| servers[i].in_flight() < most;
        match &mut self.balancer {
            Balancer::LeastConn(lc) => lc.pick_where(has_room),
            Balancer::RoundRobin(rr) => {
                let mut holding = (0..servers.len()).filter(|&i| self.weights[i] > 0);
                if !holding.any(has_room) {
                    return None;
                }
                std::iter::repeat_with(|| rr.pick()).find(|i| i.is_none_or(has_room)).flatten()
            }
        }
    }

    fn give_up(&mut self) {
        let before = self.now_s() - PATIENCE_S;
        while self.waiting.front().is_some_and(|(sent, _)| *sent < before) {
            self.waiting.pop_front();
            self.outcomes.push(Outcome { sent_s: before, latency_ms: None });
        }
        for i in 0..self.servers.len() {
            let lost = self.servers[i].give_up(before);
            if lost > 0 {
                self.counts[i].errors += lost;
                let outcome = Outcome { sent_s: before, latency_ms: None };
                self.outcomes.extend((0..lost).map(|_| outcome));
                self.changed(i);
            }
        }
        self.send();
    }

    fn changed(&mut self, i: usize) {
        let n = self.servers[i].in_flight();
        match &mut self.balancer {
            Balancer::RoundRobin(rr) => rr.changed(i, n),
            Balancer::LeastConn(lc) => lc.changed(i, n),
        }
    }

    fn report(&self) -> BalancerReport {
        let server = |(i, count): (usize, &Count)| ServerReport {
            backend: BackendId(i as u32),
            weight: self.weights[i],
            status: ServerStatus::Up,
            checked: false,
            in_flight: self.servers[i].in_flight(),
            queued: 0,
            started_total: count.started,
            errors_total: count.errors,
            answered_total: Some(count.answered),
            response_times: None,
        };
        BalancerReport {
            at: Nanos(self.now),
            method: self.spec.method.describe(),
            generation: 1,
            traffic: Traffic::Counted,
            servers: self.counts.iter().enumerate().map(server).collect(),
        }
    }

    /// Sets all weights of the balancer.
    pub fn set_weights(&mut self, weights: &[u32]) {
        weights.iter().enumerate().for_each(|(i, &weight)| self.set_weight(i, weight));
    }

    fn set_weight(&mut self, i: usize, weight: u32) {
        self.weights[i] = weight;
        let n = self.servers[i].in_flight();
        match &mut self.balancer {
            Balancer::RoundRobin(rr) => rr.set_weight(i, weight),
            Balancer::LeastConn(lc) => lc.set_weight(i, weight, n),
        }
    }

    fn carry_out(&mut self) {
        let Some((_, plan)) = self.pending.take() else { return };
        let mut commands = 0;
        for entry in &plan.entries {
            let i = entry.backend.0 as usize;
            if self.weights[i] != entry.weight {
                commands += 1;
                self.set_weight(i, entry.weight);
            }
        }
        let held = self.weights.iter().enumerate().map(|(i, &w)| (BackendId(i as u32), w));
        let weights = held.collect();
        self.tell(Event::Applied(Applied { epoch: plan.epoch, weights, commands }));
    }

    fn tell(&mut self, event: Event) {
        let Some(controller) = &mut self.controller else { return };
        for action in controller.step(Nanos(self.now), event) {
            match action {
                Action::Program(plan) | Action::Correct(plan) => {
                    self.pending = Some((self.now + PROGRAMMING_NS, plan));
                }
                Action::CheckRate { backend, interval, at_once } => {
                    let i = backend.0 as usize;
                    self.check_every[i] = interval.map(|interval| interval.as_nanos() as u64);
                    let wait = self.check_every[i].filter(|_| !at_once).unwrap_or(0);
                    self.next_check[i] = self.now + wait;
                }
                Action::Record(record) => self.records.push((self.now as f64 / 1e9, record)),
                Action::ProbeRate { .. } | Action::SaveMemory => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_full_server_has_no_room_for_waits_for_whichever_is_free_first() {
        for method in [Method::RoundRobin, Method::LeastConn] {
            let spec = ContainerPoolSpec {
                quotas: vec![0.2, 0.4],
                cpu_s: 0.01,
                workers: None,
                maxconn: Some(1),
                method,
                weights: vec![1, 1],
                rate_rps: 300.0,
                seed: 1,
            };
            let mut pool = ContainerPool::new(spec);
            pool.run_for(20.0);
            assert!(pool.servers.iter().all(|server| server.in_flight() <= 1));
            // Overloaded five times: many wait at the balancer, and each server answers what its quota can do.
            assert!(
                pool.waiting.len() > 1_000 && pool.outcomes.iter().any(|o| o.latency_ms.is_none())
            );
            let answered = |i: usize| pool.counts[i].answered as f64 / 20.0;
            assert!((answered(0) - 20.0).abs() < 4.0 && (answered(1) - 40.0).abs() < 6.0);
        }
    }
}
