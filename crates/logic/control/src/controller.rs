//! The state machine: events in, actions out.

use std::time::Duration;

use plimsoll_model::{Applied, BackendId, BalancerReport, Method, MethodKind, Nanos, ServerStatus};

use crate::backend::Backend;
use crate::event::{Action, Event, Record, RecordKind};
use crate::health::Turn;
use crate::knowledge::Setting;
use crate::memory::Memory;
use crate::paper::PaperRun;
use crate::plan::Decision;
use crate::search::Search;
use crate::spec::ServiceSpec;
use crate::trial::{PoolHistory, PoolWindow, Rejected, Trial};
use crate::view::{Advice, Phase};

/// A report older than this is no ground for a plan.
const STALE: Duration = Duration::from_secs(2);
/// A plan that the sink has not answered for so long counts as lost.
const UNANSWERED: Duration = Duration::from_secs(5);
/// How fast the least response time is forgotten, per second: a service can become slower for good.
const TYPICAL_CREEP: f64 = 1.002;
/// What was learned is kept this often, besides after every plan.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// Somebody who changes our weights back more often than this within a minute is fighting us.
const FOREIGN_LIMIT: u32 = 5;

/// A plan that was sent and not yet answered.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub epoch: u64,
    pub sent_at: Nanos,
    pub decision: Decision,
    pub before: Vec<(BackendId, u32)>,
    pub on_trial: bool,
}

/// Why a plan cannot wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Urgent {
    /// A backend fails, returns, joins or leaves, or an administrator took it.
    Pool(String),
    /// The balancer does not hold what we want.
    Reassert(String),
}

/// The controller of one service.
pub struct Controller {
    pub(crate) spec: ServiceSpec,
    pub(crate) backends: Vec<Backend>,
    pub(crate) phase: Phase,
    pub(crate) epoch: u64,
    pub(crate) method: Option<Method>,
    pub(crate) generation: Option<u64>,
    pub(crate) trouble: Option<String>,
    /// Only an administrator can help: nothing is programmed until the trouble is gone.
    pub(crate) conflict: bool,
    pub(crate) seen_at: Option<Nanos>,
    pub(crate) began_at: Nanos,
    pub(crate) history: PoolHistory,
    /// What the pool's quicker backends need for a request, microseconds.
    typical_us: Option<f64>,
    /// Since when weights and pool are as they are: windows that began before do not count as steady.
    pub(crate) calm_since: Nanos,
    pub(crate) decision: Option<Decision>,
    pub(crate) decision_reason: String,
    pub(crate) pending: Option<Pending>,
    pub(crate) urgent: Option<Urgent>,
    pub(crate) next_decision: Nanos,
    pub(crate) last_program: Option<Nanos>,
    pub(crate) explored_since: Nanos,
    pub(crate) settled: u32,
    /// Rounds of learning under an in-flight method.
    pub(crate) rounds: u64,
    pub(crate) trial: Option<Trial>,
    pub(crate) rejected: Rejected,
    pub(crate) search: Option<(Search, &'static str)>,
    pub(crate) advice: Option<Advice>,
    pub(crate) advise_at: Nanos,
    pub(crate) advice_search: Option<Search>,
    pub(crate) paper: Option<PaperRun>,
    pub(crate) saved_at: Nanos,
    pub(crate) seed: u64,
    foreign: (Nanos, u32),
    warned_url: bool,
    pub(crate) warned_all_failed: bool,
    /// Weights from before a restart of ours, asserted at the first report.
    pub(crate) resume: Option<Vec<(BackendId, u32)>>,
}

impl Controller {
    /// A controller for this service, with what an earlier one knew. `seed` drives the model's luck.
    pub fn new(spec: ServiceSpec, memory: Option<Memory>, now: Nanos, seed: u64) -> Self {
        let backends = spec.backends.iter().map(Backend::new).collect();
        let phase = if spec.observe { Phase::Observing } else { Phase::Exploring };
        let mut controller = Controller {
            spec,
            backends,
            phase,
            epoch: 0,
            method: None,
            generation: None,
            trouble: Some("the balancer has not been read yet".to_owned()),
            conflict: false,
            seen_at: None,
            began_at: now,
            history: PoolHistory::default(),
            typical_us: None,
            calm_since: now,
            decision: None,
            decision_reason: "nothing was decided yet".to_owned(),
            pending: None,
            urgent: None,
            next_decision: now,
            last_program: None,
            explored_since: now,
            settled: 0,
            rounds: 0,
            trial: None,
            rejected: Rejected::default(),
            search: None,
            advice: None,
            advise_at: now,
            advice_search: None,
            paper: None,
            saved_at: now,
            seed,
            foreign: (now, 0),
            warned_url: false,
            warned_all_failed: false,
            resume: None,
        };
        if let Some(memory) = memory {
            controller.recall(memory);
        }
        controller
    }

