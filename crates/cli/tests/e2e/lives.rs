//! Beginnings and ends: of the daemon, of HAProxy, of backends.

use std::time::Duration;

use plimsoll_testbed::Mode;

use crate::rig::{Daemon, PATIENCE, Rig, until, until_within};

#[test]
fn a_backend_that_dies_is_out_and_comes_back() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0, 1.0]);
    let daemon = rig.daemon();
    let clients = rig.clients(60.0);
    until("the balancer to be read", || daemon.backend("s2")["programmed"] == 100);
    rig.set_mode("s2", Mode::Refuse);
    until("its weight to be 0", || rig.weight("s2") == 0);
    assert_eq!(daemon.backend("s2")["state"], "failed");
    // Its check and clients' requests race: both meet a refused connection.
    let reasons = ["connection refused", "requests to it fail immediately"];
    assert!(reasons.iter().any(|reason| daemon.has_event("failed", reason)), "{}", daemon.log());
    assert!(rig.weight("s1") > 0 && rig.weight("s3") > 0);
    rig.set_mode("s2", Mode::Normal);
    until("its weight to be more", || rig.weight("s2") > 0);
    assert!(daemon.has_event("returned", "serves again"));
    let report = clients.snapshot().expect("clients");
    assert_eq!(report.total.errors, 0, "HAProxy sent them elsewhere: {report:?}");
}

#[test]
fn without_a_liveness_url_a_refusing_backend_is_seen_too() {
    let mut rig = Rig::new("leastconn", &[1.0, 1.0]);
    rig.service = "    probe: { path: /work }\n".to_owned();
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.backend("s2")["programmed"] == 100);
    rig.set_mode("s2", Mode::Refuse);
    until("its weight to be 0", || rig.weight("s2") == 0);
}

#[test]
fn a_restarted_haproxy_gets_its_weights_again() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.backend("s2")["programmed"] == 100);
    rig.set_mode("s2", Mode::Refuse);
    until("its weight to be 0", || rig.weight("s2") == 0);
    rig.haproxy.stop();
    until("the loss to be seen", || daemon.http("/readyz").0 == 503);
    rig.haproxy.start_again();
    until("its weight to be 0 again", || rig.weight("s2") == 0);
    until("all to be well", || daemon.http("/readyz").0 == 200);
    assert!(daemon.has_event("balancer", "restarted"), "{}", daemon.log());
}

#[test]
fn an_haproxy_that_comes_late_is_waited_for() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    rig.haproxy.stop();
    let daemon = rig.daemon();
    until("the trouble to be shown", || {
        daemon.ask("status")["services"][0]["trouble"]
            .as_str()
            .is_some_and(|trouble| trouble.contains("is HAProxy running"))
    });
    assert_eq!(daemon.http("/readyz").0, 503);
    rig.haproxy.start_again();
    until("it to be read", || daemon.http("/readyz").0 == 200);
}

#[test]
fn weights_reach_an_haproxy_that_hung_once_it_continues() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.backend("s2")["programmed"] == 100);
    rig.haproxy.signal("STOP");
    rig.set_mode("s2", Mode::Refuse);
    until("the loss to be seen", || daemon.http("/readyz").0 == 503);
    until("the failure to be seen", || daemon.backend("s2")["state"] == "failed");
    rig.haproxy.signal("CONT");
    until("its weight to be 0", || rig.weight("s2") == 0);
}

#[test]
fn a_killed_daemon_goes_on_where_it_was() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0, 0.125]);
    let daemon = rig.daemon();
    let clients = rig.clients(130.0);
    until_within(3 * PATIENCE, "weights to follow the speeds", || {
        rig.weight("s3") * 2 < rig.weight("s1").min(rig.weight("s2"))
    });
    // Plans and memory reach the disk within a second, and are written in batches; a busy machine is slower.
    std::thread::sleep(Duration::from_secs(6));
    daemon.kill();
    for server in ["s1", "s2", "s3"] {
        rig.haproxy.ask(&format!("set server shop/{server} weight 100"));
    }
    let daemon = rig.daemon();
    until("what was known to be asserted", || daemon.has_event("plan", "resumed"));
    until_within(3 * PATIENCE, "the weights to be as before", || {
        rig.weight("s3") * 2 < rig.weight("s1").min(rig.weight("s2"))
    });
    assert!(daemon.has_event("plan", "plan 1: "), "events of the first run are shown");
    drop(clients);
}

