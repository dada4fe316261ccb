use serde::{Deserialize, Serialize};

use crate::MAX_CHOICES;

/// What tells a balancer how full a backend is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sight {
    /// Own counts, until backends with an ingress show that others send to them too: then probes, or refusals where
    /// probes are not answered.
    #[default]
    Auto,
    /// Its own requests in flight: for one balancer, or one that has its backends to itself.
    Own,
    /// The backend's refusals, for many balancers: backends draw the line at their cores, and a refused
    /// request goes elsewhere.
    Refusals,
    /// Fresh probes before each pick, for many balancers whose backends never refuse.
    Probes,
}

/// How `expected_delay` sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExpectedDelaySettings {
    /// What tells how full a backend is.
    pub sight: Sight,
    /// How many backends are asked before a pick where the sight is probes, 1…[`MAX_CHOICES`]; where none of those
    /// that answer has room, as many others as make [`MAX_CHOICES`] with these.
    pub probes: u32,
}

impl Default for ExpectedDelaySettings {
    fn default() -> Self {
        ExpectedDelaySettings { sight: Sight::default(), probes: 5 }
    }
}

impl ExpectedDelaySettings {
    pub(crate) fn is_valid(&self) -> bool {
        (1..=MAX_CHOICES).contains(&self.probes)
    }
}
