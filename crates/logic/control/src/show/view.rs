use plimsoll_model::{BackendId, Hyperbola, MethodKind, Nanos, Objective};
use serde::{Deserialize, Serialize};

/// The controller's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Not enough is known, or most of the traffic goes to backends that are being learned or join; weights move.
    Exploring,
    /// The pool is known, as far as its load requires, and packed.
    Steady,
    /// There is more traffic than capacity: shares are in proportion to capacity. Also where no backend serves.
    ShortOfCapacity,
    /// Nothing is programmed: observe mode is configured, or the balancer cannot be steered.
    Observing,
}

/// A backend's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendState {
    /// In use, and known as far as its load requires.
    Ready,
    /// In use, and its weight moves in order to learn its capacity.
    Exploring,
    /// It does not answer at present: it has weight 0 until it does, and its full share from then on.
    SetAside,
    /// It has failed and has weight 0.
    Failed,
    /// Drained or in maintenance by an administrator.
    Draining,
    /// New or returned: in slow start.
    Joining,
    /// Healthy and without traffic by choice: at this load the other backends are faster.
    Parked,
}

/// One backend, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendView {
    /// Its name.
    pub backend: String,
    /// The weight wanted.
    pub weight: u32,
    /// The part of the service's traffic that it gets, 0…1, as last measured.
    pub share: f64,
    /// The weight the balancer holds; `None` while it cannot be read.
    pub programmed: Option<u32>,
    /// Its state.
    pub state: BackendState,
    /// Response time measured over the last window, milliseconds.
    pub latency_ms: Option<f64>,
    /// Response time that the curves predict for the plan, milliseconds.
    pub expected_ms: Option<f64>,
    /// Requests per second that Plimsoll itself sends to it: checks by request, and probes.
    pub asked_rps: f64,
    /// The part of its capacity that these cost, where known; a probe counts by its own response time.
    pub asked_part: Option<f64>,
    /// The part of its recent answers that are errors, 0…1; 0 while they are few.
    #[serde(default)]
    pub error_share: f64,
    /// Interval of its liveness checks, seconds; `None`: traffic makes them unnecessary, or checks are off.
    pub check_interval_s: Option<f64>,
    /// Why it counts as failed, where it does.
    #[serde(default)]
    pub cause: Option<String>,
    /// The reason for the weight.
    pub reason: String,
}

/// What is known of one backend's curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveView {
    /// Its name.
    pub backend: String,
    /// The family that fits best: `queue`, `hyperbola` or `isotonic`.
    pub family: String,
    /// Unloaded service time, milliseconds.
    pub l0_ms: f64,
    /// Capacity, requests per second.
    pub capacity_rps: f64,
    /// True while no queue was ever observed: the capacity may be greater.
    pub capacity_is_lower_bound: bool,
    /// Requests that it serves at the same time.
    pub cores: f64,
    /// Relative standard error of the capacity.
    pub capacity_error: f64,
    /// Cross-validated relative error of the fit, where there are enough points.
    pub cv_error: Option<f64>,
    /// The parameters, where the curve is a hyperbola (microseconds, requests per second).
    pub hyperbola: Option<Hyperbola>,
    /// The measured points: (requests per second, milliseconds, requests).
    pub points: Vec<(f64, f64, f64)>,
    /// The curve itself, sampled for plotting: (requests per second, milliseconds).
    pub line: Vec<(f64, f64)>,
}

/// Estimates of one backend, for observers of every step: cheap to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Belief {
    /// The backend.
    pub backend: BackendId,
    /// The weight that the balancer holds, as far as known.
    pub programmed: Option<u32>,
    /// The weight that it should hold.
    pub wanted: u32,
    /// Capacity, requests per second.
    pub capacity_rps: Option<f64>,
    /// Relative standard error of the capacity.
    pub capacity_error: f64,
    /// The capacity is a lower bound.
    pub is_lower_bound: bool,
    /// Unloaded service time on one core, microseconds.
    pub service_us: Option<f64>,
    /// When its curve was last rescaled or relearned, and the multiple of its former rate.
    pub changed: Option<(Nanos, f64)>,
    /// It is pinned to a load in order to be measured.
    pub is_measured: bool,
}

/// The packing behind the last plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanView {
    /// The plan's epoch; 0 before the first.
    pub epoch: u64,
    /// The reason for the plan.
    pub reason: String,
    /// The objective minimised.
    pub objective: Objective,
    /// Expected mean response time, milliseconds; `None`, as the bound, while nothing is known of a backend that gets
    /// traffic.
    pub expected_ms: Option<f64>,
    /// Lower bound on the objective, milliseconds, where the solver proves one.
    pub bound_ms: Option<f64>,
    /// Relative distance between the two.
    pub gap: Option<f64>,
    /// Whether the packing is proven optimal for these curves.
    pub proven: bool,
    /// Traffic it was made for, requests per second.
    pub rate_rps: f64,
    /// Capacity of the backends in use, requests per second; 0 while nothing is known of one that gets traffic.
    pub capacity_rps: f64,
    /// Whether response times are measured by probes besides clients' own requests.
    #[serde(default)]
    pub probed: bool,
    /// What tells of requests in the place of the balancer's own counters: `access_log` or `prometheus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_by: Option<String>,
    /// Advice to use the balancer's other kind of method, where that would be faster.
    pub advice: Option<Advice>,
    /// How much longer clients wait than behind one balancer, as a part of that, where several count their own requests
    /// in flight only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub several_cost: Option<f64>,
    /// The same if each of them had a subset of the backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsets_cost: Option<f64>,
}

/// Another method would be faster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The method to use, by the balancer's own name.
    pub method: String,
    /// Its expected mean response time, milliseconds.
    pub expected_ms: f64,
    /// Expected mean response time of the present one, milliseconds.
    pub present_ms: f64,
    /// `1 − expected/present`.
    pub gain: f64,
}

/// The whole service, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceView {
    /// The service's name.
    pub service: String,
    /// The kind of the balancer's method.
    pub method: MethodKind,
    /// The balancer's name for it.
    pub method_name: String,
    /// The controller's phase.
    pub phase: Phase,
    /// The last plan's epoch; 0 before the first.
    pub epoch: u64,
    /// Traffic, requests per second.
    pub rate_rps: f64,
    /// Mean response time over the last windows, milliseconds; `None` without traffic, or while no reading met a
    /// request.
    pub latency_ms: Option<f64>,
    /// The longest of the recent drains, seconds: for so long requests remain after weight 0; 600 where connections
    /// never end. Measurements wait as long, but at most a minute.
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
