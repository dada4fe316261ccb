use clap::ValueEnum;
use plimsoll_lanes::SteeredBy;
use plimsoll_model::GREATEST_WEIGHT;

/// The balancer of a lane, and its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LaneKind {
    /// HAProxy's roundrobin, weights in proportion to the true capacities.
    RoundrobinOracle,
    /// HAProxy's leastconn, weights in proportion to the true capacities.
    LeastconnOracle,
    /// HAProxy's roundrobin, equal weights.
    RoundrobinEqual,
    /// HAProxy's leastconn, equal weights.
    LeastconnEqual,
    /// HAProxy's random(2): the less loaded of two drawn at random.
    Random2,
    /// Plimsoll steers HAProxy's roundrobin, from knowing nothing.
    PlimsollRoundrobin,
    /// Plimsoll steers HAProxy's leastconn, from knowing nothing.
    PlimsollLeastconn,
    /// As PlimsollRoundrobin, given HAProxy's socket and nothing else.
    PlimsollNothingRoundrobin,
    /// As PlimsollLeastconn, given HAProxy's socket and nothing else.
    PlimsollNothing,
    /// As the leastconn oracle, with two HAProxys that do not know of each other.
    #[value(name = "leastconn-oracle-2")]
    LeastconnOracle2,
    /// Plimsoll steers two such HAProxys with one set of weights, from knowing nothing.
    #[value(name = "plimsoll-leastconn-2")]
    PlimsollLeastconn2,
    /// Plimsoll steers two such HAProxys, each with a subset of the servers, from knowing nothing.
    #[value(name = "plimsoll-subsets-2")]
    PlimsollSubsets2,
}

impl LaneKind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LaneKind::RoundrobinOracle => "roundrobin-oracle",
            LaneKind::LeastconnOracle => "leastconn-oracle",
            LaneKind::RoundrobinEqual => "roundrobin-equal",
            LaneKind::LeastconnEqual => "leastconn-equal",
            LaneKind::Random2 => "random2",
            LaneKind::PlimsollRoundrobin => "plimsoll-roundrobin",
            LaneKind::PlimsollLeastconn => "plimsoll-leastconn",
            LaneKind::PlimsollNothingRoundrobin => "plimsoll-nothing-roundrobin",
            LaneKind::PlimsollNothing => "plimsoll-nothing",
            LaneKind::LeastconnOracle2 => "leastconn-oracle-2",
            LaneKind::PlimsollLeastconn2 => "plimsoll-leastconn-2",
            LaneKind::PlimsollSubsets2 => "plimsoll-subsets-2",
        }
    }

    /// HAProxy's `balance`.
    pub fn balance(self) -> &'static str {
        match self {
            LaneKind::Random2 => "random(2)",
            _ if self.oracle() == LaneKind::RoundrobinOracle => "roundrobin",
            _ => "leastconn",
        }
    }

    /// The lane that it is compared with: the same method, and leastconn for random(2), which looks at
    /// the same connections.
    pub fn oracle(self) -> LaneKind {
        match self {
            LaneKind::RoundrobinOracle
            | LaneKind::RoundrobinEqual
            | LaneKind::PlimsollRoundrobin
            | LaneKind::PlimsollNothingRoundrobin => LaneKind::RoundrobinOracle,
            _ => LaneKind::LeastconnOracle,
        }
    }

    /// Whether it is one that others are compared with.
    pub fn is_oracle(self) -> bool {
        self == self.oracle()
    }

    /// The lane of the same method with equal weights.
    pub fn equal(self) -> LaneKind {
        match self.oracle() {
            LaneKind::RoundrobinOracle => LaneKind::RoundrobinEqual,
            _ => LaneKind::LeastconnEqual,
        }
    }

    /// What steers it, if anything.
    pub fn steering(self) -> Option<SteeredBy> {
        use LaneKind::{
            PlimsollLeastconn, PlimsollLeastconn2, PlimsollNothing, PlimsollNothingRoundrobin,
            PlimsollRoundrobin, PlimsollSubsets2,
        };
        match self {
            PlimsollRoundrobin | PlimsollLeastconn | PlimsollLeastconn2 => {
                Some(SteeredBy::Plimsoll)
            }
            PlimsollSubsets2 => Some(SteeredBy::PlimsollSubsets),
            PlimsollNothing | PlimsollNothingRoundrobin => Some(SteeredBy::PlimsollFromNothing),
            _ => None,
        }
    }

    /// Whether a Plimsoll daemon steers it.
    pub fn is_steered(self) -> bool {
        self.steering().is_some()
    }

    /// How many HAProxys stand before its servers.
    pub fn balancers(self) -> usize {
        match self {
            LaneKind::LeastconnOracle2
            | LaneKind::PlimsollLeastconn2
            | LaneKind::PlimsollSubsets2 => 2,
            _ => 1,
        }
    }

    /// What HAProxy starts with, given the true capacities.
    pub fn weights(self, capacities_rps: &[f64]) -> Vec<u32> {
        if !self.is_oracle() && self != LaneKind::LeastconnOracle2 {
            return vec![1; capacities_rps.len()];
        }
        let greatest = capacities_rps.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let weight = |c: &f64| (c / greatest * f64::from(GREATEST_WEIGHT)).round().max(1.0) as u32;
        capacities_rps.iter().map(weight).collect()
    }
}

