use clap::ValueEnum;
use plimsoll_pack::PackError;
use plimsoll_sim::knapsack::ExploreMode;

use crate::{Pool, SteeredBy};

/// The balancer of a lane, and its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LaneKind {
    /// HAProxy's roundrobin, equal weights.
    Roundrobin,
    /// HAProxy's leastconn, equal weights.
    Leastconn,
    /// Roundrobin, weights in proportion to cores: what an administrator knows.
    RoundrobinCores,
    /// Leastconn, weights in proportion to cores.
    LeastconnCores,
    /// HAProxy's random(2): the less loaded of two drawn at random.
    Random2,
    /// Roundrobin with the best weights for the true curves, which nobody knows outside a lab.
    StaticOracle,
    /// Plimsoll steers HAProxy's roundrobin.
    PlimsollRoundrobin,
    /// Plimsoll steers HAProxy's leastconn.
    PlimsollLeastconn,
    /// KnapsackLB's own controller steers HAProxy's roundrobin, exploring by the paper's rule as printed.
    KnapsackLiteral,
    /// The same, exploring by that rule as mended.
    KnapsackBisect,
}

impl LaneKind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LaneKind::Roundrobin => "roundrobin",
            LaneKind::Leastconn => "leastconn",
            LaneKind::RoundrobinCores => "roundrobin-cores",
            LaneKind::LeastconnCores => "leastconn-cores",
            LaneKind::Random2 => "random2",
            LaneKind::StaticOracle => "static-oracle",
            LaneKind::PlimsollRoundrobin => "plimsoll-roundrobin",
            LaneKind::PlimsollLeastconn => "plimsoll-leastconn",
            LaneKind::KnapsackLiteral => "knapsack-literal",
            LaneKind::KnapsackBisect => "knapsack-bisect",
        }
    }

    /// Its name as a key of JSON.
    pub fn key(self) -> String {
        self.name().replace('-', "_")
    }

    /// Whether a controller steers it.
    pub fn is_steered(self) -> bool {
        self.steering().is_some()
    }

    /// What steers it.
    pub fn steering(self) -> Option<SteeredBy> {
        match self {
            LaneKind::PlimsollRoundrobin | LaneKind::PlimsollLeastconn => Some(SteeredBy::Plimsoll),
            LaneKind::KnapsackLiteral => Some(SteeredBy::Knapsack(ExploreMode::Literal)),
            LaneKind::KnapsackBisect => Some(SteeredBy::Knapsack(ExploreMode::Bisect)),
            _ => None,
        }
    }

    /// HAProxy's `balance`.
    pub fn balance(self) -> &'static str {
        match self {
            LaneKind::Leastconn | LaneKind::LeastconnCores | LaneKind::PlimsollLeastconn => {
                "leastconn"
            }
            LaneKind::Random2 => "random(2)",
            _ => "roundrobin",
        }
    }

    /// The weights that HAProxy starts with; Plimsoll, too, begins with equal ones.
    ///
    /// # Errors
    /// When the pool has no best split.
    pub fn weights(self, pool: &Pool) -> Result<Vec<u32>, PackError> {
        match self {
            LaneKind::StaticOracle => pool.best_split(),
            LaneKind::RoundrobinCores | LaneKind::LeastconnCores => {
                Ok(pool.backends.iter().map(|backend| backend.cores).collect())
            }
            _ => Ok(vec![1; pool.backends.len()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for kind in LaneKind::value_variants() {
            let value = kind.to_possible_value().unwrap();
            assert_eq!(value.get_name(), kind.name());
            let steered = ["plimsoll", "knapsack"].iter().any(|by| kind.name().starts_with(by));
            assert_eq!(kind.is_steered(), steered);
        }
    }
}
