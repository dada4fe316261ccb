//! The controller as a state machine: [`Controller::step`] takes an event and returns actions.

use std::time::Duration;

use plimsoll_model::{BackendId, Method, MethodKind, Nanos, Traffic};

use crate::backend::Backend;
use crate::belief::knowledge::Knowledge;
use crate::belief::typical::{self, Typical};
use crate::commit::plan::Decision;
use crate::event::{Action, Event, Record, RecordKind};
use crate::experiments::drain::DrainTimes;
use crate::experiments::refresh::Refresh;
use crate::gate::trial::{PoolHistory, Rejected, Trial};
use crate::memory::Memory;
use crate::observe::traffic::{WINDOW, WindowClock};
use crate::propose::search::{Question, Search, Searched};
use crate::show::view::{Advice, Phase};
use crate::spec::ServiceSpec;

/// No plan is made from a report older than this.
pub(crate) const STALE: Duration = Duration::from_secs(2);
/// A plan without an answer from the sink for this long counts as lost.
const UNANSWERED: Duration = Duration::from_secs(5);
/// Factor per second by which the remembered peak decays: half after twelve minutes.
const PEAK_FADES: f64 = 0.999;
/// The most estimates refitted per window of a second.
const REFITS: usize = 100;
/// A backend that changed is refitted in every window for this long.
const LIVELY: Duration = Duration::from_secs(60);
/// A known curve changes little: in a settled pool it is refitted once in this many windows.
const UNHURRIED: usize = 20;
/// Pause after a failed plan; doubled with every further failure, up to the second constant.
pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(200);
pub(crate) const LAST_RETRY: Duration = Duration::from_secs(5);
/// Without any event for this long the process itself had no CPU time: time-outs of that period prove
/// nothing. (Ticks come every 50 to 200 ms.)
const STALL: Duration = Duration::from_millis(500);
/// Interval at which the memory is saved, besides after every plan.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// A plan that was sent and is not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub epoch: u64,
    pub sent_at: Nanos,
    pub decision: Decision,
    pub before: Vec<(BackendId, u32)>,
    pub on_trial: bool,
    /// It corrects the last plan for backlogs (`propose::backlog`).
    pub corrects: bool,
}

/// Why a plan cannot wait for the next round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Urgent {
    /// A backend failed, returned, joined or left, or an administrator drained it or put it back.
    Pool(String),
    /// A backend is set aside or restored.
    Silence(String),
    /// Another party gave weight to a failed backend: clients get errors, but the pool has not changed.
    Refilled(String),
    /// A backend's service rate has changed.
    Drift(String),
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
    /// Why some of several balancers cannot be steered, while the others are.
    pub(crate) degraded: Option<String>,
    /// Only an administrator can resolve the trouble: until then nothing is programmed.
    pub(crate) conflict: bool,
    pub(crate) seen_at: Option<Nanos>,
    pub(crate) began_at: Nanos,
    pub(crate) history: PoolHistory,
    pub(crate) window_clock: WindowClock,
    /// Unloaded service time that is typical of the pool's faster backends, microseconds.
    pub(crate) typical_us: Option<f64>,
    /// How the numbers of requests in the last report came about.
    pub(crate) traffic: Traffic,
    /// Since when weights and pool are unchanged: windows that began earlier do not count as steady.
    pub(crate) calm_since: Nanos,
    pub(crate) decision: Option<Decision>,
    pub(crate) decision_reason: String,
    pub(crate) decided_at: Option<Nanos>,
    pub(crate) pending: Option<Pending>,
    pub(crate) urgent: Option<Urgent>,
    /// Why the balancer does not hold the wanted weights, if so. Kept apart from `urgent`, because an urgent reason
    /// may be dropped without a plan and must not take this one with it.
    pub(crate) reassert: Option<String>,
    pub(crate) next_decision: Nanos,
    pub(crate) last_program: Option<Nanos>,
    /// After failed plans: the earliest time of the next one, and the length of the next pause.
    pub(crate) retry_at: Nanos,
    pub(crate) retry_after: Duration,
    pub(crate) explored_since: Nanos,
    pub(crate) settled: u32,
    /// Rounds of learning under an in-flight method.
    pub(crate) rounds: u64,
    /// Windows closed so far.
    pub(crate) windows: usize,
    /// Decaying peak of the traffic, requests per second.
    pub(crate) peak_rps: f64,
    pub(crate) trial: Option<Trial>,
    pub(crate) rejected: Rejected,
    pub(crate) search: Option<Search>,
    /// The last search that was completed.
    pub(crate) searched: Option<Searched>,
    pub(crate) advised: Option<Question>,
    pub(crate) advice: Option<Advice>,
    /// See [`crate::PlanView::several_cost`].
    pub(crate) several_cost: Option<f64>,
    pub(crate) advise_at: Nanos,
    pub(crate) advice_search: Option<Search>,
    /// A pin was set or removed: the next decision is programmed whatever gain it promises.
    pub(crate) pins_changed: bool,
    pub(crate) refreshes: Vec<Refresh>,
    pub(crate) drain: DrainTimes,
    pub(crate) saved_at: Nanos,
    last_step: Nanos,
    /// When this process last had no CPU time for longer than [`STALL`].
    pub(crate) stalled_at: Nanos,
    pub(crate) seed: u64,
    /// When the current minute of foreign weight changes began, and how many it had.
    pub(crate) foreign: (Nanos, u32),
    /// Another party keeps changing weights: until then they are not programmed again.
    pub(crate) foreign_until: Nanos,
    warned_url: bool,
    pub(crate) warned_all_failed: bool,
    /// The weights from before a restart of this process, programmed at the first report.
    pub(crate) resume: Option<Vec<(BackendId, u32)>>,
}

