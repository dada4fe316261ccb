//! A closed loop in simulated time: a fixed number of clients, each of which sends its next request at
//! once when its last one has ended, over any policy or one central queue.
//!
//! The arena's clients are open: they come whatever happens. An equal split of the paper's pool at 70 %
//! asks 1.5 cores' work of every one-core backend, for which open clients have no mean latency, while the
//! paper reports one: its clients wait for their answers. A run is its arena's seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Policy, Request};
use plimsoll_sim::{Arena, ArenaReport, BackendReport};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

struct Server {
    cores: u32,
    ns_per_work: f64,
    busy: u32,
    waiting: VecDeque<u32>,
    busy_ns: u64,
    since: u64,
}

impl Server {
    fn settle(&mut self, now: u64) {
        self.busy_ns += u64::from(self.busy) * (now - self.since);
        self.since = now;
    }
}

#[derive(Clone, Copy, Default)]
struct Client {
    sent: u64,
    work: f64,
    backend: usize,
}

struct Loop<'a> {
    arena: &'a Arena,
    /// None: one queue that all share and that feeds the fastest free core.
    policy: Option<&'a mut dyn Policy>,
    servers: Vec<Server>,
    fastest: Vec<usize>,
    shared: VecDeque<u32>,
    clients: Vec<Client>,
    departures: BinaryHeap<Reverse<(u64, u32)>>,
    traffic: Xoshiro256PlusPlus,
    choice: Xoshiro256PlusPlus,
    measured_from: u64,
    served: Vec<(u64, f64)>,
    times_us: Vec<f64>,
}

/// What these clients see of the arena's pool, and how many requests per second they get through. The
/// arena's rate and timeline are not heeded.
pub fn closed<'a>(
    arena: &'a Arena,
    clients: u32,
    policy: Option<&'a mut dyn Policy>,
) -> (ArenaReport, f64) {
    let server = |b: &plimsoll_sim::BackendModel| Server {
        cores: b.cores,
        ns_per_work: arena.service_us * 1e3 / b.speed,
        busy: 0,
        waiting: VecDeque::new(),
        busy_ns: 0,
        since: 0,
    };
    let mut fastest: Vec<usize> = (0..arena.pool.len()).collect();
    fastest.sort_by(|&a, &b| arena.pool[b].speed.total_cmp(&arena.pool[a].speed));
    let traffic = Xoshiro256PlusPlus::seed_from_u64(arena.seed);
    let mut choice = traffic.clone();
    choice.jump();
    let run = Loop {
        policy,
        servers: arena.pool.iter().map(server).collect(),
        fastest,
        shared: VecDeque::new(),
        clients: vec![Client::default(); clients as usize],
        departures: BinaryHeap::new(),
        traffic,
        choice,
        measured_from: 0,
        served: vec![(0, 0.0); arena.pool.len()],
        times_us: Vec::new(),
        arena,
    };
    run.run()
}

