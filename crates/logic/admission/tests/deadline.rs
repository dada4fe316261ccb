//! Deadline refusal under overload, in simulated time: what an application still works on though nobody waits for it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use plimsoll_admission::{
    Admission, AdmissionOptions, Arrival, CapacityOptions, Decision, Ended, Permit,
};
use plimsoll_model::Nanos;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const CORES: usize = 4;
const SERVICE: Duration = Duration::from_millis(60);
const DEADLINE: Duration = Duration::from_millis(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives,
    Served(usize),
    GivenUp(usize),
}

/// An application with a queue, its ingress, and callers that give up at their deadline. What they give up is served all
/// the same, as most applications do.
struct World {
    admission: Admission,
    in_flight: u32,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
    /// By request, until it has ended for its caller.
    permits: Vec<Option<Permit>>,
    queue: VecDeque<usize>,
    busy: usize,
    rng: Xoshiro256PlusPlus,
    in_time: u64,
    busy_for: Duration,
}

impl World {
    fn luck(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.luck()).ln())
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, event)));
    }

    fn serve(&mut self, now: Nanos) {
        while self.busy < CORES {
            let Some(request) = self.queue.pop_front() else { return };
            self.busy += 1;
            let took = self.exponential(SERVICE);
            self.busy_for += took;
            self.at(now + took, Event::Served(request));
        }
    }

    fn end(&mut self, now: Nanos, request: usize, ended: Ended) {
        let Some(permit) = self.permits[request].take() else { return };
        self.in_flight -= 1;
        self.in_time += u64::from(ended == Ended::Answered);
        self.admission.finish(now, self.in_flight, permit, ended);
    }
}

/// Parts of the offered requests answered in time, and of the cores' time used, at this load, second half.
fn run(load: f64, seed: u64, seconds: u64) -> (f64, f64) {
    let capacity = CapacityOptions::Static(100_000);
    let options = AdmissionOptions { capacity, deadline_ms: None };
    let mut world = World {
        admission: Admission::new(&options).unwrap(),
        in_flight: 0,
        events: BinaryHeap::new(),
        permits: Vec::new(),
        queue: VecDeque::new(),
        busy: 0,
        rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        in_time: 0,
        busy_for: Duration::ZERO,
    };
    let between = SERVICE.div_f64(load * CORES as f64);
    let half = Nanos(seconds * 500_000_000);
    let (mut offered, mut measuring) = (0u64, false);
    world.at(Nanos::ZERO, Event::Arrives);
    let mut next_print = 0;
    while let Some(Reverse((now, event))) = world.events.pop() {
        if now.0 / 1_000_000_000 >= seconds {
            break;
        }
        if now.0 / 1_000_000_000 >= next_print && std::env::var("SHOW").is_ok() {
            next_print += 2;
            eprintln!("{} s: in flight {} queue {} delay {:?} in_time {} of {}", now.0/1_000_000_000, world.in_flight, world.queue.len(), world.admission.delay(), world.in_time, offered);
        }
        if !measuring && now >= half {
            measuring = true;
            (offered, world.in_time, world.busy_for) = (0, 0, Duration::ZERO);
        }
        match event {
            Event::Arrives => {
                let wait = world.exponential(between);
                world.at(now + wait, Event::Arrives);
                offered += 1;
                let arrival = Arrival { time_left: Some(DEADLINE), tries_left: 0 };
                let found = world.in_flight;
                if let Decision::Admit(permit) = world.admission.decide(now, found, arrival) {
                    world.in_flight += 1;
                    let request = world.permits.len();
                    world.permits.push(Some(permit));
                    world.queue.push_back(request);
                    world.at(now + DEADLINE, Event::GivenUp(request));
                    world.serve(now);
                }
            }
            Event::Served(request) => {
                world.busy -= 1;
                world.end(now, request, Ended::Answered);
                world.serve(now);
            }
            Event::GivenUp(request) => world.end(now, request, Ended::Abandoned),
        }
    }
    let cores_s = CORES as f64 * seconds as f64 / 2.0;
    (world.in_time as f64 / offered as f64, world.busy_for.as_secs_f64() / cores_s)
}

#[test]
fn at_overload_it_answers_what_the_cores_can() {
    for load in [0.7, 0.9, 1.1, 1.4] {
        for seed in 1..=3 {
            let (in_time, busy) = run(load, seed, 60);
            eprintln!("load {load} seed {seed}: in time {in_time:.3} busy {busy:.3}");
        }
    }
}
