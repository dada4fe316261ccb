//! One backend in simulated time, as a balancer's polls show it: Poisson arrivals, first come first served, with any
//! number of cores.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_learn::drift::Interval;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How service times scatter around their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// Exponential.
    Exponential,
    /// Always the same.
    Deterministic,
    /// Nine of ten take a half, one takes five and a half.
    Bimodal,
}

/// A simulated backend.
pub struct Backend {
    rng: Xoshiro256PlusPlus,
    /// Requests per second.
    pub arrivals: f64,
    /// Seconds of service, on average.
    pub service_s: f64,
    /// How it scatters.
    pub service: Service,
    /// Cores.
    pub cores: u32,
    now: f64,
    next_arrival: f64,
    /// Ends of service, in nanoseconds so that they can be ordered.
    departures: BinaryHeap<Reverse<u64>>,
    queued: u32,
}

impl Backend {
    /// An idle backend.
    pub fn new(arrivals: f64, service_s: f64, service: Service, cores: u32, seed: u64) -> Backend {
        Backend {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            arrivals,
            service_s,
            service,
            cores,
            now: 0.0,
            next_arrival: 0.0,
            departures: BinaryHeap::new(),
            queued: 0,
        }
    }

    fn in_flight(&self) -> u32 {
        self.departures.len() as u32 + self.queued
    }

    fn uniform(&mut self) -> f64 {
        ((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Draws a service time in seconds.
    pub fn service_time(&mut self) -> f64 {
        let work = match self.service {
            Service::Exponential => -self.uniform().ln(),
            Service::Deterministic => 1.0,
            Service::Bimodal => [0.5, 5.5][usize::from(self.uniform() > 0.9)],
        };
        work * self.service_s
    }

    fn serve(&mut self) {
        let end = self.now + self.service_time();
        self.departures.push(Reverse((end * 1e9) as u64));
    }

    /// Simulates this time, and returns what a poll at the end shows against one at the beginning.
    pub fn poll(&mut self, seconds: f64) -> Interval {
        let before = self.in_flight();
        let end = self.now + seconds;
        let mut completions = 0.0;
        loop {
            let departure = self.departures.peek().map_or(f64::INFINITY, |d| d.0 as f64 / 1e9);
            let next = departure.min(self.next_arrival);
            if next > end {
                break;
            }
            self.now = next;
            if departure <= self.next_arrival {
                self.departures.pop();
                completions += 1.0;
                if self.queued > 0 {
                    self.queued -= 1;
                    self.serve();
                }
            } else {
                self.next_arrival = self.now - self.uniform().ln() / self.arrivals;
                if (self.departures.len() as u32) < self.cores {
                    self.serve();
                } else {
                    self.queued += 1;
                }
            }
        }
        self.now = end;
        Interval { seconds, before, after: self.in_flight(), completions }
    }
}
