//! The loads at which all backends have the same level, and that sum up to the total.

use crate::terms::Term;

/// More than Newton's method needs, and enough for bisection to end in rounding.
const MAX_ITERATIONS: usize = 200;
/// Sums of loads this close to the total (relatively) are the total: where all are nearly full a unit of load costs
/// a hundred thousand times the mean.
const CLOSE: f64 = 1e-15;

/// Loads and the level they share.
pub(crate) struct Filled {
    pub loads: Vec<f64>,
    /// The level; every backend strictly between its ends has it.
    pub level: f64,
}

/// Shares out `total`, which must lie between the sums of the terms' ends.
///
/// The sum of the loads grows with the level λ, so the level is found by Newton's method within a bracket
/// (`O(backends)` a step, about six steps where the terms are alike), in `1/√(λ − λ₀)` with λ₀ the least level: near a
/// capacity loads are nearly straight in that under a marginal cost. Where the sum jumps, because some latency is flat, the
/// loads are interpolated between the two sides of the jump.
pub(crate) fn waterfill(terms: &[Term], total: f64) -> Filled {
    let mut low = f64::INFINITY;
    let mut high = f64::NEG_INFINITY;
    for term in terms {
        low = low.min(term.levels.0);
        high = high.max(term.levels.1);
    }
    // Beyond both ends, so that flat curves are on either side as well.
    low -= 1e-9 * low.abs();
    high += 1e-9 * high.abs() + f64::MIN_POSITIVE;
    let least = low;
    let mut level = even_level(terms, total).clamp(low, high);
    let mut before = f64::INFINITY;
    let mut loads = Vec::with_capacity(terms.len());
    for _ in 0..MAX_ITERATIONS {
        let growth = loads_at(terms, level, &mut loads);
        let over = loads.iter().sum::<f64>() - total;
        if over.abs() <= CLOSE * total {
            return Filled { loads, level };
        }
        if over > 0.0 {
            high = level;
        } else {
            low = level;
        }
        let above = level - least;
        let root = 1.0 / above.sqrt() + 0.5 * over / (growth * above * above.sqrt());
        let newton = if root > 0.0 { least + 1.0 / (root * root) } else { f64::NAN };
        let stalls = over.abs() > 0.5 * before;
        before = over.abs();
        level = if newton > low && newton < high && !stalls { newton } else { 0.5 * (low + high) };
        if high - low <= 1e-15 * high.abs() || level <= low || level >= high {
            break;
        }
    }
    between(terms, total, low, high)
}

/// The mean level of backends that are all filled to the same part: near what they share in the end.
fn even_level(terms: &[Term], total: f64) -> f64 {
    let (least, most) =
        terms.iter().fold((0.0, 0.0), |(least, most), term| (least + term.least, most + term.most));
    let part = if most > least { ((total - least) / (most - least)).clamp(0.0, 1.0) } else { 0.5 };
    let levels = terms.iter().map(|term| term.level(term.least + part * (term.most - term.least)));
    levels.sum::<f64>() / terms.len() as f64
}

/// The loads at a level, and how fast their sum grows with it.
fn loads_at(terms: &[Term], level: f64, loads: &mut Vec<f64>) -> f64 {
    loads.clear();
    let mut growth = 0.0;
    for term in terms {
        let (load, more) = term.load_at(level);
        loads.push(load);
        growth += more;
    }
    growth
}

/// The mixture of the loads at two levels that has the right sum.
fn between(terms: &[Term], total: f64, low: f64, high: f64) -> Filled {
    let at = |level: f64| -> Vec<f64> { terms.iter().map(|term| term.load_at(level).0).collect() };
    let loads = mix(at(low), &at(high), total);
    Filled { loads, level: low }
}

/// The mixture of `less` and `more` with this sum, or the nearer of the two.
pub(crate) fn mix(mut less: Vec<f64>, more: &[f64], total: f64) -> Vec<f64> {
    let (low, high): (f64, f64) = (less.iter().sum(), more.iter().sum());
    let part = if high > low { ((total - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };
    for (load, more) in less.iter_mut().zip(more) {
        *load += part * (more - *load);
    }
    less
}
