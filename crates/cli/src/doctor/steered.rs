//! What Plimsoll's own layer-4 balancer and NGINX are like as balancers that are steered. What layer 4 needs of its
//! machine is the layer-4 doctor's to find (`doctor --config` with an `l4` section).

use plimsoll_control::ServiceView;
use plimsoll_model::{BalancerReport, MethodKind, ServerStatus};
use plimsoll_sink::{
    L4Sink, L4SinkConfig, NginxConfig, NginxReloadConfig, NginxReloadSink, NginxSink,
    ReportSource as _, Sink, SinkError,
};

use super::finding::{Finding, Findings};
use crate::run::translate::ServiceSetup;

/// What is said of a kind of balancer.
struct Kind {
    /// It answers.
    answers: String,
    /// Methods that take weights.
    methods: &'static str,
}

/// Looks at the layer-4 balancer of one service.
pub async fn layer_4(
    name: &str,
    (sink, place): (&Sink, &L4SinkConfig),
    setup: &ServiceSetup,
    told: Option<&ServiceView>,
    findings: &mut Findings,
) {
    let report = match L4Sink::new(place.clone(), setup.servers.clone()) {
        Ok(mut sink) => sink.read().await,
        Err(error) => Err(error),
    };
    let kind = Kind {
        answers: format!("{}: the layer-4 balancer answers", place.socket.display()),
        methods: "use weighted_round_robin, least_connections, power_of_two, maglev or hash",
    };
    judge(name, (sink, &kind), report, setup, told, findings);
}

/// Looks at the NGINX of one service.
pub async fn nginx(
    name: &str,
    (sink, place): (&Sink, &NginxConfig),
    setup: &ServiceSetup,
    told: Option<&ServiceView>,
    findings: &mut Findings,
) {
    let report = match NginxSink::new(place.clone(), setup.servers.clone()) {
        Ok(mut sink) => sink.read().await,
        Err(error) => Err(error),
    };
    let kind = Kind {
        answers: format!("{}: NGINX's Lua balancer answers", sink.place()),
        methods: "use roundrobin or leastconn (`plimsoll nginx snippet`)",
    };
    judge(name, (sink, &kind), report, setup, told, findings);
    if told.is_none() {
        findings.add(Finding::note(
            name,
            "after a restart NGINX has the weights of its configuration until Plimsoll has set them again; a reload \
             keeps them",
        ));
    }
}

/// Looks at the NGINX of one service that is steered by reloads.
pub async fn nginx_by_reload(
    name: &str,
    (sink, place): (&Sink, &NginxReloadConfig),
    setup: &ServiceSetup,
    told: Option<&ServiceView>,
    findings: &mut Findings,
) {
    let report = match NginxReloadSink::new(place.clone(), setup.servers.clone()) {
        Ok(mut sink) => sink.read().await,
        Err(error) => Err(error),
    };
    let kind = Kind {
        answers: format!("{}: NGINX runs", sink.place()),
        methods: "use NGINX's round robin or least_conn",
    };
    judge(name, (sink, &kind), report, setup, told, findings);
    findings.add(Finding::note(
        name,
        format!(
            "weights change by a reload, at most once in {:?}: requests on connections that had been idle may fail \
             then; the Lua balancer (`plimsoll nginx snippet`) needs none",
            place.min_interval
        ),
    ));
}

fn judge(
    name: &str,
    (sink, kind): (&Sink, &Kind),
    report: Result<BalancerReport, SinkError>,
    setup: &ServiceSetup,
    told: Option<&ServiceView>,
    findings: &mut Findings,
) {
    let report = match report {
        Ok(report) => report,
        // Its text says what to look at.
        Err(error) => return findings.add(Finding::error(name, error.to_string(), "")),
    };
    let policy = &report.method.name;
    findings.add(Finding::ok(name, kind.answers.clone()));
    findings.add(match report.method.kind {
        MethodKind::NoLiveWeights => Finding::error(
            name,
            format!("policy {policy} of {} takes no weights from a controller", sink.pool()),
            kind.methods,
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
