//! The menu problem `min Σ cost, Σ weight ≥ target`, solved to proof.
//!
//! With λ and the base choice of the relaxation, a choice's *reduced cost*
//! `r = (cost − λ·weight) − (cost − λ·weight of the base) ≥ 0` says what it adds to the bound: every
//! solution costs `bound + Σ r + λ·(excess weight)`. So a solution within a budget B of the bound uses
//! choices with `r ≤ B` only (the core), and they are few. Both halves of the core are enumerated as
//! lists and joined (meet in the middle). A round that finds nothing proves that the optimum lies at
//! least B above the bound; the next round has four times the budget.
//!
//! Cost: dominated by the relaxation while the core is small, as in pools of unequal backends. It does
//! badly where weight and cost are strongly correlated (a fixed charge per used backend, say): many
//! choices have nearly no reduced cost. There [`crate::Effort`] ends the search, with the bound it has by then.

use crate::classes::Classes;
use crate::core::Core;
use crate::lp::{Relaxed, relax};
use crate::pareto::{Frame, Half, Move, Trail, cheapest_pair};

/// What a search came to.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The position chosen in each class; None when nothing undercuts the cutoff.
    pub chosen: Option<Vec<u32>>,
    /// The cost of the choice, or the cutoff.
    pub cost: f64,
    /// No solution costs less, the cutoff aside.
    pub bound: f64,
}

/// The budget grows by this factor from round to round.
const BUDGET_GROWTH: f64 = 4.0;
/// The first budget, as a part of the gap between the first solution and the bound.
const FIRST_BUDGET: f64 = 1.0 / 1024.0;
/// Below this part of the bound, differences of cost are rounding.
const ROUNDING: f64 = 1e-11;
/// The most rounds: 4⁶⁴ spans all finite numbers.
const MAX_ROUNDS: usize = 64;

/// Searches efficient classes for the cheapest choices that reach the target and cost less than
/// `cutoff`. Takes what it does from `work`, see [`crate::Effort`]. None when the target cannot be
/// reached.
pub(crate) fn search(
    classes: &Classes,
    target: i64,
    cutoff: f64,
    gap: f64,
    states: usize,
    work: &mut usize,
) -> Option<Found> {
    if target > classes.heaviest() {
        return None;
    }
    let target = classes.reachable_target(target);
    let relaxed = relax(classes, target)?;
    let mut search = Search::new(classes, relaxed, target, cutoff);
    search.run(gap, states, work);
    Some(Found { chosen: search.chosen, cost: search.cost, bound: search.bound })
}

struct Search<'a> {
    classes: &'a Classes,
    relaxed: Relaxed,
    /// The weight that the base lacks.
    need: i64,
    /// The least difference of cost that means anything.
    rounding: f64,
    chosen: Option<Vec<u32>>,
    cost: f64,
    bound: f64,
}

impl<'a> Search<'a> {
    /// Starts from the cheapest solution that changes a single class of the base.
    fn new(classes: &'a Classes, relaxed: Relaxed, target: i64, cutoff: f64) -> Self {
        let need = target.saturating_sub(relaxed.weight).max(0);
        let mut search = Search {
            rounding: ROUNDING * relaxed.bound.abs().max(relaxed.cost.abs()),
            bound: relaxed.bound,
            classes,
            relaxed,
            need,
            chosen: None,
            cost: cutoff,
        };
        let mut start = search.relaxed.base.clone();
        if search.relaxed.step.is_some() {
            let (class, to) = search.best_completion();
            start[class] = to;
        }
        search.offer(start);
        search
    }

    /// The change of one class that covers the need at the least cost. The relaxation's own step is
    /// one, so there is always some.
    fn best_completion(&self) -> (usize, u32) {
        let mut best = (f64::INFINITY, self.relaxed.step.unwrap_or_default());
        for (number, class) in self.classes.iter().enumerate() {
            let base = class[self.relaxed.base[number] as usize];
            // Costs ascend with weight: the first that covers is the cheapest.
            let to = class.partition_point(|item| item.weight - base.weight < self.need);
            if let Some(item) = class.get(to) {
                let extra = item.cost - base.cost;
                if extra < best.0 {
                    best = (extra, (number, to as u32));
                }
            }
        }
        best.1
    }

    /// Takes a solution if it is better.
    fn offer(&mut self, chosen: Vec<u32>) {
        let (_, cost) = self.classes.total(&chosen);
        if cost < self.cost {
            self.cost = cost;
            self.chosen = Some(chosen);
        }
    }

    fn close_enough(&self, gap: f64) -> bool {
        self.cost - self.bound <= (gap * self.cost.abs()).max(self.rounding)
    }

    fn run(&mut self, gap: f64, states: usize, work: &mut usize) {
        // Without a step the base is the cheapest choice of every class, and it covers the target.
        if self.relaxed.step.is_none() || self.close_enough(gap) {
            return;
        }
        let moves = self.moves();
        let (mut left, mut right) = (Half::default(), Half::default());
        let mut trail = Trail::default();
        let mut budget = ((self.cost - self.relaxed.bound) * FIRST_BUDGET)
            .max(1e-8 * self.relaxed.bound.abs())
            .max(self.rounding);
        for _ in 0..MAX_ROUNDS {
            if self.close_enough(gap) || *work == 0 {
                break;
            }
            let capped = budget.min(self.cost - self.relaxed.bound);
            let frame = self.frame(capped, states);
            let core = Core::within(self.classes, &moves, &frame);
            trail.clear();
            core.enumerate(&mut left, &mut right, &frame, work, &mut trail);
            if let Some((extra, nodes)) = cheapest_pair(&left, &right, &frame)
                && self.relaxed.bound + extra < self.cost - self.rounding
            {
                let mut chosen = self.relaxed.base.clone();
                for node in nodes {
                    trail.apply(node, &mut chosen);
                }
                self.offer(chosen);
            }
            if !(left.complete && right.complete) {
                break;
            }
            // All solutions within the budget were seen, and the best of them is in hand.
            self.bound = self.bound.max(self.cost.min(self.relaxed.bound + capped));
            if self.cost - self.relaxed.bound <= capped + self.rounding {
                self.bound = self.cost;
            }
            budget *= BUDGET_GROWTH;
        }
    }

    /// Every choice other than the base's, class by class.
    fn moves(&self) -> Vec<Move> {
        let lambda = self.relaxed.lambda;
        let mut moves = Vec::with_capacity(self.classes.len() * 10);
        for (number, class) in self.classes.iter().enumerate() {
            let at = self.relaxed.base[number] as usize;
            let base = class[at];
            moves.extend(class.iter().enumerate().filter(|&(to, _)| to != at).map(|(to, item)| {
                let weight = item.weight - base.weight;
                let price = lambda * weight as f64;
                let reduced = item.cost - base.cost - price;
                // What is on the relaxation's own edge has no reduced cost but for rounding.
                let noise = 8.0 * f64::EPSILON * (item.cost.abs() + base.cost.abs() + price.abs());
                let reduced = if reduced <= noise { 0.0 } else { reduced };
                Move { weight, reduced, class: number as u32, to: to as u32 }
            }));
        }
        moves
    }

    fn frame(&self, budget: f64, states: usize) -> Frame {
        let excess = (budget + self.rounding) / self.relaxed.lambda;
        Frame {
            budget,
            lambda: self.relaxed.lambda,
            need: self.need,
            // Saturates at the type's end where λ is next to nothing.
            most: self.need.saturating_add(excess.ceil() as i64),
            tolerance: self.rounding * 1e-3,
            states,
        }
    }
}
