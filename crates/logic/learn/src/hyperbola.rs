//! Fits `l(x) = a + b / (c − x)`, `a, b ≥ 0`, to points: relative least squares, each point weighted
//! by its precision.
//!
//! For a given c the problem is linear: with the basis `1, c/(c−x)` the best non-negative pair has a closed form. c is
//! searched on a geometric grid of `c − x_max`, then by golden section. The grid's objective is also the profile
//! likelihood of c: where it stays flat towards great c, the data do not show the capacity, and the smallest c that
//! they do not contradict is taken as a lower bound. Leave-one-out fits come from the same pass, with each fold's sums
//! being the totals less its own. Cost O(grid × points). It fails where latency rises in two distinct stages: see
//! `pchip`.

use plimsoll_model::Hyperbola;

use crate::fit::CapacityHint;
use crate::golden;

/// Values of c tried before the golden section.
const GRID: usize = 44;
/// Golden-section steps over two grid cells: to 0.618^18 of them, 0.02 %.
const REFINEMENTS: u32 = 18;
/// c is searched up to this multiple of its least value: beyond it a hyperbola over the points is a straight line.
const RANGE: f64 = 20.0;
/// The capacity is at least this far above every load that was served without loss: an M/M/1 queue at 0.5 % below its
/// capacity would be 200 times slower than idle, and seldom answers at all.
pub(crate) const LEAST_ROOM: f64 = 1.005;
/// Model error, relative: more than 1/0.02² requests do not increase the precision of a point.
const MODEL_ERROR: f64 = 0.02;
/// Weight of the prior that a point's noise is 1/√requests, in degrees of freedom.
const NOISE_BELIEF: f64 = 4.0;

/// Points ready for fitting: ascending distinct loads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighted {
    pub(crate) load: f64,
    pub(crate) latency: f64,
    /// 1 / variance of the relative error of the latency.
    pub(crate) precision: f64,
}

/// Precision of a mean over this many requests. A mean of n exponential-like samples has the relative
/// standard error 1/√n.
pub(crate) fn precision(requests: f64) -> f64 {
    1.0 / (1.0 / requests + MODEL_ERROR * MODEL_ERROR)
}

/// The fit over all points, and one per fold, `fold = index % folds`.
#[derive(Clone, Debug)]
pub(crate) struct HyperbolaFits {
    pub(crate) best: Hyperbola,
    pub(crate) lower_bound: bool,
    pub(crate) without_fold: Vec<Hyperbola>,
}

/// Weighted sums over the basis `p = 1`, `q = c/(c − x)` and the target y, all divided by the point's
/// scale.
#[derive(Clone, Copy, Default)]
struct Sums {
    pp: f64,
    pq: f64,
    qq: f64,
    py: f64,
    qy: f64,
    yy: f64,
}

impl Sums {
    /// Adds the parts that do not depend on c.
    fn add_fixed(&mut self, weight: f64, y: f64) {
        let wy = weight * y;
        self.pp += weight;
        self.py += wy;
        self.yy += wy * y;
    }

    /// Adds the parts that do.
    fn add_moving(&mut self, weight: f64, q: f64, y: f64) {
        let wq = weight * q;
        self.pq += wq;
        self.qq += wq * q;
        self.qy += wq * y;
    }

    fn less(&self, part: &Sums) -> Sums {
        Sums {
            pp: self.pp - part.pp,
            pq: self.pq - part.pq,
            qq: self.qq - part.qq,
            py: self.py - part.py,
            qy: self.qy - part.qy,
            yy: self.yy - part.yy,
        }
    }

    /// The best `(a, b/c) ≥ 0` and its weighted squared error.
    fn solve(&self) -> (f64, f64, f64) {
        let determinant = self.pp * self.qq - self.pq * self.pq;
        let (mut a, mut b) = if determinant > 1e-12 * self.pp * self.qq {
            (
                (self.py * self.qq - self.qy * self.pq) / determinant,
                (self.pp * self.qy - self.pq * self.py) / determinant,
            )
        } else {
            (self.py / self.pp, 0.0)
        };
        if a < 0.0 {
            (a, b) = (0.0, self.qy / self.qq);
        }
        if b < 0.0 {
            (a, b) = (self.py / self.pp, 0.0);
        }
        let error = self.yy - 2.0 * (a * self.py + b * self.qy)
            + a * a * self.pp
            + 2.0 * a * b * self.pq
            + b * b * self.qq;
        (a, b, error.max(0.0))
    }
}

/// Where c is searched: `offset + low · ratio^k`, k = 0…GRID−1.
struct Grid {
    offset: f64,
    low: f64,
    step: f64,
}

impl Grid {
    fn new(largest_load: f64, hint: &CapacityHint) -> Grid {
        let least = least_capacity(largest_load, hint);
        let greatest = match hint.at_most {
            Some(most) if most > least * LEAST_ROOM => most,
            Some(_) => least * LEAST_ROOM,
            None => RANGE * hint.about.map_or(least, |(value, _)| value.max(least)),
        };
        let low = least - largest_load;
        let step = ((greatest - largest_load) / low).ln() / (GRID - 1) as f64;
        Grid { offset: largest_load, low, step }
    }

    fn at(&self, k: f64) -> f64 {
        self.offset + self.low * (self.step * k).exp()
    }
}

/// The least capacity that the served loads and the hint allow.
fn least_capacity(largest_load: f64, hint: &CapacityHint) -> f64 {
    let seen = LEAST_ROOM * largest_load;
    let hinted = hint.at_least.unwrap_or(0.0).max(seen);
    match hint.about {
        // Without served loads the expected value alone sets the scale.
        Some((value, _)) if hinted <= 0.0 => value * 0.1,
        _ => hinted,
    }
}

