//! Weighted least squares of `X = v · E[min(n, c)]` over (v, c), one observation per load.
//!
//! Blocks are first grouped by load. Among blocks of *one* load, more requests in flight mean that services happened to
//! be long, hence fewer completions than the model predicts: a regression through them finds saturation where there is
//! none (eight cores at 40 % load were taken for four). Across loads the causation is right. The differences among
//! blocks of one load give the noise.

use super::block::Block;
use super::loads::gather;
use super::scatter::Scatter;
use super::{Dispersion, Hints, Lagged, Throughput};
use crate::golden;

/// Values of c tried between 1 and the most ever in flight, evenly on a logarithmic scale.
const GRID: usize = 48;
/// Golden-section steps between two grid values.
const REFINEMENTS: u32 = 16;
/// Weight of the prior that completions are Poisson, in degrees of freedom.
const NOISE_BELIEF: f64 = 4.0;
/// Unlimited cores must fit worse by two standard deviations before a queue counts as observed, …
const SEEN: f64 = 4.0;
/// … and by four where only lagged pairs show it, which are tested again and again and remembered for long.
const SEEN_LAGGED: f64 = 16.0;
/// Cores are whole unless that fits worse by this much, four standard deviations: fractions of cores are rare (quotas),
/// and data from while weights moved fit nothing well. Not estimating them makes the capacity several times more
/// certain.
const WHOLE: f64 = 16.0;
/// Cores inferred before hold unless they fit worse by five standard deviations.
const HELD: f64 = 25.0;
/// Lagged pairs explain a number of cores if they contradict it by at most this many times their number plus this (long
/// before more remains unexplained, and nothing misleads).
const EXPLAINED: (f64, f64) = (2.0, 4.0);
const EXPLAINED_FAR: (f64, f64) = (4.0, 4.0);

/// The contribution of one block at one c.
#[derive(Clone, Copy)]
struct Busy {
    /// Time × mean busy cores.
    core_seconds: f64,
    /// Relative variance of the mean of busy cores, by the number of polls. Polls close to each other have a smaller
    /// error, never a greater one.
    relative_variance: f64,
}

impl Busy {
    /// Poisson noise of the completions at this rate of a core, plus the noise of the polls.
    fn variance(&self, v: f64) -> f64 {
        let mean = v * self.core_seconds;
        // At least one completion: an idle block proves nothing exactly.
        mean.max(1.0) + mean * mean * self.relative_variance
    }
}

fn busy(block: &Block, c: f64) -> Busy {
    let (mean, variance) = block.busy(c);
    // A prior spread of one poll, so that a short block of equal polls does not count as exact.
    let variance = (variance * block.polls + mean) / (block.polls + 1.0);
    let relative_variance = if mean > 0.0 { variance / (mean * mean * block.polls) } else { 0.0 };
    Busy { core_seconds: block.seconds * mean, relative_variance }
}

/// A known service time: `v` is `rate` with this variance.
#[derive(Clone, Copy)]
struct Anchor {
    rate: f64,
    variance: f64,
}

struct Problem<'a> {
    blocks: &'a [Block],
    anchor: Option<Anchor>,
    /// Lagged pairs, where they are used.
    lagged: Option<&'a Lagged>,
    /// The pairs are those of long before.
    is_far: bool,
    scatter: &'a Scatter,
    /// Dispersion known from elsewhere.
    dispersion: Option<Dispersion>,
    /// Variance of each block's completions, fixed while c varies.
    variances: Vec<f64>,
}

impl<'a> Problem<'a> {
    /// While the dispersion is unknown, pairs of a service time before may mislead; where there are none of long
    /// before, as under in-flight methods, they are the best there is.
    fn where_to_look(&self, seen: &Seen, c: f64) -> Look {
        match self.dispersion_at(c) {
            Some(dispersion) if dispersion.is_much() => Look::Far,
            Some(dispersion) if !dispersion.is_known && seen.long_lagged.is_some() => Look::Nowhere,
            _ => Look::Near,
        }
    }

    fn look(&mut self, look: Look, seen: &Seen<'a>) {
        self.is_far = look == Look::Far;
        self.lagged = match look {
            Look::Near => Some(seen.lagged),
            Look::Far => seen.long_lagged,
            Look::Nowhere => None,
        };
    }

    /// Groups of lagged pairs, less the parameters that explain them.
    fn freedom(&self) -> usize {
        self.lagged.map_or(0, Lagged::freedom)
    }

