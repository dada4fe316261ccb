//! What a pick costs, for every policy over 10, 100 and 1,000 backends, and the key that it may need, of every
//! part of a request by every function: nanoseconds and allocations.
//!
//! Each request is picked for, started, and ended when two more per backend have been sent; each seventh
//! is refused under the sight that learns from refusals. *All full*: each backend has as many as it may, and
//! no backend is picked. *All failing*: all requests have failed for a while. In one pass each pick is timed by
//! itself, less what reading the clock takes; in another all of it at once, probes and their answers
//! included. Keys are made of 64 requests in turn, whose headers are found at once: what finding them takes
//! is their holder's. The least of several runs counts: the machine only ever adds.
//!
//! `cargo bench -p plimsoll-policy --bench pick [-- NAME…]`, with names only rows that contain one of them.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark measures real time"
)]

mod keys;
mod request;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use plimsoll_model::Nanos;
use plimsoll_policy::{
    EjectionSettings, ExpectedDelaySettings, Finish, Policy, PolicyKind, Probing, Request,
    ServerLoad, Settings, Sight, SlowStartSettings,
};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SIZES: [usize; 3] = [10, 100, 1_000];
/// A run is shorter than a slice of the scheduler.
const REQUESTS: usize = 10_000;
const RUNS: usize = 60;
const PER_BACKEND: usize = 2;

fn main() {
    println!("{:<32} {:^23} {:^23} {:>11}", "", "ns per pick", "ns per request", "allocations");
    print!("{:<32}", "backends");
    for _ in 0..2 {
        SIZES.iter().for_each(|n| print!(" {n:>7}"));
    }
    println!(" {:>11}", "per request");
    for &kind in PolicyKind::ALL {
        row(kind.name(), kind, Settings::default());
    }
    for sight in [Sight::Refusals, Sight::Probes] {
        let expected_delay = ExpectedDelaySettings { sight, ..ExpectedDelaySettings::default() };
        let name = format!("expected_delay, {sight:?}").to_lowercase();
        row(&name, PolicyKind::ExpectedDelay, Settings { expected_delay, ..Settings::default() });
    }
    let guarded = Settings {
        max_in_flight: Some(1_000),
        ejection: Some(EjectionSettings::default()),
        slow_start: Some(SlowStartSettings::default()),
        ..Settings::default()
    };
    row("random, with all guards", PolicyKind::Random, guarded);
    let bounded = Settings { hash_balance_factor: Some(125), ..Settings::default() };
    let full = Settings { max_in_flight: Some(PER_BACKEND as u32 + 1), ..Settings::default() };
    use PolicyKind::{HashMaglev, HashMap, HashRing, LeastConnections, StaticRoundRobin};
    for kind in [HashRing, HashMaglev] {
        row(&format!("{kind}, loads bounded"), kind, bounded);
        row_in(&format!("{kind}, bounded, all failing"), kind, bounded, Case::AllFail);
    }
    for kind in [HashRing, HashMaglev, HashMap, StaticRoundRobin, LeastConnections] {
        row_in(&format!("{kind}, all full"), kind, full, Case::AllFull);
    }
    keys::rows();
}

/// Whether this row is to be made.
fn is_asked(name: &str) -> bool {
    let mut asked = std::env::args().skip(1).filter(|a| !a.starts_with('-')).peekable();
    asked.peek().is_none() || asked.any(|part| name.contains(&part))
}

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    AllWell,
    SomeRefused,
    AllFail,
    AllFull,
}

fn row(name: &str, kind: PolicyKind, settings: Settings) {
    let refuses = settings.expected_delay.sight == Sight::Refusals;
    row_in(name, kind, settings, if refuses { Case::SomeRefused } else { Case::AllWell });
}

fn row_in(name: &str, kind: PolicyKind, settings: Settings, case: Case) {
    if !is_asked(name) {
        return;
    }
    let costs = SIZES.map(|n| cost(kind, n, &settings, case));
    print!("{name:<32}");
    costs.iter().for_each(|c| print!(" {:>7.0}", c.pick_ns));
    costs.iter().for_each(|c| print!(" {:>7.0}", c.request_ns));
    let allocations: u64 = costs.iter().map(|c| c.allocations).sum();
    println!(" {:>11}", allocations as f64 / (SIZES.len() * RUNS * REQUESTS) as f64);
}

struct Cost {
    pick_ns: f64,
    request_ns: f64,
    allocations: u64,
}

