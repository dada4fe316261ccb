//! What a daemon that runs already can tell: advice, capacities, what it holds.

use std::collections::BTreeMap;

use plimsoll_api::wire::{ServiceCurves, ServicePlan, Services};
use plimsoll_control::Advice;
use plimsoll_model::MethodKind;

use crate::client::Failure;
use crate::client::http::Client;
use crate::config::Config;

/// What the daemon says of one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// What its weights mean.
    pub method: Option<MethodKind>,
    /// What would serve better.
    pub advice: Option<Advice>,
    /// Capacity by backend, requests per second, where it is known.
    pub capacity_rps: BTreeMap<String, f64>,
    /// Why it cannot steer.
    pub trouble: Option<String>,
}

/// Who answers at `api.listen`.
#[derive(Debug)]
pub enum Running {
    /// A daemon, with what it says of its services.
    Daemon(BTreeMap<String, Told>),
    /// Nobody.
    Nobody,
    /// Something else.
    Stranger(String),
}

impl Running {
    /// Asks at `api.listen` of this configuration.
    pub async fn ask(config: &Config) -> Self {
        let api = format!("http://{}", crate::client::reachable(config.api.listen));
        let asked = tokio::task::spawn_blocking(move || ask(&Client::new(&api)));
        match asked.await {
            Ok(Ok(told)) => Running::Daemon(told),
            Ok(Err(Failure::NoDaemon { .. })) => Running::Nobody,
            Ok(Err(other)) => Running::Stranger(other.message().unwrap_or_default()),
            Err(error) => Running::Stranger(error.to_string()),
        }
    }

    /// What it says of this service.
    pub fn service(&self, name: &str) -> Option<Told> {
        match self {
            Running::Daemon(told) => told.get(name).cloned(),
            Running::Nobody | Running::Stranger(_) => None,
        }
    }
}

fn ask(client: &Client) -> Result<BTreeMap<String, Told>, Failure> {
    let Services { services } = client.get("/v1/services")?;
    let mut all = BTreeMap::new();
    for service in services {
        let path = format!("/v1/services/{}", service.service);
        // One that is taken away meanwhile is left out.
        let plan: Option<ServicePlan> = client.get_if_there(&format!("{path}/plan"))?;
        let curves: Option<ServiceCurves> = client.get_if_there(&format!("{path}/curves"))?;
        let known = curves.map(|c| c.curves).unwrap_or_default().into_iter();
        let told = Told {
            method: plan.as_ref().map(|plan| plan.method),
            advice: plan.and_then(|plan| plan.plan.advice),
            capacity_rps: known.map(|c| (c.curve.backend, c.curve.capacity_rps)).collect(),
            trouble: service.trouble,
        };
        all.insert(service.service, told);
    }
    Ok(all)
}
