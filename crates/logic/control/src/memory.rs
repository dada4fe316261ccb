//! State that survives a restart of the controller.

use plimsoll_model::{BackendId, Nanos};
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::belief::knowledge::Knowledge;
use crate::belief::typical::Typical;
use crate::spec::CurveChoice;

/// Version of the memory's format; other versions are not read.
const VERSION: u32 = 1;

/// What was known about one backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    name: String,
    knowledge: Knowledge,
    ask_rps: f64,
    offered_rps: Option<f64>,
    weight: u32,
    /// A check has succeeded from here.
    #[serde(default)]
    reached: bool,
}

/// What a controller knew: the store keeps it and gives it to the next one. Backends are matched by name, so
/// identities need not survive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Memory {
    version: u32,
    epoch: u64,
    steady: bool,
    backends: Vec<Known>,
}

/// What a memory says beyond the backends' own state.
pub(crate) struct Recalled {
    pub epoch: u64,
    /// The pool was known and packed, and is still the same.
    pub is_steady: bool,
    /// The weights, if they are still those of the pool.
    pub weights: Option<Vec<(BackendId, u32)>>,
}

impl Memory {
    pub(crate) fn new(epoch: u64, steady: bool, backends: &[Backend]) -> Memory {
        let known = |b: &Backend| Known {
            name: b.name.clone(),
            knowledge: b.knowledge.clone(),
            ask_rps: b.ask_rps,
            offered_rps: b.offered_rps,
            weight: b.wanted.weight,
            reached: b.health.is_reached(),
        };
        Memory { version: VERSION, epoch, steady, backends: backends.iter().map(known).collect() }
    }

    /// Gives the backends what was known about them; `None` for a memory of another version.
    pub(crate) fn recall(&self, curve: CurveChoice, backends: &mut [Backend]) -> Option<Recalled> {
        if self.version != VERSION {
            return None;
        }
        let mut weights: Vec<(BackendId, u32)> = Vec::new();
        for b in backends.iter_mut() {
            if let Some(known) = self.backends.iter().find(|k| k.name == b.name) {
                b.knowledge = known.knowledge.clone();
                b.ask_rps = known.ask_rps;
                b.offered_rps = known.offered_rps;
                b.health.recall(known.reached);
                b.judged_from = b.knowledge.is_known().then_some(Nanos::ZERO);
                weights.push((b.id, known.weight));
            }
        }
        let typical = Typical::of(backends);
        backends.iter_mut().for_each(|b| b.knowledge.refit(curve, typical));
        // Weights of a different set of backends are not used.
        let all = weights.len() == backends.len() && weights.iter().any(|(_, w)| *w > 0);
        let is_steady = all && self.steady;
        Some(Recalled { epoch: self.epoch, is_steady, weights: all.then_some(weights) })
    }
}
