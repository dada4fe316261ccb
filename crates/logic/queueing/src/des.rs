//! The discrete-event core: Poisson arrivals, a balancer that picks on arrival, stations of several
//! cores that serve first in first out. About 10 million events a second on one core.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use rand::RngCore;

use crate::service::{ServiceTime, exponential};

/// One backend: `cores` equal servers behind one queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// Cores.
    pub cores: u32,
    /// Mean service time on one of them, microseconds.
    pub service_us: f64,
}

impl Station {
    /// Requests per second it can serve.
    pub fn capacity_rps(&self) -> f64 {
        f64::from(self.cores) * 1e6 / self.service_us
    }
}

/// A balancer's way of choosing, over servers numbered from 0.
pub trait Pick {
    /// The server for the next request; `None` when none takes traffic.
    fn pick(&mut self) -> Option<usize>;
    /// A request began or ended on this server, which now has so many in flight.
    fn changed(&mut self, server: usize, in_flight: u32);
}

/// What to simulate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Poisson arrivals, requests per second.
    pub rate_rps: f64,
    /// How many requests.
    pub requests: u32,
    /// How many of them, the first to finish, do not count: the pool starts empty.
    pub warm_up: u32,
    /// How long requests take.
    pub service: ServiceTime,
}

/// What clients of the pool saw.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolResult {
    /// Mean response time, microseconds.
    pub mean_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// Requests that counted, by station.
    pub served: Vec<u64>,
    /// Mean response time by station, microseconds; 0 where none was served.
    pub station_mean_us: Vec<f64>,
    finished: u32,
    times_us: Vec<f32>,
}

impl PoolResult {
    pub(crate) fn new(stations: usize) -> Self {
        PoolResult {
            mean_us: 0.0,
            p99_us: 0.0,
            served: vec![0; stations],
            station_mean_us: vec![0.0; stations],
            finished: 0,
            times_us: Vec::new(),
        }
    }

    pub(crate) fn finish(&mut self, station: usize, nanos: f64, run: &Run) {
        self.finished += 1;
        if self.finished > run.warm_up {
            self.served[station] += 1;
            self.station_mean_us[station] += nanos / 1e3;
            self.times_us.push((nanos / 1e3) as f32);
        }
    }

    pub(crate) fn done(mut self) -> Self {
        let total: f64 = self.station_mean_us.iter().sum();
        let count: u64 = self.served.iter().sum();
        self.mean_us = if count > 0 { total / count as f64 } else { 0.0 };
        for (sum, &n) in self.station_mean_us.iter_mut().zip(&self.served) {
            *sum = if n > 0 { *sum / n as f64 } else { 0.0 };
        }
        if !self.times_us.is_empty() {
            let rank = (self.times_us.len() - 1) * 99 / 100;
            let (_, p99, _) = self.times_us.select_nth_unstable_by(rank, f32::total_cmp);
            self.p99_us = f64::from(*p99);
        }
        self.times_us = Vec::new();
        self
    }
}

/// Simulates `run` on these stations behind `balancer`. Requests for which it picks no station are lost
/// and do not count.
pub fn simulate<P: Pick + ?Sized, R: RngCore + ?Sized>(
    stations: &[Station],
    balancer: &mut P,
    run: &Run,
    rng: &mut R,
) -> PoolResult {
    simulate_several(stations, &mut [balancer], run, rng)
}

