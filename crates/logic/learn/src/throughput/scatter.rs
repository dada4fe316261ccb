//! Dispersion of completions around `v·∫min(n, c)` over stretches that are long compared with a service: the squared
//! coefficient of variation of service times (1 where they are exponential, 0 where all are equal), because a stretch's
//! work is the sum of that many of them.
//!
//! Estimated separately, from many short batches: blocks are too few for better than a quarter. With `v = ΣD/ΣB` of a
//! load, D the completions of a batch and B its core-seconds, `Σ(D - vB)²/vB` is `Σ(D²/B)/v - ΣD`: sums are enough, one
//! set for every number of cores.
//!
//! It fails where the speed itself varies from batch to batch (5 % at 500 requests per second equal exponential
//! service): that looks like a greater dispersion of service, and so do stalls. It is noise as well, and reduces the
//! evidence.
//!
//! Between two whole numbers of cores the sums are interpolated linearly, although they go with the inverse of
//! core-seconds: at 1.5 cores the result is up to 2 too great, less beyond. That error is on the side of caution where
//! cores are only a lower bound, because with too few cores the dispersion is underestimated. (With the inverse, which
//! is right under a quota, three of 72 changes of traffic on six backends of bimodal service were taken for changes of
//! a backend instead of one.)
//!
//! Cost: a batch O(levels × numbers of cores), an estimate O(loads).

use super::Dispersion;
use super::block::Block;

/// Batches remembered: they give the dispersion to 5 to 7 %.
const MEMORY: f64 = 400.0;
/// Batches without which it is unknown.
const ENOUGH: f64 = 30.0;
/// A batch is closed with this many completions and a length of this many response times: then requests in service at
/// its ends matter little.
const BATCH: (f64, f64) = (15.0, 10.0);
/// Weight of the prior that service is exponential, in batches.
const BELIEF: f64 = 5.0;
/// Where polls miss more than this multiple of a Poisson process's variance, they are not used. What they miss is known
/// to within this part.
const MISSED: (f64, f64) = (1.0, 0.3);
/// The error is at least that of this ratio: what polls have missed is subtracted before.
const LEAST_SURE: f64 = 0.1;
/// A load with fewer batches is dropped.
const LEAST_BATCHES: f64 = 0.5;
/// Numbers of cores with sums: all up to the first, from there on this many per octave up to the last.
const CORES: (f64, f64, f64) = (8.0, 4.0, 1024.0);

/// Loads kept; beyond, the one with the fewest batches is dropped.
const MOST_LOADS: usize = 64;

/// Batches of one backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scatter {
    loads: Vec<Load>,
}

impl Scatter {
    /// Adds a window.
    pub(super) fn note(&mut self, window: &Block) {
        let at = self.loads.iter().position(|load| load.setting == window.setting);
        let at = at.unwrap_or_else(|| {
            self.make_room();
            self.loads.push(Load { setting: window.setting, ..Load::default() });
            self.loads.len() - 1
        });
        let Some(batch) = self.loads[at].fill(window) else { return };
        let kept = (-1.0 / MEMORY).exp();
        self.loads.iter_mut().for_each(|load| load.discount(kept));
        self.loads[at].note(&batch);
        self.loads.retain(|load| load.batches > LEAST_BATCHES || load.open.is_some());
    }

    fn make_room(&mut self) {
        if self.loads.len() < MOST_LOADS {
            return;
        }
        let fewest = |left: &Load, right: &Load| left.batches.total_cmp(&right.batches);
        let least = self.loads.iter().enumerate().min_by(|left, right| fewest(left.1, right.1));
        if let Some((at, _)) = least {
            self.loads.remove(at);
        }
    }

    /// Drops all batches.
    pub(super) fn clear(&mut self) {
        *self = Scatter::default();
    }

    /// The dispersion with this many cores; `None` where polls are too far apart.
    pub(super) fn at(&self, c: f64) -> Option<Dispersion> {
        let Squares { sum, missed, freedom } = self.squares(c)?;
        let ratio = ((BELIEF + sum - missed) / (BELIEF + freedom)).max(0.0);
        let error = ratio.max(LEAST_SURE) * (2.0 / (BELIEF + freedom)).sqrt()
            + MISSED.1 * missed / (BELIEF + freedom);
        Some(Dispersion { ratio, error, is_known: freedom >= ENOUGH })
    }

    /// Over all loads whose polls can be used; `None` where there are others, and these alone are not enough.
    fn squares(&self, c: f64) -> Option<Squares> {
        let (mut all, mut unused) = (Squares::default(), false);
        for load in self.loads.iter().filter(|load| load.batches > 1.0) {
            let sums = load.sums_at(c);
            let v = load.completions / sums.core_seconds;
            let missed = v * missed_s(load.seconds / load.polls, 1.0 / v) * sums.spread_s;
            if missed > MISSED.0 * load.batches {
                unused = true;
                continue;
            }
            all.sum += sums.squares / v - load.completions;
            all.missed += missed;
            all.freedom += load.batches - 1.0;
        }
        (all.freedom >= ENOUGH || !unused).then_some(all)
    }
}

/// Squared deviations in units of a Poisson process, the part that polls have missed, and degrees of freedom.
#[derive(Clone, Copy, Default)]
struct Squares {
    sum: f64,
    missed: f64,
    freedom: f64,
}

/// All batches of one setting.
#[derive(Clone, Debug, Default, PartialEq)]
struct Load {
    setting: Option<i32>,
    /// The open batch.
    open: Option<Block>,
    batches: f64,
    seconds: f64,
    polls: f64,
    completions: f64,
    /// By number of cores, up to the most that were in flight.
    sums: Vec<Sums>,
}

