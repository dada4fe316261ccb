//! Controllers broken on purpose, each in one respect: the invariants must catch them. A mutant changes the events that
//! the controller gets or the actions that it asks for, on their way between it and the invariants, so that the
//! controller's own code stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use plimsoll_control::{
    Action, Belief, Controller, Event, Memory, Record, RecordKind, ServiceSpec, ServiceView,
};
use plimsoll_model::{
    Applied, BackendId, BalancerReport, FailureKind, GREATEST_WEIGHT, Nanos, Outcome, Plan,
    ServerStatus,
};

use crate::names::{from_name, kebab};

/// A defect of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// It gets no news of failures.
    SwallowFailures,
    /// It gives failed backends weight 1 instead of 0.
    KeepFailedAtOne,
    /// It leaves entries with weight 0 out of its plans.
    DropZeros,
    /// It believes time-outs from a period in which it had no CPU time.
    BelieveOldTimeouts,
    /// It programs backends that an administrator drains or maintains.
    IgnoreAdministrator,
    /// It does not notice that the balancer was reloaded.
    IgnoreReload,
    /// It takes every plan for applied.
    IgnoreApplyFailed,
    /// It does not notice weights set by others.
    IgnoreForeign,
    /// Its plans are never sent.
    LosePlans,
    /// It makes plans while the balancer cannot be read.
    PlanOnStaleData,
    /// It makes a plan as soon as the last one is applied.
    PlanTooOften,
    /// It makes a plan while another one is unanswered.
    PlanTwice,
    /// Its epochs do not increase.
    OldEpoch,
    /// One weight is doubled.
    ScaleOneWeight,
    /// All weights are 0.
    AllZero,
    /// One server gets all the traffic.
    LeaveOneAlone,
    /// A weight is out of range.
    OutOfRange,
    /// A share is no number.
    NotANumber,
    /// Shares do not sum to 1.
    SharesOfMoreThanAll,
    /// An entry occurs twice.
    TwoWeights,
    /// It starts with the memory of another pool.
    ForeignMemory,
    /// It believes that the balancer holds whatever was planned.
    BelieveInPlans,
    /// It leaves a serving backend out of its plans.
    ForgetOne,
    /// It gives weight to an ejected backend.
    KeepEjected,
    /// It ignores the balancer's own health checks.
    IgnoreBalancerChecks,
    /// It reports the failure of a healthy backend.
    InventFailures,
    /// It ignores the minimum interval between changes.
    IgnoreMinInterval,
    /// It shows shares that do not sum to one.
    ShowNonsense,
    /// It panics when a backend leaves.
    Panic,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 29] = [
        Mutant::SwallowFailures,
        Mutant::KeepFailedAtOne,
        Mutant::DropZeros,
        Mutant::BelieveOldTimeouts,
        Mutant::IgnoreAdministrator,
        Mutant::IgnoreReload,
        Mutant::IgnoreApplyFailed,
        Mutant::IgnoreForeign,
        Mutant::LosePlans,
        Mutant::PlanOnStaleData,
        Mutant::PlanTooOften,
        Mutant::PlanTwice,
        Mutant::OldEpoch,
        Mutant::ScaleOneWeight,
        Mutant::AllZero,
        Mutant::LeaveOneAlone,
        Mutant::OutOfRange,
        Mutant::NotANumber,
        Mutant::SharesOfMoreThanAll,
        Mutant::TwoWeights,
        Mutant::ForeignMemory,
        Mutant::BelieveInPlans,
        Mutant::ForgetOne,
        Mutant::KeepEjected,
        Mutant::IgnoreBalancerChecks,
        Mutant::InventFailures,
        Mutant::IgnoreMinInterval,
        Mutant::ShowNonsense,
        Mutant::Panic,
    ];
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&kebab(&format!("{self:?}")))
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        from_name(name, &Mutant::ALL)
    }
}

/// A reading older than this is stale by any standard.
const LONG_AGO: Duration = Duration::from_secs(4);

/// Sets the shares of a plan to what its weights give.
fn share_by_weights(plan: &mut Plan) {
    let sum: f64 = plan.entries.iter().map(|e| f64::from(e.weight)).sum();
    if sum > 0.0 {
        plan.entries.iter_mut().for_each(|e| e.share = f64::from(e.weight) / sum);
    }
}

/// Removes the last entry with weight, if another one has weight.
fn forget_one(plan: &mut Plan) {
    let mut serving = plan.entries.iter().enumerate().rev().filter(|(_, e)| e.weight > 0);
    let (Some((last, _)), Some(_)) = (serving.next(), serving.next()) else { return };
    plan.entries.remove(last);
    share_by_weights(plan);
}

/// Sits between the controller and its environment and applies the mutant's defect.
#[derive(Default)]
pub struct Interceptor {
    mutant: Option<Mutant>,
    /// The weights that the controller believes in force.
    believed: BTreeMap<BackendId, u32>,
    generation: Option<u64>,
    last_plan: Option<Plan>,
    read_at: Option<Nanos>,
    /// The last event was the answer to a plan.
    answered: bool,
    /// Ejected backends.
    ejected: BTreeSet<BackendId>,
}

