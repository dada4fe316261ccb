//! What HAProxy is like: whether it can be steered, and what would make it serve better.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_control::ServiceView;
use plimsoll_model::{Method, MethodKind, ServerStatus};
use plimsoll_sink::{
    AccessLevel, AgentState, HaproxyConfig, HaproxySink, InspectedServer, Inspection,
};
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::finding::{Finding, Findings};
use crate::config::{Backend, Service};
use crate::run::translate::ServiceSetup;

/// The oldest version that tells all that is relied on; 2.6 is what is tested.
const OLDEST: (u32, u32) = (2, 4);
/// Weights in HAProxy's configuration below this give a coarse split after a reload.
const COARSE: u32 = 10;
/// A clock may be off by so much.
const CLOCK_SLACK: u64 = 60;
/// The longest look-up of a name.
const LOOKUP: Duration = Duration::from_secs(2);

/// Looks at one; how it picks, where it tells. `left_alone` are servers that are not steered on purpose.
pub async fn examine(
    service: &Service,
    config: &HaproxyConfig,
    setup: &ServiceSetup,
    told: Option<&ServiceView>,
    left_alone: Option<&BTreeSet<String>>,
    findings: &mut Findings,
) -> Option<Method> {
    let name = &service.name;
    let socket = config.socket.to_string();
    let sink = HaproxySink::new(config.clone(), setup.servers.clone());
    let inspected = match sink {
        Ok(mut sink) => sink.inspect().await,
        Err(error) => Err(error),
    };
    let inspection = match inspected {
        Ok(inspection) => inspection,
        // Its text says what to look at.
        Err(error) => {
            findings.add(Finding::error(name, error.to_string(), ""));
            return None;
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    process(name, &socket, &inspection, now, findings);
    method(name, &inspection, told, setup.sink.count() == 1, findings);
    let place = if setup.sink.count() > 1 { format!("{socket}: ") } else { String::new() };
    names(name, &place, &inspection, left_alone, findings);
    for server in inspection.servers.iter().filter(|server| server.backend.is_some()) {
        judge(name, server, findings);
        if told.is_none() && server.status.takes_traffic() && server.weight == 0 {
            findings.add(Finding::warning(
                format!("{name}/{}", server.name),
                "its weight in HAProxy is 0, so that it gets nothing, and no daemon was found that would change that",
                "start the daemon, say where it answers, or set its weight",
            ));
        }
        let backend = service.backends.iter().find(|backend| backend.name == server.name);
        if let (Some(backend), Ok(theirs)) = (backend, server.address.parse()) {
            compare_address(name, backend, theirs, &format!("{place}HAProxy"), findings).await;
        }
    }
    queues(name, &inspection, findings);
    hints(name, &inspection, findings);
    Some(inspection.method).filter(|method| !method.name.is_empty())
}

/// Requests that wait in HAProxy before any server works on them.
fn queues(name: &str, inspection: &Inspection, findings: &mut Findings) {
    let requests =
        |n: u32| if n == 1 { "1 request waits".to_owned() } else { format!("{n} requests wait") };
    if inspection.queued > 0 {
        findings.add(Finding::warning(
            name,
            format!("{} in HAProxy's queue until a server is free", requests(inspection.queued)),
            "every server has `maxconn` requests: raise it, add servers, or admit less",
        ));
    }
    for server in inspection.servers.iter().filter(|server| server.queued > 0) {
        findings.add(Finding::warning(
            format!("{name}/{}", server.name),
            format!("{} in HAProxy's queue for it", requests(server.queued)),
            "it has `maxconn` requests: raise that, or give it less",
        ));
    }
}

fn process(name: &str, socket: &str, inspection: &Inspection, now: u64, findings: &mut Findings) {
    let Inspection { version, pid, threads, .. } = inspection;
    findings.add(Finding::ok(
        name,
        format!("{socket}: HAProxy {version} answers (process {pid}, threads: {threads})"),
    ));
    if is_older(version, OLDEST) {
        findings.add(Finding::warning(
            name,
            format!("HAProxy {version} is older than what Plimsoll is tested with"),
            "use 2.4 or later",
        ));
    }
    if *threads > 1 {
        findings.add(Finding::note(
            name,
            format!(
                "its {threads} threads share the counts of leastconn and the turns of roundrobin"
            ),
        ));
    }
    if inspection.started_at > now + CLOCK_SLACK {
        findings.add(Finding::warning(
            name,
            "HAProxy was started in the future: the clocks of its machine and this one differ",
            "set them; decisions do not depend on it",
        ));
    }
    findings.add(match inspection.level {
        Some(AccessLevel::Admin) => Finding::ok(name, "the socket may set weights (level admin)"),
        None => Finding::note(name, "this HAProxy does not tell what its socket allows"),
        Some(AccessLevel::Operator) => Finding::error(
            name,
            "the socket has level operator: it can be read, and weights cannot be set",
            "write `stats socket … level admin` in haproxy.cfg, or run with --observe",
        ),
        Some(AccessLevel::User) => Finding::error(
            name,
            "the socket has level user: not even the method can be read",
            "write `stats socket … level admin` in haproxy.cfg",
        ),
    });
}

/// Whether a version such as `2.6.12-1+deb12u4` is below this one; what is not understood is not.
fn is_older(version: &str, least: (u32, u32)) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < least,
        _ => false,
    }
}

