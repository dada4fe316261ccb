//! The menu problem with all chosen weights within θ of one another (KnapsackLB §4.4).
//!
//! The lightest chosen weight y fixes a window `[y, y + θ]`. Sweeping y upwards, every menu's hull within
//! the window is kept in a ladder of prices, which bounds each window in `O(log)`; then the windows are
//! solved exactly in ascending order of bound, until that passes the best solution found.

use crate::bounds::PriceLadder;
use crate::classes::{Classes, push_efficient};
use crate::core_search::search;
use crate::hull::{lower_hull, slope};
use crate::menu::LeastSum;
use crate::problem::{Choice, PackError};

/// Adding and removing costs in a ladder leaves rounding behind; bounds give this part of it away.
const LADDER_ROUNDING: f64 = 1e-10;

/// The cheapest choices within θ of one another that reach the target. None when there are none.
pub(crate) fn search_theta(
    classes: &Classes,
    target: i64,
    theta: i64,
    gap: f64,
    states: usize,
    work: &mut usize,
) -> Option<LeastSum> {
    let windows = bounded_windows(classes, target, theta);
    let mut best: Option<LeastSum> = None;
    // The least bound of all windows that were looked at, and of the first that was not.
    let mut bound = f64::INFINITY;
    for &(at_least, bottom) in &windows {
        let cutoff = best.as_ref().map_or(f64::INFINITY, |best| best.cost);
        if at_least >= cutoff - gap * cutoff.abs() || (best.is_some() && *work == 0) {
            bound = bound.min(at_least);
            break;
        }
        let top = bottom.saturating_add(theta);
        let Some(within) = classes.efficient(|item| bottom <= item.weight && item.weight <= top)
        else {
            continue;
        };
        *work = work.saturating_sub(within.items().len());
        let Some(found) = search(&within, target, cutoff, gap, states, work) else { continue };
        bound = bound.min(found.bound.max(at_least));
        if let Some(chosen) = found.chosen {
            best =
                Some(LeastSum { weights: within.weights(&chosen), cost: found.cost, bound: 0.0 });
        }
    }
    best.map(|best| LeastSum { bound: bound.min(best.cost), ..best })
}

/// The windows in which the target can be reached: a bound on the cost, and the bottom weight; in
/// ascending order of bound.
fn bounded_windows(classes: &Classes, target: i64, theta: i64) -> Vec<(f64, i64)> {
    let mut sweep = Sweep::new(classes, theta);
    let mut bottoms: Vec<i64> = classes.items().iter().map(|item| item.weight).collect();
    bottoms.sort_unstable();
    bottoms.dedup();
    let mut events = events(classes, theta);
    events.sort_unstable();
    let mut due = 0;
    let mut windows = Vec::new();
    for bottom in bottoms {
        while due < events.len() && events[due].0 <= bottom {
            sweep.update(events[due].1, bottom);
            due += 1;
        }
        if let Some(bound) = sweep.bound(target) {
            windows.push((bound, bottom));
        }
    }
    windows.sort_by(|x, y| x.0.total_cmp(&y.0).then(x.1.cmp(&y.1)));
    windows
}

/// When the window's bottom passes which value does which class change: an item falls out below, or one
/// comes in above.
fn events(classes: &Classes, theta: i64) -> Vec<(i64, usize)> {
    let mut events = Vec::with_capacity(classes.items().len() * 2);
    for (number, class) in classes.iter().enumerate() {
        for item in class {
            events.push((item.weight.saturating_add(1), number));
            events.push((item.weight.saturating_sub(theta), number));
        }
    }
    events
}

/// The relaxation of a window that slides upwards.
struct Sweep<'a> {
    classes: &'a Classes,
    theta: i64,
    ladder: PriceLadder,
    within: Vec<Within>,
    /// Classes with nothing in the window.
    empty: usize,
    /// Sums over the cheapest entries, and of the weight on the ladder.
    base_weight: i64,
    base_cost: f64,
    on_offer: i64,
    efficient: Vec<Choice>,
    hull: Vec<u32>,
}

/// What one class has in the window.
#[derive(Clone, Default)]
struct Within {
    base: Option<Choice>,
    /// Price, weight and cost of each step beyond the base.
    steps: Vec<(f64, i64, f64)>,
}

