//! What commands say of a running daemon, in the forms that other programs rely on.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::{Rig, out, plimsoll, until};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn the_json_has_the_shape_that_was_promised() {
    let rig = Rig::new("leastconn", &[1.0, 1.0]);
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.backend("s1")["programmed"] == 100);
    let weights = daemon.ask("weights");
    assert_eq!(keys(&weights), ["services"]);
    let shop = &weights["services"][0];
    assert_eq!(keys(shop), ["backends", "epoch", "method", "phase", "service"]);
    assert_eq!((&shop["service"], &shop["method"]), (&"shop".into(), &"in_flight".into()));
    let expected = [
        "asked_part",
        "asked_rps",
        "backend",
        "cause",
        "check_interval_s",
        "error_share",
        "expected_ms",
        "latency_ms",
        "programmed",
        "reason",
        "share",
        "state",
        "weight",
    ];
    for backend in shop["backends"].as_array().expect("a list") {
        assert_eq!(keys(backend), expected);
    }
    let status = daemon.ask("status");
    assert_eq!((&status["ready"], keys(&status)), (&true.into(), vec!["ready", "services"]));
    assert_eq!(daemon.ask("plan")["services"][0]["method_name"], "leastconn");
    assert_eq!(daemon.ask("curves")["services"][0]["service"], "shop");
    assert!(daemon.has_event("balancer", "leastconn"));
    assert_eq!(daemon.http("/readyz").0, 200);
}

#[test]
fn the_configuration_tells_where_to_ask_and_tables_are_for_people() {
    let rig = Rig::new("roundrobin", &[1.0]);
    let daemon = rig.daemon();
    let config = rig.path("plimsoll.yaml");
    let config = config.to_str().expect("a path of text");
    for command in ["status", "weights", "plan", "curves", "events"] {
        let output = plimsoll(&[command, "--config", config]);
        assert!(output.status.success() && !out(&output).is_empty(), "{command}: {output:?}");
    }
    assert_eq!(
        plimsoll(&["status", "--api", daemon.api(), "--service", "no"]).status.code(),
        Some(1)
    );
}

#[test]
fn explicit_checks_and_probes_are_obeyed_and_said_where_they_cost_more_than_the_budget() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    rig.service =
        "    probe: { path: /work, interval: 100ms, requests: 2 }\n    liveness: { path: \
                   /health, interval: 100ms, requests: 2 }\n"
            .to_owned();
    let daemon = rig.daemon();
    // Traffic would do, and 20 probes a second are a tenth of a backend's capacity.
    let _clients = rig.clients(100.0);
    let counted = || {
        let stats = rig.bed.stats().expect("the testbed runs");
        let s1 = stats.backends[0].clone();
        (s1.light, s1.served)
    };
    until("the backend to be known", || daemon.backend("s1")["asked_part"].is_number());
    let (began, (checks, _)) = (Instant::now(), counted());
    until("a hundred checks", || counted().0 >= checks + 100);
    // 20 a second, but this machine has others to serve.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let asked = daemon.backend("s1")["asked_rps"].as_f64().expect("a number");
    assert!((asked - 40.0).abs() < 0.1, "{asked}");
    until("its cost to be said", || {
        daemon.events("warning", "the configured checks and probes cost").contains(&"s1".to_owned())
    });
    let status = out(&plimsoll(&["status", "--api", daemon.api()]));
    let column = |line: &str| line.split_whitespace().last().map(str::to_owned);
    let mut lines = status.lines().skip_while(|line| !line.starts_with("BACKEND"));
    assert!(lines.next().is_some_and(|heads| heads.ends_with("ASKED (%)")), "{status}");
    let part =
        column(lines.next().expect("a line of s1")).and_then(|part| part.parse::<f64>().ok());
    assert!(part.is_some_and(|part| part > 5.0), "{status}");
}