/// Lanes that run at the same time, at most `most` at once: each group has the oracle that its other
/// lanes are compared with, so that what the machine does to one of them it does to both.
pub fn groups(lanes: &[LaneKind], most: usize) -> Vec<Vec<LaneKind>> {
    let mut groups = Vec::new();
    for oracle in [LaneKind::RoundrobinOracle, LaneKind::LeastconnOracle] {
        let others: Vec<LaneKind> =
            lanes.iter().copied().filter(|l| l.oracle() == oracle && *l != oracle).collect();
        let is_asked_for = lanes.contains(&oracle);
        if others.is_empty() && is_asked_for {
            groups.push(vec![oracle]);
        }
        let seats = most.max(1) - usize::from(is_asked_for && most > 1);
        for some in others.chunks(seats) {
            let oracle = Some(oracle).filter(|_| is_asked_for && most > 1);
            groups.push(oracle.into_iter().chain(some.iter().copied()).collect());
        }
        if most <= 1 && is_asked_for && !others.is_empty() {
            groups.push(vec![oracle]);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for kind in LaneKind::value_variants() {
            assert_eq!(kind.to_possible_value().unwrap().get_name(), kind.name());
            assert_eq!(kind.is_steered(), kind.name().starts_with("plimsoll"));
            assert_eq!(kind.is_oracle(), kind.name().ends_with("oracle"));
            assert_eq!(kind.oracle().balance() == kind.balance(), *kind != LaneKind::Random2);
        }
    }

    #[test]
    fn an_oracle_s_weights_are_in_proportion_to_capacity() {
        let weights = LaneKind::LeastconnOracle.weights(&[7.0, 14.0, 56.0]);
        assert_eq!(weights, [32, 64, 256]);
        assert_eq!(LaneKind::LeastconnOracle2.weights(&[7.0, 14.0, 56.0]), [32, 64, 256]);
        assert_eq!(LaneKind::PlimsollLeastconn.weights(&[7.0, 14.0, 56.0]), [1, 1, 1]);
    }

    #[test]
    fn every_lane_runs_beside_its_oracle() {
        use LaneKind::*;
        let all = [RoundrobinOracle, RoundrobinEqual, PlimsollRoundrobin, LeastconnOracle, Random2];
        assert_eq!(
            groups(&all, 2),
            [
                vec![RoundrobinOracle, RoundrobinEqual],
                vec![RoundrobinOracle, PlimsollRoundrobin],
                vec![LeastconnOracle, Random2]
            ]
        );
        let three = vec![RoundrobinOracle, RoundrobinEqual, PlimsollRoundrobin];
        assert_eq!(groups(&all, 3), [three, vec![LeastconnOracle, Random2]]);
        assert_eq!(groups(&[PlimsollLeastconn], 2), [vec![PlimsollLeastconn]]);
        assert_eq!(groups(&[RoundrobinOracle], 2), [vec![RoundrobinOracle]]);
        assert_eq!(
            groups(&[RoundrobinOracle, RoundrobinEqual], 1),
            [vec![RoundrobinEqual], vec![RoundrobinOracle]]
        );
    }
}
