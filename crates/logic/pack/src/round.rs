use std::ops::RangeInclusive;

use plimsoll_model::Objective;

use crate::continuous::{cost_unit, value};
use crate::problem::{CurveProblem, PackError};
use crate::terms::{Term, terms};

/// Integer weights for a balancer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounded {
    /// One weight per backend, within the range.
    pub weights: Vec<u32>,
    /// The shares that these weights make.
    pub shares: Vec<f64>,
    /// The objective at those shares; without curves `Σ error² / share`, small shares aside.
    pub cost: f64,
}

/// A backend whose ideal weight is at least this never gets weight 0 instead: it would vanish from the
/// balancer. Below, weight 1 would give it more than ten times its share.
const KEEP_FROM: f64 = 0.1;
/// The most scales that are tried, from the range's end down to its half.
const MAX_SCALES: u32 = 256;
/// Shares below this are rounded by their absolute error.
const SMALL: f64 = 0.02;
/// Load beyond a backend's bound multiplies the cost by this, per part of the total.
const BEYOND: f64 = 1_000.0;
/// What is added before rounding down. 0.5 errs least on the whole; less of it errs on the side of
/// lighter small weights, whose rounding up counts most under [`Objective::Max`].
const OFFSETS: [f64; 5] = [0.5, 0.4, 0.3, 0.2, 0.1];
/// Single weights are improved one by one in pools up to this size; in larger ones rounding errors
/// cancel out, and it would cost too much.
const IMPROVE_UP_TO: usize = 64;
/// Passes of that improvement.
const PASSES: usize = 4;

/// Rounds shares to the integer weights that a balancer takes.
///
/// A balancer shares traffic in proportion to its weights, so any scale will do: every greatest weight
/// from half of the range's end to all of it is tried, each with several thresholds between rounding
/// down and up. The cheapest is kept, judged on the curves when there are some, else by the error of the
/// shares. Equal shares get equal weights, and a backend with a share keeps a weight of 1 at least,
/// unless its ideal weight on the full range is under 0.1, or weight 1 would overload it whatever the
/// scale.
///
/// # Errors
/// Shares that are negative, no numbers or all zero, or not one per backend; a range without a positive
/// weight; malformed curves.
pub fn round_to_range(
    shares: &[f64],
    curves: Option<(&CurveProblem, Objective)>,
    range: RangeInclusive<u32>,
) -> Result<Rounded, PackError> {
    let greatest = shares.iter().copied().fold(0.0, f64::max);
    let fine = |share: &f64| share.is_finite() && *share >= 0.0;
    if greatest <= 0.0 || !shares.iter().all(fine) {
        return Err(PackError::BadShares);
    }
    if range.is_empty() || *range.end() == 0 {
        return Err(PackError::BadRange);
    }
    let judge = match curves {
        Some((problem, _)) if problem.backends.len() != shares.len() => {
            return Err(PackError::BadShares);
        }
        Some((problem, objective)) => Judge::Curves {
            terms: terms(problem, objective)?,
            objective,
            total: problem.total,
            unit: cost_unit(problem, objective),
        },
        None => {
            let sum: f64 = shares.iter().sum();
            Judge::Shares(shares.iter().map(|share| share / sum).collect())
        }
    };
    let ideal: Vec<f64> = shares.iter().map(|share| share / greatest).collect();
    let mut rounding = Rounding { ideal, judge, range, loads: Vec::new() };
    let mut best = rounding.best_scale(true);
    if best.0.is_infinite() {
        best = rounding.best_scale(false);
    }
    if shares.len() <= IMPROVE_UP_TO {
        rounding.improve(&mut best);
    }
    let (cost, weights) = best;
    let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    let shares = weights.iter().map(|&weight| f64::from(weight) / sum).collect();
    Ok(Rounded { weights, shares, cost })
}

/// What makes one rounding better than another.
enum Judge<'a> {
    Curves { terms: Vec<Term<'a>>, objective: Objective, total: f64, unit: f64 },
    Shares(Vec<f64>),
}

