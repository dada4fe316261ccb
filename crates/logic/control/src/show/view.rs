use plimsoll_model::{BackendId, Hyperbola, MethodKind, Nanos, Objective};
use serde::{Deserialize, Serialize};

/// What the controller is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Not enough is known, or most of the traffic goes to backends that are being learned or join; weights move.
    Exploring,
    /// The pool is known, as far as its load requires, and packed.
    Steady,
    /// There is more traffic than capacity: shared in proportion to capacity. Also where no backend serves.
    ShortOfCapacity,
    /// Nothing is programmed: asked so, or the balancer cannot be steered.
    Observing,
}

/// What a backend is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendState {
    /// In use, and known as far as its load requires.
    Ready,
    /// In use, and its weight moves to learn its capacity.
    Exploring,
    /// It does not answer at the moment: it gets nothing until it does, and all of its share from then on.
    SetAside,
    /// It does not serve; out of the plan.
    Failed,
    /// An administrator drains it or has it in maintenance.
    Draining,
    /// New or returned: its share ramps up.
    Joining,
    /// Healthy and deliberately without traffic: at this load it would only be slower.
    Parked,
}

/// One backend, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendView {
    /// Its name.
    pub backend: String,
    /// The integer weight wanted.
    pub weight: u32,
    /// The part of the service's traffic it gets, 0…1, as last measured.
    pub share: f64,
    /// The weight the balancer holds; `None` while it cannot be read.
    pub programmed: Option<u32>,
    /// What it is doing.
    pub state: BackendState,
    /// Response time measured over the last window, milliseconds.
    pub latency_ms: Option<f64>,
    /// Response time that the curves expect of the plan, milliseconds.
    pub expected_ms: Option<f64>,
    /// Requests per second that Plimsoll itself sends to it: checks by request, and probes.
    pub asked_rps: f64,
    /// The part of its capacity that these cost, a probe by its own time, where that is known.
    pub asked_part: Option<f64>,
    /// Time between checks for life, seconds; `None`: its traffic tells, or nobody checks.
    pub check_interval_s: Option<f64>,
    /// Why the weight is what it is.
    pub reason: String,
}

/// What is known of one backend's curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveView {
    /// Its name.
    pub backend: String,
    /// The family that fits best: `queue`, `hyperbola`, `isotonic` or `poly2`.
    pub family: String,
    /// Response time at rest, milliseconds.
    pub l0_ms: f64,
    /// Requests per second it can bear.
    pub capacity_rps: f64,
    /// True while no queue was ever seen: the real capacity is at least that.
    pub capacity_is_lower_bound: bool,
    /// Requests it works on at the same time.
    pub cores: f64,
    /// Relative standard error of the capacity.
    pub capacity_error: f64,
    /// Cross-validated relative error of the fit, where there are points enough.
    pub cv_error: Option<f64>,
    /// The parameters, where the curve is a hyperbola (microseconds, requests per second).
    pub hyperbola: Option<Hyperbola>,
    /// What was measured: (requests per second, milliseconds, requests).
    pub points: Vec<(f64, f64, f64)>,
    /// The curve itself, sampled for plotting: (requests per second, milliseconds).
    pub line: Vec<(f64, f64)>,
}

/// What is believed of one backend, for those who look after every step: it costs nothing to say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Belief {
    /// Whom.
    pub backend: BackendId,
    /// The weight that the balancer holds, as far as is known.
    pub programmed: Option<u32>,
    /// The weight that it should hold.
    pub wanted: u32,
    /// Requests per second that it bears.
    pub capacity_rps: Option<f64>,
    /// Relative standard error of that.
    pub capacity_error: f64,
    /// Where its curve ends, requests per second: a curve that is fitted to what was measured ends where that says.
    pub curve_rps: Option<f64>,
    /// It may bear more.
    pub is_lower_bound: bool,
    /// Time of a request on one core, microseconds.
    pub service_us: Option<f64>,
    /// When its curve was last rescaled or begun anew, and to which multiple of its rate.
    pub changed: Option<(Nanos, f64)>,
    /// It is given a load for the sake of measuring, whatever the packing says.
    pub is_measured: bool,
}

/// The packing behind the last plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanView {
    /// The plan's epoch; 0 before the first.
    pub epoch: u64,
    /// Why it was made.
    pub reason: String,
    /// What was minimised.
    pub objective: Objective,
    /// Mean response time it expects, milliseconds.
    pub expected_ms: Option<f64>,
    /// Lower bound on the objective, milliseconds, where the solver proves one.
    pub bound_ms: Option<f64>,
    /// Relative distance between the two.
    pub gap: Option<f64>,
    /// Whether the packing is proven optimal for these curves.
    pub proven: bool,
    /// Traffic it was made for, requests per second.
    pub rate_rps: f64,
    /// Capacity of the backends in use, requests per second.
    pub capacity_rps: f64,
    /// What the balancer's other kind of method would give, where it would serve better.
    pub advice: Option<Advice>,
}

/// Another method would serve better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The method to use, by the balancer's own name.
    pub method: String,
    /// Mean response time expected of it, milliseconds.
    pub expected_ms: f64,
    /// Mean response time expected of the present one, milliseconds.
    pub present_ms: f64,
    /// `1 − expected/present`.
    pub gain: f64,
}

/// The whole service, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceView {
    /// The service's name.
    pub service: String,
    /// How the balancer picks.
    pub method: MethodKind,
    /// The balancer's own name for it.
    pub method_name: String,
    /// What the controller is doing.
    pub phase: Phase,
    /// The last plan's epoch; 0 before the first.
    pub epoch: u64,
    /// Traffic, requests per second.
    pub rate_rps: f64,
    /// Mean response time over the last windows, milliseconds; `None` without traffic, or while no reading met any.
    pub latency_ms: Option<f64>,
    /// The longest of the last drains that were seen, seconds: so long requests go on after a weight of 0. 600 where
    /// connections never end. Measuring waits as long, but a minute at the most.
    pub drain_s: Option<f64>,
    /// Why the balancer cannot be steered, if it cannot.
    pub trouble: Option<String>,
    /// Every backend, in the order of the configuration.
    pub backends: Vec<BackendView>,
    /// The packing behind the last plan.
    pub plan: PlanView,
    /// The curves.
    pub curves: Vec<CurveView>,
}
