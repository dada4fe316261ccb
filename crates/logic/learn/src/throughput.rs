//! Service time, cores and capacity of a backend from what its balancer sees: how many requests are in
//! flight, and how many complete.
//!
//! Model: `X = v · E[min(n, c)]`. X is the rate of completions, n the requests in flight, c the
//! effective number of cores, `1/v` the service time; capacity is `c·v`. It is Little's law for the
//! busy cores, so it holds for any distribution of service times, first come first served or shared.
//! n is polled at instants, so a window's histogram of polls estimates the time average `E[min(n, c)]`
//! for every c at once.
//!
//! Windows are joined over time into blocks (a single window's handful of polls is so noisy that errors
//! in n would pass for saturation), blocks into at most [`MAX_BLOCKS`], and all are discounted as
//! requests go by. Blocks of one load count as one observation, for the reason given in `estimate`. For
//! each c the best v is a weighted mean; c is searched on a grid and refined. Where even unlimited cores
//! explain the blocks, no queue was seen: c is the least number of cores they do not contradict (within one
//! standard deviation), and is marked as a lower bound.
//!
//! One load tells nothing so: there, what completes between two polls is held against what was in flight a service
//! time before, or long before where service scatters much ([`Lagged`]). How much it scatters is told by batches of
//! windows ([`Dispersion`]).
//!
//! Cost: `observe` O(blocks), `estimate` O(grid × (blocks + groups) × levels). It fails where the service time
//! itself depends on load (shared caches), which looks like fewer cores, and where one load only was
//! ever seen by polls too far apart to follow requests: then capacity is little more than the rate observed.

use serde::{Deserialize, Serialize};

mod block;
mod estimate;
mod lagged;
mod loads;
mod scatter;

use block::Block;
pub use lagged::Lagged;
use scatter::Scatter;

/// How many services before is long before: hardly any that were in service then still are, however service scatters.
pub const LONG_BEFORE: f64 = 10.0;
/// Blocks kept; beyond, the two neighbours in time that differ least become one.
pub const MAX_BLOCKS: usize = 32;
/// What was in flight before says little of cores at a time, and cores seldom change: it is remembered for so many
/// times as long.
const LAGGED_MEMORY: f64 = 8.0;
/// A block is closed when it has at least this many polls: 10 s of the slowest, 200 ms apart.
const BLOCK_POLLS: f64 = 50.0;
/// A block is closed when it spans at least this long too: the paper's time for one weight.
const BLOCK_SECONDS: f64 = 10.0;
/// A block discounted below this many polls says nothing any more.
const LEAST_POLLS: f64 = 0.5;
/// Completions without which there is no estimate, …
const LEAST_COMPLETIONS: f64 = 20.0;
/// … but for a backend that needs seconds for each: three, old ones discounted, when it has been at work for so long.
const FEW_COMPLETIONS: f64 = 2.9;
const AT_WORK_S: f64 = 8.0;

/// One window of a balancer's report on one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlightWindow {
    /// Its length.
    pub seconds: f64,
    /// Requests completed in it: started, less the growth of those in flight.
    pub completions: f64,
    /// How often each number in flight was polled: `(in flight, polls)`.
    pub levels: Vec<(u32, u32)>,
    /// What the balancer was told to give the backend, in any unit, where that is known: its share times
    /// the traffic. Loads are then told apart by design instead of by what chance made of them.
    pub setting: Option<f64>,
    /// Completions by what was in flight a service time before; empty where polls do not tell.
    pub lagged: Lagged,
    /// The same by what was in flight [`LONG_BEFORE`]; none where that says nothing, as behind a balancer that counts.
    pub long_lagged: Option<Lagged>,
}

/// How the estimator remembers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputOptions {
    /// After this many further completions, old windows count for 1/e.
    pub memory_requests: f64,
}

impl Default for ThroughputOptions {
    fn default() -> Self {
        // A busy core of 30 ms remembers about ten minutes.
        ThroughputOptions { memory_requests: 20_000.0 }
    }
}