    /// The best v at this c, with its squared error in units of the variance.
    fn profile(&self, c: f64) -> (f64, f64) {
        let busy: Vec<Busy> = self.blocks.iter().map(|block| busy(block, c)).collect();
        let (v, error) = self.profile_of(&busy);
        (v, error + self.contradiction(c))
    }

    /// How far lagged pairs contradict this many cores.
    fn contradiction(&self, c: f64) -> f64 {
        let lagged = self.lagged.filter(|lagged| lagged.freedom() > 0);
        lagged.map_or(0.0, |lagged| lagged.contradiction(c, self.dispersion_at(c)))
    }

    fn dispersion_at(&self, c: f64) -> Option<Dispersion> {
        self.dispersion.or_else(|| self.scatter.at(c))
    }

    /// The profile for blocks that are this busy, without lagged pairs.
    fn profile_of(&self, busy: &[Busy]) -> (f64, f64) {
        let (mut hh, mut hx, mut xx) = (0.0, 0.0, 0.0);
        for ((block, variance), busy) in self.blocks.iter().zip(&self.variances).zip(busy) {
            let h = busy.core_seconds;
            let x = block.completions;
            hh += h * h / variance;
            hx += h * x / variance;
            xx += x * x / variance;
        }
        if let Some(Anchor { rate, variance }) = self.anchor {
            hh += 1.0 / variance;
            hx += rate / variance;
            xx += rate * rate / variance;
        }
        if hh <= 0.0 {
            return (0.0, xx);
        }
        let v = hx / hh;
        (v, (xx - hx * hx / hh).max(0.0))
    }

    /// Variances of the logarithms of v, c and their product at a point, by the information matrix.
    fn errors(&self, v: f64, c: f64) -> Option<(f64, f64, f64)> {
        let (mut vv, mut vc, mut cc) = (0.0, 0.0, 0.0);
        for (block, variance) in self.blocks.iter().zip(&self.variances) {
            let above: f64 =
                block.levels.iter().filter(|level| level.0 >= c).map(|level| level.1).sum();
            let to_v = v * busy(block, c).core_seconds;
            let to_c = v * block.seconds * c * above / block.polls;
            vv += to_v * to_v / variance;
            vc += to_v * to_c / variance;
            cc += to_c * to_c / variance;
        }
        if let Some(Anchor { variance, .. }) = self.anchor {
            vv += v * v / variance;
        }
        let determinant = vv * cc - vc * vc;
        (determinant > 1e-12 * vv * cc)
            .then(|| (cc / determinant, vv / determinant, (cc + vv - 2.0 * vc) / determinant))
    }

    fn service_variance(&self, v: f64, c: f64) -> f64 {
        let of_blocks: f64 = self
            .blocks
            .iter()
            .zip(&self.variances)
            .map(|(block, variance)| (v * busy(block, c).core_seconds).powi(2) / variance)
            .sum();
        1.0 / (of_blocks + self.anchor.map_or(0.0, |anchor| v * v / anchor.variance))
    }
}

/// The data of an estimate.
pub(super) struct Seen<'a> {
    pub(super) blocks: &'a [Block],
    /// Pairs by the number in flight a service time before.
    pub(super) lagged: &'a Lagged,
    /// The same for long before; `None` where that shows nothing.
    pub(super) long_lagged: Option<&'a Lagged>,
    pub(super) scatter: &'a Scatter,
}

/// Which lagged pairs are used.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Look {
    Near,
    Far,
    Nowhere,
}