    /// Takes an event; says what to do.
    pub fn step(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        match event {
            Event::Tick => {}
            Event::Balancer(report) => self.on_report(now, &report, &mut out),
            Event::BalancerLost { reason, conflict } => self.on_lost(reason, conflict, &mut out),
            Event::Probe { backend, outcome, latency_us, .. } => {
                self.on_probe(now, backend, outcome, latency_us, &mut out);
            }
            Event::Liveness { backend, successes, failure, started } => {
                let turn = self.get(backend).and_then(|b| {
                    b.health.liveness(now, started, successes, failure)
                });
                self.on_turn(now, backend, turn, &mut out);
            }
            Event::Applied(applied) => self.on_applied(now, &applied, &mut out),
            Event::ApplyFailed { epoch, reason, retryable } => {
                self.on_apply_failed(now, epoch, reason, retryable, &mut out);
            }
            Event::Reconfigured(spec) => self.on_reconfigured(now, *spec, &mut out),
        }
        self.act(now, &mut out);
        if now.since(self.saved_at) >= SAVE_EVERY {
            self.saved_at = now;
            out.push(Action::SaveMemory);
        }
        self.adapt_probing(&mut out);
        out
    }

    /// Whether weights mean something to this balancer and may be programmed now.
    pub(crate) fn may_steer(&self) -> bool {
        !self.spec.observe && !self.conflict && self.kind() != MethodKind::NoLiveWeights
    }

    /// How the balancer picks; a split until it is known.
    pub(crate) fn kind(&self) -> MethodKind {
        self.method.as_ref().map_or(MethodKind::Split, |m| m.kind)
    }

    pub(crate) fn is_fresh(&self, now: Nanos) -> bool {
        self.seen_at.is_some_and(|at| now.since(at) < STALE)
    }

    pub(crate) fn get(&mut self, id: BackendId) -> Option<&mut Backend> {
        self.backends.iter_mut().find(|b| b.id == id)
    }

    pub(crate) fn set_phase(&mut self, phase: Phase, why: &str, out: &mut Vec<Action>) {
        if self.phase != phase {
            self.phase = phase;
            let word = match phase {
                Phase::Exploring => "exploring",
                Phase::Steady => "steady",
                Phase::ShortOfCapacity => "short of capacity",
                Phase::Observing => "observing",
            };
            record(out, RecordKind::Phase, None, format!("{word}: {why}"));
        }
    }

