//! What Plimsoll's own layer-4 balancer is like as a balancer that is steered. What it needs of its machine
//! is the layer-4 doctor's to find (`doctor --config` with an `l4` section).

use plimsoll_control::ServiceView;
use plimsoll_model::{MethodKind, ServerStatus};
use plimsoll_sink::{L4Sink, L4SinkConfig, ReportSource as _};

use super::finding::{Finding, Findings};
use crate::run::translate::ServiceSetup;

/// Looks at the balancer of one service.
pub async fn examine(
    name: &str,
    place: &L4SinkConfig,
    setup: &ServiceSetup,
    told: Option<&ServiceView>,
    findings: &mut Findings,
) {
    let report = match L4Sink::new(place.clone(), setup.servers.clone()) {
        Ok(mut sink) => sink.read().await,
        Err(error) => Err(error),
    };
    let report = match report {
        Ok(report) => report,
        // Its text says what to look at.
        Err(error) => return findings.add(Finding::error(name, error.to_string(), "")),
    };
    let (socket, policy) = (place.socket.display(), &report.method.name);
    findings.add(Finding::ok(name, format!("{socket}: the layer-4 balancer answers")));
    findings.add(match report.method.kind {
        MethodKind::NoLiveWeights => Finding::error(
            name,
            format!("policy {policy} of {} takes no weights from a controller", place.vip),
            "use weighted_round_robin, least_connections, power_of_two, maglev or hash",
        ),
        MethodKind::Split => Finding::ok(name, format!("`{policy}`: weights split the traffic")),
        MethodKind::InFlight => {
            Finding::ok(name, format!("`{policy}`: weights scale what is in flight"))
        }
    });
    if let Some(trouble) = told.and_then(|told| told.trouble.as_ref()) {
        let what = format!("the daemon cannot steer it: {trouble}");
        findings.add(Finding::error(name, what, ""));
    }
    for server in &report.servers {
        let named = setup.servers.iter().find(|(id, _)| *id == server.backend);
        let about = format!("{name}/{}", named.map_or("?", |(_, server)| server));
        match server.status {
            ServerStatus::Down => findings.add(Finding::error(
                about,
                "the balancer has no MAC address of it, and sends it nothing",
                "see that it answers ARP or neighbour solicitations, or give it a mac",
            )),
            ServerStatus::Drain | ServerStatus::Maintenance => findings.add(Finding::note(
                about,
                "the layer-4 configuration has taken it out; it gets no new connections",
            )),
            ServerStatus::Up | ServerStatus::Starting => {}
        }
    }
}
