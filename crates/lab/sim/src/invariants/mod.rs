//! The invariants: the events that the controller got, the actions that it asked for, and the actions that are allowed.
//!
//! They are checked outside of everything under test. [`Invariants`] gets every event before the controller and every
//! action after it, keeps its own account of failed backends, of the age of the data and of the balancer's weights, and
//! checks after every step. Where the controller has discretion (when to return a flapping backend, which one to eject
//! for errors) the account is more permissive.

mod check;
mod events;
mod learning;
mod limits;
mod plan;
mod ramp;
mod shown;
mod violation;

use std::collections::VecDeque;
use std::time::Duration;

use learning::LastEvent;
use plimsoll_control::{Phase, ServiceSpec};
use plimsoll_model::{BackendId, MethodKind, Nanos};

pub use check::{Seen, Snapshot};
pub use violation::{Rule, Violation};

/// See [`Invariants::pool_excuses`].
const PLANS_PER_CHANGE: u32 = 2;
/// An excuse for an early plan expires after this many seconds in which the plan could have been made.
const EXCUSED_S: f64 = 6.0;

/// The account of one backend.
#[derive(Clone, Debug, Default)]
struct Account {
    steered: bool,
    balancer_down: bool,
    /// Drained or in maintenance in the last reading.
    reserved: bool,
    errors_total: u64,
    in_flight: u32,
    /// When a check or probe of it last failed, or the balancer last reported it down.
    bad_news_at: Option<Nanos>,
    /// When it was last observed to answer.
    answered_at: Option<Nanos>,
    answered_total: Option<u64>,
    /// When it was last unhealthy in truth, by the world's clock and by the controller's: a machine may sleep.
    unwell_at: Option<(Nanos, Nanos)>,
    /// Since when it has been dead in truth and held a weight, by the world's clock.
    dead_since: Option<Nanos>,
    /// The controller reported that it is set aside.
    aside: bool,
    /// When the controller reported that it returned.
    returned_at: Option<Nanos>,
    /// The latest time at which its slow start may have begun: the same, or when it joined.
    ramps_since: Option<Nanos>,
    /// The controller reported that it failed.
    out: bool,
    /// Its weight as the controller last got it.
    believed: Option<u32>,
    /// Its share in the last plan whose weight it was observed to hold.
    granted_share: f64,
    /// Since when it has had a weight although it must not, by the world's clock.
    overdue: Option<Nanos>,
    /// For how long it has been measured, seconds.
    measured_s: f64,
    /// Time and total of requests of the recent readings.
    readings: VecDeque<(Nanos, u64)>,
}

impl Account {
    /// It may serve, according to the controller.
    fn is_usable(&self) -> bool {
        self.steered && !self.reserved && !self.is_to_get_nothing()
    }

    /// It must have weight 0, by the balancer's own checks or according to the controller.
    fn is_to_get_nothing(&self) -> bool {
        (self.balancer_down || self.out || self.aside) && !self.reserved
    }
}

/// A plan without an answer so far.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    epoch: u64,
    at: Nanos,
}

/// The account of a run.
pub struct Invariants {
    accounts: Vec<Account>,
    spec: Option<ServiceSpec>,
    world: Nanos,
    last_clock: Nanos,
    stalled_at: Nanos,
    /// The time of the newest reading that the controller got.
    newest_at: Option<Nanos>,
    conflict: bool,
    generation: Option<u64>,
    kind: MethodKind,
    outstanding: Option<Outstanding>,
    epoch: u64,
    /// The weights of the last plan of this life.
    last_plan: Option<Vec<(BackendId, u32)>>,
    /// The shares of that plan.
    last_shares: Option<Vec<(BackendId, f64)>>,
    /// The controller's phase before the step.
    phase: Option<Phase>,
    last_plan_at: Option<Nanos>,
    /// When the last plan that changed no weight was made.
    idle_plan_at: Option<Nanos>,
    /// When the balancer's weights last changed, as the controller got it.
    last_program: Option<Nanos>,
    /// When the balancer last refused a plan, if none was applied since.
    refused_at: Option<Nanos>,
    /// Plans that may still be made early for a change of the pool: one that was under way already, and the one for the
    /// change.
    pool_excuses: u32,
    /// For how long the controller could act since its last excuse, seconds.
    excused_s: f64,
    /// The weights have to be restored, for a reason since the last plan.
    reason_to_reassert: bool,
    /// The method has changed, and the last decision was made for the other one.
    method_changed: bool,
    /// A foreign weight has been reported since the last plan.
    foreign: bool,
    /// When plans were made only to answer foreign weights.
    answered_foreign: VecDeque<Nanos>,
    recalled: Option<Vec<(BackendId, u32)>>,
    must_resume: bool,
    disagreeing: Option<Nanos>,
    deserted: Option<Nanos>,
    misread: Option<Nanos>,
    last_look: Nanos,
    /// There was a plan or record since the last look at the view.
    has_acted: bool,
    last_check: Nanos,
    last_event: LastEvent,
    /// Backends named as changed by the records of this step.
    named: Vec<usize>,
    /// When each curve was last rescaled, as of the step before.
    changed: Vec<Option<(Nanos, f64)>>,
    /// The number of backends being measured, and when there last was one.
    measured: usize,
    measured_at: Option<Nanos>,
    /// When the last measurement ended, by the controller's clock, and seconds since without a decision.
    put_back_by: Option<(Nanos, f64)>,
    checks: u64,
    tolerated: Vec<Rule>,
    violation: Option<Violation>,
}

