//! The balancers of a service, each looked at in the way of its make.

use std::collections::BTreeSet;

use plimsoll_control::ServiceView;
use plimsoll_model::Method;
use plimsoll_sink::{FoundPool, NginxReloadSink, NginxSink, Sink};

use super::finding::{Finding, Findings, Severity};
use super::{haproxy, several, steered};
use crate::config::Service;
use crate::run::translate::ServiceSetup;

/// Looks at the balancers of one service; `left_alone` are servers that are not steered on purpose, where the balancer
/// is asked which it has.
pub async fn examine(
    service: &Service,
    setup: &ServiceSetup,
    told: Option<&ServiceView>,
    left_alone: Option<&BTreeSet<String>>,
    findings: &mut Findings,
) {
    let before = findings.all().len();
    let mut methods = Vec::new();
    let mut by_place = Vec::new();
    for sink in setup.sink.iter() {
        let from = findings.all().len();
        let method = one(service, sink, setup, told, left_alone, findings).await;
        by_place.push((from..findings.all().len(), sink.place()));
        methods.push((sink.place(), method));
    }
    let subsets = setup.sink.have_subsets();
    several::examine(&service.name, &methods, subsets, told, findings);
    if let Some(trouble) = told.and_then(|told| told.trouble.as_deref()) {
        let what = format!("the daemon cannot steer it: {trouble}");
        // An error that was found here by looking is most likely the same.
        let is_found = findings.all()[before..].iter().any(|f| f.severity == Severity::Error);
        let severity = if is_found { Severity::Note } else { Severity::Error };
        findings.add(Finding { severity, ..Finding::note(&service.name, what) });
    }
    if by_place.len() > 1 {
        for (those, place) in by_place {
            findings.name_place(those, &place);
        }
    }
}

/// Looks at one of them; how it picks, where it tells.
async fn one(
    service: &Service,
    balancer: &Sink,
    setup: &ServiceSetup,
    told: Option<&ServiceView>,
    left_alone: Option<&BTreeSet<String>>,
    findings: &mut Findings,
) -> Option<Method> {
    let name = &service.name;
    match balancer {
        Sink::Haproxy(config) => {
            haproxy::examine(service, config, setup, told, left_alone, findings).await
        }
        Sink::L4(l4) => {
            let sink = l4.sink(setup.servers.clone());
            let place = steered::Place::of_layer_4(l4);
            let method = steered::examine(name, sink, place, setup, findings).await;
            compare_addresses(service, balancer, findings).await;
            method
        }
        Sink::Proxy(proxy) => {
            let sink = proxy.sink(setup.servers.clone());
            let place = steered::Place::of_proxy(proxy);
            let method = steered::examine(name, sink, place, setup, findings).await;
            compare_addresses(service, balancer, findings).await;
            method
        }
        Sink::NginxReload(nginx) => {
            let sink = NginxReloadSink::new(nginx.clone(), setup.servers.clone())
                .map(NginxReloadSink::that_only_looks);
            let place = steered::Place::of_nginx_reload(nginx);
            let rehearsed = match &sink {
                Ok(sink) => sink.rehearse().await,
                // Its text is found below.
                Err(_) => Ok(()),
            };
            let method = steered::examine(name, sink, place, setup, findings).await;
            if let Err(error) = rehearsed {
                findings.add(Finding::error(name, error.to_string(), ""));
            }
            if method.as_ref().is_some_and(|method| method.name == "hash") {
                let what =
                    "every reload with other weights sends a part of the clients to other servers";
                findings.add(Finding::note(name, what));
            }
            findings.add(Finding::note(
                name,
                format!(
                    "weights change by a reload, at most once in {:?}: requests on connections that had been idle may \
                     fail then; the Lua balancer (`plimsoll nginx snippet`) needs none",
                    nginx.min_interval
                ),
            ));
            method
        }
        Sink::Nginx(nginx) => {
            let sink = NginxSink::new(nginx.clone(), setup.servers.clone());
            let place = steered::Place::of_nginx(nginx);
            let method = steered::examine(name, sink, place, setup, findings).await;
            compare_addresses(service, balancer, findings).await;
            if told.is_none() {
                let what = "after a restart NGINX has the weights of its configuration until Plimsoll has set them \
                            again; a reload keeps them";
                findings.add(Finding::note(name, what));
            }
            method
        }
    }
}

/// Whether the servers of a balancer that tells addresses are where the configuration says.
async fn compare_addresses(service: &Service, sink: &Sink, findings: &mut Findings) {
    // One that does not answer was found to be so before.
    let pools = sink.look().await.unwrap_or_default();
    let pool = pools.iter().find(|pool| pool.name == sink.pool());
    for (server, at) in pool.into_iter().flat_map(FoundPool::steerable) {
        let backend = service.backends.iter().find(|backend| backend.name == server);
        if let Some(backend) = backend {
            haproxy::compare_address(&service.name, backend, at, &sink.place(), findings).await;
        }
    }
}
