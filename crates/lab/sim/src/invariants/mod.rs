//! What the controller was told, what it asked for, and what it may ask for: the invariants.
//!
//! The invariants sits on the outer side of everything that is tested. It sees every event before the
//! controller does and every action after it, keeps its own account of who failed, how fresh the data
//! are and what the balancer holds, and compares after every step. Where the controller has discretion
//! (when to return a backend that flaps, whom to eject for errors) the account is the laxer one.

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
/// What excuses a plan ahead of its time does so for so many seconds in which it could be made.
const EXCUSED_S: f64 = 6.0;

/// The account of one backend.
#[derive(Clone, Debug, Default)]
struct Account {
    steered: bool,
    balancer_down: bool,
    /// An administrator has it, as of the last reading.
    reserved: bool,
    errors_total: u64,
    in_flight: u32,
    /// When a check or a probe of it was last said to have failed, or the balancer that it is down.
    bad_news_at: Option<Nanos>,
    /// When it was last seen to answer.
    answered_at: Option<Nanos>,
    answered_total: Option<u64>,
    /// When it was last not well in truth, by the world's clock and by the controller's: a machine may sleep.
    unwell_at: Option<(Nanos, Nanos)>,
    /// Since when it is dead in truth and holds a weight all the same, by the world's clock.
    dead_since: Option<Nanos>,
    /// The controller said that it is set aside.
    aside: bool,
    /// When the controller said that it is back.
    returned_at: Option<Nanos>,
    /// The same, or that it joins, or was in all the time: at the latest from here on its share may ramp
    /// up.
    ramps_since: Option<Nanos>,
    /// The controller said that it failed.
    out: bool,
    /// The weight that the balancer was last told to have.
    believed: Option<u32>,
    /// Its share by the last plan whose weight it was seen to hold.
    granted_share: f64,
    /// Since when it has traffic that it should not have, by the world's clock.
    overdue: Option<Nanos>,
    /// For how long it has been given a load on purpose, seconds.
    measured_s: f64,
    /// When it was read, and how many requests it had been given by then: the last seconds.
    readings: VecDeque<(Nanos, u64)>,
}

impl Account {
    /// It may serve, as far as the controller says.
    fn is_usable(&self) -> bool {
        self.steered && !self.reserved && !self.is_to_get_nothing()
    }

    /// It is to get nothing: by the balancer's own checks or by what the controller says.
    fn is_to_get_nothing(&self) -> bool {
        (self.balancer_down || self.out || self.aside) && !self.reserved
    }
}

/// What was asked and not yet answered.
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
    /// When the newest reading that the controller was told was taken.
    newest_at: Option<Nanos>,
    conflict: bool,
    generation: Option<u64>,
    kind: MethodKind,
    outstanding: Option<Outstanding>,
    epoch: u64,
    /// The weights of the last plan of this life.
    last_plan: Option<Vec<(BackendId, u32)>>,
    /// Its shares.
    last_shares: Option<Vec<(BackendId, f64)>>,
    /// The controller's phase before the step.
    phase: Option<Phase>,
    last_plan_at: Option<Nanos>,
    /// When the last plan came that wrote nothing.
    idle_plan_at: Option<Nanos>,
    /// When the balancer last changed, as the controller was told.
    last_program: Option<Nanos>,
    /// When the balancer last refused a plan, if the one after it was not carried out yet.
    refused_at: Option<Nanos>,
    /// So many plans may yet be made at once for a change of the pool that was told: one that was under
    /// way already, and the one for it.
    pool_excuses: u32,
    /// For how long the controller has been able to act since it last got an excuse, seconds.
    excused_s: f64,
    /// The balancer is to be put right, as was told since the last plan.
    reason_to_reassert: bool,
    /// The method has changed, and the last decision was made for the other.
    method_changed: bool,
    /// Somebody else's weight was told since the last plan.
    foreign: bool,
    /// When plans answered that and nothing else.
    answered_foreign: VecDeque<Nanos>,
    recalled: Option<Vec<(BackendId, u32)>>,
    must_resume: bool,
    disagreeing: Option<Nanos>,
    deserted: Option<Nanos>,
    misread: Option<Nanos>,
    last_look: Nanos,
    /// A plan or a record has come since.
    has_acted: bool,
    last_check: Nanos,
    last_event: LastEvent,
    /// Whom the records of this step name as changed.
    named: Vec<usize>,
    /// When everybody's curve was last rescaled, as of the step before.
    changed: Vec<Option<(Nanos, f64)>>,
    /// So many are given a load on purpose, and at this time at the last.
    measured: usize,
    measured_at: Option<Nanos>,
    /// The last of them was done at this time of the controller; seconds since, without a decision.
    put_back_by: Option<(Nanos, f64)>,
    drained_at: Option<Nanos>,
    leapt_at: Option<Nanos>,
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
            drained_at: None,
            leapt_at: None,
            checks: 0,
            tolerated: Vec::new(),
            violation: None,
        }
    }

    /// A controller begins to work. What the last one was told it does not know; `recalled` are the
    /// weights in its memory.
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

    /// The balancer's weights have changed by another hand, or by a plan.
    pub fn weights_changed(&mut self) {
        self.disagreeing = None;
        self.misread = None;
    }

    /// Looks past violations of a rule, to see what else there is.
    pub fn tolerate(&mut self, rules: &[Rule]) {
        self.tolerated.extend(rules);
    }

    /// The first violation, if there was one.
    pub fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    /// Comparisons so far.
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

    /// The balancer is to be put right.
    fn note_reason_to_reassert(&mut self) {
        self.reason_to_reassert = true;
        self.excused_s = 0.0;
    }

    /// Time passes in which the controller is able to act: an excuse that it has not used by then is one
    /// no longer.
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
