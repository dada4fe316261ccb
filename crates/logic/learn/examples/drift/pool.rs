//! A pool behind HAProxy's leastconn in simulated time, as polls show it: a request goes to the backend that would have
//! the least in flight per weight, with weights by cores; Poisson arrivals, exponential service.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_learn::drift::Interval;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The pool.
pub struct Pool {
    rng: Xoshiro256PlusPlus,
    arrivals_per_s: f64,
    service_s: f64,
    cores: Vec<u32>,
    now: f64,
    next_arrival: f64,
    /// Ends of service, in nanoseconds so that they can be ordered, with their backends.
    departures: BinaryHeap<Reverse<(u64, usize)>>,
    in_flight: Vec<u32>,
    completions: Vec<f64>,
}

impl Pool {
    /// An idle pool of backends with these cores, for this part of its capacity.
    pub fn new(cores: Vec<u32>, load: f64, service_s: f64, seed: u64) -> Pool {
        let all: u32 = cores.iter().sum();
        Pool {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            arrivals_per_s: load * f64::from(all) / service_s,
            service_s,
            now: 0.0,
            next_arrival: 0.0,
            departures: BinaryHeap::new(),
            in_flight: vec![0; cores.len()],
            completions: vec![0.0; cores.len()],
            cores,
        }
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        let uniform = ((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln() * mean
    }

    fn serve(&mut self, i: usize) {
        let end = self.now + self.exponential(self.service_s);
        self.departures.push(Reverse(((end * 1e9) as u64, i)));
    }

    fn arrive(&mut self) {
        self.next_arrival = self.now + self.exponential(1.0 / self.arrivals_per_s);
        let key = |i: &usize| f64::from(self.in_flight[*i] + 1) / f64::from(self.cores[*i]);
        let least = (0..self.cores.len()).min_by(|i, j| key(i).total_cmp(&key(j)));
        let Some(i) = least else { return };
        self.in_flight[i] += 1;
        if self.in_flight[i] <= self.cores[i] {
            self.serve(i);
        }
    }

    fn depart(&mut self, i: usize) {
        self.departures.pop();
        self.completions[i] += 1.0;
        self.in_flight[i] -= 1;
        if self.in_flight[i] >= self.cores[i] {
            self.serve(i);
        }
    }

    /// Simulates this time, and returns for each backend what a poll at the end shows against one at the beginning.
    pub fn poll(&mut self, seconds: f64) -> Vec<Interval> {
        let before = self.in_flight.clone();
        self.completions.fill(0.0);
        let end = self.now + seconds;
        loop {
            let departure = self.departures.peek().map(|d| (d.0.0 as f64 / 1e9, d.0.1));
            match departure {
                Some((at, i)) if at <= self.next_arrival.min(end) => {
                    self.now = at;
                    self.depart(i);
                }
                _ if self.next_arrival <= end => {
                    self.now = self.next_arrival;
                    self.arrive();
                }
                _ => break,
            }
        }
        self.now = end;
        let each = before.into_iter().zip(&self.in_flight).zip(&self.completions);
        each.map(|((before, &after), &completions)| Interval {
            seconds,
            before,
            after,
            completions,
        })
        .collect()
    }
}