/// `None` when no poll ever met a request in flight.
pub(super) fn estimate(
    seen: &Seen,
    Hints { service, cores, dispersion }: Hints,
) -> Option<Throughput> {
    let service = service.filter(|&(micros, deviation)| {
        micros > 0.0 && micros.is_finite() && deviation > 0.0 && deviation.is_finite()
    });
    let blocks = seen.blocks;
    let top = blocks
        .iter()
        .filter_map(|block| block.levels.last())
        .map(|level| level.0)
        .fold(0.0, f64::max);
    if top < 1.0 {
        return None;
    }
    let anchor = service.map(|(micros, deviation)| {
        let rate = 1e6 / micros;
        Anchor { rate, variance: (rate * deviation).powi(2) }
    });
    let (loads, load_of) = gather(blocks);
    let grid = Grid::new(top, &loads);
    let pilot = pilot(&loads, anchor, &grid.busy);
    let mut problem = Problem {
        blocks: &loads,
        anchor,
        lagged: None,
        is_far: false,
        scatter: seen.scatter,
        dispersion,
        variances: variances(&loads, pilot),
    };
    let look = problem.where_to_look(seen, pilot.1);
    problem.look(look, seen);
    let mut fit = Fit::of(&mut problem, &grid);
    // The dispersion depends on the cores that are found, and the choice of pairs on the dispersion.
    let again = problem.where_to_look(seen, fit.c);
    if again != look {
        problem.look(again, seen);
        fit = Fit::of(&mut problem, &grid);
    }
    let judged = problem.freedom() + usize::from(anchor.is_some());
    let spread = spread(blocks, &loads, &load_of, fit.c, fit.least, judged);
    // Lagged pairs give their own variance; blocks that scatter less do not make them more certain. Long before, more
    // than noise remains unexplained.
    let mut noise = Dispersion::at_least_poisson(problem.dispersion_at(fit.c));
    if problem.is_far {
        noise = noise.max(problem.contradiction(fit.c) / problem.freedom().max(1) as f64);
    }
    let spread = if problem.freedom() > 0 { spread.max(noise) } else { spread };
    fit.conclude(&problem, &grid, spread, cores)
}

/// Values of c, evenly on a logarithmic scale, and how busy each block is at each: they are used twice.
struct Grid {
    step: f64,
    busy: Vec<(f64, Vec<Busy>)>,
}

impl Grid {
    fn new(top: f64, loads: &[Block]) -> Grid {
        let mut grid = Grid { step: top.ln() / (GRID - 1) as f64, busy: Vec::new() };
        let all_at = |c: f64| (c, loads.iter().map(|load| busy(load, c)).collect());
        grid.busy = (0..GRID).map(|k| all_at(grid.at(k as f64))).collect();
        grid
    }

    fn at(&self, k: f64) -> f64 {
        (self.step * k).exp()
    }
}

/// The least squared error, where it is, and its values along the grid.
struct Fit {
    c: f64,
    v: f64,
    least: f64,
    errors: Vec<f64>,
}

impl Fit {
    /// Lagged pairs are not used where no number of cores explains them.
    fn of(problem: &mut Problem, grid: &Grid) -> Fit {
        let mut contradictions: Vec<f64> =
            grid.busy.iter().map(|(c, _)| problem.contradiction(*c)).collect();
        let least =
            (0..GRID).min_by(|&i, &j| contradictions[i].total_cmp(&contradictions[j])).unwrap_or(0);
        let noise = Dispersion::at_least_poisson(problem.dispersion_at(grid.busy[least].0));
        let explained = if problem.is_far { EXPLAINED_FAR } else { EXPLAINED };
        let is_explained = problem
            .lagged
            .is_some_and(|lagged| lagged.is_explained(contradictions[least] / noise, explained));
        if !is_explained {
            problem.lagged = None;
            contradictions.fill(0.0);
        }
        let error = |((_, busy), contradiction): (&(f64, Vec<Busy>), &f64)| {
            problem.profile_of(busy).1 + contradiction
        };
        let errors: Vec<f64> = grid.busy.iter().zip(&contradictions).map(error).collect();
        let best = (0..GRID).min_by(|&i, &j| errors[i].total_cmp(&errors[j])).unwrap_or(0) as f64;
        let low = (best - 1.0).max(0.0);
        let high = (best + 1.0).min((GRID - 1) as f64);
        let error_at = |k: f64| problem.profile(grid.at(k)).1;
        let c = grid.at(golden::minimise(error_at, low, high, REFINEMENTS));
        let (v, least) = problem.profile(c);
        Fit { c, v, least, errors }
    }

