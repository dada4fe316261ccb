//! Deadline refusal under overload: callers give up, the application works on.

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
const SECONDS: u64 = 60;
const SEEDS: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives,
    Served(usize),
    GivenUp(usize),
}

/// An application with a queue, its ingress, and callers that give up at their deadline.
struct World {
    admission: Admission,
    in_flight: u32,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
    /// By request, until it has ended for its caller.
    permits: Vec<Option<Permit>>,
    queue: VecDeque<usize>,
    busy: usize,
    rng: Xoshiro256PlusPlus,
    /// Whether it works on what was given up before its turn.
    works_on: bool,
    in_time: u64,
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
            if !self.works_on && self.permits[request].is_none() {
                continue;
            }
            self.busy += 1;
            let took = self.exponential(SERVICE);
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

/// The part of the requests of the second half that is answered in time, at this part of the capacity.
fn in_time(load: f64, seed: u64, works_on: bool) -> f64 {
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
        works_on,
        in_time: 0,
    };
    let between = SERVICE.div_f64(load * CORES as f64);
    let half = Nanos(SECONDS * 500_000_000);
    let (mut offered, mut measuring) = (0u64, false);
    world.at(Nanos::ZERO, Event::Arrives);
    while let Some(Reverse((now, event))) = world.events.pop() {
        if now.0 / 1_000_000_000 >= SECONDS {
            break;
        }
        if !measuring && now >= half {
            measuring = true;
            (offered, world.in_time) = (0, 0);
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
    world.in_time as f64 / offered as f64
}

#[test]
fn at_overload_it_answers_most_of_what_the_cores_can() {
    // Of what is offered the cores can serve 1, 1, 0.91 and 0.71.
    for (load, least) in [(0.7, 0.99), (0.9, 0.95), (1.1, 0.7), (1.4, 0.45)] {
        for works_on in [true, false] {
            let all = (1..=SEEDS).map(|seed| in_time(load, seed, works_on)).sum::<f64>();
            let mean = all / SEEDS as f64;
            assert!(mean > least, "load {load}, works on {works_on}: {mean:.3} in time");
        }
    }
}
