//! Service time, cores and capacity of a backend from its balancer's counters: requests in flight, and completions.
//!
//! Model: `X = v · E[min(n, c)]`, with X the rate of completions, n the requests in flight, c the effective number of
//! cores and `1/v` the service time; the capacity is `c·v`. It is Little's law for the busy cores, so it holds for any
//! distribution of service times, first come first served or shared. n is polled at instants, so a window's histogram
//! of polls estimates the time average `E[min(n, c)]` for every c at once.
//!
//! Windows are joined over time into blocks (the few polls of a single window are so noisy that errors in n would look
//! like saturation), blocks into at most [`MAX_BLOCKS`], and all are discounted as requests go by. Blocks of one load
//! count as one observation, for the reason given in `estimate`. For each c the best v is a weighted mean; c is
//! searched on a grid and refined. Where even unlimited cores explain the blocks, no queue was observed: c is the least
//! number of cores that they do not contradict (within one standard deviation), marked as a lower bound.
//!
//! With one load only, this shows nothing: then completions between two polls are compared with the number in flight a
//! service time before, or long before where service times scatter much ([`Lagged`]). How much they scatter is inferred
//! from batches of windows ([`Dispersion`]).
//!
//! Cost: `observe` O(blocks), `estimate` O(grid × (blocks + groups) × levels). It fails where the service time itself
//! depends on load (shared caches), which looks like fewer cores, and where only one load was ever observed, by polls
//! too far apart to follow requests: then the capacity is little more than the observed rate.

use serde::{Deserialize, Serialize};

mod block;
mod estimate;
mod lagged;
mod loads;
mod scatter;

use block::Block;
pub use lagged::Lagged;
use scatter::Scatter;

/// "Long before" in service times: hardly any request in service then is still in service, however service times
/// scatter.
pub const LONG_BEFORE: f64 = 10.0;
/// Blocks kept; beyond, the two neighbours in time that differ least are joined.
pub const MAX_BLOCKS: usize = 32;
/// Factor on the memory of lagged pairs: each says little about the cores, and cores seldom change.
const LAGGED_MEMORY: f64 = 8.0;
/// A block is closed with at least this many polls: 10 s at the slowest interval, 200 ms.
const BLOCK_POLLS: f64 = 50.0;
/// A block also spans at least this time: the paper's time for one weight.
const BLOCK_SECONDS: f64 = 10.0;
/// A block discounted below this many polls is dropped.
const LEAST_POLLS: f64 = 0.5;
/// Least completions for an estimate, …
const LEAST_COMPLETIONS: f64 = 20.0;
/// … except for a backend that needs seconds for each: three, discounted, once it has been working for this long.
const FEW_COMPLETIONS: f64 = 2.9;
const AT_WORK_S: f64 = 8.0;

/// One window of a balancer's report on one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlightWindow {
    /// Its length.
    pub seconds: f64,
    /// Requests completed in it: those started, less the growth of the number in flight.
    pub completions: f64,
    /// How often each number in flight was polled: `(in flight, polls)`.
    pub levels: Vec<(u32, u32)>,
    /// The rate that the weights should have given the backend, in any unit, where known: its share times the
    /// traffic. Loads are then distinguished by that and not by noise.
    pub setting: Option<f64>,
    /// Completions by the number in flight a service time before; empty where polls do not show it.
    pub lagged: Lagged,
    /// The same [`LONG_BEFORE`]; `None` where that shows nothing, as under in-flight methods.
    pub long_lagged: Option<Lagged>,
}

/// Memory of the estimator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputOptions {
    /// After this many further completions, old windows count for 1/e.
    pub memory_requests: f64,
}

impl Default for ThroughputOptions {
    fn default() -> Self {
        // A busy core with 30 ms per request remembers about ten minutes.
        ThroughputOptions { memory_requests: 20_000.0 }
    }
}

