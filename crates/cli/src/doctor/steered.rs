//! What Plimsoll's own balancers are like as balancers that are steered. What layer 4 needs of its machine
//! is the layer-4 doctor's to find (`doctor --config` with an `l4` section).

use plimsoll_model::{Method, MethodKind, ServerStatus};
use plimsoll_sink::{
    L4SinkConfig, NginxConfig, NginxReloadConfig, ProxySinkConfig, ReportSource, SinkConfig as _,
    SinkError,
};

use super::finding::{Finding, Findings};
use crate::run::translate::ServiceSetup;

/// Which balancer it is, and what to do where it is not as it should be.
pub struct Place {
    socket: String,
    kind: &'static str,
    service: String,
    use_instead: &'static str,
    down: (&'static str, &'static str),
    drained: &'static str,
}

impl Place {
    pub fn of_layer_4(sink: &L4SinkConfig) -> Self {
        Place {
            socket: sink.socket.display().to_string(),
            kind: "the layer-4 balancer",
            service: sink.vip.clone(),
            use_instead: "use weighted_round_robin, least_connections, power_of_two, maglev or hash",
            down: (
                "the balancer has no MAC address of it, and sends it nothing",
                "see that it answers ARP or neighbour solicitations, or give it a mac",
            ),
            drained: "the layer-4 configuration has taken it out; it gets no new connections",
        }
    }

    pub fn of_proxy(sink: &ProxySinkConfig) -> Self {
        Place {
            socket: sink.socket.display().to_string(),
            kind: "the proxy",
            service: sink.pool.clone(),
            use_instead: "use least_connections, round_robin, random, power_of_n, peak_ewma, least_time, bloc, \
                          hash_ring or hash_maglev",
            down: ("its health check fails, and it gets nothing", "see why it does not answer"),
            drained: "it is drained (`plimsoll proxy drain`); it gets no new requests",
        }
    }

    pub fn of_nginx(sink: &NginxConfig) -> Self {
        Place {
            socket: sink.place(),
            kind: "NGINX's Lua balancer",
            service: sink.pool().to_owned(),
            use_instead: "use roundrobin or leastconn (`plimsoll nginx snippet`)",
            down: ("NGINX gives it nothing", "see why it does not answer"),
            drained: "NGINX's configuration has taken it out; it gets no new requests",
        }
    }

    pub fn of_nginx_reload(sink: &NginxReloadConfig) -> Self {
        Place {
            kind: "NGINX",
            socket: sink.place(),
            service: sink.pool().to_owned(),
            use_instead: "use NGINX's round robin or least_conn",
            down: ("NGINX gives it nothing", "see why it does not answer"),
            drained: "NGINX's configuration has taken it out; it gets no new requests",
        }
    }
}

/// Looks at the balancer of one service; how it picks, where it tells.
pub async fn examine(
    name: &str,
    sink: Result<impl ReportSource, SinkError>,
    place: Place,
    setup: &ServiceSetup,
    findings: &mut Findings,
) -> Option<Method> {
    let report = match sink {
        Ok(mut sink) => sink.read().await,
        Err(error) => Err(error),
    };
    let report = match report {
        Ok(report) => report,
        // Its text says what to look at.
        Err(error) => {
            findings.add(Finding::error(name, error.to_string(), ""));
            return None;
        }
    };
    let (Place { socket, kind, .. }, policy) = (&place, &report.method.name);
    findings.add(Finding::ok(name, format!("{socket}: {kind} answers")));
    findings.add(match report.method.kind {
        MethodKind::NoLiveWeights => Finding::error(
            name,
            format!("policy {policy} of {} takes no weights from a controller", place.service),
            place.use_instead,
        ),
        MethodKind::Split => Finding::ok(name, format!("`{policy}`: weights split the traffic")),
        MethodKind::InFlight => {
            Finding::ok(name, format!("`{policy}`: weights scale what is in flight"))
        }
    });
    for server in &report.servers {
        let named = setup.servers.iter().find(|(id, _)| *id == server.backend);
        let about = format!("{name}/{}", named.map_or("?", |(_, server)| server));
        match server.status {
            ServerStatus::Down => findings.add(Finding::error(about, place.down.0, place.down.1)),
            ServerStatus::Drain | ServerStatus::Maintenance => {
                findings.add(Finding::note(about, place.drained))
            }
            ServerStatus::Up | ServerStatus::Starting => {}
        }
    }
    Some(report.method)
}
