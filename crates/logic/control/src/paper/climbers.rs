//! The climb of a backend in KnapsackLB's exploration (§4.3), and the rounds in which backends climb (§4.6).

use std::time::Duration;

use plimsoll_learn::{
    Exploration as Climb, ExploreError, ExploreOptions, Measurement, Member, Priority, Step, Wanted,
};
use plimsoll_model::{BackendId, Nanos};

use crate::backend::Backend;
use crate::observe::traffic::WINDOW;

/// The first part of a round, whose measurements still show the weights before.
pub(crate) const SETTLING: f64 = 0.4;
/// A round counts with at least this part of the windows that it has room for.
const ENOUGH: f64 = 0.5;

/// One backend's climb.
#[derive(Clone, Debug)]
pub(crate) struct Climber {
    pub id: BackendId,
    pub climb: Climb,
    pub wanted: Option<f64>,
    pub over_utilised: bool,
    pub ticket: u64,
    pub w_max: f64,
    /// The requested weight that it has in the current round.
    pub granted: Option<f64>,
    pub area: f64,
    pub started: f64,
    pub errors_before: f64,
}

impl Climber {
    pub fn take(&mut self, measured: &Measurement) {
        match self.climb.next(measured) {
            Step::Measure(weight) => self.wanted = Some(weight),
            Step::Done { w_max } => (self.wanted, self.w_max) = (None, w_max),
        }
    }
}

/// Weights that are held for a while to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// The epoch of its plan: after another plan its weights are no longer in force.
    pub epoch: u64,
    /// Since when its weights are in force.
    pub since: Nanos,
    /// Windows since they have settled, and requests to the whole pool in them.
    pub windows: u32,
    pub started: f64,
}

impl Round {
    pub fn is_over(&self, now: Nanos, lasts: Duration) -> bool {
        let room = (1.0 - SETTLING) * lasts.as_secs_f64() / WINDOW.as_secs_f64();
        now.since(self.since) >= lasts && f64::from(self.windows) >= (ENOUGH * room).max(1.0)
    }
}

/// An exploration as in the paper.
#[derive(Clone, Debug)]
pub(crate) struct PaperRun {
    /// Time spent so far; waiting for traffic does not count.
    pub taken: Duration,
    pub taken_at: Nanos,
    /// No round before this time: with the failed backends missing none is possible.
    pub next_look: Nanos,
    pub climbers: Vec<Climber>,
    pub tickets: u64,
    /// None before the first, and after one that was interrupted.
    pub round: Option<Round>,
}

impl PaperRun {
    pub fn new(began: Nanos) -> Self {
        PaperRun {
            taken: Duration::ZERO,
            taken_at: began,
            next_look: began,
            climbers: Vec::new(),
            tickets: 0,
            round: None,
        }
    }

    /// Counts time. It does not count before the first round, while rounds are impossible, and while this process had
    /// no CPU time.
    pub fn pass(&mut self, now: Nanos, rounds_are_possible: bool) {
        let passed = now.since(std::mem::replace(&mut self.taken_at, now));
        if rounds_are_possible && !self.climbers.is_empty() {
            self.taken += passed.min(WINDOW);
        }
    }

    /// Adds serving backends that do not climb yet. One that was never measured begins with an equal share: less would
    /// load the others beyond what is known of them.
    pub fn join(
        &mut self,
        backends: &[Backend],
        options: ExploreOptions,
    ) -> Result<(), ExploreError> {
        let usable = || backends.iter().filter(|b| b.is_usable());
        let first = 1.0 / usable().count().max(1) as f64;
        for b in usable() {
            let held = self.climbers.iter_mut().find(|c| c.id == b.id);
            if held.as_ref().is_some_and(|c| c.climb.steps() > 0) {
                continue;
            }
            let climb = Climb::new(first, options)?;
            if let Some(c) = held {
                (c.climb, c.wanted) = (climb, Some(first));
                continue;
            }
            self.tickets += 1;
            self.climbers.push(Climber {
                id: b.id,
                climb,
                wanted: Some(first),
                over_utilised: false,
                ticket: self.tickets,
                w_max: 0.0,
                granted: None,
                area: 0.0,
                started: 0.0,
                errors_before: 0.0,
            });
        }
        Ok(())
    }

    /// The members of the round that begins, and the weights that they request.
    pub fn open_round(&mut self, backends: &[Backend]) -> (Vec<Member>, Vec<Wanted>) {
        let (mut members, mut wishes) = (Vec::new(), Vec::new());
        for c in &mut self.climbers {
            (c.area, c.started, c.granted) = (0.0, 0.0, None);
            let Some(b) = backends.iter().find(|b| b.id == c.id && b.is_usable()) else {
                continue;
            };
            c.errors_before = b.health.error_share();
            let bound = if c.w_max > 0.0 { c.w_max } else { b.wanted.share.max(1e-3) };
            let capacity = c.w_max.max(0.0);
            members.push(Member { backend: c.id, bound, capacity });
            if let Some(weight) = c.wanted {
                let priority =
                    if c.over_utilised { Priority::OverUtilised } else { Priority::Rest };
                wishes.push(Wanted { backend: c.id, weight, priority, ticket: c.ticket });
            }
        }
        (members, wishes)
    }

    /// Whether a backend that does not serve has not finished its climb.
    pub fn misses_unfinished(&self, backends: &[Backend]) -> bool {
        let is_known = |id| self.climbers.iter().any(|c| c.id == id && c.wanted.is_none());
        backends.iter().any(|b| !b.is_usable() && !is_known(b.id))
    }

    /// Its weights are no longer in force, or show nothing.
    pub fn interrupt(&mut self) {
        self.round = None;
        self.climbers.iter_mut().for_each(|c| c.granted = None);
    }
}