    fn on_report(&mut self, now: Nanos, report: &BalancerReport, out: &mut Vec<Action>) {
        self.note_method(report, out);
        let restarted = self.generation.is_some_and(|g| g != report.generation);
        if restarted {
            record(out, RecordKind::Balancer, None, "the balancer was restarted or reloaded".into());
            self.backends.iter_mut().for_each(|b| b.meter.reset());
            self.history.clear();
            self.calm_since = now;
            self.trial = None;
            self.pending = None;
            self.urgent = Some(Urgent::Reassert("the balancer forgot its weights".to_owned()));
        }
        self.generation = Some(report.generation);
        if let Some(trouble) = self.trouble.take() {
            if self.seen_at.is_some() {
                let line = format!("the balancer answers again (was: {trouble})");
                record(out, RecordKind::Balancer, None, line);
            }
            self.conflict = false;
        }
        self.seen_at = Some(now);
        let steady = self.is_calm(now);
        let mut pool = PoolWindow { at: now, seconds: 0.0, started: 0.0, in_flight: 0.0 };
        let typical_us = self.typical_us;
        // What a weight comes to: its part of the sum, of the traffic there is.
        let sum: f64 = report.servers.iter().map(|s| f64::from(s.weight)).sum();
        let per_weight = self.history.rate_rps().filter(|_| sum > 0.0).map(|rate| rate / sum);
        let is_split = report.method.kind == MethodKind::Split;
        let mut changed = Vec::new();
        let mut foreign = None;
        let expects = self.pending.is_none() && !restarted;
        for server in &report.servers {
            let Some(b) = self.backends.iter_mut().find(|b| b.id == server.backend) else {
                continue;
            };
            if expects && b.programmed.is_some_and(|w| w != server.weight) {
                foreign = Some((b.name.clone(), b.programmed.unwrap_or(0), server.weight));
            }
            b.programmed = Some(server.weight);
            b.in_flight = server.in_flight;
            let was_reserved = b.is_reserved();
            b.status = Some(server.status);
            if b.is_reserved() != was_reserved {
                changed.push((b.name.clone(), b.is_reserved()));
                if was_reserved {
                    b.ramping_since = Some(now);
                }
            }
            if let Some(window) = b.meter.observe(report.at, server) {
                pool.seconds = window.seconds;
                pool.started += window.started;
                pool.in_flight += window.in_flight;
                let rps = per_weight.map(|rps| rps * f64::from(server.weight));
                let setting = rps.map(|rps| Setting { rps, is_split });
                b.observe(&window, steady, setting, typical_us);
            }
        }
        for server in &report.servers {
            let down = server.status == ServerStatus::Down;
            let turn = self.get(server.backend).and_then(|b| b.health.balancer(now, down));
            self.on_turn(now, server.backend, turn, out);
        }
        for (name, reserved) in changed {
            let why = if reserved { "taken out" } else { "given back" };
            let reason = format!("{why} by an administrator");
            let kind = if reserved { RecordKind::Left } else { RecordKind::Returned };
            record(out, kind, Some(&name), reason);
            self.urgent = Some(Urgent::Pool(format!("{name} was {why} by an administrator")));
        }
        if let Some((name, ours, theirs)) = foreign {
            self.on_foreign(now, &name, ours, theirs, out);
        }
        if pool.seconds > 0.0 {
            self.history.push(pool);
            self.on_window(now, out);
        }
    }

    /// Response time of the pool's quicker backends when it was at its least, microseconds: near their
    /// time at rest, which an overloaded backend does not show.
    fn note_typical_service(&mut self) {
        let mut all: Vec<f64> =
            self.backends.iter().filter_map(|b| b.recent.latency_us).collect();
        all.sort_by(f64::total_cmp);
        if let Some(&quick) = all.get(all.len() / 4) {
            let held = self.typical_us.map_or(f64::INFINITY, |us| us * TYPICAL_CREEP);
            self.typical_us = Some(quick.min(held));
        }
    }

    fn note_method(&mut self, report: &BalancerReport, out: &mut Vec<Action>) {
        if self.method.as_ref() == Some(&report.method) {
            return;
        }
        let name = &report.method.name;
        match report.method.kind {
            MethodKind::NoLiveWeights => {
                let reason = format!(
                    "`{name}` takes no weights while it runs: use roundrobin, leastconn, random or a \
                     consistent hash"
                );
                record(out, RecordKind::Warning, None, reason);
                self.set_phase(Phase::Observing, "the balancer takes no live weights", out);
            }
            kind => {
                let means = if kind == MethodKind::Split { "split traffic" } else { "scale what is in flight" };
                record(out, RecordKind::Balancer, None, format!("`{name}`: weights {means}"));
                if self.method.is_some() && !self.spec.observe {
                    self.set_phase(Phase::Exploring, "the balancer's method changed", out);
                    self.settled = 0;
                }
            }
        }
        self.search = None;
        self.advice = None;
        self.method = Some(report.method.clone());
    }

