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
        ((|s| s.agent = AgentState::Active) as fn(&mut InspectedServer), Severity::Error, "agent"),
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
    let advice =
        Advice { method: "leastconn".to_owned(), expected_ms: 34.6, present_ms: 44.7, gain: 0.226 };
    let found = of(MethodKind::Split, Some(view(Some(advice))));
    assert!(found.0 == Severity::Warning && found.1.contains("about 23 % less"), "{found:?}");
}

#[test]
fn requests_that_wait_in_haproxy_are_said() {
    let mut inspection = inspection("leastconn", MethodKind::InFlight, vec![server("s1")]);
    assert_eq!(worst(|f| queues("shop", &inspection, f)), None);
    inspection.servers[0].queued = 3;
    let found = worst(|f| queues("shop", &inspection, f)).expect("a finding");
    assert!(found.0 == Severity::Warning && found.1.starts_with("3 requests wait"), "{found:?}");
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
