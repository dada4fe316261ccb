use std::fmt;
use std::str::FromStr;

use plimsoll_model::Nanos;

use crate::names::{from_name, kebab};

/// What may never be otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Shares are numbers from 0 to 1 that sum to 1; weights are within the sink's range; entries are
    /// in order, one per backend that is steered and whom no administrator has.
    WholePlan,
    /// Under a split, weights say what shares say.
    WeightsFollowShares,
    /// Somebody who may serve has a weight.
    SomebodyServes,
    /// No server has all the traffic where others may serve.
    SurvivesALoss,
    /// Who failed gets nothing, once the controller knows.
    FailedGetNothing,
    /// Who is dead gets nothing.
    DeadGetNothing,
    /// Nobody is said to have failed who is well.
    LivingNeverFail,
    /// What an administrator has is left alone.
    ReservedIsLeftAlone,
    /// No plan on stale data.
    FreshData,
    /// No plan while observing, or while only an administrator can help.
    MaySteer,
    /// One plan at a time.
    OneAtATime,
    /// Epochs rise.
    EpochsRise,
    /// Changes keep their distance.
    Pace,
    /// No plan that moves less than is worth it.
    WorthIt,
    /// Shares are within theta of one another.
    Theta,
    /// While it is learned, a share grows by no more than it may at a step.
    MaxStep,
    /// Whoever's curve is rescaled is named, and nobody else's is touched.
    DriftIsLocal,
    /// No change of a backend is told from data that are old.
    DriftIsFresh,
    /// … nor of a backend that is out.
    DriftOfTheServing,
    /// Nobody is given a load for the sake of measuring where nobody asked for it.
    RefreshIsAsked,
    /// No more than 5 % of the capacity is measured on purpose at a time.
    RefreshIsSmall,
    /// A measurement ends, and what was given for it is taken back.
    RefreshEnds,
    /// Drain times are measured by overload no more often than every two hours.
    DrainIsRare,
    /// Who returns gets its share step by step.
    Ramp,
    /// The balancer holds what was planned.
    Agreement,
    /// The controller believes what the balancer holds.
    BeliefIsTrue,
    /// A new controller goes on where the last one ended.
    Resumes,
    /// What is shown is finite and in range.
    SaneView,
    /// The controller does not panic.
    NoPanic,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 29] = [
        Rule::WholePlan,
        Rule::WeightsFollowShares,
        Rule::SomebodyServes,
        Rule::SurvivesALoss,
        Rule::FailedGetNothing,
        Rule::DeadGetNothing,
        Rule::LivingNeverFail,
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
        Rule::DrainIsRare,
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

/// Something that the controller did and may not do.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// Which invariant.
    pub rule: Rule,
    /// Of which backend, by its position.
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
