//! One controller and a pool at request level, driven by hand in experiments and in the controller's own tests. Random
//! faults are simulated by the rig.

use std::time::Duration;

use plimsoll_control::{
    Action, BackendSpec, Controller, Event, Memory, Phase, Record, ServiceSpec,
};
use plimsoll_model::{Applied, BackendId, FailureKind, Nanos, Outcome, Plan, ServerStatus};
use plimsoll_queueing::ServiceTime;

use crate::asking::Asking;
use crate::knapsack::{ExploreMode, Knapsack};
use crate::pool::{BackendModel, Method};
use crate::pool_model::{Condition, PoolModel};
use crate::request::{Answer, RequestPool};

/// The specification of a simulated world.
#[derive(Clone, Debug)]
pub struct WorldSpec {
    /// The backends.
    pub pool: Vec<BackendModel>,
    /// Mean service time at speed 1, microseconds.
    pub service_us: f64,
    /// Distribution of service times.
    pub service: ServiceTime,
    /// How the balancer picks.
    pub method: Method,
    /// Round robin takes smooth turns and follows a change of weights at once; HAProxy's own, the default, follows it
    /// only after a round.
    pub smooth: bool,
    /// How many balancers stand before the pool, each of which counts only its own requests.
    pub balancers: u32,
    /// Each of them has a subset of the backends.
    pub subsets: bool,
    /// Poisson arrivals, requests per second.
    pub rate_rps: f64,
    /// The weights that the balancer starts with.
    pub weights: Vec<u32>,
    /// Interval of readings of the balancer.
    pub poll: Duration,
    /// The run's seed.
    pub seed: u64,
}

impl WorldSpec {
    /// This pool at this part of its capacity, with 30 ms of exponential service and equal weights.
    pub fn new(pool: Vec<BackendModel>, method: Method, load: f64, seed: u64) -> Self {
        let service_us = 30_000.0;
        let capacity: f64 = pool.iter().map(|b| b.capacity_rps(service_us)).sum();
        let poll = method.kind().poll_interval();
        WorldSpec {
            weights: vec![1; pool.len()],
            pool,
            service_us,
            service: ServiceTime::Exponential,
            method,
            smooth: false,
            balancers: 1,
            subsets: false,
            rate_rps: load * capacity,
            poll,
            seed,
        }
    }
}

/// Removes `poll=MS`, the interval of readings, from the words of a command; the last one counts.
///
/// # Errors
/// A message, if MS is no whole number above 0.
pub fn poll_asked(
    words: impl IntoIterator<Item = String>,
) -> Result<(Option<Duration>, Vec<String>), String> {
    let (polls, others): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| word.starts_with("poll="));
    let Some(word) = polls.last() else { return Ok((None, others)) };
    match word["poll=".len()..].parse::<std::num::NonZeroU64>() {
        Ok(ms) => Ok((Some(Duration::from_millis(ms.get())), others)),
        Err(_) => Err(format!("{word}: expected poll=MS, a whole number of milliseconds above 0")),
    }
}

/// What sets the weights.
enum Steered {
    Plimsoll(Box<Controller>),
    Knapsack(Box<Knapsack>),
}

impl Steered {
    fn step(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        match self {
            Steered::Plimsoll(controller) => controller.step(now, event),
            Steered::Knapsack(controller) => controller.step(now, event),
        }
    }

    fn planned_rps(&self, now: Nanos) -> f64 {
        match self {
            Steered::Plimsoll(controller) => controller.view(now).plan.rate_rps,
            Steered::Knapsack(controller) => controller.planned_rps(),
        }
    }
}

/// A simulated pool with its balancer, clients and controller.
pub struct World {
    spec: WorldSpec,
    pool_model: RequestPool,
    next_poll: u64,
    next_tick: u64,
    wrong_url: bool,
    /// Every liveness check times out, though all backends are healthy.
    blind: bool,
    steered: Option<Steered>,
    pending: Option<(u64, Plan)>,
    asking: Asking,
    keeps_answers: bool,
    /// Every answer so far, unless [`World::forget_answers`] was called.
    pub answers: Vec<Answer>,
    /// Everything that the controller recorded, with its time.
    pub records: Vec<(Nanos, Record)>,
    /// Every plan that it programmed.
    pub plans: Vec<(Nanos, Plan)>,
    /// The traffic that each plan was made for, requests per second.
    pub planned_rps: Vec<(Nanos, f64)>,
}

const TICK: u64 = 100_000_000;
const PROGRAMMING: u64 = 3_000_000;

