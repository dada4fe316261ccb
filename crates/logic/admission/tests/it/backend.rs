//! An application with some cores behind an ingress, and Poisson arrivals, in simulated time.

use std::time::Duration;

use plimsoll_admission::{Admission, Arrival, Decision, Ended, Permit};
use plimsoll_model::Nanos;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How the cores are given to the requests there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Discipline {
    FirstComeFirstServed,
    ProcessorSharing,
}

/// How long requests take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    Fixed,
    Exponential,
    /// One in twenty takes nineteen times as long as the others.
    Bimodal,
}

/// The application and its load; what is public may change between runs.
pub struct Backend {
    pub cores: u32,
    pub service_s: f64,
    pub rate_rps: f64,
    pub discipline: Discipline,
    pub service: Service,
    /// How often what is refused here is tried elsewhere.
    pub tries_left: u32,
    /// How soon clients want their answer; the ingress does not know.
    pub wanted_within: Option<Duration>,
    now: f64,
    jobs: Vec<Job>,
    rng: Xoshiro256PlusPlus,
}

struct Job {
    left_s: f64,
    born: f64,
    permit: Permit,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    pub offered: u32,
    pub served: u32,
    /// Of these, as soon as was wanted.
    pub in_time: u32,
    pub most_in_flight: u32,
    /// Mean of the limit, over arrivals.
    pub limit: f64,
    pub seconds: f64,
}

impl Outcome {
    pub fn refused_share(&self) -> f64 {
        1.0 - f64::from(self.served) / f64::from(self.offered)
    }

    pub fn goodput_rps(&self) -> f64 {
        f64::from(self.served) / self.seconds
    }
}

impl Backend {
    /// Exponential services of 100 ms, first come first served.
    pub fn new(cores: u32, load: f64, seed: u64) -> Self {
        Backend {
            cores,
            service_s: 0.1,
            rate_rps: load * f64::from(cores) / 0.1,
            discipline: Discipline::FirstComeFirstServed,
            service: Service::Exponential,
            tries_left: 0,
            wanted_within: None,
            now: 0.0,
            jobs: Vec::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    pub fn capacity_rps(&self) -> f64 {
        f64::from(self.cores) / self.service_s
    }

    /// Lets so much time pass.
    pub fn run(&mut self, admission: &mut Admission, seconds: f64) -> Outcome {
        let mut outcome = Outcome { seconds, ..Outcome::default() };
        let end = self.now + seconds;
        let mut arrival = self.now + self.exponential() / self.rate_rps;
        while arrival < end {
            while let Some((at, job)) = self.next().filter(|next| next.0 <= arrival) {
                self.advance(at);
                self.finish(job, admission, &mut outcome);
            }
            self.advance(arrival);
            self.arrive(admission, &mut outcome);
            arrival += self.exponential() / self.rate_rps;
        }
        outcome.limit /= f64::from(outcome.offered);
        outcome
    }

    fn arrive(&mut self, admission: &mut Admission, outcome: &mut Outcome) {
        let now = Nanos::from_secs_f64(self.now);
        let in_flight = self.jobs.len() as u32;
        let arrival = Arrival { time_left: None, tries_left: self.tries_left };
        outcome.offered += 1;
        outcome.limit += admission.limit().unwrap_or(0.0);
        if let Decision::Admit(permit) = admission.decide(now, in_flight, arrival) {
            let left_s = match self.service {
                Service::Fixed => self.service_s,
                Service::Exponential => self.service_s * self.exponential(),
                Service::Bimodal if self.rng.next_u32().is_multiple_of(20) => self.service_s * 10.0,
                Service::Bimodal => self.service_s * 10.0 / 19.0,
            };
            self.jobs.push(Job { left_s, born: self.now, permit });
            outcome.most_in_flight = outcome.most_in_flight.max(in_flight + 1);
        }
    }

    fn finish(&mut self, job: usize, admission: &mut Admission, outcome: &mut Outcome) {
        let job = self.jobs.remove(job);
        let now = Nanos::from_secs_f64(self.now);
        admission.finish(now, self.jobs.len() as u32, job.permit, Ended::Answered);
        outcome.served += 1;
        let took = Duration::from_secs_f64(self.now - job.born);
        outcome.in_time += u32::from(self.wanted_within.is_none_or(|left| took <= left));
    }

    fn speed(&self, job: usize) -> f64 {
        let cores = f64::from(self.cores);
        match self.discipline {
            Discipline::ProcessorSharing => (cores / self.jobs.len() as f64).min(1.0),
            Discipline::FirstComeFirstServed => f64::from(u8::from((job as f64) < cores)),
        }
    }

    fn advance(&mut self, to: f64) {
        let passed = to - self.now;
        for job in 0..self.jobs.len() {
            self.jobs[job].left_s -= passed * self.speed(job);
        }
        self.now = to;
    }

    fn next(&self) -> Option<(f64, usize)> {
        let busy = (0..self.jobs.len()).filter(|&job| self.speed(job) > 0.0);
        busy.map(|job| (self.now + self.jobs[job].left_s.max(0.0) / self.speed(job), job))
            .min_by(|left, right| left.0.total_cmp(&right.0))
    }

    fn exponential(&mut self) -> f64 {
        -(((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64).ln()
    }
}
