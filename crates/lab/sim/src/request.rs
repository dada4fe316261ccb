//! The pool at request level: every request arrives, gets a backend by the balancer's real key, waits, is served first
//! in first out, and leaves. Arrivals are Poisson. Arrival times and the work of requests do not depend on which
//! backend serves them: runs with the same seed and other weights have the same traffic. About 0.2 µs per request with
//! ten backends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use plimsoll_model::{
    BackendId, BalancerReport, FailureKind, GREATEST_WEIGHT, Nanos, Outcome, ServerReport,
    ServerStatus, Traffic,
};
use plimsoll_queueing::ServiceTime;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::balancer::Balancer;
use crate::pool::{BackendModel, Method};
use crate::pool_model::{Condition, PoolModel};

/// Duration of an error answer.
const ERROR_NS: u64 = 1_000_000;
/// Clients give up on a hanging backend after this.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Interval at which arrivals are checked for while there is no traffic.
const SILENCE_NS: u64 = 100_000_000;

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
    pace: f64,
    busy: u32,
    /// When it was sent, its work in multiples of the mean, and the balancer that it came by.
    queue: VecDeque<(u64, f64, usize)>,
    started_total: u64,
    errors_total: u64,
    answered_total: u64,
    weight: u32,
    condition: Condition,
    status: ServerStatus,
}

impl Server {
    fn in_flight(&self) -> u32 {
        self.busy + self.queue.len() as u32
    }

    fn present(&self) -> BackendModel {
        BackendModel { speed: self.model.speed * self.pace, ..self.model }
    }

    /// The weight that the balancer picks by: 0 for servers that are down, drained or in maintenance.
    fn effective(&self) -> u32 {
        match self.status {
            ServerStatus::Up | ServerStatus::Starting => self.weight,
            ServerStatus::Down | ServerStatus::Drain | ServerStatus::Maintenance => 0,
        }
    }
}

/// (finish, server, sent, counts as success, balancer)
type Departure = (u64, usize, u64, bool, usize);

/// A pool in which every request is simulated.
pub struct RequestPool {
    now: u64,
    /// Random numbers of arrivals and work.
    traffic: Xoshiro256PlusPlus,
    /// Random numbers of probes.
    probes: Xoshiro256PlusPlus,
    service_us: f64,
    service: ServiceTime,
    method: Method,
    rate_rps: f64,
    servers: Vec<Server>,
    /// At least one; a request comes to any of them, and each counts only its own.
    balancers: Vec<Balancer>,
    /// Where each balancer has a subset of the servers: its weights at all of them.
    subsets: Option<Vec<Vec<u32>>>,
    /// What each balancer has in flight at each server.
    held: Vec<Vec<u32>>,
    /// Random numbers of which balancer a request comes to.
    ways: Xoshiro256PlusPlus,
    departures: BinaryHeap<Reverse<Departure>>,
    next_arrival: u64,
    generation: u64,
    /// Every answer, if they are kept: an hour of a busy pool has a million.
    answers: Option<Vec<Answer>>,
}

impl RequestPool {
    /// A pool at time zero.
    pub fn new(
        pool: &[BackendModel],
        weights: &[u32],
        service_us: f64,
        service: ServiceTime,
        method: Method,
        seed: u64,
    ) -> Self {
        let server = |(&model, &weight): (&BackendModel, &u32)| Server {
            model,
            pace: 1.0,
            busy: 0,
            queue: VecDeque::new(),
            started_total: 0,
            errors_total: 0,
            answered_total: 0,
            weight,
            condition: Condition::Well,
            status: ServerStatus::Up,
        };
        let traffic = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut probes = traffic.clone();
        probes.jump();
        let mut ways = probes.clone();
        ways.jump();
        RequestPool {
            now: 0,
            traffic,
            probes,
            service_us,
            service,
            method,
            rate_rps: 0.0,
            servers: pool.iter().zip(weights).map(server).collect(),
            balancers: vec![Balancer::new(method, weights)],
            subsets: None,
            held: vec![vec![0; pool.len()]],
            ways,
            departures: BinaryHeap::new(),
            next_arrival: 0,
            generation: 1,
            answers: None,
        }
    }

    /// Puts this many balancers before the pool, all with the weights and the method of the first. To be called before
    /// the first request; their reports are added up.
    pub fn set_balancers(&mut self, count: usize) {
        let weights = self.effective();
        self.balancers = (0..count.max(1)).map(|_| Balancer::new(self.method, &weights)).collect();
        self.held = vec![vec![0; self.servers.len()]; self.balancers.len()];
    }

    /// Gives each balancer a subset of the servers, as [`plimsoll_pack::subsets`] does for equal traffic. To be called
    /// before the first request, after [`RequestPool::set_balancers`].
    pub fn divide_into_subsets(&mut self) {
        let rows = self.rows();
        let balancer = |row: &Vec<u32>| Balancer::new(self.method, row);
        self.balancers = rows.iter().map(balancer).collect();
        self.subsets = Some(rows);
    }

