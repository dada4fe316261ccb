//! What the API says, as JSON: the same types write the answers and read them in the client.
//!
//! A reader ignores fields it does not know, so a newer daemon may say more.

use plimsoll_control::{BackendView, CurveView, Phase, PlanView, RecordKind, ServiceView};
use plimsoll_model::MethodKind;
use serde::{Deserialize, Serialize};

/// Every answer that is not 2xx, but for `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What was wrong, for people.
    pub error: String,
}

/// `GET /readyz`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Whether every service has read its balancer, has no trouble and has its plans taken.
    pub ready: bool,
    /// Why not; one per service that is not ready.
    pub reasons: Vec<NotReady>,
}

/// Why one service is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotReady {
    /// The service; empty when there is none at all.
    pub service: String,
    /// Why, for people.
    pub reason: String,
}

/// `GET /v1/services`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Services {
    /// In the order of the configuration.
    pub services: Vec<ServiceSummary>,
    /// While there is none: what the daemon waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
}

/// One service in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceSummary {
    /// Its name.
    pub service: String,
    /// How the balancer picks.
    pub method: MethodKind,
    /// The balancer's own name for it; empty while it has not reported it.
    pub method_name: String,
    /// What the controller is doing.
    pub phase: Phase,
    /// The last plan's epoch; 0 before the first.
    pub epoch: u64,
    /// Traffic, requests per second.
    pub rate_rps: f64,
    /// Mean response time over the last windows, milliseconds.
    pub latency_ms: Option<f64>,
    /// How many backends it has.
    pub backends: usize,
    /// Whether its balancer was read, it has no trouble and its plans are taken.
    pub ready: bool,
    /// Why it is not ready; an older daemon does not say.
    #[serde(default)]
    pub not_ready: Option<String>,
    /// Why the balancer cannot be steered, if it cannot.
    pub trouble: Option<String>,
}

impl ServiceSummary {
    /// The line of this view, and why it is not ready if it is not.
    pub fn of(view: &ServiceView, not_ready: Option<String>) -> Self {
        ServiceSummary {
            service: view.service.clone(),
            method: view.method,
            method_name: view.method_name.clone(),
            phase: view.phase,
            epoch: view.epoch,
            rate_rps: view.rate_rps,
            latency_ms: view.latency_ms,
            backends: view.backends.len(),
            ready: not_ready.is_none(),
            not_ready,
            trouble: view.trouble.clone(),
        }
    }
}

/// `GET /v1/weights`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// In the order of the configuration.
    pub services: Vec<ServiceWeights>,
}

/// `GET /v1/services/{name}/weights`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceWeights {
    /// The service's name.
    pub service: String,
    /// How the balancer picks.
    pub method: MethodKind,
    /// What the controller is doing.
    pub phase: Phase,
    /// The last plan's epoch; 0 before the first.
    pub epoch: u64,
    /// Every backend, in the order of the configuration.
    pub backends: Vec<BackendView>,
}

impl ServiceWeights {
    /// The weights of this view.
    pub fn of(view: &ServiceView) -> Self {
        ServiceWeights {
            service: view.service.clone(),
            method: view.method,
            phase: view.phase,
            epoch: view.epoch,
            backends: view.backends.clone(),
        }
    }
}

/// `GET /v1/services/{name}/curves`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceCurves {
    /// The service's name.
    pub service: String,
    /// One per backend of which something is known.
    pub curves: Vec<OperatedCurve>,
}

/// A curve, and where on it its backend works now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatedCurve {
    /// The curve.
    #[serde(flatten)]
    pub curve: CurveView,
    /// Requests per second that the backend gets now.
    pub rate_rps: f64,
    /// Its response time over the last window, milliseconds.
    pub latency_ms: Option<f64>,
}

impl ServiceCurves {
    /// The curves of this view.
    pub fn of(view: &ServiceView) -> Self {
        let operated = |curve: &CurveView| {
            let backend = view.backends.iter().find(|b| b.backend == curve.backend);
            OperatedCurve {
                curve: curve.clone(),
                rate_rps: backend.map_or(0.0, |b| b.share * view.rate_rps),
                latency_ms: backend.and_then(|b| b.latency_ms),
            }
        };
        ServiceCurves {
            service: view.service.clone(),
            curves: view.curves.iter().map(operated).collect(),
        }
    }
}

/// `GET /v1/services/{name}/plan`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServicePlan {
    /// The service's name.
    pub service: String,
    /// How the balancer picks.
    pub method: MethodKind,
    /// The balancer's own name for it; empty while it has not reported it.
    pub method_name: String,
    /// What the controller is doing.
    pub phase: Phase,
    /// Mean response time over the last windows, milliseconds.
    pub latency_ms: Option<f64>,
    /// The packing behind the last plan.
    pub plan: PlanView,
}

impl ServicePlan {
    /// The plan of this view.
    pub fn of(view: &ServiceView) -> Self {
        ServicePlan {
            service: view.service.clone(),
            method: view.method,
            method_name: view.method_name.clone(),
            phase: view.phase,
            latency_ms: view.latency_ms,
            plan: view.plan.clone(),
        }
    }
}

/// `GET /v1/services/{name}/events`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceEvents {
    /// The service's name.
    pub service: String,
    /// Differs from one run of the daemon to the next: where it changed, numbers may have begun anew.
    pub instance: u64,
    /// The number of the newest event; 0 before the first.
    pub last_seq: u64,
    /// Oldest first.
    pub events: Vec<Event>,
}

/// One decision or observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number within the service, from 1.
    pub seq: u64,
    /// When, milliseconds since 1970; `time` in RFC 3339 on the wire.
    #[serde(rename = "time", with = "crate::timestamp")]
    pub unix_ms: i64,
    /// What kind of thing happened.
    pub kind: RecordKind,
    /// The backend; `null` for the whole service.
    pub backend: Option<String>,
    /// Why, for people.
    pub reason: String,
}
