//! What was decided, what was sent for it, and what is still owed to the balancer.

use std::time::Duration;

use plimsoll_model::Nanos;

use crate::commit::foreign::ForeignChanges;
use crate::commit::plan::Decision;
use crate::gate::trial::Weights;
use crate::tuning::commit::commitment::{FIRST_RETRY, LAST_RETRY, UNANSWERED};

/// A plan that was sent and is not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub epoch: u64,
    sent_at: Nanos,
    pub decision: Decision,
    pub before: Weights,
    pub kind: Sent,
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// A plan that is not judged by what follows.
    Plan,
    /// A plan that is rolled back if clients then wait longer.
    OnTrial,
    /// It corrects the last plan for backlogs (`propose::backlog`).
    Correction,
}

/// The state of what the controller has committed itself to.
#[derive(Clone, Debug)]
pub(crate) struct Commitment {
    epoch: u64,
    decision: Option<Decision>,
    reason: String,
    pending: Option<Pending>,
    /// Why the balancer does not hold the wanted weights, if so. Kept apart from urgent reasons, which may be dropped
    /// without a plan and must not take this one with them.
    owed: Option<String>,
    /// The last change of weights that the balancer carried out.
    changed_at: Option<Nanos>,
    /// After failed plans: the earliest time of the next one, and the length of the next pause.
    retry_at: Nanos,
    retry_after: Duration,
    /// The weights from before a restart of this process, programmed at the first report.
    resume: Option<Weights>,
    foreign: ForeignChanges,
}

impl Commitment {
    pub fn new(now: Nanos) -> Self {
        Commitment {
            epoch: 0,
            decision: None,
            reason: "no decision has been made yet".to_owned(),
            pending: None,
            owed: None,
            changed_at: None,
            retry_at: now,
            retry_after: FIRST_RETRY,
            resume: None,
            foreign: ForeignChanges::new(now),
        }
    }

    /// Goes on from the last plan of an earlier controller, with its weights if they are still those of the pool.
    pub fn recall(&mut self, epoch: u64, weights: Option<Weights>) {
        self.epoch = epoch;
        self.resume = weights;
    }

    /// The weights from before a restart, once.
    pub fn take_resumed(&mut self) -> Option<Weights> {
        self.resume.take()
    }

    /// The last plan's epoch; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch of a new plan.
    pub fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// The current decision, programmed or equivalent to the weights in force.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// Why the current decision was made.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Makes a decision the current one, for display and comparison; without a reason the former one stays.
    pub fn adopt(&mut self, decision: Decision, reason: Option<&str>) {
        if let Some(reason) = reason {
            reason.clone_into(&mut self.reason);
        }
        self.decision = Some(decision);
    }

    /// Whether a plan is sent and not answered.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// A plan is sent, which settles what was owed; returns its epoch.
    pub fn send(&mut self, now: Nanos, decision: Decision, before: Weights, kind: Sent) -> u64 {
        let epoch = self.next_epoch();
        self.owed = None;
        self.pending = Some(Pending { epoch, sent_at: now, decision, before, kind });
        epoch
    }

    /// The sink carried out the plan of this epoch, or changed nothing for it; returns that plan if it is still awaited.
    pub fn applied(&mut self, now: Nanos, epoch: u64, has_changed: bool) -> Option<Pending> {
        if has_changed {
            self.changed_at = Some(now);
        }
        let pending = self.pending.take_if(|p| p.epoch == epoch)?;
        self.retry_after = FIRST_RETRY;
        Some(pending)
    }

    /// The sink did not carry out the plan of this epoch; false if it is no longer awaited.
    pub fn refused(&mut self, now: Nanos, epoch: u64) -> bool {
        if self.pending.take_if(|p| p.epoch == epoch).is_none() {
            return false;
        }
        self.owe("the last plan was not programmed");
        self.retry_at = now + self.retry_after;
        self.retry_after = (2 * self.retry_after).min(LAST_RETRY);
        true
    }

    /// A plan under way is no longer awaited; returns whether there was one.
    pub fn abandon(&mut self) -> bool {
        self.pending.take().is_some()
    }

    /// Gives up a plan that was not answered in time: it is unknown whether it took effect.
    pub fn abandon_lost(&mut self, now: Nanos) {
        if self.pending.as_ref().is_some_and(|p| now.since(p.sent_at) > UNANSWERED) {
            self.pending = None;
            self.owe("the last plan got no answer from the balancer");
        }
    }

    /// The balancer does not hold the wanted weights, for this reason.
    pub fn owe(&mut self, reason: impl Into<String>) {
        self.owed = Some(reason.into());
    }

    pub fn is_owed(&self) -> bool {
        self.owed.is_some()
    }

    pub fn take_owed(&mut self) -> Option<String> {
        self.owed.take()
    }

    /// The last change of weights that the balancer carried out.
    pub fn changed_at(&self) -> Option<Nanos> {
        self.changed_at
    }

    /// Whether the last change is at least so long ago.
    pub fn is_unchanged_for(&self, interval: Duration, now: Nanos) -> bool {
        self.changed_at.is_none_or(|at| now.since(at) >= interval)
    }

    /// Another party changed a weight; returns whether a fight over weights begins with it.
    pub fn note_foreign(&mut self, now: Nanos) -> bool {
        self.foreign.note(now)
    }

    /// In a fight the next answer waits.
    pub fn wait_in_fight(&mut self, now: Nanos) {
        self.foreign.wait(self.changed_at.unwrap_or(now));
    }

    /// Whether weights that another party contests may be programmed again.
    pub fn may_answer_foreign(&self, now: Nanos) -> bool {
        self.foreign.may_answer(now)
    }

    /// Whether the pause after a failed plan is over.
    pub fn may_retry(&self, now: Nanos) -> bool {
        now >= self.retry_at
    }
}
