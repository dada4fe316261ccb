use plimsoll_lanes::LaneKind;
use plimsoll_policy::PolicyKind;

/// Where a method's weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weights {
    /// All the same.
    Equal,
    /// Those that an administrator would set: [`super::Setting::administrator`].
    Administrator,
    /// The paper's ILP on latency, over learned curves.
    IlpLatency,
    /// The same ILP on the number of connections.
    IlpConnections,
    /// The same ILP on CPU utilisation.
    IlpCpu,
    /// Plimsoll's, learned under roundrobin.
    PlimsollRoundrobin,
    /// Plimsoll's, learned under leastconn.
    PlimsollLeastconn,
    /// The best static split by the true curves, which nobody knows outside a lab.
    BestSplit,
}

/// A method of balancing.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name in tables and plots.
    pub name: &'static str,
    /// The same within the width of a bar.
    pub short: &'static str,
    /// How it picks; none for the central queue, which does not.
    pub policy: Option<PolicyKind>,
    /// Its weights.
    pub weights: Weights,
    /// The lane with HAProxy's method of this kind; none where HAProxy has none.
    pub lane: Option<LaneKind>,
}

const fn row(
    name: &'static str,
    short: &'static str,
    policy: PolicyKind,
    weights: Weights,
    lane: Option<LaneKind>,
) -> Method {
    Method { name, short, policy: Some(policy), weights, lane }
}

use LaneKind::{Leastconn, PlimsollLeastconn, PlimsollRoundrobin, Random2, Roundrobin};
use PolicyKind::{
    ExpectedDelay, LeastTime, LeastconnHaproxy, PeakEwma, PowerOfN, PowerOfNLatency, Prequal,
    RoundRobin,
};
use Weights::{Administrator, BestSplit, Equal, IlpConnections, IlpCpu, IlpLatency};

/// All of them: what the figures that compare methods (3, 4, 12 to 17, §6.5) hold their subject against.
pub static METHODS: [Method; 22] = [
    row("roundrobin", "RR", RoundRobin, Equal, Some(Roundrobin)),
    row("leastconn", "LC", LeastconnHaproxy, Equal, Some(Leastconn)),
    row("random(2)", "R2", PowerOfN, Equal, Some(Random2)),
    row("P2 by latency", "P2L", PowerOfNLatency, Equal, None),
    row("peak EWMA", "EWMA", PeakEwma, Equal, None),
    row("least_time", "LT", LeastTime, Equal, None),
    row("Prequal", "PRQ", Prequal, Equal, None),
    row("weighted roundrobin", "W-RR", RoundRobin, Administrator, Some(Roundrobin)),
    row("weighted leastconn", "W-LC", LeastconnHaproxy, Administrator, Some(Leastconn)),
    row("weighted random(2)", "W-R2", PowerOfN, Administrator, Some(Random2)),
    row("weighted P2 by latency", "W-P2L", PowerOfNLatency, Administrator, None),
    row("weighted peak EWMA", "W-EWMA", PeakEwma, Administrator, None),
    row("weighted least_time", "W-LT", LeastTime, Administrator, None),
    row("weighted Prequal", "W-PRQ", Prequal, Administrator, None),
    row("ILP on connections", "I-conn", RoundRobin, IlpConnections, Some(Roundrobin)),
    row("ILP on CPU", "I-CPU", RoundRobin, IlpCpu, Some(Roundrobin)),
    row("KLB", "KLB", RoundRobin, IlpLatency, Some(Roundrobin)),
    row(
        "Plimsoll roundrobin",
        "P-RR",
        RoundRobin,
        Weights::PlimsollRoundrobin,
        Some(PlimsollRoundrobin),
    ),
    row(
        "Plimsoll leastconn",
        "P-LC",
        LeastconnHaproxy,
        Weights::PlimsollLeastconn,
        Some(PlimsollLeastconn),
    ),
    row("Plimsoll expected delay", "P-ED", ExpectedDelay, Equal, None),
    row("best static split", "best", RoundRobin, BestSplit, Some(Roundrobin)),
    Method { name: "central queue", short: "central", policy: None, weights: Equal, lane: None },
];

/// What figures without weights show.
pub const UNWEIGHTED: [&str; 14] = [
    "roundrobin",
    "leastconn",
    "random(2)",
    "P2 by latency",
    "peak EWMA",
    "least_time",
    "Prequal",
    "ILP on CPU",
    "KLB",
    "Plimsoll roundrobin",
    "Plimsoll leastconn",
    "Plimsoll expected delay",
    "best static split",
    "central queue",
];

/// What a quick run emulates.
const QUICK: [&str; 4] = ["roundrobin", "weighted leastconn", "KLB", "Plimsoll leastconn"];

/// The methods that a figure emulates: all that HAProxy has; a few with `--quick`.
pub fn lanes(quick: bool) -> Vec<&'static Method> {
    let wanted = |m: &&Method| m.lane.is_some() && (!quick || QUICK.contains(&m.name));
    METHODS.iter().filter(wanted).collect()
}

/// The method of this name.
///
/// # Panics
/// When there is none: names are literals of the figures.
pub fn method(name: &str) -> &'static Method {
    let found = METHODS.iter().find(|method| method.name == name);
    found.unwrap_or_else(|| panic!("no method is called {name:?}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_lanes_pick_as_the_simulation_does() {
        let names: BTreeSet<&str> = METHODS.iter().map(|m| m.name).collect();
        assert_eq!(names.len(), METHODS.len());
        let short: BTreeSet<&str> = METHODS.iter().map(|m| m.short).collect();
        assert_eq!(short.len(), METHODS.len());
        for method in &METHODS {
            let Some(lane) = method.lane else { continue };
            let balance = match method.policy {
                Some(RoundRobin) => "roundrobin",
                Some(LeastconnHaproxy) => "leastconn",
                Some(PowerOfN) => "random(2)",
                other => panic!("{other:?} has no HAProxy"),
            };
            assert_eq!(lane.balance(), balance, "{}", method.name);
        }
    }
}
