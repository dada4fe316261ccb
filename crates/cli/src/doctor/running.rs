//! What a daemon that runs already can tell: what clients feel, advice, capacities.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plimsoll_api::wire::Services;
use plimsoll_control::ServiceView;

use crate::client::Failure;
use crate::client::http::Client;

/// What answers where a daemon should.
#[derive(Debug)]
pub enum Running {
    /// A daemon, with what it shows of its services.
    Daemon(BTreeMap<String, ServiceView>),
    /// No process.
    Nobody,
    /// Something else.
    Stranger(String),
}

impl Running {
    /// Asks at this address.
    pub async fn ask(listen: SocketAddr) -> Self {
        let api = format!("http://{}", crate::client::reachable(listen));
        let asked = tokio::task::spawn_blocking(move || ask(&Client::new(&api)));
        match asked.await {
            Ok(Ok(told)) => Running::Daemon(told),
            Ok(Err(Failure::NoDaemon { .. })) => Running::Nobody,
            Ok(Err(other)) => Running::Stranger(other.message().unwrap_or_default()),
            Err(error) => Running::Stranger(error.to_string()),
        }
    }

    /// What it shows of this service.
    pub fn service(&self, name: &str) -> Option<ServiceView> {
        match self {
            Running::Daemon(told) => told.get(name).cloned(),
            Running::Nobody | Running::Stranger(_) => None,
        }
    }
}

fn ask(client: &Client) -> Result<BTreeMap<String, ServiceView>, Failure> {
    let Services { services, .. } = client.get("/v1/services")?;
    let mut all = BTreeMap::new();
    for service in services {
        // One that is taken away meanwhile is left out.
        if let Some(view) = client.get_if_there(&format!("/v1/services/{}", service.service))? {
            all.insert(service.service, view);
        }
    }
    Ok(all)
}