impl Controller {
    /// A controller for this service, with the memory of an earlier one. `seed` seeds the model's random numbers.
    pub fn new(spec: ServiceSpec, memory: Option<Memory>, now: Nanos, seed: u64) -> Self {
        let backends = spec.backends.iter().map(|b| Backend::new(b, spec.slow_start)).collect();
        let phase = if spec.observe { Phase::Observing } else { Phase::Exploring };
        let mut controller = Controller {
            spec,
            backends,
            phase,
            epoch: 0,
            method: None,
            generation: None,
            trouble: Some("the balancer has not been read yet".to_owned()),
            degraded: None,
            conflict: false,
            seen_at: None,
            began_at: now,
            history: PoolHistory::default(),
            window_clock: WindowClock::default(),
            typical_us: None,
            calm_since: now,
            decision: None,
            decision_reason: "no decision has been made yet".to_owned(),
            decided_at: None,
            pending: None,
            urgent: None,
            reassert: None,
            next_decision: now,
            last_program: None,
            retry_at: now,
            retry_after: FIRST_RETRY,
            explored_since: now,
            settled: 0,
            rounds: 0,
            windows: 0,
            peak_rps: 0.0,
            trial: None,
            rejected: Rejected::default(),
            search: None,
            searched: None,
            advised: None,
            advice: None,
            several_cost: None,
            traffic: Traffic::default(),
            advise_at: now,
            advice_search: None,
            pins_changed: false,
            refreshes: Vec::new(),
            drain: DrainTimes::default(),
            saved_at: now,
            last_step: now,
            stalled_at: now,
            seed,
            foreign: (now, 0),
            foreign_until: now,
            warned_url: false,
            warned_all_failed: false,
            resume: None,
        };
        if let Some(memory) = memory {
            controller.recall(memory);
        }
        controller
    }

    /// Processes an event and returns the actions that follow from it.
    pub fn step(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        if now.since(self.last_step) > STALL {
            self.stalled_at = now;
        }
        self.last_step = now;
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
        if now.since(self.saved_at) >= SAVE_EVERY {
            self.saved_at = now;
            out.push(Action::SaveMemory);
        }
        self.ask(&mut out, now);
        out
    }

    /// Whether the balancer uses weights and they may be programmed now.
    pub(crate) fn may_steer(&self) -> bool {
        !self.spec.observe && !self.conflict && self.kind() != MethodKind::NoLiveWeights
    }