impl Loop<'_> {
    fn run(mut self) -> (ArenaReport, f64) {
        (0..self.clients.len() as u32).for_each(|client| self.send(client, 0));
        let mut now = 0;
        for ended in 0..self.arena.requests {
            if ended == self.arena.warm_up {
                self.measured_from = now;
                self.servers.iter_mut().for_each(|s| {
                    s.settle(now);
                    s.busy_ns = 0;
                });
            }
            let Some(Reverse((time, client))) = self.departures.pop() else { break };
            now = time;
            self.end(client, now, ended >= self.arena.warm_up);
            self.send(client, now);
        }
        self.report(now)
    }

    fn send(&mut self, client: u32, now: u64) {
        let work = self.arena.service.draw(&mut self.traffic);
        self.clients[client as usize] = Client { sent: now, work, backend: 0 };
        let Some(policy) = &mut self.policy else {
            self.shared.push_back(client);
            return self.feed(now);
        };
        // Weights are never all 0 here.
        let picked = policy.pick(&Request::default(), Nanos(now), &mut self.choice).unwrap_or(0);
        policy.on_start(picked, Nanos(now));
        self.clients[client as usize].backend = picked;
        let server = &mut self.servers[picked];
        if server.busy < server.cores {
            self.begin(client, now);
        } else {
            server.waiting.push_back(client);
        }
    }

    fn feed(&mut self, now: u64) {
        while let Some(&client) = self.shared.front() {
            let free = |&&i: &&usize| self.servers[i].busy < self.servers[i].cores;
            let Some(&i) = self.fastest.iter().find(free) else { return };
            self.shared.pop_front();
            self.clients[client as usize].backend = i;
            self.begin(client, now);
        }
    }

    fn begin(&mut self, client: u32, now: u64) {
        let Client { work, backend, .. } = self.clients[client as usize];
        let server = &mut self.servers[backend];
        server.settle(now);
        server.busy += 1;
        let done = now + (work * server.ns_per_work) as u64;
        self.departures.push(Reverse((done, client)));
    }

    fn end(&mut self, client: u32, now: u64, counted: bool) {
        let Client { sent, backend, .. } = self.clients[client as usize];
        let server = &mut self.servers[backend];
        server.settle(now);
        server.busy -= 1;
        let next = server.waiting.pop_front();
        if let Some(policy) = &mut self.policy {
            let finish = Finish::success(Duration::from_nanos(now - sent));
            policy.on_finish(backend, &finish, Nanos(now));
        }
        if let Some(next) = next {
            self.begin(next, now);
        }
        self.feed(now);
        if counted {
            let us = (now - sent) as f64 / 1e3;
            self.served[backend].0 += 1;
            self.served[backend].1 += us;
            self.times_us.push(us);
        }
    }

    fn report(mut self, now: u64) -> (ArenaReport, f64) {
        let span_ns = (now - self.measured_from).max(1) as f64;
        let requests = self.times_us.len() as u64;
        let all = requests.max(1) as f64;
        let backends = self.servers.iter_mut().zip(&self.served).map(|(server, &(count, sum))| {
            server.settle(now);
            BackendReport {
                requests: count,
                errors: 0,
                mean_us: sum / count.max(1) as f64,
                utilisation: server.busy_ns as f64 / (span_ns * f64::from(server.cores)),
                share: count as f64 / all,
            }
        });
        let backends = backends.collect();
        self.times_us.sort_by(f64::total_cmp);
        let quantile = |q: f64| {
            let rank = (q * requests.saturating_sub(1) as f64) as usize;
            self.times_us.get(rank).copied().unwrap_or(0.0)
        };
        let report = ArenaReport {
            requests,
            mean_us: self.times_us.iter().sum::<f64>() / all,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            backends,
            ..ArenaReport::default()
        };
        (report, requests as f64 / span_ns * 1e9)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_policy::{LeastConnections, RoundRobin};
    use plimsoll_sim::BackendModel;

    use super::*;

    #[test]
    fn one_core_with_n_clients_is_always_busy_and_makes_each_wait_for_all() {
        let arena = Arena::new(vec![BackendModel { cores: 1, speed: 1.0 }], 0.5, 60_000, 3);
        let (report, rps) = closed(&arena, 5, Some(&mut RoundRobin::new(&[1])));
        assert!((report.backends[0].utilisation - 1.0).abs() < 1e-9);
        assert!((report.mean_us / 150_000.0 - 1.0).abs() < 0.02, "{}", report.mean_us);
        assert!((rps * 0.03 - 1.0).abs() < 0.02, "{rps}");
    }

    #[test]
    fn the_central_queue_serves_more_than_counting_and_counting_more_than_turns() {
        let pool =
            [(1, 1.0), (1, 0.5), (4, 1.0)].map(|(cores, speed)| BackendModel { cores, speed });
        let arena = Arena::new(pool.to_vec(), 0.5, 60_000, 3);
        let turns = closed(&arena, 6, Some(&mut RoundRobin::new(&[1; 3]))).1;
        let counts = closed(&arena, 6, Some(&mut LeastConnections::new(&[1; 3]))).1;
        let central = closed(&arena, 6, None).1;
        assert!(turns < 0.9 * counts && counts < 0.99 * central, "{turns} {counts} {central}");
    }
}
