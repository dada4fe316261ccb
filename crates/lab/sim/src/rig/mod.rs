//! A controller that steers a pool model, with everything in between simulated: readings, probes, liveness rounds,
//! plans, a store, a configuration, and the faults of all these. It behaves as the daemon does around the same
//! controller (`crates/cli/src/run`).
//!
//! Time is discrete: a heap of scheduled events, with ties in the order of scheduling. After every event that the
//! controller processes, [`Invariants`] checks what it did.

mod happening;
mod process;
mod sink;
mod store;
mod troubles;

use std::ops::Add;

use plimsoll_control::{BackendSpec, Belief, Event, ServiceSpec};
use plimsoll_model::{BackendId, FailureKind, Nanos, Outcome};

use crate::asking::Asking;
use crate::digest::Digest;
use crate::invariants::{Invariants, Rule, Snapshot, Violation};
use crate::mutant::{Interceptor, Mutant};
use crate::pool_model::PoolModel;
use crate::random::RandomStream;
use crate::scenario::Scenario;

use happening::{Agenda, Happening};
use process::Process;
use sink::Sink;
use store::Store;
use troubles::Troubles;

/// Time-out of liveness checks and probes.
const TIMEOUT_NS: u64 = 1_000_000_000;
/// Interval at which the traffic follows its profile.
const TRAFFIC_EVERY_NS: u64 = 60_000_000_000;
/// Interval of attempts to read a balancer that cannot be read, as in the daemon.
const RETRY_NS: u64 = 500_000_000;

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events that the controllers processed.
    pub steps: u64,
    /// Plans made.
    pub plans: u64,
    /// Faults that began.
    pub faults: u64,
    /// Controllers started.
    pub lives: u64,
    /// Checks made.
    pub checks: u64,
    /// Digest of all actions of the controllers.
    pub digest: Digest,
}

impl Add for Tally {
    type Output = Tally;

    fn add(self, other: Tally) -> Tally {
        Tally {
            steps: self.steps + other.steps,
            plans: self.plans + other.plans,
            faults: self.faults + other.faults,
            lives: self.lives + other.lives,
            checks: self.checks + other.checks,
            digest: self.digest + other.digest,
        }
    }
}

/// A run.
pub struct Rig<P> {
    scenario: Scenario,
    pool_model: P,
    now: u64,
    agenda: Agenda,
    process: Option<Process>,
    lives: u64,
    spec: ServiceSpec,
    roster: Vec<bool>,
    asking: Asking,
    troubles: Troubles,
    sink: Sink,
    store: Store,
    rng: RandomStream,
    traffic_rng: RandomStream,
    interceptor: Interceptor,
    invariants: Invariants,
    /// The controller's beliefs after its last step.
    beliefs: Vec<Belief>,
    tally: Tally,
    trace_from: u64,
}

impl<P: PoolModel> Rig<P> {
    /// A run at its beginning, with a mutant or the unchanged controller.
    pub fn new(scenario: Scenario, pool_model: P, mutant: Option<Mutant>) -> Self {
        let n = pool_model.len();
        let backends = (0..n).map(backend_spec).collect();
        let spec = scenario.settings.apply(ServiceSpec::new("sim", backends));
        let mut rig = Rig {
            now: 0,
            agenda: Agenda::default(),
            process: None,
            lives: 0,
            roster: vec![true; n],
            asking: Asking::new(n),
            troubles: Troubles::new(&scenario),
            sink: Sink::new(scenario.seed),
            store: Store::default(),
            rng: RandomStream::new(scenario.seed, 2),
            traffic_rng: RandomStream::new(scenario.seed, 3),
            interceptor: Interceptor::new(mutant),
            invariants: Invariants::new(n),
            beliefs: Vec::new(),
            tally: Tally::default(),
            trace_from: u64::MAX,
            spec,
            pool_model,
            scenario,
        };
        let initial: Vec<(usize, u32)> = rig.scenario.weights.iter().copied().enumerate().collect();
        rig.pool_model.set_weights(&initial);
        rig.agenda.at(0, Happening::Traffic);
        rig.agenda.at(0, Happening::Poll);
        rig.agenda.at(0, Happening::Tick);
        rig.agenda.at(0, Happening::Round);
        rig.plan_faults();
        rig.start_controller(None);
        rig
    }

    /// Runs until this many seconds after the beginning.
    ///
    /// # Errors
    /// The first violation of a rule.
    pub fn run_until(&mut self, seconds: f64) -> Result<(), Violation> {
        let end = (seconds * 1e9) as u64;
        while let Some((at, happening)) = self.agenda.next(end) {
            self.now = at;
            self.pool_model.advance(Nanos(at));
            self.invariants.note_unwell(&self.pool_model);
            self.happen(happening);
            if let Some(violation) = self.invariants.take_violation() {
                return Err(violation);
            }
        }
        self.now = end;
        Ok(())
    }

    /// Prints the controller's events and actions from this second on.
    pub fn trace_from(&mut self, seconds: f64) {
        self.trace_from = (seconds * 1e9) as u64;
    }

    /// Ignores violations of these rules.
    pub fn tolerate(&mut self, rules: &[Rule]) {
        self.invariants.tolerate(rules);
    }

    /// The controller's beliefs about the pool beside the truth; one line per backend.
    pub fn beliefs(&self) -> String {
        let Some(process) = &self.process else { return "no controller runs\n".to_owned() };
        let view = process.controller.view(process.clock(self.now));
        let mut lines = format!("{:?}, {:.0} req/s\n", view.phase, view.rate_rps);
        for b in &view.backends {
            let i = b.backend.strip_prefix('s').and_then(|i| i.parse().ok()).unwrap_or(0);
            let curve = view.curves.iter().find(|c| c.backend == b.backend);
            let believed = curve.map_or("unknown".to_owned(), |c| {
                let least = if c.capacity_is_lower_bound { "at least " } else { "" };
                format!("{least}{:.0} ± {:.0} %", c.capacity_rps, c.capacity_error * 100.0)
            });
            lines.push_str(&format!(
                "  {}: {:?}, weight {} held, {} wanted; capacity {:.0} req/s, believed {believed}\n",
                b.backend,
                b.state,
                self.pool_model.weight(i),
                b.weight,
                self.pool_model.capacity_rps(i),
            ));
        }
        lines
    }