    /// The kind of the balancer's method; a split until it is known.
    pub(crate) fn kind(&self) -> MethodKind {
        self.method.as_ref().map_or(MethodKind::Split, |m| m.kind)
    }

    /// Keeps the more urgent of two reasons: its decision covers the other one as well.
    pub(crate) fn raise(&mut self, urgent: Urgent) {
        let rank = |urgent: &Urgent| match urgent {
            Urgent::Pool(_) => 3,
            Urgent::Silence(_) => 2,
            Urgent::Refilled(_) => 1,
            Urgent::Drift(_) => 0,
        };
        if self.urgent.as_ref().is_none_or(|held| rank(&urgent) >= rank(held)) {
            self.urgent = Some(urgent);
        }
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
        self.note_typical_service();
        let choice = self.spec.curve;
        // In a large pool the backends take turns, so that no step takes long.
        let settled = matches!(self.phase, Phase::Steady | Phase::ShortOfCapacity);
        let turns_at_most = self.backends.len().div_ceil(REFITS).max(1);
        let turns = turns_at_most * if settled { UNHURRIED } else { 1 };
        let factor = self.spec.latency_factor;
        self.windows += 1;
        let rate = self.history.rate_rps().unwrap_or(0.0);
        self.peak_rps = rate.max(self.peak_rps * PEAK_FADES);
        let typical = self.typical();
        // A curve that no decision will read before the next window need not be refitted.
        let due = self.next_decision <= now + WINDOW || self.is_in_distress();
        for (i, b) in self.backends.iter_mut().enumerate() {
            let lively = b.pin.is_some()
                || b.is_over_utilised(factor)
                || b.changed.is_some_and(|(at, _)| now.since(at) < LIVELY)
                || self.phase == Phase::Exploring;
            let turns = if lively { turns_at_most } else { turns };
            if (due || !lively) && (i + self.windows).is_multiple_of(turns) {
                b.knowledge.refit(choice, typical);
            }
        }
        self.eject_failing(now, out);
        self.correct_underestimates(now, out);
        self.refresh(now, out);
        self.hurry(now);
    }

    fn on_lost(&mut self, reason: String, conflict: bool, out: &mut Vec<Action>) {
        if self.trouble.as_ref() != Some(&reason) {
            let kind = if conflict { RecordKind::Warning } else { RecordKind::Balancer };
            record(out, kind, None, reason.clone());
        }
        self.trouble = Some(reason);
        self.conflict = conflict;
        // The plan that was under way has to be sent again.
        if self.pending.take().is_some() || conflict {
            self.reassert = Some("the balancer can be steered again".to_owned());
        }
    }

    /// The others are steered on: it is said and shown, and nothing waits for it.
    fn on_degraded(&mut self, degraded: Option<String>, out: &mut Vec<Action>) {
        if self.degraded == degraded {
            return;
        }
        match &degraded {
            Some(why) => record(out, RecordKind::Warning, None, why.clone()),
            None => {
                record(out, RecordKind::Balancer, None, "all balancers are there again".to_owned());
            }
        }
        self.degraded = degraded;
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
        if all_fail && !judged && !self.warned_url {
            self.warned_url = true;
            let line = "the work URL fails on every backend: are probe.path and probe.expect right? \
                        No backend is taken out of service for it";
            record(out, RecordKind::Warning, None, line.to_owned());
        }
    }

    /// Whether queues have had time to follow the last change of weights.
    pub(crate) fn is_calm(&self, now: Nanos) -> bool {
        let mean_s = self.history.mean_us().unwrap_or(0.0) / 1e6;
        let guess = || Duration::from_secs_f64((2.0 + 3.0 * mean_s).min(20.0));
        let settle = self.drain.to_wait().unwrap_or_else(guess);
        now.since(self.calm_since) >= settle + self.traffic.lag()
    }

    pub(crate) fn drop_lost_plan(&mut self, now: Nanos) {
        if self.pending.as_ref().is_some_and(|p| now.since(p.sent_at) > UNANSWERED) {
            self.pending = None;
            // It is unknown whether the plan took effect.
            self.reassert = Some("the last plan got no answer from the balancer".to_owned());
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
