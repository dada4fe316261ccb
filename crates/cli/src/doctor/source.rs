//! What tells of requests in the place of the balancer: whether it tells of every server.

use std::collections::BTreeSet;

use plimsoll_sink::{LogFormat, Source, Told};

use super::finding::{Finding, Findings};
use crate::run::translate::ServiceSetup;

/// Asks the source of a service, where it has one that can be asked. A daemon that is at work listens to its log.
pub async fn examine(name: &str, setup: &ServiceSetup, has_daemon: bool, findings: &mut Findings) {
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
            findings.add(Finding::note(name, what));
            if let Some(why) = log.try_to_listen().err().filter(|_| !has_daemon) {
                findings.add(Finding::error(name, why, "give the log an address of its own"));
            }
            return;
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
        findings.add(judge(name, &format!("{place}: {key}"), &told, count));
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

fn judge(name: &str, query: &str, told: &Told, servers: usize) -> Finding {
    let unit = told.signal.unit();
    let between = told.between.map(|(least, most)| format!(", {least:.4} to {most:.4} {unit}"));
    let what = format!(
        "{query} tells of {} of {servers} servers{}",
        told.servers,
        between.unwrap_or_default()
    );
    match told.troubles.is_empty() {
        false => Finding::warning(
            name,
            format!("{what}: {}", told.troubles.join("; ")),
            "one series for each server, whose label is its name or its address",
        ),
        // An idle server has no response time: NaN is no trouble, but all of them tell nothing.
        true if told.servers == 0 => Finding::warning(
            name,
            format!("{what}: every number is NaN, as where there are no requests"),
            "ask again when there is traffic; where there is, correct the query",
        ),
        true => Finding::ok(name, what),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sink::Signal;

    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn a_query_without_servers_is_a_warning() {
        for (servers, troubles, severity) in [
            (3, &[][..], Severity::Ok),
            (1, &[], Severity::Ok),
            (0, &[], Severity::Warning),
            (2, &["no series for s3"], Severity::Warning),
        ] {
            let troubles = troubles.iter().map(|&t| t.to_owned()).collect();
            let told = Told { signal: Signal::Latency, servers, between: None, troubles };
            assert_eq!(judge("shop", "P: latency", &told, 3).severity, severity, "{told:?}");
        }
    }
}