impl World {
    /// A world at time zero, without a controller.
    pub fn new(spec: WorldSpec) -> Self {
        let n = spec.pool.len();
        let (pool, weights) = (&spec.pool, &spec.weights);
        let mut pool_model =
            RequestPool::new(pool, weights, spec.service_us, spec.service, spec.method, spec.seed);
        pool_model.set_balancers(spec.balancers as usize);
        if spec.subsets {
            pool_model.divide_into_subsets();
        }
        pool_model.set_rate(spec.rate_rps);
        pool_model.keep_answers();
        if spec.smooth {
            pool_model.pick_smoothly();
        }
        World {
            pool_model,
            next_poll: 0,
            next_tick: 0,
            wrong_url: false,
            blind: false,
            steered: None,
            pending: None,
            asking: Asking::new(n),
            keeps_answers: true,
            answers: Vec::new(),
            records: Vec::new(),
            plans: Vec::new(),
            planned_rps: Vec::new(),
            spec,
        }
    }

    /// Keeps no answers from now on and drops those so far: for runs of hours.
    pub fn forget_answers(&mut self) {
        self.keeps_answers = false;
        self.answers = Vec::new();
    }

    /// The specification of a controller for this pool, with every default.
    pub fn service_spec(&self) -> ServiceSpec {
        let backends = (0..self.pool_model.len())
            .map(|i| BackendSpec { id: BackendId(i as u32), name: format!("s{i}") })
            .collect();
        let balancers = if self.spec.subsets { 1 } else { self.spec.balancers };
        ServiceSpec { balancers, ..ServiceSpec::new("sim", backends) }
    }

    /// Starts a controller.
    pub fn attach(&mut self, spec: ServiceSpec, memory: Option<Memory>) {
        let controller = Controller::new(spec, memory, self.pool_model.now(), self.spec.seed);
        self.steered = Some(Steered::Plimsoll(Box::new(controller)));
    }

    /// Starts KnapsackLB's controller instead, which explores in this way.
    pub fn attach_knapsack(&mut self, mode: ExploreMode) {
        let ServiceSpec { backends, sink, .. } = self.service_spec();
        let controller = Knapsack::new(&backends, sink.range, mode).expect("a pool has backends");
        self.steered = Some(Steered::Knapsack(Box::new(controller)));
    }

    /// Plimsoll's controller, if it runs.
    pub fn controller(&self) -> Option<&Controller> {
        match &self.steered {
            Some(Steered::Plimsoll(controller)) => Some(controller),
            _ => None,
        }
    }

    /// What the controller does, whichever it is.
    pub fn phase(&self) -> Option<Phase> {
        Some(match self.steered.as_ref()? {
            Steered::Plimsoll(controller) => controller.view(self.now()).phase,
            Steered::Knapsack(controller) => controller.phase(),
        })
    }

    /// Stops the controller, as a crash does; the balancer keeps its weights.
    pub fn detach(&mut self) {
        self.pending = None;
        self.steered = None;
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.pool_model.now()
    }

    /// The weights that the balancer holds.
    pub fn weights(&self) -> Vec<u32> {
        (0..self.pool_model.len()).map(|i| self.pool_model.weight(i)).collect()
    }

    /// Kills or restarts a backend. Its requests in flight are lost.
    pub fn set_alive(&mut self, i: usize, alive: bool) {
        let condition = if alive { Condition::Well } else { Condition::Dead };
        self.pool_model.set_condition(i, condition);
    }

    /// Makes a backend answer every request immediately with an error, or ends that.
    pub fn set_failing_fast(&mut self, i: usize, failing: bool) {
        let condition = if failing { Condition::FailsFast } else { Condition::Well };
        self.pool_model.set_condition(i, condition);
    }

    /// Makes a backend answer clients immediately with errors while its probes and checks succeed, or ends that.
    pub fn set_failing_clients(&mut self, i: usize, failing: bool) {
        let condition = if failing { Condition::FailsClients } else { Condition::Well };
        self.pool_model.set_condition(i, condition);
    }

    /// Sets a server's status, as an administrator does.
    pub fn set_status(&mut self, i: usize, status: ServerStatus) {
        self.pool_model.set_status(i, status);
    }

    /// Makes every liveness check time out, though all backends are healthy, or ends that.
    pub fn set_blind(&mut self, blind: bool) {
        self.blind = blind;
    }

    /// Points the probes at a URL that no backend has.
    pub fn set_wrong_url(&mut self, wrong: bool) {
        self.wrong_url = wrong;
    }

    /// Sends the controller an event, as its environment does.
    pub fn tell_controller(&mut self, event: Event) {
        self.tell(event);
    }

    /// Changes a backend's speed; requests in service finish as scheduled.
    pub fn set_speed(&mut self, i: usize, speed: f64) {
        self.pool_model.set_speed(i, speed);
    }

