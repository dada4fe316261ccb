//! Ways to spread flows, and what a reader of any of these figures must know.

use plimsoll_feedback::BalancerKind;
use plimsoll_sim::edge::Way;

/// A way and its name in tables.
pub type Named = (&'static str, Way);

/// The ways of figures 4 and 5: the product's default, the paper's controller as printed, its two baselines.
pub fn ways() -> [Named; 4] {
    [
        (WATER_FILL, Way::policy(BalancerKind::WaterFill)),
        (EDGE_BALANCE, Way::policy(BalancerKind::PidLiteral)),
        (MONITOR, Way::policy(BalancerKind::Monitor)),
        (WRR, Way::policy(BalancerKind::WeightedRoundRobin)),
    ]
}

/// Plimsoll's default.
pub const WATER_FILL: &str = "water-filling";
/// The paper's PID as printed, fed with the model.
pub const EDGE_BALANCE: &str = "EdgeBalance (PID as printed)";
/// The same fed with reports.
pub const MONITOR: &str = "Monitor";
/// Equal shares.
pub const WRR: &str = "static WRR";

/// What a reader of any of these figures must know.
pub fn notes() -> Vec<String> {
    [
        "Simulated: a core polls in batches of at most 32 packets of 700 ns, with a queue in front of it; a mouse sends \
         a packet each millisecond, an elephant evenly. Model, policies and slots are the product's. Networks, NICs and \
         caches are not simulated, so times are those of waiting for the core and being served.",
        "Water-filling runs each 10 ms, the PIDs each 30 ms. A flow is young for 10 ms and old after 20 ms or 32 packets. \
         Monitor's reports come each 30 ms with a standard error of a point (edge-controllers: 5 points), which the paper does not give.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The mean of these.
pub fn mean(of: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = of.into_iter().fold((0.0, 0.0), |(sum, count), v| (sum + v, count + 1.0));
    sum / count
}
