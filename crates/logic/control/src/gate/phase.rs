//! The phase: whether loads still grow step by step, the pool is known, or its capacity does not suffice.

use plimsoll_model::Nanos;

use crate::commit::plan::Decision;
use crate::controller::record;
use crate::event::{Action, RecordKind};
use crate::gate::trial::moved;
use crate::show::view::Phase;
use crate::tuning::gate::phase::{ENOUGH_ROOM, MAX_EXPLORING, NEXT_TO_NOTHING, SETTLED};

/// The present phase, and how far exploring has come.
#[derive(Clone, Debug)]
pub(crate) struct PhaseState {
    phase: Phase,
    explored_since: Nanos,
    /// Consecutive decisions that hardly moved traffic.
    settled: u32,
}

impl PhaseState {
    pub fn new(phase: Phase, now: Nanos) -> Self {
        PhaseState { phase, explored_since: now, settled: 0 }
    }

    pub fn get(&self) -> Phase {
        self.phase
    }

    pub fn is(&self, phase: Phase) -> bool {
        self.phase == phase
    }

    /// Whether the pool is known: packed, or short of capacity.
    pub fn is_packed(&self) -> bool {
        matches!(self.phase, Phase::Steady | Phase::ShortOfCapacity)
    }

    /// Goes on in the phase of an earlier controller.
    pub fn recall(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Changes the phase, with a record of why.
    pub fn set(&mut self, phase: Phase, why: &str, out: &mut Vec<Action>) {
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

    /// The pool is another one, so learning takes its time again.
    pub fn restart(&mut self, now: Nanos) {
        self.explored_since = now;
        self.settled = 0;
    }

    /// Weights mean something else: what seemed settled is not.
    pub fn unsettle(&mut self) {
        self.settled = 0;
    }

    /// Takes a decision that follows the `last` one: exploring ends when decisions stop moving traffic.
    pub fn settle(
        &mut self,
        now: Nanos,
        last: Option<&Decision>,
        decision: &Decision,
        out: &mut Vec<Action>,
    ) {
        if self.phase == Phase::Observing {
            return;
        }
        if let Some(short) = decision.short_by_rps {
            let why = format!(
                "{:.0} req/s arrive, capacity {:.0} req/s: {short:.0} req/s too many",
                decision.rate_rps, decision.capacity_rps
            );
            self.set(Phase::ShortOfCapacity, &why, out);
            return;
        }
        if self.phase == Phase::ShortOfCapacity {
            if decision.rate_rps > ENOUGH_ROOM * decision.capacity_rps {
                return;
            }
            self.set(Phase::Steady, "the capacity suffices again", out);
            return;
        }
        if self.phase != Phase::Exploring {
            return;
        }
        let last = last.map(Decision::shares).unwrap_or_default();
        let calm = moved(&last, &decision.shares()) < NEXT_TO_NOTHING && !decision.still_learning;
        self.settled = if calm { self.settled + 1 } else { 0 };
        if self.settled >= SETTLED {
            self.set(Phase::Steady, "decisions no longer move traffic", out);
            out.push(Action::SaveMemory);
        } else if now.since(self.explored_since) > MAX_EXPLORING {
            self.set(
                Phase::Steady,
                "learning took long enough: what is still unknown does not matter at this load",
                out,
            );
        }
    }
}