    /// Changes the traffic.
    pub fn set_rate(&mut self, rate_rps: f64) {
        self.pool_model.set_rate(rate_rps);
    }

    /// Restarts the balancer: counters and weights are reset.
    pub fn restart_balancer(&mut self) {
        self.pool_model.restart(&self.spec.weights, self.spec.method);
    }

    /// Changes a weight, not through the controller.
    pub fn set_foreign_weight(&mut self, i: usize, weight: u32) {
        self.pool_model.set_weights(&[(i, weight)]);
    }

    /// Runs until `seconds` of simulated time have passed.
    pub fn run_for(&mut self, seconds: f64) {
        let end = self.now().0 + (seconds * 1e9) as u64;
        loop {
            let programming = self.pending.as_ref().map_or(u64::MAX, |(t, _)| *t);
            let next = self.next_poll.min(self.next_tick).min(programming);
            self.pool_model.advance(Nanos(next.min(end)));
            let answers = self.pool_model.take_answers();
            if self.keeps_answers {
                self.answers.extend(answers);
            }
            if next > end {
                return;
            }
            if next == programming {
                self.carry_out();
            } else if next == self.next_poll {
                self.next_poll += self.spec.poll.as_nanos() as u64;
                let report = self.pool_model.report();
                self.tell(Event::Balancer(report));
            } else {
                self.next_tick += TICK;
                self.tick();
            }
        }
    }

    /// Mean, 99th percentile (milliseconds) and errors of the answers to requests sent since.
    pub fn since(&self, from: Nanos) -> (f64, f64, usize) {
        let mut times: Vec<f64> = Vec::new();
        let mut errors = 0;
        for a in self.answers.iter().rev() {
            // Answers are in order of their end: a minute covers the slowest.
            if a.sent.0 + 60_000_000_000 < from.0 {
                break;
            }
            if a.sent >= from {
                if a.ok { times.push(a.latency_ms) } else { errors += 1 }
            }
        }
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(0.0);
        (mean, p99, errors)
    }

    /// A tick: liveness rounds, due probes, and the controller's tick event.
    fn tick(&mut self) {
        let now = self.pool_model.now();
        for i in 0..self.pool_model.len() {
            if self.asking.is_check_due(i, now.0) {
                let failure = if self.blind {
                    Some(FailureKind::Timeout)
                } else {
                    self.pool_model.liveness(i)
                };
                self.tell(Event::Liveness {
                    backend: BackendId(i as u32),
                    successes: u32::from(failure.is_none()),
                    failure,
                    started: now,
                });
            }
            if self.asking.is_probe_due(i, now.0) {
                self.probe(i);
            }
        }
        self.tell(Event::Tick);
    }

    fn probe(&mut self, i: usize) {
        let (mut outcome, latency_us) = self.pool_model.probe(i);
        if self.wrong_url && outcome == Outcome::Success {
            outcome = Outcome::Failure(FailureKind::Status);
        }
        let backend = BackendId(i as u32);
        self.tell(Event::Probe { backend, outcome, latency_us, detail: String::new() });
    }

    fn carry_out(&mut self) {
        let Some((_, plan)) = self.pending.take() else { return };
        let before = self.weights();
        let weights: Vec<(usize, u32)> =
            plan.entries.iter().map(|e| (e.backend.0 as usize, e.weight)).collect();
        self.pool_model.set_weights(&weights);
        let commands = weights.iter().filter(|&&(i, w)| before[i] != w).count() as u32;
        let held = self.weights().into_iter().enumerate();
        let held = held.map(|(i, w)| (BackendId(i as u32), w)).collect();
        self.tell(Event::Applied(Applied { epoch: plan.epoch, weights: held, commands }));
    }

    fn tell(&mut self, event: Event) {
        let now = self.pool_model.now();
        let Some(steered) = &mut self.steered else { return };
        for action in steered.step(now, event) {
            match action {
                Action::Program(plan) => {
                    self.plans.push((now, plan.clone()));
                    self.planned_rps.push((now, steered.planned_rps(now)));
                    self.pending = Some((now.0 + PROGRAMMING, plan));
                }
                Action::Correct(plan) => self.pending = Some((now.0 + PROGRAMMING, plan)),
                Action::ProbeRate { backend, interval, .. } => {
                    self.asking.set_probes(backend, interval, now.0);
                }
                Action::CheckRate { backend, interval, at_once } => {
                    self.asking.set_checks(backend, interval, at_once, now.0);
                }
                Action::Record(record) => self.records.push((now, record)),
                Action::SaveMemory => {}
            }
        }
    }
}
