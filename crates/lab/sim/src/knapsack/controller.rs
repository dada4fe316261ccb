use std::ops::RangeInclusive;
use std::time::Duration;

use plimsoll_control::{Action, BackendSpec, Event, Phase, Record, RecordKind};
use plimsoll_model::{BackendId, BalancerReport, Nanos, Objective, Plan, PlanEntry, PlanKind};
use plimsoll_pack::{CurveBackend, CurveProblem, Effort, pack_two_step, round_to_range};

use super::climb::{Climb, ClimbError, ExploreMode, ExploreOptions};
use super::compare::{Judgement, PAPER_THRESHOLD, compare};
use super::schedule::{Member, Priority, Wanted, schedule};
use super::server::{Server, Sums};

/// How long weights are held to be measured, and the first part of that, which still shows the weights before (§6.1).
const ROUND: Duration = Duration::from_secs(10);
const SETTLING: Duration = Duration::from_secs(4);
/// Latencies are compared with the curves over this long at a time.
const WATCHED: Duration = Duration::from_secs(3);
/// How often backends are checked.
const CHECKS: Duration = Duration::from_secs(1);
/// No plan is made from a reading older than this, …
const STALE: Duration = Duration::from_secs(2);
/// … and one without an answer counts as lost after this.
const UNANSWERED: Duration = Duration::from_secs(5);
/// An exploration takes at most this many rounds. (The paper's take less than 20.)
const MOST_ROUNDS: u32 = 60;
/// Below this many requests in a round nothing is measured.
const LEAST_REQUESTS: f64 = 10.0;

/// KnapsackLB's controller, for balancers that split the traffic by weight.
pub struct Knapsack {
    servers: Vec<Server>,
    range: RangeInclusive<u32>,
    phase: Phase,
    checks: bool,
    epoch: u64,
    generation: Option<u64>,
    read_at: Option<Nanos>,
    /// The plan that is not answered yet, and when it was sent.
    pending: Option<(u64, Nanos)>,
    /// Since when the weights are in force.
    in_force: Option<Nanos>,
    /// What the balancer holds is not what was planned, or not for the backends that serve.
    is_due: bool,
    tickets: u64,
    rounds: u32,
    /// Requests per second when the pool had been explored, and what the traffic is taken to be relative to that.
    explored_rps: f64,
    traffic: f64,
}

impl Knapsack {
    /// A controller that has not seen the balancer yet. `range` is that of its weights.
    ///
    /// # Errors
    /// [`ClimbError`] where there is no backend.
    pub fn new(
        backends: &[BackendSpec],
        range: RangeInclusive<u32>,
        mode: ExploreMode,
    ) -> Result<Self, ClimbError> {
        // A weight of 1 is all of the traffic.
        let options = ExploreOptions { mode, useful_max: Some(1.0), ..ExploreOptions::default() };
        let first = 1.0 / backends.len() as f64;
        let server =
            |b: &BackendSpec| Ok(Server::new(b.id, b.name.clone(), Climb::new(first, options)?));
        Ok(Knapsack {
            servers: backends.iter().map(server).collect::<Result<_, _>>()?,
            range,
            phase: Phase::Exploring,
            checks: false,
            epoch: 0,
            generation: None,
            read_at: None,
            pending: None,
            in_force: None,
            is_due: true,
            tickets: 0,
            rounds: 0,
            explored_rps: 0.0,
            traffic: 1.0,
        })
    }

    /// Whether it explores, or is steady.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The traffic that it plans for, requests per second; 0 while it explores.
    pub fn planned_rps(&self) -> f64 {
        self.explored_rps * self.traffic
    }

