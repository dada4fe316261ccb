//! Poisson arrivals at backends that never queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{Ending, Finish, Policy, Probing, Request, ServerLoad};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub fn uniform(rng: &mut dyn RngCore) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// What a backend does with each request.
#[derive(Clone, Copy)]
pub enum Does {
    /// Serves it in so many milliseconds, exponentially spread.
    Serve(f64),
    /// Answers in a millisecond, and so.
    Say(Ending),
    /// Never answers; its client leaves after so many milliseconds.
    Hang(u32),
}

struct Backend {
    in_flight: u32,
    /// Of the last to end.
    latency_us: f32,
}

/// Counts what each backend was given. Probes are answered at once, keys are drawn for every request.
pub struct Stream<'a> {
    pub policy: &'a mut dyn Policy,
    rng: Xoshiro256PlusPlus,
    pub now: Nanos,
    running: BinaryHeap<Reverse<(Nanos, usize, u64, u8)>>,
    backends: Vec<Backend>,
    pub most_in_flight: u32,
}

const ENDINGS: [Ending; 5] =
    [Ending::Success, Ending::Failure, Ending::Rejected, Ending::Abandoned, Ending::TooLate];

impl<'a> Stream<'a> {
    pub fn new(policy: &'a mut dyn Policy) -> Self {
        Self::seeded(policy, 7)
    }

    pub fn seeded(policy: &'a mut dyn Policy, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let backends = (0..16).map(|_| Backend { in_flight: 0, latency_us: 30e3 }).collect();
        let running = BinaryHeap::new();
        Stream { policy, rng, now: Nanos::ZERO, running, backends, most_in_flight: 0 }
    }

    /// `does` says for a backend what it does; gives how many requests each got.
    pub fn run(&mut self, requests: u32, rate_rps: f64, does: impl Fn(usize) -> Does) -> Vec<u32> {
        let mut count = vec![0; 16];
        for _ in 0..requests {
            let gap = Duration::from_secs_f64(-uniform(&mut self.rng).ln() / rate_rps);
            self.now = self.now + gap;
            self.end_those_due();
            let request = Request::with_key(self.rng.next_u64());
            let answered = self.probe(&request);
            let request = request.answered_by(&answered);
            let Some(backend) = self.policy.pick(&request, self.now, &mut self.rng) else {
                continue;
            };
            count[backend] += 1;
            self.policy.on_start(backend, self.now);
            self.backends[backend].in_flight += 1;
            self.most_in_flight = self.most_in_flight.max(self.backends[backend].in_flight);
            let (ms, ending) = match does(backend) {
                Does::Serve(mean_ms) => (mean_ms * -uniform(&mut self.rng).ln(), Ending::Success),
                Does::Say(ending) => (1.0, ending),
                Does::Hang(ms) => (f64::from(ms), Ending::Abandoned),
            };
            let took = (ms * 1e6) as u64;
            let ending = ENDINGS.iter().position(|e| *e == ending).expect("one of all");
            let due = self.now + Duration::from_nanos(took);
            self.running.push(Reverse((due, backend, took, ending as u8)));
        }
        count
    }

    fn end_those_due(&mut self) {
        while let Some(&Reverse((due, backend, took, ending))) = self.running.peek() {
            if due > self.now {
                break;
            }
            self.running.pop();
            let latency = Duration::from_nanos(took);
            self.backends[backend].in_flight -= 1;
            self.backends[backend].latency_us = latency.as_micros() as f32;
            let mut finish = Finish::new(latency, ENDINGS[ending as usize]);
            finish.load = (finish.ending != Ending::Abandoned).then(|| self.load(backend));
            self.policy.on_finish(backend, &finish, due);
        }
    }

    fn load(&self, backend: usize) -> ServerLoad {
        let Backend { in_flight, latency_us } = self.backends[backend];
        ServerLoad { in_flight, latency_us, cpu: Some(0.3), cores: None }
    }

    /// Those that were asked, each of which has answered.
    fn probe(&mut self, request: &Request<'_>) -> Vec<usize> {
        let mut targets = Vec::new();
        if self.policy.probing() == Probing::Never {
            return targets;
        }
        self.policy.probe_targets(request, self.now, &mut self.rng, &mut targets);
        for &backend in &targets {
            let load = self.load(backend);
            self.policy.on_probe(backend, load, self.now);
        }
        targets
    }
}

pub fn share(count: &[u32], backend: usize) -> f64 {
    f64::from(count[backend]) / f64::from(count.iter().sum::<u32>())
}