impl Interceptor {
    /// An interceptor for this mutant; without one it changes nothing.
    pub fn new(mutant: Option<Mutant>) -> Self {
        Interceptor { mutant, ..Interceptor::default() }
    }

    /// A controller starts.
    pub fn controller_started(&mut self) {
        *self = Interceptor::new(self.mutant);
    }

    /// The memory that the controller gets.
    pub fn memory(&mut self, memory: Option<Memory>) -> Option<Memory> {
        if self.mutant != Some(Mutant::ForeignMemory) {
            return memory;
        }
        // The same names with the weights of others.
        let mut value = serde_json::to_value(memory?).ok()?;
        let backends = value.get_mut("backends")?.as_array_mut()?;
        let weights: Vec<serde_json::Value> =
            backends.iter().map(|b| b["weight"].clone()).collect();
        for (b, w) in backends.iter_mut().zip(weights.into_iter().cycle().skip(1)) {
            b["weight"] = w;
        }
        serde_json::from_value(value).ok()
    }

    /// The specification that the controller gets.
    pub fn spec(&self, spec: ServiceSpec) -> ServiceSpec {
        match self.mutant {
            Some(Mutant::IgnoreMinInterval) => ServiceSpec { min_interval: Duration::ZERO, ..spec },
            _ => spec,
        }
    }

    /// The beliefs that are observed.
    pub fn beliefs(&mut self, controller: &Controller, into: &mut Vec<Belief>) {
        into.clear();
        into.extend(controller.beliefs());
        if self.mutant == Some(Mutant::BelieveInPlans) {
            for b in into.iter_mut() {
                b.programmed = self.believed.get(&b.backend).copied().or(b.programmed);
            }
        }
    }

    /// The view that is observed.
    pub fn view(&self, controller: &Controller, clock: Nanos) -> ServiceView {
        let mut view = controller.view(clock);
        if self.mutant == Some(Mutant::ShowNonsense) {
            view.backends.iter_mut().for_each(|b| b.share *= 1.5);
        }
        view
    }

    /// The events that the controller gets.
    pub fn events(&mut self, clock: Nanos, event: Event) -> Vec<Event> {
        let Some(mutant) = self.mutant else { return vec![event] };
        if let Event::Balancer(report) = &event {
            self.read_at = Some(report.at);
        }
        self.answered = matches!(event, Event::Applied(_));
        match (mutant, event) {
            (Mutant::SwallowFailures, Event::Liveness { successes: 0, .. }) => vec![],
            (Mutant::SwallowFailures, Event::Probe { outcome: Outcome::Failure(_), .. }) => {
                vec![]
            }
            (
                Mutant::BelieveOldTimeouts,
                Event::Liveness {
                    backend, successes: 0, failure: Some(FailureKind::Timeout), ..
                },
            ) => vec![Event::Liveness {
                backend,
                successes: 0,
                failure: Some(FailureKind::Refused),
                started: clock,
            }],
            (Mutant::IgnoreApplyFailed, Event::ApplyFailed { epoch, .. }) => {
                vec![Event::Applied(self.as_if_applied(epoch))]
            }
            (_, Event::Reconfigured(spec)) => {
                vec![Event::Reconfigured(Box::new(self.spec(*spec)))]
            }
            (_, Event::Balancer(report)) => vec![Event::Balancer(self.reading(mutant, report))],
            (_, event) => vec![event],
        }
    }

    fn as_if_applied(&self, epoch: u64) -> Applied {
        let plan = self.last_plan.iter().flat_map(|plan| &plan.entries);
        let weights: Vec<(BackendId, u32)> = plan.map(|e| (e.backend, e.weight)).collect();
        let commands = weights.len() as u32;
        Applied { epoch, weights, commands }
    }

    fn reading(&mut self, mutant: Mutant, mut report: BalancerReport) -> BalancerReport {
        let blind_to_weights = matches!(
            mutant,
            Mutant::IgnoreReload | Mutant::IgnoreApplyFailed | Mutant::IgnoreForeign
        );
        let hides_reload = mutant == Mutant::IgnoreReload;
        let restarted = self.generation.is_some_and(|g| g != report.generation);
        if hides_reload {
            report.generation = *self.generation.get_or_insert(report.generation);
        } else {
            self.generation = Some(report.generation);
        }
        for server in &mut report.servers {
            if mutant == Mutant::IgnoreAdministrator
                && matches!(server.status, ServerStatus::Drain | ServerStatus::Maintenance)
            {
                server.status = ServerStatus::Up;
            }
            let deaf = matches!(mutant, Mutant::SwallowFailures | Mutant::IgnoreBalancerChecks);
            if mutant == Mutant::SwallowFailures {
                (server.errors_total, server.answered_total) = (0, Some(report.at.0));
            }
            if deaf && server.status == ServerStatus::Down {
                server.status = ServerStatus::Up;
            }
            if blind_to_weights && (hides_reload || !restarted) {
                server.weight = *self.believed.get(&server.backend).unwrap_or(&server.weight);
            }
        }
        report
    }

