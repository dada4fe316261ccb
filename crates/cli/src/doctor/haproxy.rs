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
/// What is said of a name that HAProxy does not know.
pub const NO_SERVER: &str = "HAProxy has no such server";
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
            "use 2.6 or later",
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
                "`{}` would serve better: {:.1} ms instead of {:.1} ms in the mean (−{:.0} %)",
                advice.method,
                advice.expected_ms,
                advice.present_ms,
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
            format!("{place}{NO_SERVER}; it has {}", exist.join(", ")),
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
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use plimsoll_control::Advice;
    use plimsoll_model::{BackendId, Method};

    fn server(name: &str) -> InspectedServer {
        InspectedServer {
            name: name.to_owned(),
            backend: Some(BackendId(1)),
            address: "127.0.0.1:9001".to_owned(),
            status: ServerStatus::Up,
            status_text: "UP".to_owned(),
            weight: 100,
            effective_weight: 100,
            initial_weight: 100,
            is_backup: false,
            maxconn: None,
            queued: 0,
            checked: true,
            check_status: String::new(),
            agent: AgentState::Absent,
        }
    }

    fn inspection(method: &str, kind: MethodKind, servers: Vec<InspectedServer>) -> Inspection {
        Inspection {
            version: "2.6.12".to_owned(),
            pid: 1,
            started_at: 100,
            threads: 1,
            maxconn: 100,
            queued: 0,
            level: Some(AccessLevel::Admin),
            method: Method { name: method.to_owned(), kind },
            servers,
            missing: Vec::new(),
        }
    }

    fn view(advice: Option<Advice>) -> ServiceView {
        let controller = plimsoll_control::Controller::new(
            plimsoll_control::ServiceSpec::new("shop", Vec::new()),
            None,
            plimsoll_model::Nanos::ZERO,
            1,
        );
        let mut view = controller.view(plimsoll_model::Nanos::ZERO);
        view.plan.advice = advice;
        view
    }

    fn worst(look: impl FnOnce(&mut Findings)) -> Option<(Severity, String)> {
        let mut findings = Findings::default();
        look(&mut findings);
        let worst = findings.all().iter().max_by_key(|finding| finding.severity);
        worst.map(|finding| (finding.severity, finding.message.clone()))
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_older("2.2.9", OLDEST) && is_older("1.9.0", OLDEST));
        for version in ["2.6.12-1+deb12u4", "2.10.1", "3.0.0", "dev", ""] {
            assert!(!is_older(version, OLDEST), "{version}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_server_is_named() {
        assert_eq!(worst(|f| judge("shop", &server("s1"), f)), None);
        for (change, severity, word) in [
            (
                (|s| s.agent = AgentState::Active) as fn(&mut InspectedServer),
                Severity::Error,
                "agent",
            ),
            (|s| s.agent = AgentState::Disabled, Severity::Note, "switched off"),
            (|s| s.status = ServerStatus::Maintenance, Severity::Note, "administrator"),
            (|s| s.status = ServerStatus::Down, Severity::Warning, "down"),
            (|s| s.initial_weight = 0, Severity::Warning, "is 0"),
            (|s| s.initial_weight = 1, Severity::Note, "coarse"),
            (|s| s.maxconn = Some(8), Severity::Note, "maxconn 8"),
        ] {
            let mut server = server("s1");
            change(&mut server);
            let found = worst(|f| judge("shop", &server, f)).expect(word);
            assert!(found.0 == severity && found.1.contains(word), "{found:?}");
        }
    }

    #[test]
    fn names_are_compared_both_ways() {
        let mut stranger = server("s9");
        stranger.backend = None;
        let mut inspection = inspection("leastconn", MethodKind::InFlight, vec![stranger]);
        let named = BTreeSet::from(["s9".to_owned()]);
        let look = |inspection: &Inspection, alone| {
            worst(|f| names("shop", "socket A: ", inspection, alone, f))
        };
        assert_eq!(look(&inspection, None).expect("a stranger").0, Severity::Warning);
        assert_eq!(look(&inspection, Some(&named)), None, "named before");
        for (change, why) in [
            ((|s| s.is_backup = true) as fn(&mut InspectedServer), "it is a backup"),
            (|s| s.weight = 0, "its weight is 0"),
            (|s| s.status = ServerStatus::Maintenance, "(UP)"),
        ] {
            let before = inspection.clone();
            change(&mut inspection.servers[0]);
            let found = look(&inspection, None).expect("a stranger");
            assert!(found.0 == Severity::Note && found.1.contains(why), "{found:?}");
            inspection = before;
        }
        inspection.missing.push("s1".to_owned());
        let found = look(&inspection, None).expect("a missing one");
        assert!(found.0 == Severity::Error && found.1.contains("it has s9"), "{found:?}");
        assert!(found.1.starts_with("socket A: HAProxy has no such server"), "{found:?}");
    }

    #[test]
    fn a_method_is_judged_and_the_better_one_named() {
        let of = |kind, told: Option<ServiceView>| {
            let inspection = inspection("some", kind, Vec::new());
            worst(|f| method("shop", &inspection, told.as_ref(), true, f)).expect("a finding")
        };
        assert_eq!(of(MethodKind::NoLiveWeights, None).0, Severity::Error);
        assert_eq!(of(MethodKind::Split, None).0, Severity::Note);
        assert_eq!(of(MethodKind::InFlight, None).0, Severity::Ok);
        assert_eq!(of(MethodKind::Split, Some(view(None))).0, Severity::Ok);
        let advice = Advice {
            method: "leastconn".to_owned(),
            expected_ms: 34.6,
            present_ms: 44.7,
            gain: 0.226,
        };
        let found = of(MethodKind::Split, Some(view(Some(advice))));
        assert!(found.0 == Severity::Warning && found.1.contains("−23 %"), "{found:?}");
    }

    #[test]
    fn requests_that_wait_in_haproxy_are_said() {
        let mut inspection = inspection("leastconn", MethodKind::InFlight, vec![server("s1")]);
        assert_eq!(worst(|f| queues("shop", &inspection, f)), None);
        inspection.servers[0].queued = 3;
        let found = worst(|f| queues("shop", &inspection, f)).expect("a finding");
        assert!(
            found.0 == Severity::Warning && found.1.starts_with("3 requests wait"),
            "{found:?}"
        );
        inspection.servers[0].queued = 0;
        inspection.queued = 1;
        let found = worst(|f| queues("shop", &inspection, f)).expect("a finding");
        assert!(found.1.contains("1 request waits in HAProxy's queue until"), "{found:?}");
    }

    #[tokio::test]
    async fn an_address_that_is_another_is_a_warning() {
        let backend = |address: &str| Backend {
            name: "s1".to_owned(),
            address: address.parse().expect("an address"),
        };
        for (address, expected) in [
            ("127.0.0.1:9001", None),
            ("localhost:9001", None),
            ("127.0.0.1:9002", Some(Severity::Warning)),
            ("no-such-host.invalid:9001", Some(Severity::Error)),
        ] {
            let mut findings = Findings::default();
            let theirs = server("s1").address.parse().expect("an address");
            compare_address("shop", &backend(address), theirs, "HAProxy", &mut findings).await;
            let found = findings.all().first().map(|finding| finding.severity);
            assert_eq!(found, expected, "{address}");
        }
    }
}
