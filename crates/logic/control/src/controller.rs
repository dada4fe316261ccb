//! The controller as a state machine: [`Controller::step`] takes an event and returns actions.

use plimsoll_model::{BackendId, MethodKind, Nanos, PlanKind, Traffic};

use crate::backend::Backend;
use crate::belief::refit::{Round, refit};
use crate::commit::commitment::Commitment;
use crate::commit::plan::Why;
use crate::event::{Action, Event, Record, RecordKind};
use crate::experiments::Experiments;
use crate::experiments::refresh::Setting;
use crate::gate::pace::Gate;
use crate::gate::phase::PhaseState;
use crate::members::asking::ask;
use crate::memory::Memory;
use crate::observe::balancer::Balancer;
use crate::observe::pool::PoolTraffic;
use crate::process::Process;
use crate::propose::proposals::Proposals;
use crate::show::advice::{Advisor, Asked};
use crate::show::service_view;
use crate::show::view::{Belief, Phase, ServiceView};
use crate::spec::ServiceSpec;
use crate::tuning::observe::traffic::WINDOW;

/// The controller of one service.
pub struct Controller {
    pub(crate) spec: ServiceSpec,
    pub(crate) process: Process,
    pub(crate) balancer: Balancer,
    pub(crate) traffic: PoolTraffic,
    pub(crate) backends: Vec<Backend>,
    pub(crate) phase: PhaseState,
    pub(crate) proposals: Proposals,
    pub(crate) gate: Gate,
    pub(crate) commitment: Commitment,
    pub(crate) experiments: Experiments,
    pub(crate) advisor: Advisor,
}

impl Controller {
    /// A controller for this service, with the memory of an earlier one. `seed` seeds the model's random numbers.
    pub fn new(spec: ServiceSpec, memory: Option<Memory>, now: Nanos, seed: u64) -> Self {
        let backends = spec.backends.iter().map(|b| Backend::new(b, spec.slow_start)).collect();
        let phase = if spec.observe { Phase::Observing } else { Phase::Exploring };
        let mut controller = Controller {
            spec,
            process: Process::new(now),
            balancer: Balancer::default(),
            traffic: PoolTraffic::new(now),
            backends,
            phase: PhaseState::new(phase, now),
            proposals: Proposals::new(seed),
            gate: Gate::new(now),
            commitment: Commitment::new(now),
            experiments: Experiments::default(),
            advisor: Advisor::new(now, seed),
        };
        if let Some(memory) = memory {
            controller.recall(&memory);
        }
        controller
    }

    /// The state to keep over a restart.
    pub fn memory(&self) -> Memory {
        Memory::new(self.commitment.epoch(), self.phase.is_packed(), &self.backends)
    }

    /// The whole state for display.
    pub fn view(&self, now: Nanos) -> ServiceView {
        service_view(self, now)
    }