    fn on_foreign(
        &mut self,
        now: Nanos,
        name: &str,
        ours: u32,
        theirs: u32,
        out: &mut Vec<Action>,
    ) {
        if now.since(self.foreign.0) > Duration::from_secs(60) {
            self.foreign = (now, 0);
        }
        self.foreign.1 += 1;
        let reason = format!("somebody set its weight from {ours} to {theirs}");
        record(out, RecordKind::Foreign, Some(name), reason);
        self.trial = None;
        if self.foreign.1 <= FOREIGN_LIMIT {
            self.urgent = Some(Urgent::Reassert(format!("somebody else changed {name}")));
        } else if self.foreign.1 == FOREIGN_LIMIT + 1 {
            let line = "somebody keeps changing our weights: they are asserted at the usual pace only";
            record(out, RecordKind::Warning, None, line.to_owned());
        }
    }

    /// Once a window, with the traffic of a whole second: errors are judged and curves drawn anew.
    fn on_window(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.note_typical_service();
        let choice = self.spec.curve;
        self.backends.iter_mut().for_each(|b| b.knowledge.refit(choice));
        self.eject_failing(now, out);
        self.paper_window(now);
        self.hurry(now);
    }

    /// Takes out the backend with the most errors, if the others are well and can bear its load.
    fn eject_failing(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let usable: Vec<&Backend> = self.backends.iter().filter(|b| b.is_usable()).collect();
        let Some(worst) = usable
            .iter()
            .filter(|b| b.health.is_failing_fast())
            .max_by(|a, b| a.health.error_share().total_cmp(&b.health.error_share()))
        else {
            return;
        };
        let id = worst.id;
        let well = usable.iter().filter(|b| !b.health.is_failing_fast()).count();
        let room: f64 = usable
            .iter()
            .filter(|b| b.id != id && !b.health.is_failing_fast())
            .filter_map(|b| b.knowledge.capacity_rps())
            .sum();
        let total_failure = worst.health.error_share() > 0.5;
        let spare = room > self.history.rate_rps().unwrap_or(0.0);
        // Where all give errors, the fault is not a backend's.
        if well * 2 < usable.len() || !(spare || total_failure) {
            return;
        }
        let turn = self.get(id).and_then(|b| b.health.eject(now));
        self.on_turn(now, id, turn, out);
    }

    fn on_lost(&mut self, reason: String, conflict: bool, out: &mut Vec<Action>) {
        if self.trouble.as_ref() != Some(&reason) {
            let kind = if conflict { RecordKind::Warning } else { RecordKind::Balancer };
            record(out, kind, None, reason.clone());
        }
        self.trouble = Some(reason);
        self.conflict = conflict;
        self.pending = None;
    }

    fn on_probe(
        &mut self,
        now: Nanos,
        id: BackendId,
        outcome: plimsoll_model::Outcome,
        latency_us: f64,
        out: &mut Vec<Action>,
    ) {
        // As long as nobody ever answered as expected, it is the URL that is wrong.
        let judged = self.backends.iter().any(|b| b.health.ever_worked());
        let Some(b) = self.get(id) else { return };
        let idle = b.recent.rate_rps < 0.05 * b.knowledge.capacity_rps().unwrap_or(1.0);
        if outcome == plimsoll_model::Outcome::Success && idle {
            b.knowledge.observe_at_rest(latency_us);
        }
        let turn = b.health.work(now, outcome, judged);
        self.on_turn(now, id, turn, out);
        let all_fail = self.backends.iter().all(|b| b.health.work_failure().is_some());
        if all_fail && !judged && !self.warned_url {
            self.warned_url = true;
            let line = "the work URL fails on every backend: are probe.path and probe.expect right? \
                        Nobody is taken out for it";
            record(out, RecordKind::Warning, None, line.to_owned());
        }
    }

    fn on_turn(&mut self, now: Nanos, id: BackendId, turn: Option<Turn>, out: &mut Vec<Action>) {
        let Some(turn) = turn else { return };
        let Some(b) = self.get(id) else { return };
        let name = b.name.clone();
        match turn {
            Turn::Failed(cause) => {
                b.ramping_since = None;
                let why = cause.describe();
                record(out, RecordKind::Failed, Some(&name), why.clone());
                self.urgent = Some(Urgent::Pool(format!("{name} failed: {why}")));
            }
            Turn::Returned => {
                b.ramping_since = Some(now);
                record(out, RecordKind::Returned, Some(&name), "it serves again".to_owned());
                self.urgent = Some(Urgent::Pool(format!("{name} is back")));
                self.warned_all_failed = false;
            }
        }
        self.trial = None;
        self.search = None;
    }

