//! Balancers and backends that are not as they should be.

use plimsoll_testbed::Mode;

use crate::rig::{PATIENCE, Rig, until, until_within};

#[test]
fn a_socket_that_may_not_steer_is_a_trouble_and_no_crash() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    rig.level = "operator";
    let mut daemon = rig.daemon();
    until("the trouble to be shown", || {
        let status = daemon.ask("status");
        let trouble = status["services"][0]["trouble"].as_str().unwrap_or_default();
        trouble.contains("level operator") && status["ready"] == false
    });
    rig.set_mode("s2", Mode::Refuse);
    until("the failure to be seen all the same", || daemon.backend("s2")["state"] == "failed");
    assert_eq!(rig.weight("s2"), 100);
    assert!(daemon.is_running());
    let plans = daemon.log().matches("plan ").count();
    assert_eq!(plans, 0, "no plan is made that cannot be carried out: {}", daemon.log());
}

#[test]
fn an_agent_that_sets_weights_too_is_not_fought_with() {
    let balance = "roundrobin\n  default-server agent-check agent-port 1 agent-inter 100ms";
    let rig = Rig::new(balance, &[1.0, 1.0]);
    let daemon = rig.daemon();
    until("the trouble to be shown", || {
        let status = daemon.ask("status");
        let trouble = status["services"][0]["trouble"].as_str().unwrap_or_default().to_owned();
        trouble.contains("agent-check is active on s1, s2")
    });
    for server in ["s1", "s2"] {
        rig.haproxy.ask(&format!("disable agent shop/{server}"));
    }
    until("it to steer", || daemon.http("/readyz").0 == 200);
    rig.set_mode("s2", Mode::Refuse);
    until("its weight to be 0", || rig.weight("s2") == 0);
}

#[test]
fn servers_that_haproxy_does_not_have_are_named() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    rig.configured.push("s9".to_owned());
    let daemon = rig.daemon();
    until("the trouble to be shown", || {
        let status = daemon.ask("status");
        let trouble = status["services"][0]["trouble"].as_str().unwrap_or_default().to_owned();
        trouble.contains("s9") && trouble.contains("it has s1, s2")
    });
}

#[test]
fn a_method_without_live_weights_is_named_and_left_alone() {
    let rig = Rig::new("static-rr", &[1.0, 0.25]);
    let daemon = rig.daemon();
    until("it to be named", || daemon.has_event("warning", "static-rr"));
    let weights = daemon.weights();
    assert_eq!(weights["method"], "no_live_weights");
    assert_eq!(weights["epoch"], 0);
}

#[test]
fn a_server_in_maintenance_is_left_alone() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0, 1.0]);
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.backend("s2")["programmed"] == 100);
    rig.haproxy.ask("set server shop/s2 state maint");
    until("it to be seen", || daemon.backend("s2")["state"] == "draining");
    // A plan for the others.
    rig.set_mode("s3", Mode::Refuse);
    until("another to be taken out", || rig.weight("s3") == 0);
    assert_eq!(rig.weight("s2"), 100, "its weight is as it was");
    let state = rig.haproxy.ask("show servers state shop");
    let line = state.lines().find(|line| line.contains(" s2 ")).expect("a line of s2");
    let admin_state: u32 =
        line.split_whitespace().nth(6).and_then(|n| n.parse().ok()).expect("a number");
    assert_eq!(admin_state & 1, 1, "still in maintenance: {line}");
}

#[test]
fn a_wrong_work_url_fails_no_backend() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    rig.service = "    probe: { path: /work, interval: 100ms, requests: 1 }\n".to_owned();
    rig.set_mode("s1", Mode::Status(404));
    rig.set_mode("s2", Mode::Status(404));
    let daemon = rig.daemon();
    until("the warning", || daemon.has_event("warning", "the work URL fails on every backend"));
    until("many probes", || {
        let counted = daemon.http("/metrics").1;
        let line = counted.lines().find(|line| {
            line.starts_with("plimsoll_probes_total")
                && line.contains("s2")
                && line.contains("status")
        });
        let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        count.is_some_and(|count| count > 10.0)
    });
    for server in ["s1", "s2"] {
        assert_ne!(daemon.backend(server)["state"], "failed");
        assert_eq!(rig.weight(server), 100);
    }
}

#[test]
fn strange_answers_of_one_backend_take_out_that_backend_only() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    rig.service =
        "    probe: { path: /work, interval: 50ms, requests: 1, timeout: 200ms }\n".to_owned();
    let mut daemon = rig.daemon();
    for mode in [Mode::Huge, Mode::Reset, Mode::HangHeaders, Mode::Status(500)] {
        until("both to be in use", || {
            daemon.backend("s2")["state"] != "failed" && rig.weight("s2") > 0
        });
        rig.set_mode("s2", mode);
        until(&format!("{mode} to be seen"), || rig.weight("s2") == 0);
        rig.set_mode("s2", Mode::Normal);
    }
    assert!(daemon.is_running());
    assert!(rig.weight("s1") > 0);
}

#[test]
fn a_full_disk_is_said_and_steering_goes_on() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let first = rig.daemon();
    until("the balancer to be read", || first.backend("s2")["programmed"] == 100);
    first.signal("TERM");
    first.end();
    // The least room with which it starts: what it writes next finds none.
    let blocks = std::fs::metadata(rig.path("state")).expect("a store").len() / 512;
    let daemon = (1..=32).find_map(|part| rig.daemon_limited_to(blocks * part / 16));
    let daemon = daemon.expect("with twice the room that the store has it starts");
    // What was learned is kept every ten seconds, and what is kept first may still find room.
    until_within(3 * PATIENCE, "the warning", || {
        rig.haproxy.ask("set server shop/s1 weight 7");
        daemon.has_event("warning", "cannot be kept")
    });
    rig.set_mode("s2", Mode::Refuse);
    until("its weight to be 0", || rig.weight("s2") == 0);
    assert!(daemon.http("/metrics").1.contains("plimsoll_store_errors_total{service=\"shop\"}"));
}
