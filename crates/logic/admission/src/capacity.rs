//! How many requests an application may have at once, those that wait included.

mod adaptive;
mod allowance;
mod average;
mod escalation;
mod grid;
mod knee;
mod overtaking;
mod returning;
mod trial;

use adaptive::Adaptive;
pub use average::AVERAGED_OVER;
use average::Average;
pub use knee::Delay;
pub(crate) use knee::Knee;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How the capacity is found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapacityOptions {
    /// This many, at least 1.
    Static(u32),
    /// The paper's mean of what is in flight, which ratchets down: to compare with.
    Average,
    /// Learned.
    Adaptive(AdaptiveOptions),
}

impl Default for CapacityOptions {
    fn default() -> Self {
        CapacityOptions::Adaptive(AdaptiveOptions::default())
    }
}

/// How the adaptive capacity learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveOptions {
    /// Part of the throughput that may be lost, at full load, by refusing what could have waited,
    /// 0.0001…0.5. Less makes for a longer queue.
    pub loss: f64,
    /// Requests that the application is taken to work on at once, until more is known; 1…65,536.
    pub first_cores: u32,
    /// The limit is never above this, at least 1.
    pub most: u32,
    /// How long a request may wait for a core, milliseconds: it is refused when it is expected to wait longer, and let
    /// in otherwise, whatever tries it has left. Absent: the allowance beyond the cores is learned.
    pub max_wait_ms: Option<u64>,
}

impl Default for AdaptiveOptions {
    fn default() -> Self {
        AdaptiveOptions { loss: 0.008, first_cores: 4, most: 65_536, max_wait_ms: None }
    }
}

/// An option outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum CapacityOptionsError {
    /// Nothing would be admitted.
    #[error("static capacity is 0, expected at least 1")]
    Static,
    /// Less than can be measured, or more than makes sense.
    #[error("loss is {0}, expected 0.0001 to 0.5")]
    Loss(f64),
    /// Not a number of cores.
    #[error("first_cores is {0}, expected 1 to 65536")]
    FirstCores(u32),
    /// Nothing would be admitted.
    #[error("most is 0, expected at least 1")]
    Most,
}

impl CapacityOptions {
    /// Says what is out of range, if anything is.
    pub fn check(&self) -> Result<(), CapacityOptionsError> {
        match *self {
            CapacityOptions::Static(0) => Err(CapacityOptionsError::Static),
            CapacityOptions::Static(_) | CapacityOptions::Average => Ok(()),
            CapacityOptions::Adaptive(AdaptiveOptions { loss, first_cores, most, .. }) => {
                if !(1e-4..=0.5).contains(&loss) {
                    Err(CapacityOptionsError::Loss(loss))
                } else if !(1..=65_536).contains(&first_cores) {
                    Err(CapacityOptionsError::FirstCores(first_cores))
                } else if most == 0 {
                    Err(CapacityOptionsError::Most)
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// A capacity, found in one of three ways.
#[derive(Clone, Debug)]
pub(crate) enum Capacity {
    Static(u32),
    Average(Average),
    /// Boxed for its tables of candidates.
    Adaptive(Box<Adaptive>),
}

impl Capacity {
    pub(crate) fn new(options: CapacityOptions) -> Result<Self, CapacityOptionsError> {
        options.check()?;
        Ok(match options {
            CapacityOptions::Static(limit) => Capacity::Static(limit),
            CapacityOptions::Average => Capacity::Average(Average::new()),
            CapacityOptions::Adaptive(options) => {
                Capacity::Adaptive(Box::new(Adaptive::new(options)))
            }
        })
    }

    /// The most that may be in flight for a request with so many tries left; absent where it is not known
    /// yet, and all is admitted.
    pub(crate) fn limit(&self, tries_left: u32) -> Option<f64> {
        match self {
            Capacity::Static(limit) => Some(f64::from(*limit)),
            Capacity::Average(average) => average.capacity(),
            Capacity::Adaptive(adaptive) => Some(f64::from(adaptive.limit(tries_left))),
        }
    }
}
