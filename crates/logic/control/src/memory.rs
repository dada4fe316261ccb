//! State that survives a restart of the controller.

use plimsoll_model::{BackendId, Nanos};
use serde::{Deserialize, Serialize};

use crate::belief::knowledge::Knowledge;
use crate::controller::Controller;
use crate::show::view::Phase;

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

impl Controller {
    /// The state to keep over a restart.
    pub fn memory(&self) -> Memory {
        Memory {
            version: VERSION,
            epoch: self.commitment.epoch(),
            steady: self.phase.is_packed(),
            backends: self
                .backends
                .iter()
                .map(|b| Known {
                    name: b.name.clone(),
                    knowledge: b.knowledge.clone(),
                    ask_rps: b.ask_rps,
                    offered_rps: b.offered_rps,
                    weight: b.wanted.weight,
                    reached: b.health.is_reached(),
                })
                .collect(),
        }
    }

    /// Takes over the state of an earlier controller.
    pub(crate) fn recall(&mut self, memory: Memory) {
        if memory.version != VERSION {
            return;
        }
        let mut weights: Vec<(BackendId, u32)> = Vec::new();
        for b in &mut self.backends {
            if let Some(known) = memory.backends.iter().find(|k| k.name == b.name) {
                b.knowledge = known.knowledge.clone();
                b.ask_rps = known.ask_rps;
                b.offered_rps = known.offered_rps;
                b.health.recall(known.reached);
                b.judged_from = b.knowledge.is_known().then_some(Nanos::ZERO);
                weights.push((b.id, known.weight));
            }
        }
        let typical = self.typical();
        self.backends.iter_mut().for_each(|b| b.knowledge.refit(self.spec.curve, typical));
        // Weights of a different set of backends are not used.
        let all = weights.len() == self.backends.len() && weights.iter().any(|(_, w)| *w > 0);
        if all && memory.steady && self.phase.is(Phase::Exploring) {
            self.phase.recall(Phase::Steady);
        }
        self.commitment.recall(memory.epoch, all.then_some(weights));
    }
}
