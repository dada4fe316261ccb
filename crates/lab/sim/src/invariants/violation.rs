use std::fmt;
use std::str::FromStr;

use plimsoll_model::Nanos;

use crate::names::{from_name, kebab};

/// The rules that must hold at all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Shares are numbers from 0 to 1 that sum to 1; weights are within the sink's range; entries are in order, one for
    /// each configured backend that no administrator has reserved.
    WholePlan,
    /// Under a split, weights agree with shares.
    WeightsFollowShares,
    /// A plan and the balancer give weight to at least one backend that may serve.
    SomeBackendServes,
    /// No server has all the traffic where several may serve.
    SurvivesALoss,
    /// A failed backend has weight 0, once the controller knows or has had time to.
    FailedGetNothing,
    /// No healthy backend is declared failed.
    HealthyNeverFail,
    /// Backends that an administrator drains or maintains are left alone.
    ReservedIsLeftAlone,
    /// No plan on stale data.
    FreshData,
    /// One plan at a time.
    OneAtATime,
    /// Epochs increase.
    EpochsRise,
    /// The minimum interval between changes is kept.
    Pace,
    /// The balancer holds the planned weights.
    Agreement,
    /// The controller believes in the weights that the balancer holds.
    BeliefIsTrue,
    /// A new controller begins with the weights of the last one.
    Resumes,
    /// The view is finite and in range.
    SaneView,
    /// The controller does not panic.
    NoPanic,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 16] = [
        Rule::WholePlan,
        Rule::WeightsFollowShares,
        Rule::SomeBackendServes,
        Rule::SurvivesALoss,
        Rule::FailedGetNothing,
        Rule::HealthyNeverFail,
        Rule::ReservedIsLeftAlone,
        Rule::FreshData,
        Rule::OneAtATime,
        Rule::EpochsRise,
        Rule::Pace,
        Rule::Agreement,
        Rule::BeliefIsTrue,
        Rule::Resumes,
        Rule::SaneView,
        Rule::NoPanic,
    ];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&kebab(&format!("{self:?}")))
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        from_name(name, &Rule::ALL)
    }
}

/// A violation of a rule by the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The backend, by position.
    pub backend: Option<usize>,
    /// When, in the world's time.
    pub at: Nanos,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.3} s", self.rule, self.at.as_secs_f64())?;
        if let Some(i) = self.backend {
            write!(f, ", s{i}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Violation {}
