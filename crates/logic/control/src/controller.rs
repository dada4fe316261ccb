//! The controller as a state machine: [`Controller::step`] takes an event and returns actions.

use plimsoll_model::{BackendId, MethodKind, Nanos};

use crate::backend::Backend;
use crate::belief::knowledge::Knowledge;
use crate::belief::typical::{self, Typical};
use crate::commit::commitment::Commitment;
use crate::event::{Action, Event, Record, RecordKind};
use crate::experiments::Experiments;
use crate::gate::pace::Gate;
use crate::gate::phase::PhaseState;
use crate::memory::Memory;
use crate::observe::balancer::Balancer;
use crate::observe::pool::PoolTraffic;
use crate::process::Process;
use crate::propose::proposals::Proposals;
use crate::show::advice::{Advisor, Asked};
use crate::show::view::Phase;
use crate::spec::ServiceSpec;
use crate::tuning::control::controller::{LIVELY, REFITS, UNHURRIED};
use crate::tuning::observe::reports::STALE;
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
            controller.recall(memory);
        }
        controller
    }

    /// Processes an event and returns the actions that follow from it.
    pub fn step(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.process.note_step(now);
        let is_tick = matches!(event, Event::Tick);
        match event {
            Event::Tick => {}
            Event::Balancer(report) => self.on_report(now, &report, &mut out),
            Event::BalancerLost { reason, conflict } => self.on_lost(reason, conflict, &mut out),
            Event::BalancersDegraded(degraded) => self.on_degraded(degraded, &mut out),
            Event::Probe { backend, outcome, latency_us, .. } => {
                self.on_probe(now, backend, outcome, latency_us, &mut out);
            }
            Event::Liveness { backend, successes, failure, started } => {
                self.on_liveness(now, backend, successes, failure, started, &mut out);
            }
            Event::Applied(applied) => self.on_applied(now, &applied, &mut out),
            Event::ApplyFailed { epoch, reason, retryable } => {
                self.on_apply_failed(now, epoch, reason, retryable, &mut out);
            }
            Event::Reconfigured(spec) => self.on_reconfigured(now, *spec, &mut out),
            Event::Stopping => {
                self.leave(now, &mut out);
                return out;
            }
        }
        self.act(now, is_tick, &mut out);
        if self.process.is_save_due(now) {
            out.push(Action::SaveMemory);
        }
        self.ask(&mut out, now);
        out
    }

    /// Whether the balancer uses weights and they may be programmed now.
    pub(crate) fn may_steer(&self) -> bool {
        !self.spec.observe
            && !self.balancer.is_in_conflict()
            && self.balancer.kind() != MethodKind::NoLiveWeights
    }

    pub(crate) fn get(&mut self, id: BackendId) -> Option<&mut Backend> {
        self.backends.iter_mut().find(|b| b.id == id)
    }

    /// Estimates that are typical of the pool's backends.
    pub(crate) fn typical(&self) -> Typical {
        let known = || self.backends.iter().map(|b| &b.knowledge);
        Typical {
            variability: typical::variability(known().filter_map(Knowledge::own_variability)),
            dispersion: typical::dispersion(
                known().filter_map(|k| Some((!k.is_lower_bound(), k.own_dispersion()?))),
            ),
            quotas: known().any(Knowledge::is_held),
        }
    }

    /// Once per window of a second: refits curves, judges errors and looks for changes.
    pub(crate) fn on_window(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.traffic.note_latencies(self.backends.iter().filter_map(|b| b.recent.latency_us));
        let choice = self.spec.curve;
        // In a large pool the backends take turns, so that no step takes long.
        let settled = self.phase.is_packed();
        let turns_at_most = self.backends.len().div_ceil(REFITS).max(1);
        let turns = turns_at_most * if settled { UNHURRIED } else { 1 };
        let factor = self.spec.latency_factor;
        let typical = self.typical();
        // A curve that no decision will read before the next window need not be refitted.
        let due = self.gate.is_due(now + WINDOW) || self.is_in_distress();
        for (i, b) in self.backends.iter_mut().enumerate() {
            let lively = b.pin.is_some()
                || b.is_over_utilised(factor)
                || b.changed.is_some_and(|(at, _)| now.since(at) < LIVELY)
                || self.phase.is(Phase::Exploring);
            let turns = if lively { turns_at_most } else { turns };
            if (due || !lively) && (i + self.traffic.windows()).is_multiple_of(turns) {
                b.knowledge.refit(choice, typical);
            }
        }
        self.eject_failing(now, out);
        self.correct_underestimates(now, out);
        self.refresh(now, out);
        self.hurry(now);
    }

    fn on_lost(&mut self, reason: String, conflict: bool, out: &mut Vec<Action>) {
        if self.balancer.lose(reason.clone(), conflict) {
            let kind = if conflict { RecordKind::Warning } else { RecordKind::Balancer };
            record(out, kind, None, reason);
        }
        // The plan that was under way has to be sent again.
        if self.commitment.abandon() || conflict {
            self.commitment.owe("the balancer can be steered again");
        }
    }

    /// The others are steered on: it is recorded and shown, and nothing waits for it.
    fn on_degraded(&mut self, reason: Option<String>, out: &mut Vec<Action>) {
        if !self.balancer.set_degraded(reason.clone()) {
            return;
        }
        let back = || (RecordKind::Balancer, "all balancers are there again".to_owned());
        let (kind, line) = reason.map_or_else(back, |why| (RecordKind::Warning, why));
        record(out, kind, None, line);
    }

    /// Runs one more slice of the comparison with the balancer's other kind of method.
    pub(crate) fn advise(&mut self, now: Nanos) {
        let (kind, rate_rps) = (self.balancer.kind(), self.traffic.rate());
        let asked = Asked { spec: &self.spec, backends: &self.backends, kind, rate_rps };
        let settled = self.phase.is(Phase::Steady) || self.phase.is(Phase::Observing);
        if !self.advisor.advance(now, asked) && settled && !self.proposals.is_searching() {
            self.advisor.begin(now, asked);
        }
    }

    pub(crate) fn on_probe(
        &mut self,
        now: Nanos,
        id: BackendId,
        outcome: plimsoll_model::Outcome,
        latency_us: f64,
        out: &mut Vec<Action>,
    ) {
        // While no backend has ever answered as expected, the URL is wrong and not the backend.
        let watches = self.watches();
        let judged = self.backends.iter().any(|b| b.health.ever_worked());
        let Some(b) = self.get(id) else { return };
        b.note_probe(outcome, latency_us);
        let mut change = None;
        if outcome == plimsoll_model::Outcome::Success {
            let began = Nanos(now.0.saturating_sub((latency_us * 1e3) as u64));
            if b.was_idle_from(began) {
                b.knowledge.observe_unloaded(latency_us);
            }
            if watches && b.is_usable() && b.was_unloaded_from(began) {
                change = b.watch_probe(now, latency_us);
            }
        }
        // Answers to clients are stronger evidence than a probe.
        let doubted = b.life.answered_within(now, STALE) && !b.health.is_failing_fast();
        let turn = b.health.work(now, outcome, judged && !doubted);
        self.on_turn(now, id, turn, out);
        if let Some(change) = change {
            self.on_change(now, id, change, out);
        }
        let all_fail = self.backends.iter().all(|b| b.health.work_failure().is_some());
        if all_fail && !judged && self.process.may_warn_of_url() {
            let line = "the work URL fails on every backend: are probe.path and probe.expect right? \
                        No backend is taken out of service for it";
            record(out, RecordKind::Warning, None, line.to_owned());
        }
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
