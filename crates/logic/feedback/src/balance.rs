//! What every policy gets and returns, and the registry of their names.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Monitor, Pid, PidLiteral, Residual, WaterFill, WeightedRoundRobin};

/// The least share of new flows that a core in service keeps under policies that correct their last weights: at zero,
/// a correction by a factor could never bring it back. The prototypes ran with it.
pub const FLOOR: f64 = 0.001;

/// One core, as one service sees it, over the last interval. Loads are fractions of the core; 1.3 is offered load of
/// which a part cannot be served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreLoad {
    /// Whether new flows of the service may go there. Where not, the weight becomes 0 and the loads do not count.
    pub serves: bool,
    /// Predicted load that weights cannot move: flows older than the young age, and those of other services.
    pub old: f64,
    /// Predicted load of young flows of this service, see [`Ages`](crate::Ages).
    pub new: f64,
    /// Predicted load of its flows that are between young and old; where the forwarder does not tell them from young
    /// ones, none, and they are young.
    pub aging: Option<f64>,
    /// Predicted load of everything on the core.
    pub predicted: f64,
    /// Busy fraction that the node reported, where it did lately.
    pub reported: Option<f64>,
    /// Cost of a packet of this service here, seconds; what a share of new flows costs differs between cores.
    pub cost: f64,
}

/// A way to set the weights of new flows over the cores of one service.
pub trait Balancer: fmt::Debug + Send {
    /// Corrects `weights` (one per core, the same order and length each time) after an interval of so many seconds.
    ///
    /// Afterwards they are finite, not negative, sum to 1, and are 0 where a core does not serve; all 0 when none does.
    fn update(&mut self, interval: f64, cores: &[CoreLoad], weights: &mut [f64]);
}

macro_rules! registry {
    ($($(#[$default:meta])? $kind:ident = $name:literal, $interval_ms:literal: $summary:literal,)+) => {
        /// Every policy there is, by the name that configuration uses.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum BalancerKind {
            $(
                #[doc = $summary]
                #[serde(rename = $name)]
                $(#[$default])?
                $kind,
            )+
        }

        impl BalancerKind {
            /// All of them; the first is the default.
            pub const ALL: &'static [BalancerKind] = &[$(BalancerKind::$kind),+];

            /// Its name in configuration.
            pub fn name(self) -> &'static str {
                match self { $(BalancerKind::$kind => $name),+ }
            }

            /// What it does, in a line.
            pub fn summary(self) -> &'static str {
                match self { $(BalancerKind::$kind => $summary),+ }
            }

            /// How often it corrects weights unless configured otherwise.
            pub fn interval(self) -> Duration {
                Duration::from_millis(match self { $(BalancerKind::$kind => $interval_ms),+ })
            }

            /// A fresh one.
            pub fn build(self) -> Box<dyn Balancer> {
                match self { $(BalancerKind::$kind => Box::new($kind::default())),+ }
            }
        }
    };
}

registry! {
    #[default]
    WaterFill = "water_fill", 10: "New flows fill cores to one level above what old flows hold.",
    Pid = "pid", 30: "A textbook PID on each core's distance from the mean predicted load.",
    PidLiteral = "pid_literal", 30: "The PID as the EdgeBalance paper prints it, for the record.",
    Residual = "residual", 10: "New flows in proportion to the predicted capacity that is left.",
    WeightedRoundRobin = "weighted_round_robin", 10: "Fixed shares, equal unless configured.",
    Monitor = "monitor", 30: "The paper's PID fed with reported busy time instead of the model.",
}

impl fmt::Display for BalancerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown policy {0:?}; known: {known}", known = known())]
pub struct UnknownBalancer(pub String);

fn known() -> String {
    BalancerKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for BalancerKind {
    type Err = UnknownBalancer;

    fn from_str(name: &str) -> Result<Self, UnknownBalancer> {
        let found = BalancerKind::ALL.iter().find(|kind| kind.name() == name);
        found.copied().ok_or_else(|| UnknownBalancer(name.to_owned()))
    }
}

/// The mean predicted load of the cores that serve; 0 where none does.
pub(crate) fn mean_of(cores: &[CoreLoad], load: impl Fn(&CoreLoad) -> f64) -> f64 {
    let serving = cores.iter().filter(|core| core.serves);
    let (sum, count) = serving.fold((0.0, 0u32), |(s, n), core| (s + sane(load(core)), n + 1));
    sum / f64::from(count.max(1))
}

/// A load that arithmetic can go on with: what is no number counts as nothing.
pub(crate) fn sane(load: f64) -> f64 {
    if load.is_finite() { load.max(0.0) } else { 0.0 }
}

/// Makes shares of what a policy computed: 0 where a core does not serve, elsewhere at least `floor` of the whole; equal
/// shares where nothing is left to go by.
pub(crate) fn normalise(cores: &[CoreLoad], weights: &mut [f64], floor: f64) {
    let serving = cores.iter().filter(|core| core.serves).count();
    let mut sum = 0.0;
    for (core, weight) in cores.iter().zip(weights.iter_mut()) {
        *weight = if core.serves && weight.is_finite() { weight.max(0.0) } else { 0.0 };
        sum += *weight;
    }
    let equal = 1.0 / serving.max(1) as f64;
    // With more cores than 1 / floor, the floor is an equal share.
    let floor = floor.min(equal);
    let mut total = 0.0;
    for (_, weight) in cores.iter().zip(weights.iter_mut()).filter(|(core, _)| core.serves) {
        let share = if sum > 0.0 { *weight / sum } else { equal };
        *weight = share.max(floor);
        total += *weight;
    }
    if total > 0.0 {
        weights.iter_mut().for_each(|weight| *weight /= total);
    }
}
