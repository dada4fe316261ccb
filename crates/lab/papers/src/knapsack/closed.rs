//! A fixed number of clients, each of which sends its next request at once when its last one has ended.
//!
//! The arena has them for any policy; here is the one queue that all backends share, and that feeds the
//! fastest free core, as a reference (no bound: `plimsoll_queueing::Central`). Open clients come whatever happens: an equal split of
//! the paper's pool at 70 % asks 1.5 cores' work of every one-core backend, for which open clients have no
//! mean latency, while the paper reports one: its clients wait for their answers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use plimsoll_policy::Policy;
use plimsoll_sim::{Arena, ArenaReport, BackendReport, Clients};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// What so many clients see of the arena's pool under this policy, or of one central queue. The arena's
/// rate is not heeded.
pub fn closed(arena: &Arena, users: u32, policy: Option<Box<dyn Policy>>) -> ArenaReport {
    match policy {
        Some(policy) => {
            let clients = Clients::Closed { users, think: Duration::ZERO };
            Arena { clients, ..arena.clone() }.run(&mut [policy])
        }
        None => Central::new(arena, users).run(),
    }
}

#[derive(Clone, Copy, Default)]
struct Job {
    sent: u64,
    work: f64,
    server: usize,
}

struct Central<'a> {
    arena: &'a Arena,
    /// Places of the backends, the fastest first.
    fastest: Vec<usize>,
    busy: Vec<u32>,
    waiting: VecDeque<u32>,
    jobs: Vec<Job>,
    departures: BinaryHeap<Reverse<(u64, u32)>>,
    traffic: Xoshiro256PlusPlus,
    /// By backend: requests served, their latencies and the time they were served for, nanoseconds.
    served: Vec<(u64, f64, f64)>,
    times_us: Vec<f64>,
}

impl<'a> Central<'a> {
    fn new(arena: &'a Arena, users: u32) -> Self {
        let mut fastest: Vec<usize> = (0..arena.pool.len()).collect();
        fastest.sort_by(|&a, &b| arena.pool[b].speed.total_cmp(&arena.pool[a].speed));
        Central {
            fastest,
            busy: vec![0; arena.pool.len()],
            waiting: VecDeque::new(),
            jobs: vec![Job::default(); users as usize],
            departures: BinaryHeap::new(),
            traffic: Xoshiro256PlusPlus::seed_from_u64(arena.seed),
            served: vec![(0, 0.0, 0.0); arena.pool.len()],
            times_us: Vec::new(),
            arena,
        }
    }

    fn run(mut self) -> ArenaReport {
        (0..self.jobs.len() as u32).for_each(|user| self.send(user, 0));
        let (mut now, mut measured_from) = (0, 0);
        for ended in 0..self.arena.requests {
            let Some(Reverse((time, user))) = self.departures.pop() else { break };
            now = time;
            let counted = ended >= self.arena.warm_up;
            if ended == self.arena.warm_up {
                measured_from = now;
            }
            let job = self.jobs[user as usize];
            self.busy[job.server] -= 1;
            if counted {
                let worked_ns = job.work * self.ns_per_work(job.server);
                let (count, sum_ns, all_ns) = &mut self.served[job.server];
                *count += 1;
                *sum_ns += (now - job.sent) as f64;
                *all_ns += worked_ns;
                self.times_us.push((now - job.sent) as f64 / 1e3);
            }
            self.send(user, now);
        }
        self.report((now - measured_from).max(1) as f64)
    }

    fn ns_per_work(&self, server: usize) -> f64 {
        self.arena.service_us * 1e3 / self.arena.pool[server].speed
    }

    fn send(&mut self, user: u32, now: u64) {
        let work = self.arena.service.draw(&mut self.traffic);
        self.jobs[user as usize] = Job { sent: now, work, server: 0 };
        self.waiting.push_back(user);
        while let Some(&user) = self.waiting.front() {
            let free = |&&i: &&usize| self.busy[i] < self.arena.pool[i].cores;
            let Some(&server) = self.fastest.iter().find(free) else { return };
            self.waiting.pop_front();
            self.busy[server] += 1;
            self.jobs[user as usize].server = server;
            let takes_ns = self.jobs[user as usize].work * self.ns_per_work(server);
            self.departures.push(Reverse((now + takes_ns as u64, user)));
        }
    }

    fn report(mut self, span_ns: f64) -> ArenaReport {
        let requests = self.times_us.len() as u64;
        let all = requests.max(1) as f64;
        let backends = self.served.iter().zip(&self.arena.pool);
        let backends = backends.map(|(&(count, sum_ns, worked_ns), model)| BackendReport {
            requests: count,
            mean_us: sum_ns / 1e3 / count.max(1) as f64,
            utilisation: worked_ns / (span_ns * f64::from(model.cores)),
            share: count as f64 / all,
            ..BackendReport::default()
        });
        let backends = backends.collect();
        self.times_us.sort_by(f64::total_cmp);
        let quantile = |q: f64| {
            let rank = (q * requests.saturating_sub(1) as f64) as usize;
            self.times_us.get(rank).copied().unwrap_or(0.0)
        };
        ArenaReport {
            requests,
            goodput_rps: requests as f64 / span_ns * 1e9,
            mean_us: self.times_us.iter().sum::<f64>() / all,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            backends,
            ..ArenaReport::default()
        }
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
        for policy in [None, Some(Box::new(RoundRobin::new(&[1])) as Box<dyn Policy>)] {
            let report = closed(&arena, 5, policy);
            assert!((report.backends[0].utilisation - 1.0).abs() < 1e-3, "{report:?}");
            assert!((report.mean_us / 150_000.0 - 1.0).abs() < 0.02, "{}", report.mean_us);
            assert!((report.goodput_rps * 0.03 - 1.0).abs() < 0.02, "{}", report.goodput_rps);
        }
    }

    #[test]
    fn the_central_queue_serves_more_than_counting_and_counting_more_than_turns() {
        let pool =
            [(1, 1.0), (1, 0.5), (4, 1.0)].map(|(cores, speed)| BackendModel { cores, speed });
        let arena = Arena::new(pool.to_vec(), 0.5, 60_000, 3);
        let rps = |policy| closed(&arena, 6, policy).goodput_rps;
        let turns = rps(Some(Box::new(RoundRobin::new(&[1; 3]))));
        let counts = rps(Some(Box::new(LeastConnections::new(&[1; 3]))));
        let central = rps(None);
        assert!(turns < 0.9 * counts && counts < 0.99 * central, "{turns} {counts} {central}");
    }
}
