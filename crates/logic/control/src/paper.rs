//! KnapsackLB's own way to learn (§4.3, §4.6), as a switch: every backend is driven up in rounds until
//! its latency says stop, wishes wait their turn so that weights sum to one, and only then the pool is
//! packed. For balancers that split the traffic.

use plimsoll_learn::{
    Assignment, Exploration as Climb, ExploreMode, ExploreOptions, Measurement, Member, Priority,
    Step, Wanted, schedule,
};
use plimsoll_model::{BackendId, Nanos};
use plimsoll_pack::round_to_range;

use crate::backend::Backend;
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::plan::{Decision, Wish};
use crate::spec::Exploration;
use crate::view::Phase;

/// The part of a round, from its beginning, whose measurements still show the weights before.
const SETTLING: f64 = 0.4;
/// The part of the capacity that may be refreshed at a time (§4.5).
const REFRESH_SHARE: f64 = 0.05;

/// One backend's climb.
#[derive(Clone, Debug)]
struct Climber {
    id: BackendId,
    climb: Climb,
    wanted: Option<f64>,
    over_utilised: bool,
    ticket: u64,
    w_max: f64,
    granted: bool,
    area: f64,
    started: f64,
    errors_before: f64,
}

/// An exploration in the paper's way.
#[derive(Clone, Debug)]
pub(crate) struct PaperRun {
    climbers: Vec<Climber>,
    round_began: Nanos,
    tickets: u64,
}

impl PaperRun {
    fn new(
        now: Nanos,
        ids: impl Iterator<Item = BackendId>,
        options: ExploreOptions,
    ) -> Option<Self> {
        let ids: Vec<BackendId> = ids.collect();
        let first = 1.0 / ids.len().max(1) as f64;
        let mut climbers = Vec::with_capacity(ids.len());
        for (ticket, id) in ids.into_iter().enumerate() {
            let climb = Climb::new(first, options).ok()?;
            climbers.push(Climber {
                id,
                climb,
                wanted: Some(first),
                over_utilised: false,
                ticket: ticket as u64,
                w_max: 0.0,
                granted: true,
                area: 0.0,
                started: 0.0,
                errors_before: 0.0,
            });
        }
        Some(PaperRun { tickets: climbers.len() as u64, climbers, round_began: now })
    }