/// How far this capacity deviates from the hint's expected one, in the units of the squared error.
fn surprise(c: f64, hint: &CapacityHint) -> f64 {
    hint.about.map_or(0.0, |(value, relative_sd)| {
        let z = (c / value).ln() / relative_sd;
        z * z
    })
}

/// Fits points with at least two distinct loads, ascending. `folds` of 0 leaves cross-validation out.
pub(crate) fn fit(points: &[Weighted], hint: &CapacityHint, folds: usize) -> HyperbolaFits {
    let largest = points.last().map_or(0.0, |point| point.load);
    let grid = Grid::new(largest, hint);
    // First pass: scaled by the measured latency, which favours points that are low by noise. Second pass: scaled by
    // the first's curve, which does not.
    let scales: Vec<f64> = points.iter().map(|p| p.precision / (p.latency * p.latency)).collect();
    let first = search(points, &scales, &grid, hint, 0).refined;
    let scales: Vec<f64> = points
        .iter()
        .map(|p| {
            let near = first.a + first.b / (first.c - p.load);
            let near = near.clamp(0.25 * p.latency, 4.0 * p.latency);
            p.precision / (near * near)
        })
        .collect();
    let found = search(points, &scales, &grid, hint, folds);

    let freedom = (points.len() as f64 - 3.0).max(0.0);
    let spread = (found.least_error + NOISE_BELIEF) / (freedom + NOISE_BELIEF);
    let tolerated = found.least_error + spread;
    let far = (2.0 * found.refined.c).min(grid.at((GRID - 1) as f64));
    let open =
        (0..GRID).any(|k| grid.at(k as f64) >= far * (1.0 - 1e-9) && found.profile[k] <= tolerated);
    let mut best = found.refined;
    if open {
        let k = found.profile.iter().position(|&error| error <= tolerated).unwrap_or(0);
        let (fixed, _) = fixed_sums(points, &scales, 0);
        best = at_capacity(points, &scales, grid.at(k as f64), fixed).0;
    }
    HyperbolaFits { best, lower_bound: open, without_fold: found.without_fold }
}

struct Search {
    refined: Hyperbola,
    least_error: f64,
    /// Objective at each grid value of c.
    profile: [f64; GRID],
    without_fold: Vec<Hyperbola>,
}

fn search(
    points: &[Weighted],
    scales: &[f64],
    grid: &Grid,
    hint: &CapacityHint,
    folds: usize,
) -> Search {
    let mut profile = [0.0; GRID];
    let mut leave_out = vec![(f64::INFINITY, Hyperbola { a: 0.0, b: 0.0, c: 1.0 }); folds];
    let (fixed, fixed_parts) = fixed_sums(points, scales, folds);
    let mut parts = fixed_parts.clone();
    for (k, slot) in profile.iter_mut().enumerate() {
        let c = grid.at(k as f64);
        parts.copy_from_slice(&fixed_parts);
        let total = sums_at(points, scales, c, fixed, &mut parts);
        let penalty = surprise(c, hint);
        *slot = total.solve().2 + penalty;
        for (part, best) in parts.iter().zip(leave_out.iter_mut()) {
            let (a, b, error) = total.less(part).solve();
            if error + penalty < best.0 {
                *best = (error + penalty, Hyperbola { a, b: b * c, c });
            }
        }
    }
    let objective = |k: f64| {
        let c = grid.at(k);
        at_capacity(points, scales, c, fixed).1 + surprise(c, hint)
    };
    let start = (0..GRID).min_by(|&i, &j| profile[i].total_cmp(&profile[j])).unwrap_or(0) as f64;
    let (low, high) = ((start - 1.0).max(0.0), (start + 1.0).min((GRID - 1) as f64));
    let c = grid.at(golden::minimise(objective, low, high, REFINEMENTS));
    let (refined, error) = at_capacity(points, scales, c, fixed);
    let least_error = error + surprise(c, hint);
    Search {
        refined,
        least_error,
        profile,
        without_fold: leave_out.into_iter().map(|(_, curve)| curve).collect(),
    }
}

/// The sums that do not depend on c: over all points, and each fold's part.
fn fixed_sums(points: &[Weighted], scales: &[f64], folds: usize) -> (Sums, Vec<Sums>) {
    let (mut total, mut parts) = (Sums::default(), vec![Sums::default(); folds]);
    for (i, (point, &scale)) in points.iter().zip(scales).enumerate() {
        total.add_fixed(scale, point.latency);
        if folds > 0 {
            parts[i % folds].add_fixed(scale, point.latency);
        }
    }
    (total, parts)
}

/// Sums over all points at this c, added to the fixed ones; the part of each fold goes to `parts`.
fn sums_at(points: &[Weighted], scales: &[f64], c: f64, fixed: Sums, parts: &mut [Sums]) -> Sums {
    let mut total = fixed;
    let mut fold = 0;
    for (point, &scale) in points.iter().zip(scales) {
        let q = c / (c - point.load);
        total.add_moving(scale, q, point.latency);
        if let Some(part) = parts.get_mut(fold) {
            part.add_moving(scale, q, point.latency);
            fold = (fold + 1) % parts.len();
        }
    }
    total
}

fn at_capacity(points: &[Weighted], scales: &[f64], c: f64, fixed: Sums) -> (Hyperbola, f64) {
    let (a, b, error) = sums_at(points, scales, c, fixed, &mut []).solve();
    (Hyperbola { a, b: b * c, c }, error)
}
