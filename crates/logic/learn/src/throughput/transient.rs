//! How many completions follow a poll that shows n in flight: the M/M/c queue in motion.
//!
//! The mean number in flight a time t after n obeys Kolmogorov's backward equation,
//! `u' = λ·(u(n+1) − u(n)) + v·min(n, c)·(u(n−1) − u(n))`, `u(0) = n`; what completed meanwhile is
//! `λt + n − u`. With cores to spare completions rise with n, in saturation they do not, so the
//! covariance of the two tells cores even where one load only was ever seen. Cost O(steps × levels);
//! it says nothing (and is not asked) where a request takes much less than the time between polls.

use super::block::Block;

/// Numbers in flight that are followed; blocks with greater ones are not judged.
const LEVELS: usize = 96;
/// Beyond so many events between two polls nothing of the first is left at the second.
const MOST_EVENTS: f64 = 48.0;
/// Pairs of polls without which a covariance says nothing.
const LEAST_PAIRS: f64 = 20.0;
/// Steps of the integration are this long, in mean times between events: within Runge-Kutta's bounds.
const STEP: f64 = 1.2;
/// The covariance is this much less certain than if completions were independent.
const CORRELATION: f64 = 2.0;

/// By how much the covariance of a block contradicts v and c: squared, in units of its variance.
pub(super) fn contradiction(block: &Block, v: f64, c: f64) -> f64 {
    let moves = &block.moves;
    let highest = block.levels.last().map_or(0.0, |level| level.0);
    // A queue as long as that tells its capacity without this, and is no stationary one.
    if moves.pairs < LEAST_PAIRS || v <= 0.0 || block.polls <= 0.0 || highest > LEVELS as f64 {
        return 0.0;
    }
    let interval = moves.seconds / moves.pairs;
    let arrivals = block.completions / block.seconds;
    let top = block.levels.last().map_or(0, |l| (l.0 as usize + 2).min(LEVELS));
    let events = interval * (arrivals + v * c.min(top as f64));
    if events > MOST_EVENTS || events <= 0.0 {
        return 0.0;
    }
    let later = later(arrivals, v, c, interval, events, top);
    let (mut n1, mut n2, mut d1, mut nd) = (0.0, 0.0, 0.0, 0.0);
    for &(level, polls) in &block.levels {
        let n = level.min(top as f64);
        let completed = arrivals * interval + n - later[n as usize];
        let p = polls / block.polls;
        n1 += p * n;
        n2 += p * n * n;
        d1 += p * completed;
        nd += p * n * completed;
    }
    let expected = nd - n1 * d1;
    let seen = moves.products / moves.pairs
        - moves.in_flight / moves.pairs * moves.completions / moves.pairs;
    let spread = (n2 - n1 * n1).max(0.1) * (moves.completions / moves.pairs).max(0.1);
    (seen - expected).powi(2) / (CORRELATION * spread / moves.pairs)
}

/// Mean number in flight after the interval, by the number at its beginning.
fn later(arrivals: f64, v: f64, c: f64, interval: f64, events: f64, top: usize) -> Vec<f64> {
    let steps = (events / STEP).ceil().max(2.0);
    let h = interval / steps;
    let slope = |u: &[f64], out: &mut [f64]| {
        for n in 0..u.len() {
            // Beyond the top a further arrival is one more in flight.
            let up = if n + 1 < u.len() { u[n + 1] - u[n] } else { 1.0 };
            let down = if n > 0 { u[n - 1] - u[n] } else { 0.0 };
            out[n] = arrivals * up + v * (n as f64).min(c) * down;
        }
    };
    let mut u: Vec<f64> = (0..=top).map(|n| n as f64).collect();
    let mut k = [vec![0.0; top + 1], vec![0.0; top + 1], vec![0.0; top + 1], vec![0.0; top + 1]];
    let mut at = u.clone();
    for _ in 0..steps as usize {
        let [k1, k2, k3, k4] = &mut k;
        slope(&u, k1);
        advance(&u, k1, 0.5 * h, &mut at);
        slope(&at, k2);
        advance(&u, k2, 0.5 * h, &mut at);
        slope(&at, k3);
        advance(&u, k3, h, &mut at);
        slope(&at, k4);
        for n in 0..=top {
            u[n] += h / 6.0 * (k1[n] + 2.0 * k2[n] + 2.0 * k3[n] + k4[n]);
        }
    }
    u
}

fn advance(from: &[f64], slope: &[f64], h: f64, to: &mut [f64]) {
    for ((to, from), slope) in to.iter_mut().zip(from).zip(slope) {
        *to = from + h * slope;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_cores_forget_exponentially_and_saturated_ones_do_not() {
        let (arrivals, v, t) = (50.0, 30.0, 0.1);
        let free = later(arrivals, v, 1e9, t, t * (arrivals + v * 40.0), 40);
        let rest = arrivals / v;
        for n in [0.0, 5.0, 20.0] {
            let exact = rest + (n - rest) * (-v * t).exp();
            assert!((free[n as usize] - exact).abs() < 1e-3, "{n}: {} {exact}", free[n as usize]);
        }
        let busy = later(arrivals, v, 1.0, t, t * (arrivals + v), 40);
        assert!((busy[30] - (30.0 + (arrivals - v) * t)).abs() < 1e-6);
    }
}