    /// The actions that are carried out.
    pub fn actions(&mut self, clock: Nanos, actions: Vec<Action>) -> Vec<Action> {
        let Some(mutant) = self.mutant else { return actions };
        let mut out = Vec::with_capacity(actions.len());
        for action in actions {
            match action {
                Action::Program(plan) => {
                    let plan = self.spoil(mutant, plan);
                    self.believed.extend(plan.entries.iter().map(|e| (e.backend, e.weight)));
                    self.last_plan = Some(plan.clone());
                    if mutant == Mutant::PlanTwice {
                        let twin = Plan { epoch: plan.epoch + 1, ..plan.clone() };
                        out.push(Action::Program(twin));
                    }
                    if mutant != Mutant::LosePlans {
                        out.push(Action::Program(plan));
                    }
                }
                Action::Correct(plan) => {
                    self.believed.extend(plan.entries.iter().map(|e| (e.backend, e.weight)));
                    out.push(Action::Correct(plan));
                }
                Action::Record(record) => {
                    if mutant == Mutant::Panic && record.kind == RecordKind::Left {
                        panic!("broken on purpose");
                    }
                    self.note(&record);
                    out.extend(self.false_record(mutant, &record).map(Action::Record));
                    out.push(Action::Record(record));
                }
                other => out.push(other),
            }
        }
        out.extend(self.unasked(mutant, clock));
        out
    }

    fn note(&mut self, record: &Record) {
        let place = record.backend.as_ref().and_then(|b| b.strip_prefix('s')?.parse().ok());
        let Some(id) = place.map(BackendId) else { return };
        match record.kind {
            RecordKind::Ejected => {
                self.ejected.insert(id);
            }
            RecordKind::Returned | RecordKind::GivenBack => {
                self.ejected.remove(&id);
            }
            _ => {}
        }
    }

    fn spoil(&mut self, mutant: Mutant, mut plan: Plan) -> Plan {
        let heaviest = plan.entries.iter().enumerate().max_by_key(|(_, e)| e.weight);
        let heaviest = heaviest.map_or(0, |(place, _)| place);
        match mutant {
            Mutant::KeepFailedAtOne => {
                plan.entries.iter_mut().for_each(|e| e.weight = e.weight.max(1));
            }
            Mutant::KeepEjected => {
                let kept = plan.entries.iter_mut().filter(|e| self.ejected.contains(&e.backend));
                kept.for_each(|e| e.weight = e.weight.max(1));
            }
            Mutant::ForgetOne => forget_one(&mut plan),
            Mutant::DropZeros => plan.entries.retain(|e| e.weight > 0),
            Mutant::OldEpoch => plan.epoch = plan.epoch.min(3),
            Mutant::ScaleOneWeight => {
                let e = &mut plan.entries[heaviest];
                e.weight = (e.weight * 2).min(GREATEST_WEIGHT);
            }
            Mutant::AllZero => plan.entries.iter_mut().for_each(|e| e.weight = 0),
            Mutant::LeaveOneAlone => {
                for (_, e) in plan.entries.iter_mut().enumerate().filter(|(i, _)| *i != heaviest) {
                    e.weight = 0;
                }
                share_by_weights(&mut plan);
            }
            Mutant::OutOfRange => plan.entries[heaviest].weight = 257,
            Mutant::NotANumber => plan.entries[heaviest].share = f64::NAN,
            Mutant::SharesOfMoreThanAll => {
                plan.entries.iter_mut().for_each(|e| e.share *= 1.01);
            }
            Mutant::TwoWeights => plan.entries.push(plan.entries[heaviest]),
            _ => {}
        }
        plan
    }

    /// A record that the controller did not make.
    fn false_record(&self, mutant: Mutant, record: &Record) -> Option<Record> {
        match (mutant, record.kind) {
            (Mutant::InventFailures, RecordKind::Plan) => Some(Record {
                kind: RecordKind::Failed,
                backend: Some("s0".to_owned()),
                reason: "it was dreamt of".to_owned(),
            }),
            _ => None,
        }
    }

    /// A plan that the controller did not make at this time.
    fn unasked(&mut self, mutant: Mutant, clock: Nanos) -> Option<Action> {
        let now = match mutant {
            Mutant::PlanOnStaleData => self.read_at.is_some_and(|at| clock.since(at) > LONG_AGO),
            Mutant::PlanTooOften => self.answered,
            _ => false,
        };
        let plan = self.last_plan.as_mut().filter(|_| now)?;
        plan.epoch += 1;
        plan.at = clock;
        Some(Action::Program(plan.clone()))
    }
}