    /// Each balancer's weights where it has a subset, of servers that are up.
    fn rows(&self) -> Vec<Vec<u32>> {
        let most = self.servers.iter().map(|s| s.weight).max().unwrap_or(1).max(1);
        let scaled: Vec<u32> =
            self.servers.iter().map(|s| s.weight * (GREATEST_WEIGHT / most).max(1)).collect();
        let mut rows = plimsoll_pack::subsets(&scaled, &vec![1.0; self.balancers.len()]);
        for row in &mut rows {
            let of_servers = row.iter_mut().zip(&self.servers);
            of_servers.filter(|(_, s)| s.effective() == 0).for_each(|(weight, _)| *weight = 0);
        }
        rows
    }

    /// Picks by a smooth weighted round robin instead of HAProxy's own: a baseline for experiments that are about
    /// weights only.
    pub fn pick_smoothly(&mut self) {
        if self.method == Method::RoundRobin {
            let weights = self.effective();
            self.balancers.fill_with(|| Balancer::smooth(&weights));
        }
    }

    /// Keeps every answer from now on.
    pub fn keep_answers(&mut self) {
        self.answers.get_or_insert_default();
    }

    /// Returns the answers kept so far and removes them.
    pub fn take_answers(&mut self) -> Vec<Answer> {
        self.answers.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Changes a backend's speed for good; requests in service finish as scheduled.
    pub fn set_speed(&mut self, i: usize, speed: f64) {
        self.servers[i].model.speed = speed;
    }

    fn arrive(&mut self) {
        if self.rate_rps <= 0.0 {
            self.next_arrival = self.now + SILENCE_NS;
            return;
        }
        let gap = ServiceTime::Exponential.draw(&mut self.traffic) / self.rate_rps * 1e9;
        self.next_arrival = self.now + (gap as u64).max(1);
        let work = self.service.draw(&mut self.traffic);
        let by = match self.balancers.len() {
            1 => 0,
            many => (self.ways.next_u64() % many as u64) as usize,
        };
        let now = self.now;
        let Some(i) = self.balancers[by].pick() else {
            self.answer(usize::MAX, now, false);
            return;
        };
        self.servers[i].started_total += 1;
        match self.servers[i].condition {
            Condition::Dead => {
                self.finish(i, now, false);
                return;
            }
            Condition::FailsFast | Condition::FailsClients => {
                self.servers[i].busy += 1;
                self.departures.push(Reverse((now + ERROR_NS, i, now, false, by)));
            }
            Condition::Hangs => {
                self.servers[i].busy += 1;
                self.departures.push(Reverse((now + PATIENCE_NS, i, now, false, by)));
            }
            Condition::Well if self.servers[i].busy < self.servers[i].model.cores => {
                self.servers[i].busy += 1;
                self.serve(i, now, work, by);
            }
            Condition::Well => self.servers[i].queue.push_back((now, work, by)),
        }
        self.held[by][i] += 1;
        self.changed(i);
    }

    /// Service time of this work at this backend, nanoseconds.
    fn nanos(&self, i: usize, work: f64) -> u64 {
        (work * self.service_us * 1e3 / self.servers[i].present().speed) as u64
    }

    fn serve(&mut self, i: usize, sent: u64, work: f64, by: usize) {
        let took = self.nanos(i, work);
        self.departures.push(Reverse((self.now + took, i, sent, true, by)));
    }

    fn depart(&mut self, i: usize, sent: u64, ok: bool, by: usize) {
        self.finish(i, sent, ok);
        let waits = self.servers[i].busy <= self.servers[i].model.cores;
        match self.servers[i].queue.front().copied().filter(|_| waits) {
            Some((next, work, next_by)) => {
                self.servers[i].queue.pop_front();
                self.serve(i, next, work, next_by);
            }
            None => self.servers[i].busy -= 1,
        }
        self.held[by][i] -= 1;
        self.changed(i);
    }

    fn finish(&mut self, i: usize, sent: u64, ok: bool) {
        let s = &mut self.servers[i];
        s.errors_total += u64::from(!ok);
        // Errors that a live server gives are answers; without a live server the balancer makes the error.
        let lives = matches!(s.condition, Condition::FailsFast | Condition::FailsClients);
        s.answered_total += u64::from(ok || lives);
        self.answer(i, sent, ok);
    }

    fn answer(&mut self, backend: usize, sent: u64, ok: bool) {
        let latency_ms = (self.now - sent) as f64 / 1e6;
        if let Some(answers) = &mut self.answers {
            answers.push(Answer { sent: Nanos(sent), latency_ms, backend, ok });
        }
    }

    fn changed(&mut self, i: usize) {
        for (balancer, held) in self.balancers.iter_mut().zip(&self.held) {
            balancer.changed(i, held[i]);
        }
    }

    fn effective(&self) -> Vec<u32> {
        self.servers.iter().map(Server::effective).collect()
    }

    fn tell_balancer(&mut self, i: usize) {
        if self.subsets.is_some() {
            return self.tell_subsets();
        }
        let weights = self.effective();
        for (balancer, held) in self.balancers.iter_mut().zip(&self.held) {
            balancer.set_weight(i, &weights, held[i]);
        }
    }
}

impl RequestPool {
    /// Where one weight has changed, the subsets of all servers may have.
    fn tell_subsets(&mut self) {
        let rows = self.rows();
        let before = self.subsets.replace(rows.clone()).unwrap_or_default();
        for (b, (row, before)) in rows.iter().zip(&before).enumerate() {
            for i in (0..row.len()).filter(|&i| row[i] != before[i]) {
                self.balancers[b].set_weight(i, row, self.held[b][i]);
            }
        }
    }
}

impl PoolModel for RequestPool {
    fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    fn advance(&mut self, to: Nanos) {
        loop {
            let departure = self.departures.peek().map_or(u64::MAX, |Reverse((t, ..))| *t);
            let next = departure.min(self.next_arrival);
            if next > to.0 {
                self.now = to.0;
                return;
            }
            self.now = next;
            if next < departure {
                self.arrive();
            } else if let Some(Reverse((_, i, sent, ok, by))) = self.departures.pop() {
                self.depart(i, sent, ok, by);
            }
        }
    }