fn method(
    name: &str,
    inspection: &Inspection,
    told: Option<&ServiceView>,
    is_only: bool,
    findings: &mut Findings,
) {
    let method = &inspection.method;
    let algo = &method.name;
    match method.kind {
        // The level is the reason, and has been reported.
        _ if algo.is_empty() => {}
        MethodKind::NoLiveWeights => findings.add(Finding::error(
            name,
            format!("`balance {algo}` takes no weights while it runs"),
            "use leastconn or roundrobin, or `hash-type consistent` where requests must stick to a \
             server",
        )),
        MethodKind::Split => {
            findings.add(Finding::ok(name, format!("`{algo}`: weights split the traffic")));
        }
        MethodKind::InFlight => {
            findings.add(Finding::ok(name, format!("`{algo}`: weights scale what is in flight")));
        }
    }
    match told.map(|view| &view.plan.advice) {
        Some(Some(advice)) => findings.add(Finding::warning(
            name,
            format!(
                "`{}` would serve better: clients would wait about {:.0} % less in the mean",
                advice.method,
                100.0 * advice.gain
            ),
            format!("write `balance {}` in haproxy.cfg and reload", advice.method),
        )),
        Some(_) => {}
        None if is_only && method.kind == MethodKind::Split && !algo.is_empty() => {
            findings.add(Finding::note(
                name,
                "`leastconn` with learned weights usually serves better, where no other balancer gives requests to \
                 these servers: ask again when a daemon runs, it tells by how much",
            ));
        }
        None => {}
    }
}

/// Both ways: which servers are missing there, and which are not known here. `place` begins a message with several
/// balancers. Those left alone have been named with their reasons.
fn names(
    name: &str,
    place: &str,
    inspection: &Inspection,
    left_alone: Option<&BTreeSet<String>>,
    findings: &mut Findings,
) {
    for missing in &inspection.missing {
        let exist: Vec<&str> = inspection.servers.iter().map(|s| s.name.as_str()).collect();
        findings.add(Finding::error(
            format!("{name}/{missing}"),
            format!("{place}HAProxy has no such server; it has {}", exist.join(", ")),
            "give the backend the name that stands after `server` in haproxy.cfg",
        ));
    }
    let is_named = |s: &InspectedServer| left_alone.is_some_and(|alone| alone.contains(&s.name));
    let unknown = |s: &&InspectedServer| s.backend.is_none() && !is_named(s);
    let (who, advice) = match left_alone {
        None => ("the configuration", "add it to the backends"),
        Some(_) => (
            "the first balancer, which is asked for the servers,",
            "give all balancers of the service the same servers",
        ),
    };
    for server in inspection.servers.iter().filter(unknown) {
        let about = format!("{name}/{}", server.name);
        let has = format!("{place}HAProxy has this server and {who} has not");
        let idle = match () {
            () if server.is_backup => Some("it is a backup, which serves when all others are down"),
            () if server.weight == 0 => Some("its weight is 0"),
            () if !server.status.takes_traffic() => Some(server.status_text.as_str()),
            () => None,
        };
        findings.add(match idle {
            Some(why) => Finding::note(about, format!("{has}: it gets nothing now ({why})")),
            None => Finding::warning(
                about,
                format!(
                    "{has}: with weight {} it takes traffic that is not planned",
                    server.weight
                ),
                advice,
            ),
        });
    }
}