    fn trace(&self, what: std::fmt::Arguments<'_>) {
        if self.now >= self.trace_from {
            println!("{:.3} {what}", self.now as f64 / 1e9);
        }
    }

    /// The counts so far.
    pub fn tally(&self) -> Tally {
        Tally { checks: self.invariants.checks(), ..self.tally }
    }

    /// The pool model.
    pub fn pool_model(&self) -> &P {
        &self.pool_model
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick => self.tick(),
            Happening::Poll => self.poll(),
            Happening::Round => self.round(),
            Happening::Traffic => self.follow_profile(),
            Happening::Tell(life, event) => self.tell_life(life, *event),
            Happening::Wake(life) => self.wake(life),
            Happening::Carry(life, plan) => self.carry(life, &plan),
            Happening::Undo(life, weights, answer) => self.undo(life, &weights, *answer),
            Happening::Begin(k) => self.begin(k),
            Happening::End(k, what) => self.end(k, what),
            Happening::Again(k, what, left) => self.again(k, what, left),
        }
    }

    fn tick(&mut self) {
        self.agenda.at(self.now + nanos(self.scenario.cadence.tick), Happening::Tick);
        for i in 0..self.pool_model.len() {
            if self.roster[i] && self.asking.is_probe_due(i, self.now) {
                self.probe(i);
            }
        }
        self.tell(Event::Tick);
    }

    /// The controller's process exists and has CPU time; so have its probes.
    fn is_probing(&self) -> bool {
        self.process.as_ref().is_some_and(|p| !p.is_away(self.now))
    }

    fn probe(&mut self, i: usize) {
        if !self.is_probing() {
            return;
        }
        let (mut outcome, latency_us) = self.pool_model.probe(i);
        if self.troubles.wrong_url && outcome == Outcome::Success {
            outcome = Outcome::Failure(FailureKind::Status);
        }
        let mut late = match outcome {
            Outcome::Failure(FailureKind::Timeout) => TIMEOUT_NS,
            _ => (latency_us * 1e3) as u64,
        };
        if self.rng.chance(self.troubles.probes_lost) {
            return;
        }
        if self.troubles.probes_late_s > 0.0 {
            late += (self.rng.exponential(self.troubles.probes_late_s) * 1e9) as u64;
        }
        let backend = BackendId(i as u32);
        let event = Event::Probe { backend, outcome, latency_us, detail: String::new() };
        self.tell_later(late, event);
    }

    fn round(&mut self) {
        self.agenda.at(self.now + nanos(self.scenario.cadence.round), Happening::Round);
        if !self.is_probing() {
            return;
        }
        for i in 0..self.pool_model.len() {
            if !self.roster[i] || !self.asking.is_check_due(i, self.now) {
                continue;
            }
            if self.rng.chance(self.troubles.rounds_lost) {
                continue;
            }
            let failure = match self.pool_model.liveness(i) {
                Some(failure) => Some(failure),
                None if self.troubles.blind => Some(FailureKind::Timeout),
                None => None,
            };
            let mut late = if failure == Some(FailureKind::Timeout) { TIMEOUT_NS } else { 0 };
            if self.troubles.rounds_late_s > 0.0 {
                late += (self.rng.exponential(self.troubles.rounds_late_s) * 1e9) as u64;
            }
            self.send_round(i, failure, late);
        }
    }

    fn send_round(&mut self, i: usize, failure: Option<FailureKind>, late: u64) {
        let Some(process) = &self.process else { return };
        let event = Event::Liveness {
            backend: BackendId(i as u32),
            successes: u32::from(failure.is_none()),
            failure,
            started: process.clock(self.now),
        };
        self.tell_later(late, event);
    }

    fn follow_profile(&mut self) {
        self.agenda.at(self.now + TRAFFIC_EVERY_NS, Happening::Traffic);
        self.troubles.wobble = self.traffic_rng.between(-1.0, 1.0);
        self.set_traffic();
    }

    fn set_traffic(&mut self) {
        let profile = self.scenario.profile;
        let day = std::f64::consts::TAU * self.now as f64 / 86_400e9;
        let part = 1.0 + profile.swing * day.sin() + profile.wobble * self.troubles.wobble;
        let usual = profile.load * part * self.scenario.capacity_rps();
        self.pool_model.set_rate(self.troubles.traffic(usual, self.scenario.capacity_rps()));
    }

    /// Checks the state after a step.
    fn judge(&mut self) {
        let Some(process) = &self.process else { return };
        let able = !process.is_away(self.now)
            && self.sink.is_idle()
            && !self.troubles.steering_is_disturbed()
            && !self.spec.observe;
        let clock = process.clock(self.now);
        let snapshot = Snapshot {
            now: Nanos(self.now),
            clock,
            able,
            pool_model: &self.pool_model,
            beliefs: &self.beliefs,
            view: &|| self.interceptor.view(&process.controller, clock),
        };
        self.invariants.check(&snapshot);
    }
}

/// The specification of a backend by its position.
pub(crate) fn backend_spec(i: usize) -> BackendSpec {
    BackendSpec { id: BackendId(i as u32), name: format!("s{i}") }
}

fn nanos(span: std::time::Duration) -> u64 {
    span.as_nanos() as u64
}