impl<'a> Sweep<'a> {
    fn new(classes: &'a Classes, theta: i64) -> Self {
        Sweep {
            classes,
            theta,
            ladder: PriceLadder::new(usual_price(classes)),
            within: vec![Within::default(); classes.len()],
            empty: classes.len(),
            base_weight: 0,
            base_cost: 0.0,
            on_offer: 0,
            efficient: Vec::new(),
            hull: Vec::new(),
        }
    }

    /// Brings one class up to date with the window's bottom.
    fn update(&mut self, number: usize, bottom: i64) {
        self.exchange(number, -1);
        let class = self.classes.class(number);
        let top = bottom.saturating_add(self.theta);
        let from = class.partition_point(|item| item.weight < bottom);
        let to = class.partition_point(|item| item.weight <= top);
        self.efficient.clear();
        push_efficient(class[from..to.max(from)].iter().copied(), &mut self.efficient);
        lower_hull(&self.efficient, &mut self.hull);
        let within = &mut self.within[number];
        within.base = self.efficient.first().copied();
        within.steps.clear();
        within.steps.extend(self.hull.windows(2).map(|edge| {
            let (from, to) = (self.efficient[edge[0] as usize], self.efficient[edge[1] as usize]);
            (slope(from, to), to.weight - from.weight, to.cost - from.cost)
        }));
        self.exchange(number, 1);
    }

    /// Adds a class to the sums (`sign` 1) or takes it out (−1).
    fn exchange(&mut self, number: usize, sign: i64) {
        let within = &self.within[number];
        let Some(base) = within.base else { return };
        let factor = sign as f64;
        self.empty = if sign > 0 { self.empty - 1 } else { self.empty + 1 };
        self.base_weight += sign * base.weight;
        self.base_cost += factor * base.cost;
        for &(price, weight, cost) in &within.steps {
            self.ladder.change(price, sign * weight, factor * cost);
            self.on_offer += sign * weight;
        }
    }

    /// A lower bound on the cost in this window. None when the target is out of reach.
    fn bound(&self, target: i64) -> Option<f64> {
        if self.empty > 0 || self.base_weight + self.on_offer < target {
            return None;
        }
        let steps = self.ladder.cover(target.saturating_sub(self.base_weight));
        let rounding = LADDER_ROUNDING * (self.base_cost.abs() + steps);
        Some(self.base_cost + steps - rounding)
    }
}

/// A price per unit of weight of the right order of magnitude, for the middle of the ladder.
fn usual_price(classes: &Classes) -> f64 {
    let (mut weight, mut cost) = (0.0, 0.0);
    for class in classes.iter() {
        weight += (class[class.len() - 1].weight - class[0].weight) as f64;
        let (least, most) = class.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |range, item| {
            (range.0.min(item.cost), range.1.max(item.cost))
        });
        cost += most - least;
    }
    if weight > 0.0 && cost > 0.0 { cost / weight } else { 1.0 }
}

/// The greatest sum of weights within θ of one another.
///
/// # Errors
/// [`PackError::ThetaTooSmall`] when no window of that width leaves every class an entry.
pub(crate) fn widest(classes: &Classes, theta: i64) -> Result<i64, PackError> {
    let mut items: Vec<(i64, usize)> = Vec::with_capacity(classes.items().len());
    for (number, class) in classes.iter().enumerate() {
        items.extend(class.iter().map(|item| (item.weight, number)));
    }
    items.sort_unstable();
    let mut heaviest: Vec<Option<i64>> = vec![None; classes.len()];
    let (mut sum, mut missing, mut due) = (0i64, classes.len(), 0);
    let mut best = None;
    let mut least = i64::MAX;
    for &(bottom, number) in &items {
        // The least window from this bottom up ends where the last class comes in.
        while due < items.len() && (missing > 0 || items[due].0 <= bottom.saturating_add(theta)) {
            let (weight, class) = items[due];
            match heaviest[class].replace(weight) {
                Some(before) => sum += weight - before,
                None => {
                    missing -= 1;
                    sum += weight;
                }
            }
            due += 1;
        }
        if missing > 0 {
            break;
        }
        // The last to come in is the heaviest. If that is too heavy, its class has nothing lighter here.
        let top = items[due - 1].0;
        if top - bottom <= theta {
            best = best.max(Some(sum));
        }
        least = least.min(top - bottom);
        if heaviest[number] == Some(bottom) {
            missing += 1;
            heaviest[number] = None;
            sum -= bottom;
        }
    }
    best.ok_or(PackError::ThetaTooSmall { theta: theta as f64, least: least as f64 })
}
