//! What a balancer says that it has: where nothing is configured, and for services with `backends: auto`.

use std::collections::BTreeSet;

use plimsoll_sink::{FoundPool, Sink};

use super::examine_service;
use super::finding::{Finding, Findings};
use crate::config::Service;
use crate::run::looker::{backends, service_name};

/// What to do about a pool that cannot be helped is part of the reason.
const NOTHING: &str = "";

/// Looks at every pool of a balancer, or at these.
pub async fn examine(sink: &Sink, only: &[String]) -> Findings {
    let mut findings = Findings::default();
    let place = sink.place();
    let pools = match sink.look().await {
        Ok(pools) => pools,
        Err(error) => {
            findings.add(Finding::error("balancer", error.to_string(), NOTHING));
            return findings;
        }
    };
    for unknown in only.iter().filter(|name| !pools.iter().any(|pool| pool.name == **name)) {
        findings.add(Finding::error(unknown, format!("{place} has no such pool"), NOTHING));
    }
    let mut taken = BTreeSet::new();
    for pool in pools.iter().filter(|pool| only.is_empty() || only.contains(&pool.name)) {
        match pool.out_of_reach() {
            Some(why) => findings.add(Finding::note(&pool.name, format!("out of reach: {why}"))),
            None => {
                let name = service_name(&pool.name, &mut taken);
                let service = Service::auto(name, sink.with_pool(&pool.name), &place);
                findings.append(examine_service(&service, None).await);
            }
        }
    }
    findings
}

/// Gives a service the servers that its balancer has: of several the first one that tells, as the daemon takes them.
pub async fn servers(service: &mut Service, findings: &mut Findings) {
    for sink in service.sink.value.iter() {
        // A balancer that cannot be asked is found to be so by those who look at it next.
        let Ok(pools) = sink.look().await else { continue };
        if let Some(pool) = pools.iter().find(|pool| pool.name == sink.pool()) {
            findings.add(found(&service.name, pool));
            service.backends = backends(pool);
            return;
        }
    }
}

fn found(service: &str, pool: &FoundPool) -> Finding {
    match pool.out_of_reach() {
        None => {
            let what = format!("its servers are asked of the balancer: {}", pool.summary());
            Finding::ok(service, what)
        }
        Some(why) => Finding::error(
            service,
            format!("its servers are asked of the balancer: {why}"),
            NOTHING,
        ),
    }
}