struct Rounding<'a> {
    /// Relative to the greatest share.
    ideal: Vec<f64>,
    judge: Judge<'a>,
    range: RangeInclusive<u32>,
    /// Buffer of [`Self::cost`].
    loads: Vec<f64>,
}

impl Rounding<'_> {
    /// The cheapest scale and its weights.
    fn best_scale(&mut self, keep: bool) -> (f64, Vec<u32>) {
        let (start, end) = (*self.range.start(), *self.range.end());
        let least = (end / 2).max(start).max(1);
        let stride = ((end - least) / MAX_SCALES).max(1);
        let mut weights = Vec::with_capacity(self.ideal.len());
        let mut best = (f64::INFINITY, Vec::new());
        for scale in (least..=end).rev().step_by(stride as usize) {
            for offset in OFFSETS {
                self.round(scale, offset, keep, &mut weights);
                let cost = self.cost(&weights);
                if cost < best.0 || best.1.is_empty() {
                    best.0 = cost;
                    best.1.clone_from(&weights);
                }
            }
        }
        best
    }

    fn round(&self, scale: u32, offset: f64, keep: bool, weights: &mut Vec<u32>) {
        let (start, end) = (*self.range.start(), *self.range.end());
        weights.clear();
        weights.extend(self.ideal.iter().map(|ideal| {
            let weight = (ideal * f64::from(scale) + offset).floor() as u32;
            let kept = keep && ideal * f64::from(end) >= KEEP_FROM;
            weight.max(u32::from(kept)).clamp(start, end)
        }));
    }

    fn cost(&mut self, weights: &[u32]) -> f64 {
        let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        if sum == 0.0 {
            return f64::INFINITY;
        }
        match &self.judge {
            Judge::Curves { terms, objective, total, unit } => {
                self.loads.clear();
                let loads = weights.iter().map(|&weight| f64::from(weight) / sum * total);
                self.loads.extend(loads);
                // Curves go on beyond what a backend may be given: to the nearest weight is as far as
                // rounding may go there.
                let nearest = 0.5 * total / sum;
                let beyond =
                    terms.iter().zip(&self.loads).map(|(t, l)| (l - t.most - nearest).max(0.0));
                let fine = 1.0 + BEYOND * beyond.sum::<f64>() / total;
                value(terms, *objective, &self.loads) * unit * fine
            }
            Judge::Shares(shares) => weights
                .iter()
                .zip(shares)
                .map(|(&weight, &share)| {
                    let made = f64::from(weight) / sum;
                    let error = made - share;
                    // Relative, but for shares too small to matter.
                    if share > 0.0 { error * error / (share + SMALL) } else { made }
                })
                .sum(),
        }
    }

    /// Moves the weights of equal shares up or down by one together, while that helps.
    fn improve(&mut self, best: &mut (f64, Vec<u32>)) {
        let mut order: Vec<usize> = (0..self.ideal.len()).collect();
        order.sort_by(|&x, &y| self.ideal[x].total_cmp(&self.ideal[y]));
        let ideal = self.ideal.clone();
        for _ in 0..PASSES {
            let before = best.0;
            for alike in order.chunk_by(|&x, &y| ideal[x] == ideal[y]) {
                let weight = best.1[alike[0]];
                // Zeros and kept ones stay what they are: that was decided on other grounds.
                let lower = (*self.range.start()).max(1);
                for other in [weight.saturating_sub(1), weight.saturating_add(1)] {
                    if weight == 0 || other < lower || other > *self.range.end() {
                        continue;
                    }
                    let mut changed = best.1.clone();
                    alike.iter().for_each(|&at| changed[at] = other);
                    let cost = self.cost(&changed);
                    if cost < best.0 {
                        *best = (cost, changed);
                    }
                }
            }
            if best.0 >= before {
                break;
            }
        }
    }
}
