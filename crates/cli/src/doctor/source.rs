//! What tells of requests in the place of the balancer: whether it tells of every server.

use std::collections::BTreeSet;

use plimsoll_sink::{LogFormat, Source};

use super::finding::{Finding, Findings};
use crate::run::translate::ServiceSetup;

/// Asks the source of a service, where it has one that can be asked.
pub async fn examine(name: &str, setup: &ServiceSetup, findings: &mut Findings) {
    let Some((source, addresses)) = &setup.source else { return };
    let prometheus = match source {
        Source::Prometheus(prometheus) => prometheus,
        Source::AccessLog(log) => {
            let from = match log.format {
                LogFormat::Haproxy => "HAProxy",
                LogFormat::Nginx => "NGINX",
                LogFormat::Envoy => "Envoy",
            };
            let what = format!(
                "requests are counted from {from}'s access log, to be sent to {} by UDP: the daemon says when no line \
                 comes",
                log.listen
            );
            return findings.add(Finding::note(name, what));
        }
    };
    let place = prometheus.place();
    let names = setup.servers.iter().map(|(id, name)| (name.clone(), *id));
    let servers = names.chain(addresses.iter().cloned()).collect();
    let count = setup.servers.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len();
    for (signal, told) in prometheus.look(&servers).await {
        let key = signal.key();
        let told = match told {
            Ok(told) => told,
            Err(why) => {
                findings.add(Finding::error(
                    name,
                    format!("{place}: {key}: {why}"),
                    "see that it runs, and try the query in its web page",
                ));
                continue;
            }
        };
        let what = format!("{place}: {key} tells of {} of {count} servers", told.servers);
        findings.add(match told.troubles.is_empty() {
            true => Finding::ok(name, what),
            false => Finding::warning(
                name,
                format!("{what}: {}", told.troubles.join("; ")),
                "one series for each server, whose label is its name or its address",
            ),
        });
    }
    findings.add(Finding::note(
        name,
        format!(
            "a change shows in these queries only after {:?}: the balancer's own counters or its access log tell more, \
             and sooner",
            prometheus.lag()
        ),
    ));
}
