use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_model::Objective;

use crate::continuous::{cost_unit, pack_curves, value};
use crate::packing::Packing;
use crate::problem::{CurveBackend, CurveProblem, PackError};
use crate::terms::{Term, terms};

/// A price that can be ordered.
#[derive(Clone, Copy, PartialEq)]
struct Price(f64);

impl Eq for Price {}

impl PartialOrd for Price {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Price {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Shares out a total load in whole units: backend i gets `weights[i] · total / units`, and the weights
/// sum up to `units`.
///
/// From the continuous optimum, rounded down, units are given and taken one by one at the best price,
/// until no unit can move from one backend to another at a gain. For convex costs that condition is
/// sufficient, so the result is proven to be the optimum among whole units.
/// `O((backends + moves) · log backends)`.
///
/// # Errors
/// As [`pack_curves`]; a pool short of capacity in whole units is [`PackError::Infeasible`].
pub fn pack_units(
    backends: &[CurveBackend],
    total: f64,
    objective: Objective,
    units: u32,
) -> Result<Packing<i64>, PackError> {
    if units == 0 {
        return Err(PackError::BadUnits);
    }
    let problem = CurveProblem { backends, total, theta: None };
    let continuous = pack_curves(&problem, objective)?;
    let terms = terms(&problem, objective)?;
    let unit = total / f64::from(units);
    let most: Vec<i64> =
        terms.iter().map(|term| (term.most / unit + 1e-9).floor() as i64).collect();
    let reachable: i64 = most.iter().sum();
    if reachable < i64::from(units) {
        return Err(PackError::Infeasible { needed: total, reachable: reachable as f64 * unit });
    }
    let start = continuous
        .weights
        .iter()
        .zip(&most)
        .map(|(share, &most)| ((share * f64::from(units)).floor() as i64).clamp(0, most));
    let mut grid = Grid { terms: &terms, objective, unit, weights: start.collect(), most };
    let settled = grid.settle(i64::from(units));
    let loads: Vec<f64> = grid.weights.iter().map(|&weight| weight as f64 * unit).collect();
    let cost = value(&terms, objective, &loads) * cost_unit(&problem, objective);
    // Without a gain left to make, convex costs leave nothing better among whole units.
    let convex = terms.iter().all(|term| term.level_rises());
    let bound = if settled && convex { cost } else { continuous.bound };
    Ok(Packing::new(cost, bound, grid.weights))
}

struct Grid<'a> {
    terms: &'a [Term<'a>],
    objective: Objective,
    unit: f64,
    weights: Vec<i64>,
    most: Vec<i64>,
}

impl Grid<'_> {
    /// What backend `at` pays for its unit number `number` (from 1).
    fn price(&self, at: usize, number: i64) -> f64 {
        let term = &self.terms[at];
        let cost = |count: i64| term.cost(count as f64 * self.unit);
        match self.objective {
            // A maximum does not add up: the price of a unit is the latency it leads to.
            Objective::Max => cost(number),
            _ => cost(number) - cost(number - 1),
        }
    }

    /// The cheapest next unit on offer. Offers that a change has made stale are renewed on sight.
    fn cheapest_offer(
        &self,
        offers: &mut BinaryHeap<Reverse<(Price, usize)>>,
    ) -> Option<(f64, usize)> {
        while let Some(Reverse((price, at))) = offers.pop() {
            if self.weights[at] >= self.most[at] {
                continue;
            }
            let now = Price(self.price(at, self.weights[at] + 1));
            offers.push(Reverse((now, at)));
            if now == price {
                return Some((now.0, at));
            }
        }
        None
    }

    /// The dearest unit in use.
    fn dearest_unit(&self, used: &mut BinaryHeap<(Price, usize)>) -> Option<(f64, usize)> {
        while let Some((price, at)) = used.pop() {
            if self.weights[at] <= 0 {
                continue;
            }
            let now = Price(self.price(at, self.weights[at]));
            used.push((now, at));
            if now == price {
                return Some((now.0, at));
            }
        }
        None
    }

    /// Brings the weights up to this sum, then moves units while that helps. Whether none is left to
    /// move.
    fn settle(&mut self, units: i64) -> bool {
        let mut offers: BinaryHeap<_> = (0..self.terms.len())
            .filter(|&at| self.weights[at] < self.most[at])
            .map(|at| Reverse((Price(self.price(at, self.weights[at] + 1)), at)))
            .collect();
        let mut missing = units - self.weights.iter().sum::<i64>();
        while missing > 0 {
            let Some((_, at)) = self.cheapest_offer(&mut offers) else { break };
            self.weights[at] += 1;
            missing -= 1;
        }
        let mut used: BinaryHeap<_> = (0..self.terms.len())
            .filter(|&at| self.weights[at] > 0)
            .map(|at| (Price(self.price(at, self.weights[at])), at))
            .collect();
        // Every move lowers the objective; the continuous start leaves about one per backend to make.
        let most_moves = 64 * self.terms.len() + 1024;
        for _ in 0..most_moves {
            let Some((gain, from)) = self.dearest_unit(&mut used) else { return true };
            let Some((price, to)) = self.cheapest_offer(&mut offers) else { return true };
            if from == to || gain <= price * (1.0 + 1e-12) {
                return true;
            }
            self.weights[from] -= 1;
            self.weights[to] += 1;
            self.renew(from, &mut offers, &mut used);
            self.renew(to, &mut offers, &mut used);
        }
        false
    }

    /// Offers and units of a backend whose weight has changed.
    fn renew(
        &self,
        at: usize,
        offers: &mut BinaryHeap<Reverse<(Price, usize)>>,
        used: &mut BinaryHeap<(Price, usize)>,
    ) {
        if self.weights[at] < self.most[at] {
            offers.push(Reverse((Price(self.price(at, self.weights[at] + 1)), at)));
        }
        if self.weights[at] > 0 {
            used.push((Price(self.price(at, self.weights[at])), at));
        }
    }
}