fn cost(kind: PolicyKind, backends: usize, settings: &Settings, case: Case) -> Cost {
    let weights: Vec<u32> = (0..backends).map(|i| 1 + (i % 8) as u32).collect();
    let mut policy = kind.build(&weights, settings).expect("these settings are valid");
    let mut load = Load::new(backends);
    load.run(policy.as_mut(), pick_untimed);
    load.case = case;
    // Until those that fail, or fill all, are the only ones there are.
    (0..5).for_each(|_| load.run(policy.as_mut(), pick_untimed));
    let (mut picks, mut clock, mut whole) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let mut allocations = 0;
    for _ in 0..RUNS {
        clock = clock.min((0..REQUESTS).map(|_| Instant::now().elapsed()).sum());
        let mut timed = Duration::ZERO;
        load.run(policy.as_mut(), |policy, request, now, rng| {
            let begun = Instant::now();
            let picked = policy.pick(request, now, rng);
            timed += begun.elapsed();
            picked
        });
        picks = picks.min(timed);
        let counted = allocation_counter::measure(|| {
            let begun = Instant::now();
            load.run(policy.as_mut(), pick_untimed);
            whole = whole.min(begun.elapsed());
        });
        allocations += counted.count_total;
    }
    let per_request = |d: Duration| d.as_nanos() as f64 / REQUESTS as f64;
    let pick_ns = per_request(picks.saturating_sub(clock));
    Cost { pick_ns, request_ns: per_request(whole), allocations }
}

fn pick_untimed(
    policy: &mut dyn Policy,
    request: &Request<'_>,
    now: Nanos,
    rng: &mut dyn RngCore,
) -> Option<usize> {
    policy.pick(request, now, rng)
}

/// Requests that come and go at a steady pace.
struct Load {
    now: Nanos,
    gap: Duration,
    rng: Xoshiro256PlusPlus,
    running: VecDeque<usize>,
    in_flight: Vec<u32>,
    targets: Vec<usize>,
    latency: Duration,
    ended: u64,
    case: Case,
}

impl Load {
    fn new(backends: usize) -> Self {
        let gap = Duration::from_nanos(1_000_000 / backends as u64);
        Load {
            now: Nanos::from_secs_f64(1.0),
            gap,
            rng: Xoshiro256PlusPlus::seed_from_u64(1),
            running: VecDeque::with_capacity(PER_BACKEND * backends + 1),
            in_flight: vec![0; backends],
            targets: Vec::with_capacity(16),
            latency: gap * (PER_BACKEND * backends) as u32,
            ended: 0,
            case: Case::AllWell,
        }
    }

    fn run(
        &mut self,
        policy: &mut dyn Policy,
        mut pick: impl FnMut(&mut dyn Policy, &Request<'_>, Nanos, &mut dyn RngCore) -> Option<usize>,
    ) {
        for _ in 0..REQUESTS {
            let request = Request::with_key(self.rng.next_u64());
            self.targets.clear();
            if policy.probing() != Probing::Never {
                self.probe(policy, &request);
            }
            let request = request.answered_by(&self.targets);
            let picked = pick(policy, &request, self.now, &mut self.rng);
            match picked {
                Some(backend) => self.turn(policy, backend),
                None => assert!(self.case == Case::AllFull, "somebody is open"),
            }
        }
    }

    fn turn(&mut self, policy: &mut dyn Policy, backend: usize) {
        policy.on_start(backend, self.now);
        self.in_flight[backend] += 1;
        self.running.push_back(backend);
        if self.case != Case::AllFull && self.running.len() > PER_BACKEND * self.in_flight.len() {
            let Some(ended) = self.running.pop_front() else { return };
            self.in_flight[ended] -= 1;
            self.ended += 1;
            let finish = match self.case {
                Case::SomeRefused if self.ended.is_multiple_of(7) => Finish::rejected(self.latency),
                Case::AllFail => Finish::failure(Duration::from_micros(10)),
                _ => Finish::success(self.latency),
            };
            policy.on_finish(ended, &finish, self.now);
        }
        self.now = self.now + self.gap;
    }

    fn probe(&mut self, policy: &mut dyn Policy, request: &Request<'_>) {
        policy.probe_targets(request, self.now, &mut self.rng, &mut self.targets);
        for &backend in &self.targets {
            let in_flight = self.in_flight[backend];
            let latency_us = 1e3 * (1 + in_flight) as f32;
            policy.on_probe(
                backend,
                ServerLoad { in_flight, latency_us, ..ServerLoad::default() },
                self.now,
            );
        }
    }
}
