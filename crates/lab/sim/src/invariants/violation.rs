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
    /// A failed backend has weight 0, once the controller knows.
    FailedGetNothing,
    /// A dead backend has weight 0 after the time of detection.
    DeadGetNothing,
    /// No healthy backend is declared failed.
    HealthyNeverFail,
    /// Backends that an administrator drains or maintains are left alone.
    ReservedIsLeftAlone,
    /// No plan on stale data.
    FreshData,
    /// No plan in observe mode, or while only an administrator can help.
    MaySteer,
    /// One plan at a time.
    OneAtATime,
    /// Epochs increase.
    EpochsRise,
    /// The minimum interval between changes is kept.
    Pace,
    /// No plan moves less traffic than is worth it.
    WorthIt,
    /// The spread of the shares is within theta.
    Theta,
    /// While it is learned, a share grows by at most `max_step` per step.
    MaxStep,
    /// Every rescaled curve is named in a record, and no other one is rescaled.
    DriftIsLocal,
    /// Changes are inferred from fresh data only, …
    DriftIsFresh,
    /// … and only for backends that serve.
    DriftOfTheServing,
    /// No backend is given a load to be measured unless that is configured.
    RefreshIsAsked,
    /// At most 5 % of the capacity is measured at a time.
    RefreshIsSmall,
    /// A measurement ends, and its load is removed.
    RefreshEnds,
    /// A returned backend gets its share gradually.
    Ramp,
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
    pub const ALL: [Rule; 28] = [
        Rule::WholePlan,
        Rule::WeightsFollowShares,
        Rule::SomeBackendServes,
        Rule::SurvivesALoss,
        Rule::FailedGetNothing,
        Rule::DeadGetNothing,
        Rule::HealthyNeverFail,
        Rule::ReservedIsLeftAlone,
        Rule::FreshData,
        Rule::MaySteer,
        Rule::OneAtATime,
        Rule::EpochsRise,
        Rule::Pace,
        Rule::WorthIt,
        Rule::Theta,
        Rule::MaxStep,
        Rule::DriftIsLocal,
        Rule::DriftIsFresh,
        Rule::DriftOfTheServing,
        Rule::RefreshIsAsked,
        Rule::RefreshIsSmall,
        Rule::RefreshEnds,
        Rule::Ramp,
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