    fn on_applied(&mut self, now: Nanos, applied: &Applied, out: &mut Vec<Action>) {
        for &(id, weight) in &applied.weights {
            if let Some(b) = self.get(id) {
                b.programmed = Some(weight);
            }
        }
        let Some(pending) = self.pending.take_if(|p| p.epoch == applied.epoch) else { return };
        let missed = pending.decision.wishes.iter().find_map(|w| {
            let held = applied.weights.iter().find(|(id, _)| *id == w.id).map(|(_, held)| *held);
            (held != Some(w.weight)).then_some(w.id)
        });
        if let Some(name) = missed.and_then(|id| self.get(id).map(|b| b.name.clone())) {
            let line = "the balancer holds another weight than it was given".to_owned();
            record(out, RecordKind::Warning, Some(&name), line);
        }
        if applied.commands > 0 {
            self.trial = pending.on_trial.then(|| {
                let shares = pending.decision.shares();
                Trial::new(now, &self.history, self.calm_since, pending.before, shares)
            });
            // No window may span the change: it would show a mixture.
            self.backends.iter_mut().for_each(|b| b.meter.reset());
            self.calm_since = now;
            self.last_program = Some(now);
            out.push(Action::SaveMemory);
        }
    }

    fn on_apply_failed(
        &mut self,
        now: Nanos,
        epoch: u64,
        reason: String,
        retryable: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(_) = self.pending.take_if(|p| p.epoch == epoch) else { return };
        let line = format!("plan {epoch} was not programmed: {reason}");
        record(out, RecordKind::Warning, None, line);
        self.urgent = Some(Urgent::Reassert("the last plan was not programmed".to_owned()));
        self.last_program = Some(now);
        if !retryable {
            self.trouble = Some(reason);
            self.conflict = true;
        }
    }

    fn on_reconfigured(&mut self, now: Nanos, spec: ServiceSpec, out: &mut Vec<Action>) {
        for b in &self.backends {
            if !spec.backends.iter().any(|s| s.id == b.id) {
                record(out, RecordKind::Left, Some(&b.name), "no longer configured".to_owned());
            }
        }
        let mut kept: Vec<Backend> = std::mem::take(&mut self.backends);
        let mut all = Vec::with_capacity(spec.backends.len());
        for s in &spec.backends {
            match kept.iter().position(|b| b.id == s.id) {
                Some(i) => {
                    let mut b = kept.swap_remove(i);
                    b.name.clone_from(&s.name);
                    all.push(b);
                }
                None => {
                    let mut b = Backend::new(s);
                    b.ramping_since = Some(now);
                    record(out, RecordKind::Joined, Some(&s.name), "newly configured".to_owned());
                    all.push(b);
                }
            }
        }
        self.backends = all;
        if spec.observe {
            self.set_phase(Phase::Observing, "asked to observe", out);
        } else {
            self.set_phase(Phase::Exploring, "the configuration changed", out);
        }
        self.explored_since = now;
        self.settled = 0;
        self.search = None;
        self.trial = None;
        self.paper = None;
        self.pending = None;
        self.spec = spec;
        self.urgent = Some(Urgent::Pool("the configuration changed".to_owned()));
    }

    /// Whether queues have had the time to follow the last change.
    fn is_calm(&self, now: Nanos) -> bool {
        let mean_s = self.history.mean_us().unwrap_or(0.0) / 1e6;
        let settle = Duration::from_secs_f64((2.0 + 3.0 * mean_s).min(20.0));
        now.since(self.calm_since) >= settle
    }

    pub(crate) fn drop_lost_plan(&mut self, now: Nanos) {
        if self.pending.as_ref().is_some_and(|p| now.since(p.sent_at) > UNANSWERED) {
            self.pending = None;
        }
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
