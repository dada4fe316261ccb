//! Which question gets which answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use plimsoll_control::ServiceView;

use crate::dashboard;
use crate::guard::{HostGuard, guard};
use crate::hub::{Hub, Slot};
use crate::metrics::{self, Page};
use crate::ring::MAX_EVENTS;
use crate::wire::{
    ErrorBody, ServiceCurves, ServiceEvents, ServicePlan, ServiceWeights, Services, Weights,
};

/// Events given when a request does not say how many.
const DEFAULT_EVENTS: usize = 100;

/// A service's name in the path; an error where it is not text.
type Name = Result<Path<String>, PathRejection>;

/// An answer that is not 2xx.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    error: String,
}

impl ApiError {
    /// This status, with this explanation.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        ApiError { status, error: error.into() }
    }

    fn bad_request(error: impl Into<String>) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.error })).into_response()
    }
}

/// The paths that show this hub.
pub fn of_hub(hub: Hub) -> Router {
    let plain = Router::new()
        .route("/v1/services", get(services))
        .route("/v1/weights", get(all_weights))
        .route("/v1/services/{name}", get(service))
        .route("/v1/services/{name}/weights", get(weights))
        .route("/v1/services/{name}/curves", get(curves))
        .route("/v1/services/{name}/plan", get(plan))
        .layer(middleware::from_fn(no_query));
    Router::new()
        .merge(plain)
        .route("/v1/services/{name}/events", get(events))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .merge(dashboard::router())
        .with_state(hub)
}

/// These paths for clients that may ask, and words for everything else.
pub fn guarded(paths: Router, hosts: HostGuard) -> Router {
    paths
        .method_not_allowed_fallback(|| async {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered")
        })
        .fallback(|request: Request| async move {
            let path = request.uri().path();
            ApiError::new(StatusCode::NOT_FOUND, format!("nothing is at {path:?}"))
        })
        .layer(middleware::from_fn_with_state(hosts, guard))
}

/// Refuses a query where none is understood: an ignored key would look obeyed.
pub async fn no_query(RawQuery(query): RawQuery, request: Request, next: Next) -> Response {
    match query.as_deref() {
        None | Some("") => next.run(request).await,
        Some(_) => ApiError::bad_request("this path takes no query").into_response(),
    }
}

async fn readyz(State(hub): State<Hub>) -> Response {
    let readiness = hub.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

async fn metrics(State(hub): State<Hub>) -> Page {
    metrics::render(&hub)
}

async fn services(State(hub): State<Hub>) -> Json<Services> {
    let services = hub.slots().iter().map(|slot| slot.summary()).collect();
    Json(Services { services, waiting: hub.waiting() })
}

async fn all_weights(State(hub): State<Hub>) -> Json<Weights> {
    let services = hub.slots().iter().map(|slot| ServiceWeights::of(&slot.view())).collect();
    Json(Weights { services })
}

async fn service(hub: State<Hub>, name: Name) -> Result<Json<ServiceView>, ApiError> {
    let view = view(hub, name)?;
    Ok(Json(ServiceView::clone(&view)))
}

async fn weights(hub: State<Hub>, name: Name) -> Result<Json<ServiceWeights>, ApiError> {
    Ok(Json(ServiceWeights::of(&*view(hub, name)?)))
}

async fn curves(hub: State<Hub>, name: Name) -> Result<Json<ServiceCurves>, ApiError> {
    Ok(Json(ServiceCurves::of(&*view(hub, name)?)))
}

async fn plan(hub: State<Hub>, name: Name) -> Result<Json<ServicePlan>, ApiError> {
    Ok(Json(ServicePlan::of(&*view(hub, name)?)))
}

async fn events(
    State(hub): State<Hub>,
    name: Name,
    RawQuery(query): RawQuery,
) -> Result<Json<ServiceEvents>, ApiError> {
    let EventsQuery { limit, after } = EventsQuery::parse(query.as_deref().unwrap_or(""))?;
    let slot = slot(&hub, name)?;
    Ok(Json(hub.events(&slot, after, limit)))
}

fn slot(hub: &Hub, name: Name) -> Result<Arc<Slot>, ApiError> {
    let Path(name) = name.map_err(|why| ApiError::bad_request(why.body_text()))?;
    hub.slot(&name).ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, format!("no service is named {name:?}"))
    })
}

fn view(State(hub): State<Hub>, name: Name) -> Result<Arc<ServiceView>, ApiError> {
    Ok(slot(&hub, name)?.view())
}

/// `?limit=N&after=SEQ`
#[derive(Debug, PartialEq)]
struct EventsQuery {
    limit: usize,
    after: Option<u64>,
}

impl EventsQuery {
    fn parse(query: &str) -> Result<Self, ApiError> {
        let mut numbers: BTreeMap<&str, u64> = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !matches!(key, "limit" | "after") {
                let error = format!("unknown query key {key:?}: limit and after are known");
                return Err(ApiError::bad_request(error));
            }
            let number = value.parse().map_err(|_| {
                ApiError::bad_request(format!("{key}: expected a whole number, found {value:?}"))
            })?;
            if numbers.insert(key, number).is_some() {
                return Err(ApiError::bad_request(format!("{key} is given twice")));
            }
        }
        let limit = match numbers.get("limit") {
            None => DEFAULT_EVENTS,
            Some(limit) => usize::try_from(*limit)
                .ok()
                .filter(|limit| (1..=MAX_EVENTS).contains(limit))
                .ok_or_else(|| {
                    ApiError::bad_request(format!("limit: expected 1…{MAX_EVENTS}, found {limit}"))
                })?,
        };
        Ok(EventsQuery { limit, after: numbers.get("after").copied() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_query_is_read_or_refused() {
        let read = |query| EventsQuery::parse(query).map_err(|e| e.error);
        assert_eq!(read(""), Ok(EventsQuery { limit: 100, after: None }));
        assert_eq!(read("after=7&limit=1"), Ok(EventsQuery { limit: 1, after: Some(7) }));
        for (query, error) in [
            ("limit=0", "limit: expected 1…1000, found 0"),
            ("limit=1001", "limit: expected 1…1000, found 1001"),
            ("limit=-1", "limit: expected a whole number, found \"-1\""),
            ("after", "after: expected a whole number, found \"\""),
            ("after=1&after=2", "after is given twice"),
            ("follow=1", "unknown query key \"follow\": limit and after are known"),
        ] {
            assert_eq!(read(query), Err(error.to_owned()));
        }
    }
}
