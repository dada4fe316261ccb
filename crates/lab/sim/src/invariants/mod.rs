//! The invariants: the events that the controller got, the actions that it asked for, and the actions that are allowed.
//!
//! They are checked outside of everything under test. [`Invariants`] gets every event before the controller and every
//! action after it, keeps its own account of failed backends, of the age of the data and of the balancer's weights, and
//! checks after every step. A rule here holds in every run, at every step (that of pace is about plans
//! that nothing urgent made); what holds only in certain situations is a test that makes the situation (`crates/logic/control/tests/properties`).

mod check;
mod events;
mod plan;
mod shown;
mod violation;

use plimsoll_control::ServiceSpec;
use plimsoll_model::{BackendId, MethodKind, Nanos};

pub use check::Snapshot;
pub use violation::{Rule, Violation};

/// The account of one backend.
#[derive(Clone, Debug, Default)]
struct Account {
    steered: bool,
    balancer_down: bool,
    /// Drained or in maintenance in the last reading.
    reserved: bool,
    /// When a check or probe of it last failed, or the balancer last reported it down.
    bad_news_at: Option<Nanos>,
    /// When it was last unhealthy in truth, by the world's clock and by the controller's: a machine may sleep.
    unwell_at: Option<(Nanos, Nanos)>,
    /// The controller reported that it is set aside.
    aside: bool,
    /// The controller reported that it failed.
    out: bool,
    /// Since when it has had a weight although it must not, by the world's clock.
    overdue: Option<Nanos>,
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
#[derive(Default)]
pub struct Invariants {
    accounts: Vec<Account>,
    spec: Option<ServiceSpec>,
    world: Nanos,
    last_clock: Nanos,
    stalled_at: Nanos,
    /// The time of the newest reading that the controller got.
    newest_at: Option<Nanos>,
    generation: Option<u64>,
    kind: Option<MethodKind>,
    outstanding: Option<Outstanding>,
    epoch: u64,
    /// The weights of the last plan of this life.
    last_plan: Option<Vec<(BackendId, u32)>>,
    /// When the balancer's weights were last changed by a plan, as the controller got it.
    changed_at: Option<Nanos>,
    /// The weights in the memory.
    recalled: Option<Vec<(BackendId, u32)>>,
    must_resume: bool,
    /// Since when, by the world's clock: weights in force are not the planned ones, no backend serves, weights in force
    /// are not those shown.
    disagreeing: Option<Nanos>,
    deserted: Option<Nanos>,
    misread: Option<Nanos>,
    last_look: Nanos,
    /// There was a plan or record since the last look at the view.
    has_acted: bool,
    last_check: Nanos,
    checks: u64,
    tolerated: Vec<Rule>,
    violation: Option<Violation>,
}

impl Invariants {
    /// An account of `n` backends.
    pub fn new(n: usize) -> Self {
        Invariants { accounts: vec![Account::default(); n], ..Invariants::default() }
    }

    /// A controller starts. It has none of the events of the last one; `recalled` are the weights in its memory.
    pub fn controller_started(
        &mut self,
        world: Nanos,
        spec: &ServiceSpec,
        recalled: Option<Vec<(BackendId, u32)>>,
    ) {
        *self = Invariants {
            world,
            recalled,
            last_check: world,
            checks: self.checks,
            violation: self.violation.take(),
            tolerated: std::mem::take(&mut self.tolerated),
            ..Invariants::new(self.accounts.len())
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

    fn violate(&mut self, rule: Rule, backend: Option<usize>, what: String) {
        if self.violation.is_none() && !self.tolerated.contains(&rule) {
            self.violation = Some(Violation { rule, backend, at: self.world, what });
        }
    }
}
