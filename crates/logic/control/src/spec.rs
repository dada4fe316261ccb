use std::time::Duration;

use plimsoll_model::{BackendId, Objective, SinkLimits};
use serde::{Deserialize, Serialize};

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
}

/// How a change of a backend is distinguished from noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftTest {
    /// A sequential test with a stated rate of false alarms: about one in three days of a pool of 30.
    #[default]
    Sequential,
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
    /// Which family of curves to fit.
    pub curve: CurveChoice,
    /// How a change of a backend is distinguished from noise.
    pub drift: DriftTest,
    /// Measure curves again now and then, where ordinary traffic does not show them.
    pub refresh: bool,
    /// A backend that returns or joins gets its whole share after this time; zero: at once.
    pub slow_start: Duration,
    /// While exploring, a backend whose response time exceeds this multiple of its unloaded service time gets less
    /// load.
    pub latency_factor: f64,
    /// While exploring, a share grows by at most this factor per step.
    pub max_step: f64,
    /// A change that moves less than this part of the traffic is not programmed.
    pub min_change: f64,
    /// The least time between two plans, even where the balancer allows more.
    pub min_interval: Duration,
    /// Probe settings; `None` without probes.
    pub probe: Option<ProbeRate>,
    /// How liveness is checked.
    pub checks: CheckSpec,
    /// Never program; only report what would be.
    pub observe: bool,
    /// What the balancer's sink allows.
    pub sink: SinkLimits,
    /// How many balancers stand before the pool with the same weights, each counting only its own requests.
    pub balancers: u32,
    /// Each of several balancers has a subset of the backends, until the last plan, with which Plimsoll stops, gives all
    /// backends to each.
    pub subsets: bool,
}

impl ServiceSpec {
    /// A service with default settings.
    pub fn new(name: &str, backends: Vec<BackendSpec>) -> Self {
        ServiceSpec {
            name: name.to_owned(),
            backends,
            objective: Objective::default(),
            theta: None,
            curve: CurveChoice::default(),
            drift: DriftTest::default(),
            refresh: true,
            slow_start: Duration::from_secs(10),
            latency_factor: 3.0,
            max_step: 2.0,
            min_change: 0.01,
            min_interval: Duration::from_millis(250),
            probe: None,
            checks: CheckSpec::default(),
            observe: false,
            sink: SinkLimits::haproxy(),
            balancers: 1,
            subsets: false,
        }
    }
}