fn judge(name: &str, server: &InspectedServer, findings: &mut Findings) {
    let about = format!("{name}/{}", server.name);
    match server.agent {
        AgentState::Absent => {}
        AgentState::Disabled => {
            findings.add(Finding::note(&about, "it has an agent-check, which is switched off"))
        }
        AgentState::Active => findings.add(Finding::error(
            &about,
            "an agent-check is active and may set the weight as well",
            format!("remove it, or run `disable agent` on {}", server.name),
        )),
    }
    match server.status {
        ServerStatus::Up => {}
        ServerStatus::Starting => findings.add(Finding::note(
            &about,
            format!(
                "HAProxy's slowstart ramps its weight ({} of {} now); Plimsoll adds no ramp of its own",
                server.effective_weight, server.weight
            ),
        )),
        ServerStatus::Down => findings.add(Finding::warning(
            &about,
            format!("HAProxy says it is down ({} {})", server.status_text, server.check_status),
            "see why its health check fails",
        )),
        ServerStatus::Drain | ServerStatus::Maintenance => findings.add(Finding::note(
            &about,
            format!("an administrator has it ({}): it is left alone", server.status_text),
        )),
    }
    if server.initial_weight == 0 {
        findings.add(Finding::warning(
            &about,
            "its weight in haproxy.cfg is 0: after a reload it serves nobody until Plimsoll has set \
             its weight again",
            "write `weight 100`",
        ));
    } else if server.initial_weight < COARSE {
        findings.add(Finding::note(
            &about,
            format!(
                "its weight in haproxy.cfg is {}: write about 100, so that the split right after a \
                 reload is not coarse",
                server.initial_weight
            ),
        ));
    }
    if let Some(maxconn) = server.maxconn {
        findings.add(Finding::note(
            &about,
            format!(
                "`maxconn {maxconn}`: requests beyond wait in HAProxy, which counts as latency"
            ),
        ));
    }
}

/// A name may stand for the address that HAProxy has.
/// Whether a server is where the configuration says; `whose` balancer has it at this address.
pub(super) async fn compare_address(
    name: &str,
    backend: &Backend,
    theirs: SocketAddr,
    whose: &str,
    findings: &mut Findings,
) {
    let ours = backend.address.to_string();
    let found = match ours.parse::<SocketAddr>() {
        Ok(address) => Ok(BTreeSet::from([address])),
        Err(_) => match timeout(LOOKUP, lookup_host(&ours)).await {
            Ok(found) => found.map(Iterator::collect),
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        },
    };
    let about = format!("{name}/{}", backend.name);
    match found {
        Ok(addresses) if addresses.contains(&theirs) => {}
        Ok(_) => findings.add(Finding::warning(
            about,
            format!("{whose} sends its requests to {theirs}, the configuration says {ours}"),
            "make sure that both are the same backend",
        )),
        Err(error) => findings.add(Finding::error(
            about,
            format!("{ours} cannot be resolved: {error}"),
            "correct the address",
        )),
    }
}

fn hints(name: &str, inspection: &Inspection, findings: &mut Findings) {
    let unchecked: Vec<&str> = inspection
        .servers
        .iter()
        .filter(|server| server.backend.is_some() && !server.checked)
        .map(|server| server.name.as_str())
        .collect();
    if !unchecked.is_empty() {
        findings.add(Finding::note(
            name,
            format!(
                "HAProxy itself does not check {} of its servers (`check`): while no daemon runs, \
                 nobody takes out one that dies",
                unchecked.len()
            ),
        ));
    }
    findings.add(Finding::note(
        name,
        "a reload of HAProxy brings back the weights of haproxy.cfg until the next reading; \
         `server-state-file` with `load-server-state-from-file` carries them over",
    ));
}

#[cfg(test)]
mod tests;
