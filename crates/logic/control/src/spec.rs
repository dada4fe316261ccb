use std::time::Duration;

use plimsoll_model::{BackendId, Objective, SinkLimits};
use serde::{Deserialize, Serialize};

/// How the capacities of a pool are learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exploration {
    /// Weights are packed with the current estimates, optimistic about unknown capacities, and the controller learns
    /// from the traffic that results: no backend is loaded beyond what the packing can use. Needs a balancer that
    /// reports rates.
    #[default]
    Packed,
    /// One backend at a time is loaded step by step, and the end is bisected on |w − last good| (KnapsackLB §4.3, with
    /// a corrected stopping rule, a bounded latency factor and a bounded step).
    Bisect,
    /// Algorithm 1 of KnapsackLB as printed: for comparison only.
    Literal,
}

/// Which family of curves may be fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveChoice {
    /// The family with the smallest cross-validated error.
    #[default]
    Auto,
    /// `a + b/(c − x)`.
    Hyperbola,
    /// Isotonic regression, joined by monotone cubic pieces.
    Isotonic,
    /// The paper's polynomial of degree two, made monotone.
    Poly2,
}

/// How the drain time is measured: for how long after a change requests placed by the old weights remain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainTest {
    /// Passively, whenever a backend is set to weight 0 for another reason: until its requests in flight are gone.
    #[default]
    Passive,
    /// As in KnapsackLB's appendix: every two hours a backend is overloaded and set to weight 0 until its latency is
    /// that of an unloaded one. For comparison: it makes clients wait.
    Overload,
}

/// How a change of a backend is distinguished from noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftTest {
    /// A sequential test with a stated rate of false alarms: about one in three days of a pool of 30.
    #[default]
    Sequential,
    /// The bare threshold of KnapsackLB §4.5, ±20 % of the latency expected: for comparison only, it
    /// fires on noise.
    Literal,
    /// Curves are learned and old points fade; nothing is tested.
    Off,
}

/// One backend of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSpec {
    /// Its identity for its whole life.
    pub id: BackendId,
    /// Its name in the configuration and in the balancer.
    pub name: String,
}

/// Probe settings fixed by an administrator; what is absent is adapted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeRate {
    /// Time between rounds of probes.
    pub interval: Option<Duration>,
    /// Probes per round.
    pub requests: Option<u32>,
}

/// How a backend's liveness is checked where its traffic is no evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CheckSpec {
    /// Requests per check, all of which the backend must serve; 0: a bare TCP connection.
    pub requests: u32,
    /// Interval fixed by an administrator; without it the interval is adapted to need, within a budget where checks
    /// are requests.
    pub interval: Option<Duration>,
}

/// The configuration of the controller of one service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSpec {
    /// The service's name.
    pub name: String,
    /// Its backends, in the order of the configuration.
    pub backends: Vec<BackendSpec>,
    /// The objective to minimise.
    pub objective: Objective,
    /// Bound on the spread of the shares, `max − min ≤ theta`.
    pub theta: Option<f64>,
    /// How to explore.
    pub exploration: Exploration,
    /// Which family of curves to fit.
    pub curve: CurveChoice,
    /// How a change of a backend is distinguished from noise.
    pub drift: DriftTest,
    /// Measure curves again now and then, where ordinary traffic does not show them.
    pub refresh: bool,
    /// A backend that returns or joins gets its whole share after this time; zero: at once.
    pub slow_start: Duration,
    /// How the drain time is measured.
    pub drain: DrainTest,
    /// While exploring, a backend whose response time exceeds this multiple of its unloaded service time gets less
    /// load.
    pub latency_factor: f64,
    /// While exploring, a share grows by at most this factor per step.
    pub max_step: f64,
    /// A change that moves less than this part of the traffic is not programmed.
    pub min_change: f64,
    /// The least time between two plans, even where the balancer allows more.
    pub min_interval: Duration,
    /// Length of an exploration round in the paper's modes (10 s in the paper).
    pub round: Duration,
    /// Probe settings; `None` without probes.
    pub probe: Option<ProbeRate>,
    /// How liveness is checked.
    pub checks: CheckSpec,
    /// Never program; only report what would be.
    pub observe: bool,
    /// What the balancer's sink allows.
    pub sink: SinkLimits,
}

impl ServiceSpec {
    /// A service with default settings.
    pub fn new(name: &str, backends: Vec<BackendSpec>) -> Self {
        ServiceSpec {
            name: name.to_owned(),
            backends,
            objective: Objective::default(),
            theta: None,
            exploration: Exploration::default(),
            curve: CurveChoice::default(),
            drift: DriftTest::default(),
            refresh: true,
            slow_start: Duration::from_secs(10),
            drain: DrainTest::default(),
            latency_factor: 3.0,
            max_step: 2.0,
            min_change: 0.01,
            min_interval: Duration::from_millis(250),
            round: Duration::from_secs(10),
            probe: None,
            checks: CheckSpec::default(),
            observe: false,
            sink: SinkLimits::haproxy(),
        }
    }
}