/// An estimate of a backend's service.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Mean time a request occupies a core, microseconds.
    pub service_us: f64,
    /// Effective number of cores, at least 1.
    pub cores: f64,
    /// Requests per second with all cores busy.
    pub capacity_rps: f64,
    /// Relative standard error of the capacity; of the service time where the capacity is only a lower
    /// bound.
    pub rel_se: f64,
    /// Relative standard error of the number of cores; absent where it is only a lower bound.
    pub cores_rel_se: Option<f64>,
    /// No queue was observed: cores and capacity may be greater.
    pub lower_bound: bool,
    /// By how much one core more or less fits worse, squared and in units of the noise: 9 are three standard deviations.
    /// 0 where cores are not whole, and, where it can be inferred at all, until the dispersion is known.
    #[serde(default)]
    pub margin: f64,
}

/// Dispersion of completions over long stretches, relative to a Poisson process: the squared coefficient of variation
/// of service times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dispersion {
    /// Variance over mean: 1 where service is exponential, 0 where all requests take the same.
    pub ratio: f64,
    /// Its standard error.
    pub error: f64,
    /// There were enough batches: it is more than the prior.
    pub is_known: bool,
}

impl Dispersion {
    /// From this ratio on, the number in flight a service time before is misleading, because requests still in service
    /// are long ones (it is at 4.3, and up to here no effect was observed).
    const MUCH: f64 = 1.5;
    /// Blocks of a load with slightly different speeds, and ends of batches, make up this part of the ratio.
    const ROUGHLY: f64 = 0.1;

    fn is_much(&self) -> bool {
        self.is_known && self.ratio > Self::MUCH
    }

    /// Nothing contradicts exponential service, the prior.
    fn may_be_exponential(&self) -> bool {
        !self.is_known || (self.ratio - 1.0).abs() <= Self::ROUGHLY + 2.0 * self.error
    }

    /// At least that of a Poisson process: between two polls completions of regular service scatter no less.
    fn at_least_poisson(of: Option<Dispersion>) -> f64 {
        of.filter(|d| !d.may_be_exponential()).map_or(1.0, |d| d.ratio.max(1.0))
    }

    /// How many more complete for each core fewer that is busy at the second of two polls than at the first, with its
    /// error. The error lets the fit choose, at the price of less information about the cores.
    fn ahead(self) -> (f64, f64) {
        if self.may_be_exponential() {
            return (0.0, 0.0);
        }
        (0.5 * (1.0 - self.ratio), 0.5 * (self.error + Self::ROUGHLY))
    }
}

/// Evidence from elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hints {
    /// Service time in microseconds with its relative standard deviation, from probes of the idle backend: it
    /// determines the cores where only one load was observed.
    pub service: Option<(f64, f64)>,
    /// The number of cores inferred with certainty before: believed until contradicted.
    pub cores: Option<f64>,
    /// Dispersion, where several backends that do the same work have shown it; without it this backend's own is used.
    pub dispersion: Option<Dispersion>,
}

/// A window that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WindowError {
    /// Its length is no positive number.
    #[error("a window of {0} s")]
    Length(f64),
    /// Its completions are no number of at least 0.
    #[error("{0} completions in a window")]
    Completions(f64),
    /// The requests in flight were never polled in it.
    #[error("a window without polls")]
    NoPolls,
}

/// Estimates one backend's service; see the module's description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputEstimator {
    options: ThroughputOptions,
    /// In order of time; the last one is open.
    blocks: Vec<Block>,
    /// Not stored over a restart: it is large, and the cores inferred from it are stored elsewhere.
    #[serde(skip)]
    lagged: Lagged,
    #[serde(skip)]
    long_lagged: Option<Lagged>,
    #[serde(skip)]
    scatter: Scatter,
}

impl ThroughputEstimator {
    /// An estimator without data. A memory that is no positive number means no forgetting.
    pub fn new(options: ThroughputOptions) -> ThroughputEstimator {
        ThroughputEstimator {
            options,
            blocks: Vec::new(),
            lagged: Lagged::default(),
            long_lagged: None,
            scatter: Scatter::default(),
        }
    }