/// Sums over all batches for one number of cores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    /// `ΣB`.
    core_seconds: f64,
    /// `ΣD²/B`.
    squares: f64,
    /// `ΣT·Var(busy)/B`, T being the length of a batch.
    spread_s: f64,
}

impl Load {
    /// Adds a window; returns the batch that it completes, if any.
    fn fill(&mut self, window: &Block) -> Option<Block> {
        let open = match self.open.take() {
            Some(mut open) => {
                open.join(window);
                open
            }
            None => window.clone(),
        };
        let (completions, responses) = BATCH;
        let (in_flight, _) = open.busy(f64::INFINITY);
        // In response times: by Little's law a response takes the number in flight over the rate of completions.
        if open.completions >= completions.max(responses * in_flight) {
            return Some(open);
        }
        self.open = Some(open);
        None
    }

    fn sums_at(&self, c: f64) -> Sums {
        let (k, part) = place(c);
        let last = self.sums.len() - 1;
        let (low, high) = (self.sums[k.min(last)], self.sums[(k + 1).min(last)]);
        let between = |low: f64, high: f64| low + part * (high - low);
        Sums {
            core_seconds: between(low.core_seconds, high.core_seconds),
            squares: between(low.squares, high.squares),
            spread_s: between(low.spread_s, high.spread_s),
        }
    }

    fn note(&mut self, batch: &Block) {
        let top = batch.levels.last().map_or(1.0, |level| level.0).max(1.0);
        let most = place(top).0 + 2;
        let beyond = self.sums.last().copied().unwrap_or_default();
        self.sums.resize(self.sums.len().max(most), beyond);
        for (k, sums) in self.sums.iter_mut().enumerate() {
            let (mean, variance) = batch.busy(cores(k));
            // At least half a poll: what no poll has met is little, not nothing.
            let core_seconds = batch.seconds * mean.max(0.5 / batch.polls);
            sums.core_seconds += core_seconds;
            sums.squares += batch.completions * batch.completions / core_seconds;
            sums.spread_s += variance * batch.seconds / core_seconds;
        }
        self.batches += 1.0;
        self.seconds += batch.seconds;
        self.polls += batch.polls;
        self.completions += batch.completions;
    }

    fn discount(&mut self, kept: f64) {
        for sum in [&mut self.batches, &mut self.seconds, &mut self.polls, &mut self.completions] {
            *sum *= kept;
        }
        for sums in &mut self.sums {
            sums.core_seconds *= kept;
            sums.squares *= kept;
            sums.spread_s *= kept;
        }
    }
}

/// The k-th number of cores with sums.
fn cores(k: usize) -> f64 {
    let (exact, octave, _) = CORES;
    let k = k as f64 + 1.0;
    if k <= exact { k } else { exact * ((k - exact) / octave).exp2() }
}

/// Position of this many cores among them: above the k-th, by this part of the distance to the next.
fn place(c: f64) -> (usize, f64) {
    let (exact, octave, most) = CORES;
    let c = c.clamp(1.0, most);
    let k = if c <= exact { c } else { exact + octave * (c / exact).log2() };
    // Close to a number it is that number: logarithms have rounding errors.
    let k = if (k - k.round()).abs() < 1e-9 { k.round() } else { k };
    (k as usize - 1, k.fract())
}

/// The variance, in seconds, of the time integral of a fluctuation that decays within a service, as estimated from
/// polls this far apart, by its own variance and by time.
fn missed_s(apart_s: f64, service_s: f64) -> f64 {
    let half = (apart_s / (2.0 * service_s)).max(1e-6);
    (apart_s / half.tanh() - 2.0 * service_s).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(setting: i32, completions: f64, in_flight: f64) -> Block {
        Block {
            seconds: 1.0,
            completions,
            polls: 40.0,
            levels: vec![(in_flight, 40.0)],
            setting: Some(setting),
        }
    }

    #[test]
    fn sums_are_kept_for_whole_numbers_of_cores_and_found_there() {
        for k in 0..30 {
            let (at, part) = place(cores(k));
            assert_eq!((at, part), (k, 0.0), "{}", cores(k));
        }
        assert_eq!(place(2.25), (1, 0.25));
    }

    #[test]
    fn batches_of_alternating_settings_are_filled_and_judged_each_by_its_own_speed() {
        let mut scatter = Scatter::default();
        // Ten responses of half a second are five windows. Twice the rate of one is no dispersion.
        for k in 0..1_000 {
            let [light, heavy] = [window(1, 20.0, 10.0), window(2, 40.0, 20.0)];
            scatter.note(if k % 2 == 0 { &light } else { &heavy });
        }
        let got = scatter.at(64.0).expect("polls are close enough");
        assert!(got.is_known && got.ratio < 0.1, "{got:?}");
    }

    #[test]
    fn a_load_with_polls_too_far_apart_leaves_the_dispersion_to_the_others() {
        let mut scatter = Scatter::default();
        let levels = vec![(0.0, 1.0), (2.0, 1.0)];
        let sparse = Block { polls: 2.0, levels, ..window(1, 50.0, 1.0) };
        (0..40).for_each(|_| scatter.note(&sparse));
        assert_eq!(scatter.at(1.0), None);
        (0..40).for_each(|_| scatter.note(&window(2, 50.0, 2.0)));
        assert!(scatter.at(1.0).expect("one load is enough").is_known);
        assert!(!Scatter::default().at(1.0).expect("nothing forbids to tell").is_known);
    }

    #[test]
    fn loads_are_dropped_beyond_the_limit() {
        let mut scatter = Scatter::default();
        (0..10_000).for_each(|k| scatter.note(&window(k, 20.0, 1.0)));
        assert!(scatter.loads.len() <= MOST_LOADS);
    }
}
