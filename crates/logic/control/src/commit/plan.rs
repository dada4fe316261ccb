//! A decision before it becomes weights: what every backend should carry, what clients would wait, and
//! how far the packing is proven.

use plimsoll_model::BackendId;

/// The part of its capacity from which on a pool is nearly full.
const NEARLY_FULL: f64 = 0.9;

/// What is wanted of one backend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wish {
    pub id: BackendId,
    pub share: f64,
    pub weight: u32,
    pub expected_us: Option<f64>,
    pub reason: String,
}

/// What is expected of the weights in force, by the model and at the traffic of a decision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AsIs {
    pub shares: Vec<(BackendId, f64)>,
    /// Mean response time, microseconds.
    pub mean_us: f64,
}

/// What is wanted of the pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decision {
    pub wishes: Vec<Wish>,
    pub rate_rps: f64,
    pub capacity_rps: f64,
    /// Mean response time expected, microseconds.
    pub expected_us: Option<f64>,
    /// The same of what is in force, where it was tried on the same model (under a count).
    pub as_is: Option<AsIs>,
    /// No packing of these curves does better than this, microseconds.
    pub bound_us: Option<f64>,
    pub proven: bool,
    /// More traffic than capacity, by so many requests per second.
    pub short_by_rps: Option<f64>,
    /// Some backend's capacity is not known yet, and the packing would use it.
    pub still_learning: bool,
}

impl Decision {
    /// Queues rise and fall for minutes whatever the weights are. (What is believed of the capacity while it
    /// is learned is no measure.)
    pub fn is_nearly_full(&self) -> bool {
        !self.still_learning && self.rate_rps > NEARLY_FULL * self.capacity_rps
    }

    pub fn shares(&self) -> Vec<(BackendId, f64)> {
        self.wishes.iter().map(|w| (w.id, w.share)).collect()
    }
}