    /// Processes an event and returns what follows from it.
    pub fn step(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.checks, true) {
            out.extend(self.servers.iter().map(|s| Action::CheckRate {
                backend: s.id,
                interval: Some(CHECKS),
                at_once: true,
            }));
        }
        match event {
            Event::Balancer(report) => self.on_report(&report),
            Event::Liveness { backend, successes, .. } => {
                self.on_check(backend, successes > 0, &mut out);
            }
            Event::Applied(applied) if self.is_pending(applied.epoch) => {
                (self.pending, self.in_force) = (None, Some(now));
                self.clear();
            }
            Event::ApplyFailed { epoch, .. } if self.is_pending(epoch) => {
                (self.pending, self.is_due) = (None, true);
            }
            Event::BalancerLost { .. } => (self.pending, self.is_due) = (None, true),
            Event::Tick => self.act(now, &mut out),
            _ => {}
        }
        out
    }

    fn is_pending(&self, epoch: u64) -> bool {
        self.pending.is_some_and(|(pending, _)| pending == epoch)
    }

    fn clear(&mut self) {
        self.servers.iter_mut().for_each(|s| s.sums = Sums::default());
    }

    fn on_report(&mut self, report: &BalancerReport) {
        if self.generation.replace(report.generation).is_some_and(|old| old != report.generation) {
            self.is_due = true;
        }
        self.read_at = Some(report.at);
        for s in &mut self.servers {
            let Some(of) = report.servers.iter().find(|r| r.backend == s.id) else { continue };
            let served = s.serves();
            s.note(report.at, of);
            self.is_due |= served != s.serves();
        }
        // Queues of the weights before drain first.
        if self.in_force.is_none_or(|since| report.at.since(since) < self.settling()) {
            self.clear();
        }
    }

    fn settling(&self) -> Duration {
        if self.phase == Phase::Exploring { SETTLING } else { WATCHED }
    }

    fn on_check(&mut self, id: BackendId, alive: bool, out: &mut Vec<Action>) {
        let Some(s) = self.servers.iter_mut().find(|s| s.id == id && s.alive != alive) else {
            return;
        };
        s.alive = alive;
        let (kind, words) = match alive {
            true => (RecordKind::Returned, "it answers checks again"),
            false => (RecordKind::Failed, "it does not answer a check"),
        };
        out.push(record(kind, Some(&s.name), words.to_owned()));
        self.is_due = true;
    }

    fn act(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if self.pending.is_some_and(|(_, sent)| now.since(sent) > UNANSWERED) {
            (self.pending, self.is_due) = (None, true);
        }
        let fresh = self.read_at.is_some_and(|at| now.since(at) < STALE);
        if !fresh || self.pending.is_some() || !self.servers.iter().any(Server::serves) {
            return;
        }
        let unexplored = |s: &Server| s.serves() && s.wanted().is_some();
        if self.phase == Phase::Steady && self.servers.iter().any(unexplored) {
            self.set_phase(Phase::Exploring, "a backend has not been explored", out);
            self.is_due = true;
        }
        if std::mem::take(&mut self.is_due) {
            return match self.phase {
                Phase::Exploring => self.next_round(now, out),
                _ => self.pack(now, PlanKind::Pool, "the pool has changed", out),
            };
        }
        let Some(since) = self.in_force else { return };
        let settled = now.since(since).saturating_sub(self.settling());
        match self.phase {
            Phase::Exploring if settled >= ROUND - SETTLING => self.end_round(now, out),
            Phase::Steady if settled >= WATCHED => self.watch(now, out),
            _ => {}
        }
    }

    fn end_round(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let (all, seconds) = self.counted();
        if all < LEAST_REQUESTS {
            self.in_force = Some(now);
            return;
        }
        self.explored_rps = all / seconds.max(1e-9);
        for s in self.servers.iter_mut().filter(|s| s.is_granted && s.serves()) {
            if s.measure(all) {
                self.tickets += 1;
                s.ticket = self.tickets;
            }
        }
        self.next_round(now, out);
    }

    /// Requests given to all backends under the weights in force, and in how many seconds.
    fn counted(&self) -> (f64, f64) {
        let sums = || self.servers.iter().map(|s| s.sums);
        (sums().map(|s| s.started).sum(), sums().map(|s| s.seconds).fold(0.0, f64::max))
    }

    fn next_round(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let serving = || self.servers.iter().filter(|s| s.serves());
        // As in the paper nothing bounds what the others take meanwhile; they share it by what is known of them.
        let member = |s: &Server| {
            let known = s.climb.w_max();
            let capacity = if known > 0.0 { known } else { s.share.max(1e-3) };
            Member { backend: s.id, bound: 1.0, capacity }
        };
        let wish = |s: &Server| {
            let priority = if s.is_overloaded { Priority::OverUtilised } else { Priority::Rest };
            Some(Wanted { backend: s.id, weight: s.wanted()?, priority, ticket: s.ticket })
        };
        let members: Vec<Member> = serving().map(member).collect();
        let wishes: Vec<Wanted> = serving().filter_map(wish).collect();
        let round = schedule(&members, &wishes);
        self.rounds += 1;
        let round = round.ok().filter(|round| !round.granted.is_empty());
        let Some(round) = round.filter(|_| !wishes.is_empty() && self.rounds <= MOST_ROUNDS) else {
            let why = match wishes.len() {
                0 => "the curve of every backend is known".to_owned(),
                n => format!("{n} backends still asked for weights after {MOST_ROUNDS} rounds"),
            };
            return self.end_exploring(now, &why, out);
        };
        for s in &mut self.servers {
            let given = round.weights.iter().find(|(id, _)| *id == s.id);
            s.share = given.map_or(0.0, |(_, share)| *share);
            s.is_granted = round.granted.contains(&s.id);
        }
        let (granted, waiting) = (round.granted.len(), round.waiting.len());
        let words = format!("exploring: {granted} backends measured, {waiting} waiting");
        self.program(now, PlanKind::Measuring, words, out);
    }

    fn end_exploring(&mut self, now: Nanos, why: &str, out: &mut Vec<Action>) {
        for s in self.servers.iter_mut().filter(|s| s.serves()) {
            s.climb.end();
            s.learn();
        }
        (self.rounds, self.traffic) = (0, 1.0);
        self.set_phase(Phase::Steady, why, out);
        self.pack(now, PlanKind::Packed, why, out);
    }

    /// Packs the curves into weights. Backends without a good weight get nothing; where none has one, all get the same.
    fn pack(&mut self, now: Nanos, kind: PlanKind, why: &str, out: &mut Vec<Action>) {
        let equal = 1.0 / self.servers.iter().filter(|s| s.serves()).count().max(1) as f64;
        let known = |s: &Server| s.serves() && s.most > 0.0 && s.curve.is_some();
        let backends: Vec<CurveBackend> = self
            .servers
            .iter()
            .filter(|s| known(s))
            .filter_map(|s| {
                Some(CurveBackend { curve: &s.curve.as_ref()?.curve, max_load: s.most })
            })
            .collect();
        let problem = CurveProblem { backends: &backends, total: 1.0, theta: None };
        match pack_two_step(&problem, Objective::Sum, &Effort::default()) {
            Ok(packing) => {
                self.servers.iter_mut().for_each(|s| s.share = 0.0);
                let members = self.servers.iter_mut().filter(|s| known(s));
                members.zip(packing.weights).for_each(|(s, share)| s.share = share);
            }
            Err(error) => {
                self.servers
                    .iter_mut()
                    .for_each(|s| s.share = if s.serves() { equal } else { 0.0 });
                out.push(record(RecordKind::Warning, None, format!("no packing: {error}")));
            }
        }
        self.program(now, kind, format!("packed: {why}"), out);
    }

    fn watch(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let pool: Vec<_> = self.servers.iter().map(|s| s.moved().filter(|_| s.serves())).collect();
        let judgement = compare(&pool, PAPER_THRESHOLD);
        // What was compared is not compared again.
        let ratios: Vec<Option<f64>> = self.servers.iter().map(Server::load_ratio).collect();
        self.clear();
        self.in_force = Some(Nanos(now.0.saturating_sub(WATCHED.as_nanos() as u64)));
        match judgement {
            Judgement::Nothing => {}
            Judgement::Traffic { grown } => {
                let mut moved: Vec<f64> =
                    ratios.into_iter().flatten().filter(|r| (*r > 1.0) == grown).collect();
                moved.sort_by(f64::total_cmp);
                let Some(&ratio) = moved.get(moved.len() / 2) else { return };
                self.servers.iter_mut().for_each(|s| s.stretch(1.0 / ratio));
                self.traffic *= ratio;
                let words = format!("most latencies moved: {ratio:.2} times the traffic before");
                out.push(record(RecordKind::Drift, None, words.clone()));
                self.pack(now, PlanKind::Drift, &words, out);
            }
            Judgement::Backends(which) => {
                let moved = which.into_iter().filter_map(|i| Some((i, ratios[i]?)));
                let moved: Vec<(usize, f64)> = moved.collect();
                for &(i, ratio) in &moved {
                    self.servers[i].stretch(1.0 / ratio);
                    let words = format!("its latency moved: its curve is stretched by {ratio:.2}");
                    out.push(record(RecordKind::Drift, Some(&self.servers[i].name), words));
                }
                if !moved.is_empty() {
                    self.pack(now, PlanKind::Drift, "latencies of single backends moved", out);
                }
            }
        }
    }

    fn set_phase(&mut self, phase: Phase, why: &str, out: &mut Vec<Action>) {
        self.phase = phase;
        let word = if phase == Phase::Steady { "steady" } else { "exploring" };
        out.push(record(RecordKind::Phase, None, format!("{word}: {why}")));
    }

    fn program(&mut self, now: Nanos, kind: PlanKind, reason: String, out: &mut Vec<Action>) {
        let shares: Vec<f64> = self.servers.iter().map(|s| s.share).collect();
        let weights = match round_to_range(&shares, None, self.range.clone()) {
            Ok(rounded) => rounded.weights,
            Err(error) => {
                out.push(record(RecordKind::Warning, None, format!("no weights: {error}")));
                return;
            }
        };
        let entries = self.servers.iter().zip(weights).map(|(s, weight)| PlanEntry {
            backend: s.id,
            share: s.share,
            weight,
        });
        // Backends that the balancer or an administrator holds back are left alone.
        let held_back =
            |e: &PlanEntry| self.servers.iter().any(|s| s.id == e.backend && !s.in_service);
        let mut entries: Vec<PlanEntry> = entries.filter(|e| !held_back(e)).collect();
        entries.sort_by_key(|e| e.backend);
        self.epoch += 1;
        (self.pending, self.in_force) = (Some((self.epoch, now)), None);
        out.push(record(RecordKind::Plan, None, format!("plan {}: {reason}", self.epoch)));
        out.push(Action::Program(Plan { epoch: self.epoch, at: now, kind, reason, entries }));
    }
}

fn record(kind: RecordKind, backend: Option<&str>, reason: String) -> Action {
    Action::Record(Record { kind, backend: backend.map(str::to_owned), reason })
}