/// The same behind several balancers that do not know of one another: each request comes to one of them at random, and
/// each counts only its own requests in flight. With one balancer no further random number is drawn; without any,
/// nothing is served.
pub fn simulate_several<P: Pick + ?Sized, R: RngCore + ?Sized>(
    stations: &[Station],
    balancers: &mut [&mut P],
    run: &Run,
    rng: &mut R,
) -> PoolResult {
    let mut result = PoolResult::new(stations.len());
    let mut busy = vec![0u32; stations.len()];
    // What each balancer has in flight at each station: one row for each balancer.
    let mut held = vec![0u32; stations.len() * balancers.len()];
    let mut waiting: Vec<VecDeque<(f64, f64, u32)>> = vec![VecDeque::new(); stations.len()];
    // (finish, station, balancer, arrival): times as integer nanoseconds so that they order totally.
    let mut departures: BinaryHeap<Reverse<(u64, u32, u64, u32)>> = BinaryHeap::new();
    let gap = 1e9 / run.rate_rps;
    let mut next = exponential(rng) * gap;
    let mut arrived = 0u32;
    loop {
        let due = departures.peek().map(|Reverse((t, ..))| *t as f64);
        if arrived < run.requests && due.is_none_or(|t| next <= t) {
            arrived += 1;
            let now = next;
            next += exponential(rng) * gap;
            // Drawn on arrival whoever serves: runs that differ in weights only share their random numbers.
            let work = run.service.draw(rng);
            let by = match balancers.len() {
                0 | 1 => 0,
                many => ((u64::from(rng.next_u32()) * many as u64) >> 32) as usize,
            };
            let Some(i) = balancers.get_mut(by).and_then(|b| b.pick()) else { continue };
            if busy[i] < stations[i].cores {
                busy[i] += 1;
                let done = now + work * stations[i].service_us * 1e3;
                departures.push(Reverse((done as u64, i as u32, now as u64, by as u32)));
            } else {
                waiting[i].push_back((now, work, by as u32));
            }
            let held = &mut held[by * stations.len() + i];
            *held += 1;
            balancers[by].changed(i, *held);
        } else if let Some(mut first) = departures.peek_mut() {
            let Reverse((t, station, came, by)) = *first;
            let i = station as usize;
            result.finish(i, (t - came) as f64, run);
            if let Some((arrival, work, next_by)) = waiting[i].pop_front() {
                let done = t as f64 + work * stations[i].service_us * 1e3;
                // In place of the one that goes: cheaper than out and in.
                *first = Reverse((done as u64, station, arrival as u64, next_by));
            } else {
                PeekMut::pop(first);
                busy[i] -= 1;
            }
            let held = &mut held[by as usize * stations.len() + i];
            *held -= 1;
            balancers[by as usize].changed(i, *held);
        } else {
            return result.done();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Central, HaproxyLeastconn, MmcCurve, SmoothRoundRobin};
    use plimsoll_model::Curve;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn rng(seed: u64) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(seed)
    }

    fn run(rate_rps: f64, requests: u32) -> Run {
        Run { rate_rps, requests, warm_up: requests / 10, service: ServiceTime::Exponential }
    }

    #[test]
    fn one_station_is_an_mmc_queue() {
        for cores in [1, 4] {
            let station = Station { cores, service_us: 30_000.0 };
            let rate = 0.7 * station.capacity_rps();
            let mut rr = SmoothRoundRobin::new(&[1.0]);
            let got = simulate(&[station], &mut rr, &run(rate, 400_000), &mut rng(1));
            let exact = MmcCurve { service_us: 30_000.0, cores }.latency_at(rate);
            assert!((got.mean_us / exact - 1.0).abs() < 0.03, "{} {exact}", got.mean_us);
            let central = Central::simulate(&[station], &run(rate, 400_000), &mut rng(2));
            assert!((central.mean_us / exact - 1.0).abs() < 0.03, "{} {exact}", central.mean_us);
        }
    }

    #[test]
    fn the_central_queue_is_a_limit() {
        let stations: Vec<Station> = [(1, 1.0), (1, 0.7), (1, 1.2), (2, 1.0), (2, 0.8), (4, 1.1)]
            .map(|(cores, speed)| Station { cores, service_us: 30_000.0 / speed })
            .to_vec();
        let total: f64 = stations.iter().map(Station::capacity_rps).sum();
        let r = run(0.7 * total, 200_000);
        let limit = Central::simulate(&stations, &r, &mut rng(3)).mean_us;
        let weights: Vec<u32> = stations.iter().map(|s| (s.capacity_rps() / 3.0) as u32).collect();
        let lc = simulate(&stations, &mut HaproxyLeastconn::new(&weights), &r, &mut rng(3));
        let equal = simulate(&stations, &mut HaproxyLeastconn::new(&[1; 6]), &r, &mut rng(3));
        assert!(limit < lc.mean_us && lc.mean_us < equal.mean_us);
        assert!(lc.served.iter().all(|&n| n > 0));
    }
}