#[test]
fn sigterm_leaves_every_healthy_server_with_a_weight_and_exits_0() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0, 1.0]);
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.backend("s2")["programmed"] == 100);
    rig.set_mode("s2", Mode::Refuse);
    rig.set_mode("s3", Mode::Refuse);
    until("their weights to be 0", || rig.weight("s2") == 0 && rig.weight("s3") == 0);
    rig.set_mode("s3", Mode::Normal);
    until("it to ramp up", || (1..100).contains(&rig.weight("s3")));
    daemon.signal("TERM");
    assert_eq!(daemon.end().code(), Some(0));
    assert_eq!(rig.weight("s2"), 0, "it does not serve");
    assert_eq!(rig.weight("s3"), rig.weight("s1"), "nobody is there to end the ramp");
}

#[test]
fn clients_are_served_without_the_controller_whichever_server_is_lost() {
    // A quarter of the traffic overloads each of the slow ones; the fast ones are each other's reserve.
    let rig = Rig::new("roundrobin", &[1.0, 1.0, 0.03, 0.03]);
    let daemon = rig.daemon();
    let clients = rig.clients(60.0);
    let weights = || ["s1", "s2", "s3", "s4"].map(|server| rig.weight(server));
    until_within(3 * PATIENCE, "the slow ones to be parked", || weights()[2..] == [0, 0]);
    daemon.kill();
    let held = weights();
    assert!(held.iter().filter(|weight| **weight > 0).count() >= 2, "{held:?}");
    let served = || clients.snapshot().expect("clients").total;
    rig.set_mode("s1", Mode::Refuse);
    let before = served();
    until("answers of the others", || served().requests > before.requests + 20);
    assert_eq!(served().errors, before.errors, "{held:?}");
    rig.set_mode("s1", Mode::Normal);
    // Ended in order, it leaves no server parked.
    let mut daemon = Daemon::spawn(&rig.write_config(), rig.api, &rig.path("log2"), &[]);
    daemon.wait_until_it_answers();
    // Its first plan: what was known is asserted. One that has planned nothing leaves the weights as they are.
    daemon.until_log_has("plan ");
    daemon.signal("TERM");
    assert_eq!(daemon.end().code(), Some(0));
    assert!(!weights().contains(&0), "{:?}", weights());
}

#[test]
fn weights_of_zero_everywhere_are_mended_at_once_on_a_real_haproxy() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.backend("s2")["programmed"] == 100);
    // Weights that an administrator keeps changing are asserted every ten seconds only; these are not left so long.
    let mut times = 0;
    until_within(Duration::from_secs(40), "weights to be mended twelve times", || {
        if rig.weight("s1") + rig.weight("s2") > 0 {
            times += 1;
            for server in ["s1", "s2"] {
                rig.haproxy.ask(&format!("set server shop/{server} weight 0"));
            }
        }
        times > 12
    });
    assert!(daemon.has_event("foreign", "to 0"));
}

/// The soft limit of open files of a process.
fn files_of(daemon: &Daemon) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).expect("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok()).expect("a number")
}

#[test]
fn a_soft_limit_of_open_files_does_not_fail_probes_that_the_hard_one_allows() {
    let rig = Rig::new("roundrobin", &[1.0; 4]);
    let (config, log) = (rig.write_config(), rig.path("log"));
    let mut daemon = Daemon::spawn_with_files(&config, rig.api, &log, "-Sn 100");
    daemon.wait_until_it_answers();
    assert!(files_of(&daemon) > 100, "{}", files_of(&daemon));
    daemon.until_log_has("limit of open files raised from 100");
    daemon.kill();
    let mut daemon = Daemon::spawn_with_files(&config, rig.api, &log, "-n 100");
    daemon.wait_until_it_answers();
    assert_eq!(files_of(&daemon), 100);
    daemon.until_log_has("the limit of open files is 100, and this configuration takes up to");
}
