use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{BackendId, Nanos};

/// What the packing minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// `Σ w·l(w)`: what the mean client waits. Default on curves.
    #[default]
    Traffic,
    /// `Σ l(w)`: the paper's sum over backends (KnapsackLB §3.3).
    Sum,
    /// `max l(w)`: the slowest backend that is used.
    Max,
}

impl std::fmt::Display for Objective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Objective::Traffic => "traffic",
            Objective::Sum => "sum",
            Objective::Max => "max",
        })
    }
}

/// One backend's part of a [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanEntry {
    /// Whose weight.
    pub backend: BackendId,
    /// The share of the traffic it is meant to get, 0…1.
    pub share: f64,
    /// The integer to program, within [`SinkLimits::range`].
    pub weight: u32,
}

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanKind {
    /// Loads grow step by step while capacities are learned.
    Learning,
    /// Weights that are held for a while to be measured, whatever clients wait meanwhile.
    Measuring,
    /// The known pool is packed for its traffic.
    Packed,
    /// A backend failed, returned, joined or left.
    Pool,
    /// A backend is set aside or restored.
    Silence,
    /// A backend's service rate has changed.
    Drift,
    /// The shares of returned backends grow without traffic.
    SlowStart,
    /// The balancer did not hold the weights it was given.
    Reasserted,
    /// The weights from before a restart of Plimsoll.
    Resumed,
    /// The weights from before a plan after which clients waited longer.
    RolledBack,
    /// The last plan, corrected for momentary backlogs.
    Backlog,
    /// The weights that stay when Plimsoll stops.
    Leaving,
}

/// Weights to program, all of them at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Grows by one with every plan of a service.
    pub epoch: u64,
    /// When it was made.
    pub at: Nanos,
    /// What it is for.
    pub kind: PlanKind,
    /// Why it was made, for people.
    pub reason: String,
    /// One entry per backend that is to be programmed, in order of [`BackendId`].
    pub entries: Vec<PlanEntry>,
}

/// The greatest weight of HAProxy's servers, and of Plimsoll's own.
pub const GREATEST_WEIGHT: u32 = 256;

/// What a balancer can take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkLimits {
    /// The least and the greatest weight, integers. HAProxy: 0…256.
    pub range: RangeInclusive<u32>,
    /// The least time between two programmings, whatever the traffic.
    pub min_interval: Duration,
    /// A balancer that goes round its servers follows a change of weights only when the round in progress
    /// is over: so many picks per unit of the sum of all weights. 0: at once. HAProxy's roundrobin: 16.
    pub picks_per_weight: u32,
}

impl SinkLimits {
    /// What every HAProxy can take. It takes a weight within microseconds; the least interval only keeps a caller that
    /// runs wild from keeping it busy. `lb_fwrr.c` scales weights by 16, and a round has as many picks as they come
    /// to together.
    pub const fn haproxy() -> Self {
        let range = 0..=GREATEST_WEIGHT;
        SinkLimits { range, min_interval: Duration::from_millis(50), picks_per_weight: 16 }
    }
}

/// What the balancer holds after a plan was applied, read back from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// The plan's epoch.
    pub epoch: u64,
    /// The weight that each backend has now.
    pub weights: Vec<(BackendId, u32)>,
    /// How many commands were sent; 0 when all was already so.
    pub commands: u32,
}
