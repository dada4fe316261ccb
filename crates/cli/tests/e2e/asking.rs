//! What commands say of a running daemon, in the forms that other programs rely on.

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
        "check_interval_s",
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