    /// Takes the next window.
    ///
    /// # Errors
    /// [`WindowError`] when the window cannot be used; the estimator is unchanged.
    pub fn observe(&mut self, window: &InFlightWindow) -> Result<(), WindowError> {
        if !(window.seconds > 0.0 && window.seconds.is_finite()) {
            return Err(WindowError::Length(window.seconds));
        }
        if !(window.completions >= 0.0 && window.completions.is_finite()) {
            return Err(WindowError::Completions(window.completions));
        }
        let fresh = Block::of(window);
        if fresh.polls <= 0.0 {
            return Err(WindowError::NoPolls);
        }
        if self.options.memory_requests > 0.0 {
            let kept = (-window.completions / self.options.memory_requests).exp();
            self.discount(kept);
            let kept = kept.powf(1.0 / LAGGED_MEMORY);
            self.lagged.discount(kept);
            if let Some(long_lagged) = &mut self.long_lagged {
                long_lagged.discount(kept);
            }
        }
        self.lagged.join(&window.lagged);
        match &window.long_lagged {
            Some(more) => self.long_lagged.get_or_insert_default().join(more),
            None => self.long_lagged = None,
        }
        self.scatter.note(&fresh);
        match self.blocks.last_mut() {
            Some(open)
                if open.setting == fresh.setting
                    && (open.polls < BLOCK_POLLS || open.seconds < BLOCK_SECONDS) =>
            {
                open.join(&fresh);
            }
            _ => self.blocks.push(fresh),
        }
        if self.blocks.len() > MAX_BLOCKS {
            self.join_nearest();
        }
        Ok(())
    }

    /// Discounts earlier windows to this many completions. Lagged pairs and the dispersion belong to one speed: they
    /// are dropped.
    pub fn fade_to(&mut self, completions: f64) {
        self.discount((completions / self.completions().max(1e-9)).min(1.0));
        self.lagged.clear();
        self.long_lagged = None;
        self.scatter.clear();
    }

    fn discount(&mut self, kept: f64) {
        self.blocks.iter_mut().for_each(|block| block.discount(kept));
        self.blocks.retain(|block| block.polls >= LEAST_POLLS);
    }

    /// Drops all data: the backend has been replaced.
    pub fn reset(&mut self) {
        self.blocks.clear();
        self.lagged.clear();
        self.long_lagged = None;
        self.scatter.clear();
    }

    /// Completions behind the estimate, discounted.
    pub fn completions(&self) -> f64 {
        self.blocks.iter().map(|block| block.completions).sum()
    }

    /// Seconds with requests in flight.
    fn at_work_s(&self) -> f64 {
        self.blocks.iter().filter(|b| b.polls > 0.0).map(|b| b.seconds * b.busy(1.0).0).sum()
    }

    /// The best estimate; `None` before 20 completions, or 3 that took 8 s of work.
    pub fn estimate(&self, hints: Hints) -> Option<Throughput> {
        let completions = self.completions();
        let is_slow = || completions >= FEW_COMPLETIONS && self.at_work_s() >= AT_WORK_S;
        if completions < LEAST_COMPLETIONS && !is_slow() {
            return None;
        }
        let seen = estimate::Seen {
            blocks: &self.blocks,
            lagged: &self.lagged,
            long_lagged: self.long_lagged.as_ref(),
            scatter: &self.scatter,
        };
        estimate::estimate(&seen, hints)
    }

    /// The observed dispersion with this many cores; `None` where polls are too far apart.
    pub fn dispersion(&self, cores: f64) -> Option<Dispersion> {
        self.scatter.at(cores)
    }

    fn join_nearest(&mut self) {
        let distances = self.blocks.windows(2).map(|pair| pair[0].distance(&pair[1]));
        // The open block is left out: it is not complete.
        let nearest = distances
            .take(self.blocks.len().saturating_sub(2))
            .enumerate()
            .min_by(|left, right| left.1.total_cmp(&right.1));
        if let Some((at, _)) = nearest {
            let later = self.blocks.remove(at + 1);
            self.blocks[at].join(&later);
        }
    }
}