    /// The cores, whole or as inferred before where the error allows it, with their certainty.
    fn conclude(
        &self,
        problem: &Problem,
        grid: &Grid,
        spread: f64,
        cores: Option<f64>,
    ) -> Option<Throughput> {
        let Fit { c, v, least, ref errors } = *self;
        let limit = least + WHOLE * spread;
        let held = cores.filter(|c| *c >= 1.0).map(|c| (c, problem.profile(c)));
        let held = held
            .filter(|(_, (v, error))| *v > 0.0 && *error <= least + HELD * spread)
            .map(|(c, (v, _))| (c, v));
        let worse = errors[GRID - 1] - least;
        let by_lagged =
            problem.contradiction(grid.at((GRID - 1) as f64)) - problem.contradiction(c);
        let seen = worse > SEEN * spread && worse - by_lagged > SEEN * spread;
        let queue_seen = held.is_some() || seen || worse > SEEN_LAGGED * spread;
        let whole = held.or_else(|| whole_cores(problem, c, limit)).filter(|_| queue_seen);
        let found = problem.errors(v, c).filter(|_| queue_seen);
        let (c, v, rel_se, cores_rel_se) = match (whole, found) {
            // Whole cores are not estimated: only the service time has an error.
            (Some((c, v)), found) => {
                let rel_se = (spread * problem.service_variance(v, c)).sqrt();
                let of_c = found.map_or(f64::INFINITY, |(_, of_c, _)| (spread * of_c).sqrt());
                (c, v, rel_se, Some(of_c))
            }
            (None, Some((_, of_c, of_capacity))) => {
                (c, v, (spread * of_capacity).sqrt(), Some((spread * of_c).sqrt()))
            }
            (_, None) => {
                let k = errors.iter().position(|&error| error <= least + spread).unwrap_or(0);
                let c = grid.at(k as f64);
                let v = problem.profile(c).0;
                (c, v, (spread * problem.service_variance(v, c)).sqrt(), None)
            }
        };
        let is_open = problem.dispersion_at(c).is_some_and(|dispersion| !dispersion.is_known);
        let margin = match whole {
            Some((c, _)) if !is_open => {
                let next = [c - 1.0, c + 1.0].into_iter().filter(|c| *c >= 1.0);
                let worse = next.map(|c| problem.profile(c).1).fold(f64::INFINITY, f64::min);
                (worse - problem.profile(c).1) / spread
            }
            _ => 0.0,
        };
        (v > 0.0).then(|| Throughput {
            service_us: 1e6 / v,
            cores: c,
            capacity_rps: c * v,
            rel_se,
            cores_rel_se,
            lower_bound: cores_rel_se.is_none(),
            margin,
        })
    }
}

/// The whole number of cores next to `c` that fits the blocks best, if one fits well enough.
fn whole_cores(problem: &Problem, c: f64, limit: f64) -> Option<(f64, f64)> {
    [c.floor().max(1.0), c.ceil()]
        .into_iter()
        .map(|cores| (cores, problem.profile(cores)))
        .filter(|(_, (v, error))| *v > 0.0 && *error <= limit)
        .min_by(|left, right| left.1.1.total_cmp(&right.1.1))
        .map(|(cores, (v, _))| (cores, v))
}

/// The noise over the model's: from the blocks around the mean of their load, and from the loads around the fit.
fn spread(
    blocks: &[Block],
    loads: &[Block],
    load_of: &[usize],
    c: f64,
    least: f64,
    judged: usize,
) -> f64 {
    let ratios: Vec<f64> =
        loads.iter().map(|load| load.completions / busy(load, c).core_seconds).collect();
    let mut within = 0.0;
    for (block, &load) in blocks.iter().zip(load_of) {
        let Busy { core_seconds, relative_variance } = busy(block, c);
        let mean = ratios[load] * core_seconds;
        if mean.is_finite() {
            let off = block.completions - mean;
            within += off * off / (mean.max(1.0) + mean * mean * relative_variance);
        }
    }
    let freedom_within = (blocks.len() - loads.len()) as f64;
    let freedom = ((loads.len() + judged) as f64 - 2.0).max(0.0);
    (within + least + NOISE_BELIEF) / (freedom_within + freedom + NOISE_BELIEF)
}

/// (v, c) of the Gaussian likelihood whose variances follow the means: accurate enough to fix the variances.
fn pilot(blocks: &[Block], anchor: Option<Anchor>, grid: &[(f64, Vec<Busy>)]) -> (f64, f64) {
    let completions: f64 = blocks.iter().map(|block| block.completions).sum();
    let mut best = (f64::INFINITY, (1.0, 1.0));
    for (c, busy) in grid {
        let core_seconds: f64 = busy.iter().map(|busy| busy.core_seconds).sum();
        if core_seconds <= 0.0 {
            continue;
        }
        let v = completions / core_seconds;
        let mut error = anchor.map_or(0.0, |a| (v - a.rate).powi(2) / a.variance);
        for (block, busy) in blocks.iter().zip(busy) {
            let variance = busy.variance(v);
            let off = block.completions - v * busy.core_seconds;
            error += off * off / variance + variance.ln();
        }
        if error < best.0 {
            best = (error, (v, *c));
        }
    }
    best.1
}

fn variances(blocks: &[Block], (v, c): (f64, f64)) -> Vec<f64> {
    blocks.iter().map(|block| busy(block, c).variance(v)).collect()
}
