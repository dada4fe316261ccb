//! When decisions are made, and the trial of the last one.

use plimsoll_model::{BackendId, Nanos};

use crate::gate::trial::{PoolHistory, Rejected, Trial, Verdict};

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

impl Urgent {
    fn rank(&self) -> u8 {
        match self {
            Urgent::Pool(_) => 3,
            Urgent::Silence(_) => 2,
            Urgent::Refilled(_) => 1,
            Urgent::Drift(_) => 0,
        }
    }
}

/// What holds decisions back, or hurries them.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    urgent: Option<Urgent>,
    /// The time of the next regular decision.
    next: Nanos,
    trial: Option<Trial>,
    rejected: Rejected,
}

impl Gate {
    pub fn new(now: Nanos) -> Self {
        Gate { urgent: None, next: now, trial: None, rejected: Rejected::default() }
    }

    /// Keeps the more urgent of two reasons: its decision covers the other one as well.
    pub fn raise(&mut self, urgent: Urgent) {
        if self.urgent.as_ref().is_none_or(|held| urgent.rank() >= held.rank()) {
            self.urgent = Some(urgent);
        }
    }

    pub fn urgent(&self) -> Option<&Urgent> {
        self.urgent.as_ref()
    }

    pub fn take_urgent(&mut self) -> Option<Urgent> {
        self.urgent.take()
    }

    /// Whether a regular decision is due.
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// The next regular decision is made then.
    pub fn decide_at(&mut self, at: Nanos) {
        self.next = at;
    }

    /// The next regular decision is made then, if it would be later.
    pub fn decide_by(&mut self, at: Nanos) {
        self.next = self.next.min(at);
    }

    pub fn begin_trial(&mut self, trial: Option<Trial>) {
        self.trial = trial;
    }

    /// What the last plan did can no longer be distinguished.
    pub fn end_trial(&mut self) {
        self.trial = None;
    }

    pub fn is_on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Judges the plan on trial; one after which clients waited longer is remembered, and returned with the mean
    /// response times before and after it.
    pub fn judge(&mut self, history: &PoolHistory, rate: f64, now: Nanos) -> Option<Worse> {
        let trial = self.trial.as_ref()?;
        match trial.judge(history, now) {
            Verdict::Open => None,
            Verdict::Kept => {
                self.trial = None;
                None
            }
            Verdict::Worse { before_us, after_us } => {
                let trial = self.trial.take()?;
                self.rejected.add(now, rate, trial.shares);
                Some(Worse { weights: trial.before, before_us, after_us })
            }
        }
    }

    /// Whether a plan like this was rolled back recently at similar traffic.
    pub fn has_rejected(&self, now: Nanos, rate: f64, shares: &[(BackendId, f64)]) -> bool {
        self.rejected.contains(now, rate, shares)
    }
}

/// A plan after which clients waited longer.
pub(crate) struct Worse {
    /// The weights before it.
    pub weights: Vec<(BackendId, u32)>,
    pub before_us: f64,
    pub after_us: f64,
}