impl Invariants {
    /// An account of `n` backends.
    pub fn new(n: usize) -> Self {
        Invariants {
            accounts: vec![Account::default(); n],
            spec: None,
            world: Nanos::ZERO,
            last_clock: Nanos::ZERO,
            stalled_at: Nanos::ZERO,
            newest_at: None,
            conflict: false,
            generation: None,
            kind: MethodKind::Split,
            outstanding: None,
            epoch: 0,
            last_plan: None,
            last_shares: None,
            phase: None,
            last_plan_at: None,
            idle_plan_at: None,
            last_program: None,
            refused_at: None,
            pool_excuses: 0,
            excused_s: 0.0,
            reason_to_reassert: false,
            method_changed: false,
            foreign: false,
            answered_foreign: VecDeque::new(),
            recalled: None,
            must_resume: false,
            disagreeing: None,
            deserted: None,
            misread: None,
            last_look: Nanos::ZERO,
            has_acted: false,
            last_check: Nanos::ZERO,
            last_event: LastEvent::default(),
            named: Vec::new(),
            changed: vec![None; n],
            measured: 0,
            measured_at: None,
            put_back_by: None,
            checks: 0,
            tolerated: Vec::new(),
            violation: None,
        }
    }

    /// A controller starts. It has none of the events of the last one; `recalled` are the weights in its memory.
    pub fn controller_started(
        &mut self,
        world: Nanos,
        spec: &ServiceSpec,
        recalled: Option<Vec<(BackendId, u32)>>,
    ) {
        let n = self.accounts.len();
        let (checks, violation) = (self.checks, self.violation.take());
        let tolerated = std::mem::take(&mut self.tolerated);
        let last_check = world;
        *self = Invariants {
            world,
            checks,
            violation,
            tolerated,
            recalled,
            last_check,
            ..Invariants::new(n)
        };
        self.configure(spec);
    }

    fn configure(&mut self, spec: &ServiceSpec) {
        for (i, account) in self.accounts.iter_mut().enumerate() {
            let steered = spec.backends.iter().any(|b| b.id.0 as usize == i);
            if steered != account.steered {
                *account = Account { steered, ..Account::default() };
            }
        }
        self.spec = Some(spec.clone());
    }

    /// The balancer's weights were changed by a plan or by another party.
    pub fn weights_changed(&mut self) {
        self.disagreeing = None;
        self.misread = None;
    }

    /// Ignores violations of these rules.
    pub fn tolerate(&mut self, rules: &[Rule]) {
        self.tolerated.extend(rules);
    }

    /// The first violation, if there was one.
    pub fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    /// The number of checks so far.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    fn min_interval(&self) -> Duration {
        self.spec
            .as_ref()
            .map_or(Duration::ZERO, |spec| spec.min_interval.max(spec.sink.min_interval))
    }

    fn note_pool_change(&mut self) {
        self.pool_excuses = PLANS_PER_CHANGE;
        self.excused_s = 0.0;
    }

    /// The weights have to be restored.
    fn note_reason_to_reassert(&mut self) {
        self.reason_to_reassert = true;
        self.excused_s = 0.0;
    }

    /// Counts time in which the controller can act: excuses that it has not used expire.
    fn let_excuses_expire(&mut self, able_s: f64) {
        self.excused_s += able_s;
        if self.excused_s > EXCUSED_S {
            self.pool_excuses = 0;
            (self.reason_to_reassert, self.foreign) = (false, false);
        }
    }

    fn violate(&mut self, rule: Rule, backend: Option<usize>, what: String) {
        if self.violation.is_none() && !self.tolerated.contains(&rule) {
            self.violation = Some(Violation { rule, backend, at: self.world, what });
        }
    }
}