    /// Who takes part in the round that begins, and what they wish for.
    fn open_round(&mut self, backends: &[Backend]) -> (Vec<Member>, Vec<Wanted>) {
        let (mut members, mut wishes) = (Vec::new(), Vec::new());
        for c in &mut self.climbers {
            (c.area, c.started) = (0.0, 0.0);
            let Some(b) = backends.iter().find(|b| b.id == c.id && b.is_usable()) else {
                continue;
            };
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
}

impl Controller {
    /// Gathers a window's measurements for the round.
    pub(crate) fn paper_window(&mut self, now: Nanos) {
        let round = self.spec.round;
        let Some(run) = &mut self.paper else { return };
        if now.since(run.round_began) < round.mul_f64(SETTLING) {
            return;
        }
        for c in &mut run.climbers {
            if let Some(b) = self.backends.iter().find(|b| b.id == c.id) {
                c.area += b.recent.in_flight;
                c.started += b.recent.rate_rps;
            }
        }
    }

    /// Drives the exploration; true while it is in charge.
    pub(crate) fn paper_act(&mut self, now: Nanos, out: &mut Vec<Action>) -> bool {
        if !self.explores_by_paper() {
            self.paper = None;
            return false;
        }
        if self.paper.is_none() {
            if self.history.rate_rps().is_none() {
                return true;
            }
            let options = self.explore_options();
            let ids = self.backends.iter().filter(|b| b.is_usable()).map(|b| b.id);
            self.paper = PaperRun::new(now, ids, options);
            self.next_round(now, out);
            return true;
        }
        let began = self.paper.as_ref().map_or(now, |run| run.round_began);
        if now.since(began) >= self.spec.round {
            self.measure_round();
            self.next_round(now, out);
        }
        self.phase == Phase::Exploring
    }

    fn explore_options(&self) -> ExploreOptions {
        ExploreOptions {
            mode: match self.spec.exploration {
                Exploration::Literal => ExploreMode::Literal,
                _ => ExploreMode::Bisect,
            },
            latency_factor: self.spec.latency_factor,
            max_step: self.spec.max_step,
            ..ExploreOptions::default()
        }
    }

    fn measure_round(&mut self) {
        let Some(run) = &mut self.paper else { return };
        let total: f64 = self.backends.iter().map(|b| b.recent.rate_rps).sum();
        for c in run.climbers.iter_mut().filter(|c| c.granted && c.wanted.is_some()) {
            let Some(b) = self.backends.iter().find(|b| b.id == c.id) else { continue };
            let Some(l0_us) = b.knowledge.service_us() else { continue };
            let latency_us = if c.started > 0.0 { c.area / c.started * 1e6 } else { l0_us };
            let weight = if total > 0.0 { b.recent.rate_rps / total } else { b.wanted.share };
            let dropped = b.health.is_down() || b.health.error_share() > c.errors_before + 0.01;
            let step = c.climb.next(&Measurement { weight, l0_us, latency_us, dropped });
            c.over_utilised = latency_us > self.spec.latency_factor * l0_us;
            run.tickets += 1;
            c.ticket = run.tickets;
            match step {
                Step::Measure(w) => c.wanted = Some(w),
                Step::Done { w_max } => {
                    c.wanted = None;
                    c.w_max = w_max;
                }
            }
        }
    }

    fn next_round(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let Some(run) = &mut self.paper else { return };
        run.round_began = now;
        if run.climbers.iter().all(|c| c.wanted.is_none()) {
            self.end_paper(now, "every backend's curve is known: packing", out);
            return;
        }
        let (members, wishes) = run.open_round(&self.backends);
        let assignment = match schedule(&members, &wishes, REFRESH_SHARE) {
            Ok(assignment) => assignment,
            Err(error) => {
                record(out, RecordKind::Warning, None, format!("no schedule: {error}"));
                return;
            }
        };
        if assignment.granted.is_empty() {
            // What they wish for leaves more than the others can carry, now and in every later round.
            self.end_paper(now, "no further wish can be granted: packing", out);
            return;
        }
        for c in &mut run.climbers {
            c.granted = assignment.granted.contains(&c.id);
        }
        self.program_round(now, &assignment, out);
    }

    fn end_paper(&mut self, now: Nanos, why: &str, out: &mut Vec<Action>) {
        self.paper = None;
        self.set_phase(Phase::Steady, why, out);
        self.next_decision = now;
    }

    fn program_round(&mut self, now: Nanos, assignment: &Assignment, out: &mut Vec<Action>) {
        let shares: Vec<f64> = assignment.weights.iter().map(|(_, w)| *w).collect();
        let Ok(rounded) = round_to_range(&shares, None, self.spec.sink.range.clone()) else {
            return;
        };
        let wish = |(&(id, share), &weight): (&(BackendId, f64), &u32)| Wish {
            id,
            share,
            weight,
            expected_us: None,
            reason: if assignment.granted.contains(&id) {
                "measured at the weight it asked for".to_owned()
            } else {
                "carries what the others leave".to_owned()
            },
        };
        let wishes = assignment.weights.iter().zip(&rounded.weights).map(wish).collect();
        let rate_rps = self.history.rate_rps().unwrap_or(0.0);
        let decision = Decision { wishes, rate_rps, still_learning: true, ..Decision::default() };
        let reason = format!(
            "exploring: {} measured, {} wait",
            assignment.granted.len(),
            assignment.waiting.len()
        );
        self.program(now, decision, reason, false, out);
    }
}
