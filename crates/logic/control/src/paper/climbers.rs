//! Those who climb in KnapsackLB's way to learn (§4.3), and the rounds that they climb in (§4.6).

use std::time::Duration;

use plimsoll_learn::{
    Exploration as Climb, ExploreError, ExploreOptions, Measurement, Member, Priority, Step, Wanted,
};
use plimsoll_model::{BackendId, Nanos};

use crate::backend::Backend;
use crate::observe::traffic::WINDOW;

/// The part of a round, from its beginning, whose measurements still show the weights before.
pub(crate) const SETTLING: f64 = 0.4;
/// A round is measured by this part of the windows that it has room for, at the least.
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
    /// The weight it asked for and has, in the round that goes on.
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

/// Weights that are held for a while, to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// The last plan when it began: where there is another, its weights are not in force.
    pub epoch: u64,
    /// Since when they are.
    pub since: Nanos,
    /// What was seen since they have settled: windows, and what the whole pool was given in them.
    pub windows: u32,
    pub started: f64,
}

impl Round {
    pub fn is_over(&self, now: Nanos, lasts: Duration) -> bool {
        let room = (1.0 - SETTLING) * lasts.as_secs_f64() / WINDOW.as_secs_f64();
        now.since(self.since) >= lasts && f64::from(self.windows) >= (ENOUGH * room).max(1.0)
    }
}

/// An exploration in the paper's way.
#[derive(Clone, Debug)]
pub(crate) struct PaperRun {
    /// What it has taken of its time, up to then: waiting for traffic takes nothing.
    pub taken: Duration,
    pub taken_at: Nanos,
    /// No round before: there was none to make without those who are out.
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

    /// Time passes. Before the first round it is none of the exploration's, whatever is waited for; nor is it
    /// where this process had no time itself.
    pub fn pass(&mut self, now: Nanos, rounds_are_possible: bool) {
        let passed = now.since(std::mem::replace(&mut self.taken_at, now));
        if rounds_are_possible && !self.climbers.is_empty() {
            self.taken += passed.min(WINDOW);
        }
    }

    /// Takes in those who serve and do not climb yet. Who was never measured begins with its part of those
    /// who serve now: with less it would only leave to others what they do not know to bear.
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

    /// Who takes part in the round that begins, and what they wish for.
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

    /// Whether somebody is out who has something left to tell.
    pub fn misses_somebody(&self, backends: &[Backend]) -> bool {
        let is_known = |id| self.climbers.iter().any(|c| c.id == id && c.wanted.is_none());
        backends.iter().any(|b| !b.is_usable() && !is_known(b.id))
    }

    /// Its weights are no longer in force, or show nothing.
    pub fn interrupt(&mut self) {
        self.round = None;
        self.climbers.iter_mut().for_each(|c| c.granted = None);
    }
}
