//! A decision: the share and weight of every backend, the response time expected of them, and how far the packing is
//! proven optimal.

use crate::tuning::commit::plan::NEARLY_FULL;
use plimsoll_model::{BackendId, PlanKind};

/// Why a plan is made: what it is for, and the words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Why {
    pub kind: PlanKind,
    pub words: String,
}

impl Why {
    pub fn new(kind: PlanKind, words: impl Into<String>) -> Self {
        Why { kind, words: words.into() }
    }

    /// The same with a further reason.
    pub fn and(mut self, more: &str) -> Self {
        self.words = format!("{}; {more}", self.words);
        self
    }
}

/// The weight wanted for one backend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wish {
    pub id: BackendId,
    pub share: f64,
    pub weight: u32,
    pub expected_us: Option<f64>,
    pub reason: String,
}

/// The model's expectation for the weights in force, at the traffic of a decision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AsIs {
    pub shares: Vec<(BackendId, f64)>,
    /// Mean response time, microseconds.
    pub mean_us: f64,
}

/// The weights wanted for the pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decision {
    pub wishes: Vec<Wish>,
    pub rate_rps: f64,
    pub capacity_rps: f64,
    /// Mean response time expected, microseconds.
    pub expected_us: Option<f64>,
    /// The expectation for the weights in force, where they were simulated on the same model (in-flight methods).
    pub as_is: Option<AsIs>,
    /// Lower bound on the mean response time over all packings of these curves, microseconds.
    pub bound_us: Option<f64>,
    pub proven: bool,
    /// Traffic in excess of the capacity, requests per second.
    pub short_by_rps: Option<f64>,
    /// A backend's capacity is not known yet, and the packing would use it.
    pub still_learning: bool,
}

impl Decision {
    /// In a nearly full pool queues rise and fall for minutes whatever the weights are. (While capacities are being
    /// learned their sum is no measure.)
    pub fn is_nearly_full(&self) -> bool {
        !self.still_learning && self.rate_rps > NEARLY_FULL * self.capacity_rps
    }

    pub fn shares(&self) -> Vec<(BackendId, f64)> {
        self.wishes.iter().map(|w| (w.id, w.share)).collect()
    }
}
