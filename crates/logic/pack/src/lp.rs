//! The linear relaxation of the menu problem (Dyer 1984, Zemel 1984): walk every menu's lower hull in
//! order of slope until the target is covered. `O(items)` on average, by quickselect over the slopes.

use crate::classes::Classes;
use crate::hull::{lower_hull, slope};

/// The relaxation's answer.
#[derive(Clone, Debug)]
pub(crate) struct Relaxed {
    /// The choice of every class before the step that covers the target.
    pub base: Vec<u32>,
    /// Weight of the base.
    pub weight: i64,
    /// Cost of the base.
    pub cost: f64,
    /// The price of a unit of weight: the slope of the covering step; 0 when the base covers all.
    pub lambda: f64,
    /// No solution costs less.
    pub bound: f64,
    /// The step that covers the target: class, and the choice it leads to. None when the base does.
    pub step: Option<(usize, u32)>,
}

/// One edge of a hull.
#[derive(Clone, Copy)]
struct Step {
    slope: f64,
    weight: i64,
    class: u32,
    to: u32,
}

/// Ranges up to this length are sorted instead of split further.
const SORT_BELOW: usize = 64;

/// Solves the relaxation of efficient classes (ascending in weight and cost). None when even the
/// heaviest choices fall short of the target.
pub(crate) fn relax(classes: &Classes, target: i64) -> Option<Relaxed> {
    let mut base = vec![0u32; classes.len()];
    let lightest: i64 = classes.iter().map(|class| class[0].weight).sum();
    if lightest >= target {
        let (weight, cost) = classes.total(&base);
        return Some(Relaxed { base, weight, cost, lambda: 0.0, bound: cost, step: None });
    }
    let mut steps = hull_steps(classes);
    let mut need = target - lightest;
    let (mut from, mut to) = (0, steps.len());
    while to - from > SORT_BELOW {
        let half = (to - from) / 2;
        let range = &mut steps[from..to];
        range.select_nth_unstable_by(half, by_slope);
        let covered: i64 = range[..half].iter().map(|step| step.weight).sum();
        if covered < need {
            need -= covered;
            from += half;
        } else {
            to = from + half;
        }
    }
    steps[from..to].sort_unstable_by(by_slope);
    let covering = from
        + steps[from..].iter().position(|step| {
            need -= step.weight;
            need <= 0
        })?;
    for step in &steps[..covering] {
        let at = &mut base[step.class as usize];
        *at = step.to.max(*at);
    }
    let step = steps[covering];
    let (weight, cost) = classes.total(&base);
    let bound = cost + step.slope * (target - weight) as f64;
    let step = Some((step.class as usize, step.to));
    Some(Relaxed { base, weight, cost, lambda: steps[covering].slope, bound, step })
}

fn hull_steps(classes: &Classes) -> Vec<Step> {
    let mut steps = Vec::with_capacity(classes.len() * 8);
    let mut hull = Vec::new();
    for (number, class) in classes.iter().enumerate() {
        lower_hull(class, &mut hull);
        steps.extend(hull.windows(2).map(|edge| {
            let (from, to) = (class[edge[0] as usize], class[edge[1] as usize]);
            Step {
                slope: slope(from, to),
                weight: to.weight - from.weight,
                class: number as u32,
                to: edge[1],
            }
        }));
    }
    steps
}

fn by_slope(x: &Step, y: &Step) -> std::cmp::Ordering {
    x.slope.total_cmp(&y.slope).then(x.class.cmp(&y.class)).then(x.to.cmp(&y.to))
}
