//! The unloaded service time as probes of an almost idle backend show it, and how far what was measured has been rescaled.

use serde::{Deserialize, Serialize};

use crate::tuning::belief::knowledge::{RESCALED_PROBES, RESCALED_TOO_FAR};

/// Logarithm of the total rescaling since the last measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Rescaled(f64);

impl Rescaled {
    pub fn by(self, ratio: f64) -> Rescaled {
        Rescaled(self.0 + ratio.ln())
    }

    pub fn is_far(self) -> bool {
        self.0.abs() > RESCALED_TOO_FAR.ln()
    }
}

/// Mean of the probes of an almost idle backend: its unloaded service time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct UnloadedProbes {
    pub mean_us: f64,
    pub count: f64,
    #[serde(default)]
    strayed: Rescaled,
}

impl UnloadedProbes {
    pub fn note(&mut self, latency_us: f64) {
        let kept = self.count.min(200.0);
        self.mean_us = (self.mean_us * kept + latency_us) / (kept + 1.0);
        self.count = kept + 1.0;
        self.strayed.0 *= kept / self.count;
    }

    pub fn rescale(&mut self, ratio: f64) {
        *self = UnloadedProbes {
            mean_us: self.mean_us / ratio,
            count: self.count.min(RESCALED_PROBES),
            strayed: self.strayed.by(ratio),
        };
        if self.strayed.is_far() {
            *self = UnloadedProbes::default();
        }
    }
}