    fn len(&self) -> usize {
        self.servers.len()
    }

    fn report(&self) -> BalancerReport {
        let servers = self.servers.iter().enumerate().map(|(i, s)| ServerReport {
            backend: BackendId(i as u32),
            weight: s.weight,
            status: s.status,
            checked: false,
            in_flight: s.in_flight(),
            queued: 0,
            started_total: s.started_total,
            errors_total: s.errors_total,
            answered_total: Some(s.answered_total),
            response_times: None,
        });
        BalancerReport {
            at: Nanos(self.now),
            method: self.method.describe(),
            generation: self.generation,
            traffic: Traffic::Counted,
            servers: servers.collect(),
        }
    }

    fn weight(&self, i: usize) -> u32 {
        self.servers[i].weight
    }

    fn set_weights(&mut self, weights: &[(usize, u32)]) {
        for &(i, weight) in weights {
            self.servers[i].weight = weight;
            self.tell_balancer(i);
        }
    }

    fn condition(&self, i: usize) -> Condition {
        self.servers[i].condition
    }

    fn set_condition(&mut self, i: usize, condition: Condition) {
        self.servers[i].condition = condition;
        if condition != Condition::Dead {
            return;
        }
        let (mine, others): (Vec<_>, Vec<_>) =
            self.departures.drain().partition(|Reverse((_, s, ..))| *s == i);
        self.departures = others.into();
        let sent: Vec<u64> = mine.into_iter().map(|Reverse((_, _, sent, ..))| sent).collect();
        let waiting: Vec<u64> = self.servers[i].queue.drain(..).map(|(sent, ..)| sent).collect();
        self.servers[i].busy = 0;
        self.held.iter_mut().for_each(|held| held[i] = 0);
        for sent in sent.into_iter().chain(waiting) {
            self.finish(i, sent, false);
        }
        self.changed(i);
    }

    fn set_status(&mut self, i: usize, status: ServerStatus) {
        self.servers[i].status = status;
        self.tell_balancer(i);
    }

    fn set_pace(&mut self, i: usize, pace: f64) {
        self.servers[i].pace = pace;
    }

    fn set_rate(&mut self, rate_rps: f64) {
        self.rate_rps = rate_rps;
    }

    fn restart(&mut self, weights: &[u32], method: Method) {
        self.generation += 1;
        self.method = method;
        for (s, &weight) in self.servers.iter_mut().zip(weights) {
            s.started_total = u64::from(s.in_flight());
            s.errors_total = 0;
            s.answered_total = 0;
            s.weight = weight;
        }
        let effective = self.effective();
        let rows = self.subsets.is_some().then(|| self.rows());
        for (b, balancer) in self.balancers.iter_mut().enumerate() {
            let effective = rows.as_ref().map_or(&effective, |rows| &rows[b]);
            balancer.restart(method, effective);
        }
        self.subsets = rows;
        (0..self.servers.len()).for_each(|i| self.changed(i));
    }

    /// Probes bypass the queue: their load is negligible here.
    fn probe(&mut self, i: usize) -> (Outcome, f64) {
        let model = self.servers[i].present();
        let work = self.service.draw(&mut self.probes);
        let waiting = f64::from(self.servers[i].in_flight().saturating_sub(model.cores - 1));
        let wait_us = waiting * self.service_us / model.speed / f64::from(model.cores);
        let failed = match self.servers[i].condition {
            Condition::Well | Condition::FailsClients => None,
            Condition::FailsFast => Some(FailureKind::Status),
            Condition::Hangs => Some(FailureKind::Timeout),
            Condition::Dead => Some(FailureKind::Refused),
        };
        let outcome = failed.map_or(Outcome::Success, Outcome::Failure);
        (outcome, self.nanos(i, work) as f64 / 1e3 + wait_us)
    }

    fn capacity_rps(&self, i: usize) -> f64 {
        self.servers[i].present().capacity_rps(self.service_us)
    }

    fn rate_rps(&self) -> f64 {
        self.rate_rps
    }
}
