//! The loads at which all backends have the same level, and that sum up to the total.

use crate::terms::Term;

/// More than Newton's method needs, and enough for bisection to end in rounding.
const MAX_ITERATIONS: usize = 200;
/// Sums of loads this close to the total (relatively) are the total.
const CLOSE: f64 = 1e-12;

/// Loads and the level they share.
pub(crate) struct Filled {
    pub loads: Vec<f64>,
    /// The level; every backend strictly between its ends has it.
    pub level: f64,
}

/// Shares out `total`, which must lie between the sums of the terms' ends.
///
/// The sum of the loads grows with the level, so the level is found by Newton's method within a bracket
/// (`O(backends)` a step, about ten steps). Where the sum jumps, because some latency is flat, the
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
    let mut level = 0.5 * (low + high);
    let mut before = f64::INFINITY;
    for _ in 0..MAX_ITERATIONS {
        let (sum, growth) = sum_at(terms, level);
        let over = sum - total;
        if over.abs() <= CLOSE * total {
            let loads = terms.iter().map(|term| term.load_at(level).0).collect();
            return Filled { loads, level };
        }
        if over > 0.0 {
            high = level;
        } else {
            low = level;
        }
        let newton = level - over / growth;
        let stalls = over.abs() > 0.5 * before;
        before = over.abs();
        level = if newton > low && newton < high && !stalls { newton } else { 0.5 * (low + high) };
        if high - low <= 1e-15 * high.abs() || level <= low || level >= high {
            break;
        }
    }
    between(terms, total, low, high)
}

fn sum_at(terms: &[Term], level: f64) -> (f64, f64) {
    terms.iter().fold((0.0, 0.0), |(sum, growth), term| {
        let (load, more) = term.load_at(level);
        (sum + load, growth + more)
    })
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