/// What is known of a backend's service.
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
    /// No queue was seen: cores and capacity may be greater.
    pub lower_bound: bool,
    /// By how much one core more or less would explain what was seen worse, squared and in units of the
    /// noise: 9 are three standard deviations. 0 where cores are not whole, and, where that can be told, until it is
    /// known how service scatters.
    #[serde(default)]
    pub margin: f64,
}

/// How much what completes over long stretches scatters, in units of a Poisson process: the squared variation of
/// service times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dispersion {
    /// Variance over mean: 1 where service is exponential, 0 where all requests take the same.
    pub ratio: f64,
    /// Its standard error.
    pub error: f64,
    /// There were batches enough to tell: it is more than a belief.
    pub is_known: bool,
}

impl Dispersion {
    /// From here on who stays in service is so much the longer one that a service before leads astray (4.3 does, and up
    /// to here nothing was seen of it).
    const MUCH: f64 = 1.5;
    /// Blocks of a load whose speed is not quite the same, and ends of batches, are as much of the ratio.
    const ROUGHLY: f64 = 0.1;

    fn is_much(&self) -> bool {
        self.is_known && self.ratio > Self::MUCH
    }

    /// Nothing speaks against exponential service, which is believed until something does.
    fn may_be_exponential(&self) -> bool {
        !self.is_known || (self.ratio - 1.0).abs() <= Self::ROUGHLY + 2.0 * self.error
    }

    /// Not below that of a Poisson process: between two polls completions of regular service scatter no less.
    fn at_least_poisson(of: Option<Dispersion>) -> f64 {
        of.filter(|d| !d.may_be_exponential()).map_or(1.0, |d| d.ratio.max(1.0))
    }

    /// By how many more complete for each one fewer that is busy at the second of two polls than at the first, and the error
    /// of it. The error lets the fit choose, at the price of telling less of cores.
    fn ahead(self) -> (f64, f64) {
        if self.may_be_exponential() {
            return (0.0, 0.0);
        }
        (0.5 * (1.0 - self.ratio), 0.5 * (self.error + Self::ROUGHLY))
    }
}

/// What is known from elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hints {
    /// The service time in microseconds with its relative standard deviation, from probes of the idle backend: it
    /// tells cores apart where one load only was seen.
    pub service: Option<(f64, f64)>,
    /// How many cores were told beyond doubt: believed until they are contradicted.
    pub cores: Option<f64>,
    /// How service scatters where several who do the same work tell; without it what this backend has shown has to do.
    pub dispersion: Option<Dispersion>,
}

/// A window that says nothing.
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
    /// In order of time; the last is open.
    blocks: Vec<Block>,
    /// Not kept beyond a life: it is much, and what it has told of cores is kept elsewhere.
    #[serde(skip)]
    lagged: Lagged,
    #[serde(skip)]
    long_lagged: Option<Lagged>,
    #[serde(skip)]
    scatter: Scatter,
}

impl ThroughputEstimator {
    /// Knows nothing yet. A memory that is no positive number means no forgetting.
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

    /// Lets what was seen count for so many completions at the most. What was in flight before is told of one speed, and
    /// how completions scatter as well: they are forgotten.
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

    /// Forgets everything: the backend is another one now.
    pub fn reset(&mut self) {
        self.blocks.clear();
        self.lagged.clear();
        self.long_lagged = None;
        self.scatter.clear();
    }

    /// Completions that the estimate rests on, old ones discounted.
    pub fn completions(&self) -> f64 {
        self.blocks.iter().map(|block| block.completions).sum()
    }

    /// Seconds in which something was in flight.
    fn at_work_s(&self) -> f64 {
        self.blocks.iter().filter(|b| b.polls > 0.0).map(|b| b.seconds * b.busy(1.0).0).sum()
    }

    /// The best estimate; none before 20 completions, or 3 that took 8 s of work.
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

    /// How service scatters with so many cores, by what was seen; none where polls are too far apart to tell.
    pub fn dispersion(&self, cores: f64) -> Option<Dispersion> {
        self.scatter.at(cores)
    }

    fn join_nearest(&mut self) {
        let distances = self.blocks.windows(2).map(|pair| pair[0].distance(&pair[1]));
        // The open block stays out: it is not complete.
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
