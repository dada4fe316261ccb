use std::time::Duration;

use plimsoll_model::{BackendId, Objective, SinkLimits};
use serde::{Deserialize, Serialize};

/// How a pool is explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exploration {
    /// Pack with what is known, optimistic about what is not, and learn from the traffic that the
    /// plan itself brings: no backend is driven further than the packing can use. Needs a balancer
    /// that reports rates.
    #[default]
    Packed,
    /// One backend at a time is driven up and bisected on |w − last good| (KnapsackLB §4.3, with the
    /// stopping rule mended, a bounded latency factor and a bounded step).
    Bisect,
    /// Algorithm 1 of KnapsackLB as printed: for comparison only.
    Literal,
}

/// Which family of curves may be fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveChoice {
    /// The one with the least cross-validated error.
    #[default]
    Auto,
    /// `a + b/(c − x)`.
    Hyperbola,
    /// Isotonic regression, joined by monotone cubic pieces.
    Isotonic,
    /// The paper's polynomial of degree two, made monotone.
    Poly2,
}

/// How the drain time is measured: how long after a change requests placed by the old weights stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainTest {
    /// Whenever a backend is set to 0 for another reason, by its in-flight requests falling to none.
    #[default]
    Passive,
    /// The way of KnapsackLB's appendix: every two hours a backend is overloaded, then set to 0, until its
    /// latency is that of rest. For comparison: it makes clients wait.
    Overload,
}

/// How a change of a backend is told from noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftTest {
    /// A sequential test with a stated rate of false alarms: about one in three days of a pool of 30.
    #[default]
    Sequential,
    /// The bare threshold of KnapsackLB §4.5, ±20 % of the latency expected: for comparison only, it
    /// fires on noise.
    Literal,
    /// Curves are learned, and forgotten slowly; nothing is tested.
    Off,
}

/// One backend of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSpec {
    /// Its identity for life.
    pub id: BackendId,
    /// Its name in the configuration and in the balancer.
    pub name: String,
}

/// The probing that an administrator fixed; what is absent adapts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeRate {
    /// Time between rounds of probes.
    pub interval: Option<Duration>,
    /// Probes per round.
    pub requests: Option<u32>,
}

/// How a backend is checked for life where its traffic does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CheckSpec {
    /// A check is this many requests that the backend must serve, and costs as much; 0: a bare TCP connection.
    pub requests: u32,
    /// The time between checks that an administrator fixed; without it they come as they are needed, and within a
    /// budget where they cost.
    pub interval: Option<Duration>,
}

/// Everything the controller of one service is told.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSpec {
    /// The service's name.
    pub name: String,
    /// Its backends, in the order of the configuration.
    pub backends: Vec<BackendSpec>,
    /// What to minimise.
    pub objective: Objective,
    /// Bound on the spread of the shares, `max − min ≤ theta`.
    pub theta: Option<f64>,
    /// How to explore.
    pub exploration: Exploration,
    /// Which curves to fit.
    pub curve: CurveChoice,
    /// How a change of a backend is told from noise.
    pub drift: DriftTest,
    /// Measure curves anew now and then, where the traffic of every day does not tell them.
    pub refresh: bool,
    /// A backend that returns or joins gets its whole share after this time; zero: at once.
    pub slow_start: Duration,
    /// How long requests on old weights stay is measured.
    pub drain: DrainTest,
    /// While exploring, a backend whose response time passes this multiple of its time at rest is
    /// backed off.
    pub latency_factor: f64,
    /// While exploring, a share grows at most by this factor a step.
    pub max_step: f64,
    /// A change that would move less than this part of the traffic is not worth programming.
    pub min_change: f64,
    /// Never program more often than this, whatever the balancer bears.
    pub min_interval: Duration,
    /// Length of an exploration round in the paper's modes (10 s in the paper).
    pub round: Duration,
    /// The probing asked for, if there is any.
    pub probe: Option<ProbeRate>,
    /// How backends are checked for life.
    pub checks: CheckSpec,
    /// Never program; say what would be.
    pub observe: bool,
    /// What the balancer bears.
    pub sink: SinkLimits,
}

impl ServiceSpec {
    /// A service with every default.
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
