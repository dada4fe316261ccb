use plimsoll_lanes::LaneKind;
use plimsoll_policy::PolicyKind;

/// Where a method's weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weights {
    /// All the same.
    Equal,
    /// In proportion to cores: what an administrator knows.
    Cores,
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

/// A way of balancing.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name in tables and plots.
    pub name: &'static str,
    /// How it picks; none for the central queue, which does not.
    pub policy: Option<PolicyKind>,
    /// Its weights.
    pub weights: Weights,
    /// The lane with HAProxy's method of this kind; none where HAProxy has none.
    pub lane: Option<LaneKind>,
}

const fn row(
    name: &'static str,
    policy: PolicyKind,
    weights: Weights,
    lane: Option<LaneKind>,
) -> Method {
    Method { name, policy: Some(policy), weights, lane }
}

use LaneKind::{Leastconn, PlimsollLeastconn, PlimsollRoundrobin, Random2, Roundrobin};
use PolicyKind::{LeastTime, LeastconnHaproxy, PeakEwma, PowerOfN, PowerOfNLatency, RoundRobin};
use Weights::{BestSplit, Cores, Equal, IlpConnections, IlpCpu, IlpLatency};

/// All of them.
pub static METHODS: [Method; 19] = [
    row("roundrobin", RoundRobin, Equal, Some(Roundrobin)),
    row("leastconn", LeastconnHaproxy, Equal, Some(Leastconn)),
    row("random(2)", PowerOfN, Equal, Some(Random2)),
    row("P2 by latency", PowerOfNLatency, Equal, None),
    row("peak EWMA", PeakEwma, Equal, None),
    row("least_time", LeastTime, Equal, None),
    row("roundrobin by cores", RoundRobin, Cores, Some(Roundrobin)),
    row("leastconn by cores", LeastconnHaproxy, Cores, Some(Leastconn)),
    row("random(2) by cores", PowerOfN, Cores, Some(Random2)),
    row("P2 by latency by cores", PowerOfNLatency, Cores, None),
    row("peak EWMA by cores", PeakEwma, Cores, None),
    row("least_time by cores", LeastTime, Cores, None),
    row("ILP on connections", RoundRobin, IlpConnections, Some(Roundrobin)),
    row("ILP on CPU", RoundRobin, IlpCpu, Some(Roundrobin)),
    row("KLB", RoundRobin, IlpLatency, Some(Roundrobin)),
    row("Plimsoll roundrobin", RoundRobin, Weights::PlimsollRoundrobin, Some(PlimsollRoundrobin)),
    row(
        "Plimsoll leastconn",
        LeastconnHaproxy,
        Weights::PlimsollLeastconn,
        Some(PlimsollLeastconn),
    ),
    row("best static split", RoundRobin, BestSplit, Some(Roundrobin)),
    Method { name: "central queue", policy: None, weights: Equal, lane: None },
];

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