    /// The estimates of every backend, in the order of the configuration.
    pub fn beliefs(&self) -> impl Iterator<Item = Belief> + '_ {
        self.backends.iter().map(Backend::belief)
    }

    /// Which backends are suspected to have failed and checked for it, in the order of the configuration.
    pub fn suspected(&self) -> impl Iterator<Item = bool> + '_ {
        self.backends.iter().map(|b| b.suspected)
    }

    /// The last plan's epoch; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.commitment.epoch()
    }

    /// Takes over the state of an earlier controller.
    fn recall(&mut self, memory: &Memory) {
        let Some(recalled) = memory.recall(self.spec.curve, &mut self.backends) else { return };
        if recalled.is_steady && self.phase.is(Phase::Exploring) {
            self.phase.recall(Phase::Steady);
        }
        self.commitment.recall(recalled.epoch, recalled.weights);
    }

    /// Processes an event and returns the actions that follow from it.
    pub fn step(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.process.note_step(now);
        let is_tick = matches!(event, Event::Tick);
        if matches!(event, Event::Stopping) {
            self.leave(now, &mut out);
            return out;
        }
        self.take(now, event, &mut out);
        self.commitment.abandon_lost(now);
        if self.balancer.is_fresh(now) && !self.commitment.is_pending() {
            self.plan(now, is_tick, &mut out);
        }
        if self.process.is_save_due(now) {
            out.push(Action::SaveMemory);
        }
        ask(now, &self.spec, &mut self.backends, &mut out);
        out
    }

    /// Observes: events become windows of traffic, beliefs about backends, and turns of those that fail or return.
    fn take(&mut self, now: Nanos, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Tick | Event::Stopping => {}
            Event::Balancer(report) => self.on_report(now, &report, out),
            Event::BalancerLost { reason, conflict } => self.on_lost(reason, conflict, out),
            Event::BalancersDegraded(reason) => self.on_degraded(reason, out),
            Event::BalancersSharing(number) => self.balancer.set_sharing(number),
            Event::Probe { backend, outcome, latency_us, .. } => {
                self.on_probe(now, backend, outcome, latency_us, out);
            }
            Event::Liveness { backend, successes, failure, started } => {
                self.on_liveness(now, backend, successes, failure, started, out);
            }
            Event::Applied(applied) => self.on_applied(now, &applied, out),
            Event::ApplyFailed { epoch, reason, retryable } => {
                self.on_apply_failed(now, epoch, reason, retryable, out);
            }
            Event::Reconfigured(spec) => self.on_reconfigured(now, *spec, out),
        }
    }

    /// Plans, from fresh news and with no plan under way. What cannot wait comes first: the weights from before a restart,
    /// a failure, weights that the balancer lost; then the trial of the last plan and the regular decision.
    fn plan(&mut self, now: Nanos, is_tick: bool, out: &mut Vec<Action>) {
        if let Some(weights) = self.commitment.take_resumed() {
            self.resume_with(now, &weights, out);
            return;
        }
        if self.may_act_urgently(now)
            && let Some(urgent) = self.gate.take_urgent()
        {
            self.act_urgently(now, urgent, out);
            return;
        }
        if !self.commitment.is_owed() && self.is_deserted() {
            self.commitment.owe("no healthy backend holds a weight");
        }
        if self.may_reassert(now)
            && let Some(reason) = self.commitment.take_owed()
        {
            if let Some(decision) = self.decision_to_reassert(now) {
                let why = Why::new(PlanKind::Reasserted, reason);
                self.program(now, decision, why, false, out);
            }
            return;
        }
        // This state is short: a backend that is set aside answers again, or fails.
        if self.aside().next().is_some() {
            return;
        }
        self.judge_trial(now, out);
        // A slice of the search takes about 10 ms: there is time for it on a tick, not on a failure.
        if is_tick {
            self.continue_search(now, out);
            let asked = Asked {
                spec: &self.spec,
                backends: &self.backends,
                kind: self.balancer.kind(),
                rate_rps: self.traffic.rate(),
                balancers: self.balancers(),
            };
            let settled = (self.phase.is(Phase::Steady) || self.phase.is(Phase::Observing))
                && !self.proposals.is_searching();
            self.advisor.advise(now, asked, settled);
        }
        let due = self.gate.is_due(now) && self.is_last_plan_seen(now);
        if !self.commitment.is_pending() && due && !self.proposals.is_searching() {
            self.decide(now, out);
        }
        if !self.commitment.is_pending() && !is_tick {
            self.follow_backlogs(now, out);
        }
    }

    /// Once per window of a second: refits curves, judges errors and looks for changes.
    pub(crate) fn on_window(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.traffic.note_latencies(self.backends.iter().filter_map(|b| b.recent.latency_us));
        let round = Round {
            window: self.traffic.windows(),
            is_due: self.gate.is_due(now + WINDOW) || self.is_in_distress(),
            is_packed: self.phase.is_packed(),
            is_exploring: self.phase.is(Phase::Exploring),
        };
        refit(now, &self.spec, &mut self.backends, &round);
        self.eject_failing(now, out);
        self.correct_underestimates(now, out);
        self.refresh(now, out);
        self.hurry(now);
    }

    /// Once per window: ends measurements, and begins them of backends of which traffic shows too little.
    pub(crate) fn refresh(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let idle = !self.commitment.is_pending()
            && !self.gate.is_on_trial()
            && self.gate.urgent().is_none()
            && !self.commitment.is_owed();
        let is_steady = self.phase.is(Phase::Steady);
        // Means show neither the load that a measurement gives nor what comes of it, before it has ended.
        let may_begin = self.spec.refresh
            && self.balancer.traffic() == Traffic::Counted
            && idle
            && is_steady
            && !self.proposals.is_searching()
            && !self.is_ramping(now)
            && !self.is_in_distress()
            && self.is_calm(now);
        let setting = Setting {
            is_steady,
            may_begin,
            kind: self.balancer.kind(),
            rate_rps: self.traffic.rate(),
        };
        if self.experiments.refresh(now, &mut self.backends, setting, out) {
            self.gate.decide_at(now);
        }
    }

    /// The pool or a backend has changed: the trial and the search were of what it was before.
    pub(crate) fn drop_trial_and_search(&mut self) {
        self.gate.end_trial();
        self.proposals.abandon();
    }

    /// Ends all measurements: the pool has changed, or requests are no longer counted.
    pub(crate) fn stop_refreshing(&mut self, now: Nanos) {
        if self.experiments.stop(&mut self.backends) {
            self.gate.decide_at(now);
        }
    }

    /// Whether the balancer uses weights and they may be programmed now.
    pub(crate) fn may_steer(&self) -> bool {
        !self.spec.observe
            && !self.balancer.is_in_conflict()
            && self.balancer.kind() != MethodKind::NoLiveWeights
    }

    /// How many balancers give requests to the same servers without knowing of each other's.
    pub(crate) fn balancers(&self) -> u32 {
        self.balancer.sharing(self.spec.balancers)
    }

    pub(crate) fn get(&mut self, id: BackendId) -> Option<&mut Backend> {
        self.backends.iter_mut().find(|b| b.id == id)
    }

    /// Whether queues have had time to follow the last change of weights.
    pub(crate) fn is_calm(&self, now: Nanos) -> bool {
        let (drain, lag) = (self.experiments.drain_to_wait(), self.balancer.traffic().lag());
        self.traffic.is_calm(drain, lag, now)
    }
}

pub(crate) fn record(
    out: &mut Vec<Action>,
    kind: RecordKind,
    backend: Option<&str>,
    reason: String,
) {
    out.push(Action::Record(Record { kind, backend: backend.map(str::to_owned), reason }));
}
