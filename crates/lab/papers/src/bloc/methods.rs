//! Methods of balancing in the paper's cluster: the policy of a frontend, and the admission of a backend.

use plimsoll_admission::{AdaptiveOptions, CapacityOptions};
use plimsoll_policy::PolicyKind;

/// The policy of every frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// The shortest of all queues, which are known.
    Jsq,
    /// By what a frontend sees itself, or learns from responses and probes.
    By(PolicyKind),
}

/// The admission of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// None.
    Open,
    /// So many at once.
    Static(u32),
    /// The paper's mean of what was in flight.
    Average,
    /// As many as Plimsoll has learned that it needs.
    Adaptive,
}

impl Door {
    /// Its setting; nothing where there is none.
    pub fn capacity(self) -> Option<CapacityOptions> {
        match self {
            Door::Open => None,
            Door::Static(limit) => Some(CapacityOptions::Static(limit)),
            Door::Average => Some(CapacityOptions::Average),
            Door::Adaptive => Some(CapacityOptions::Adaptive(AdaptiveOptions::default())),
        }
    }
}

/// A method of balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// For tables.
    pub name: &'static str,
    /// The policy.
    pub balance: Balance,
    /// The admission.
    pub door: Door,
    /// How often a request is tried that is refused.
    pub tries: u32,
}

/// The authors' public code tries three times.
const TRIES: u32 = 3;

const fn blind(name: &'static str, policy: PolicyKind) -> Method {
    Method { name, balance: Balance::By(policy), door: Door::Open, tries: 1 }
}

/// BLOC, whole, behind this door.
pub const fn bloc(name: &'static str, door: Door) -> Method {
    Method { name, balance: Balance::By(PolicyKind::Bloc), door, tries: TRIES }
}

/// The paper's ideal.
pub const JSQ: Method = Method { name: "JSQ", balance: Balance::Jsq, door: Door::Open, tries: 1 };
/// The paper's baseline in §3: the fewest of the frontend's own requests, over all backends.
pub const LC: Method = blind("LC over all", PolicyKind::LeastConnections);
/// The paper's baseline in its experiments, and Envoy's: of two drawn, the one with fewer of the
/// frontend's own requests.
pub const P2C: Method = blind("LC (P2C)", PolicyKind::PowerOfN);
/// BLOC with the paper's capacity.
pub const BLOC: Method = bloc("BLOC, capacity 10", Door::Static(10));
/// BLOC with the paper's own estimate of the capacity.
pub const AVERAGE: Method = bloc("BLOC, average", Door::Average);
/// BLOC with Plimsoll's.
pub const ADAPTIVE: Method = bloc("BLOC, adaptive", Door::Adaptive);
/// Other methods, which need no admission.
pub const OTHERS: [Method; 5] = [
    blind("random", PolicyKind::Random),
    blind("round robin", PolicyKind::RoundRobin),
    blind("P2 by latency", PolicyKind::PowerOfNLatency),
    blind("peak EWMA", PolicyKind::PeakEwma),
    blind("Prequal", PolicyKind::Prequal),
];
/// What every figure holds against the paper's two, beside them.
pub const ALL: [Method; 11] =
    [P2C, JSQ, LC, BLOC, AVERAGE, ADAPTIVE, OTHERS[0], OTHERS[1], OTHERS[2], OTHERS[3], OTHERS[4]];
