//! Backends that stop answering, for a while or for good, mostly with README's configuration: no probes, and no checks
//! by request.

use plimsoll_testbed::Change;

use crate::rig::{Daemon, Rig, emulated, until, until_within};

/// How long a silence lasts at most before its backend has failed, with room for a busy machine.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(40);

/// Waits until every backend has answered clients.
fn until_all_serve(daemon: &Daemon) {
    until("all backends to answer clients", || {
        let weights = daemon.weights();
        let mut backends = weights["backends"].as_array().into_iter().flatten();
        backends.all(|b| b["programmed"].is_u64() && b["latency_ms"].is_number())
    });
}

fn is_in(daemon: &Daemon, backend: &str, state: &str) -> bool {
    daemon.backend(backend)["state"] == state
}

#[test]
fn stopped_process_is_set_aside_and_whole_again_with_its_first_answer() {
    let rig = Rig::of("leastconn", emulated(&[1.0; 3]), 1).without_checks();
    let daemon = rig.daemon();
    let clients = rig.clients(120.0);
    until_all_serve(&daemon);
    rig.processes[0].signal("STOP");
    until("it to be set aside", || is_in(&daemon, "s4", "set_aside"));
    until("its weight to be 0", || rig.weight("s4") == 0);
    rig.processes[0].signal("CONT");
    // The planned weight, whatever was planned for it by then: no ramp leads there.
    until("its weight to be back", || rig.weight("s4") > 0);
    assert!(daemon.events("restored", "it answers").contains(&"s4".to_owned()));
    assert_eq!(daemon.events("failed", ""), [""; 0], "it had only paused");
    assert_eq!(daemon.events("returned", ""), [""; 0], "there is no ramp");
    assert_eq!(clients.snapshot().expect("clients").total.errors, 0);
}

#[test]
fn hung_work_behind_an_open_port_is_set_aside_then_failed_and_back_with_an_answer() {
    let rig = Rig::new("leastconn", &[1.0; 4]).without_checks();
    let daemon = rig.daemon();
    let clients = rig.clients(120.0);
    until_all_serve(&daemon);
    // Connections are taken, and `/health` is answered.
    rig.bed.set("s4", Change::speed(1e-9)).expect("the testbed runs");
    until("it to be set aside", || is_in(&daemon, "s4", "set_aside"));
    until("its weight to be 0", || rig.weight("s4") == 0);
    until_within(SILENCE, "it to have failed", || is_in(&daemon, "s4", "failed"));
    assert!(daemon.has_event("failed", "no request was answered for"));
    rig.bed.set("s4", Change::speed(1.0)).expect("the testbed runs");
    until("it to serve again", || !is_in(&daemon, "s4", "failed") && rig.weight("s4") > 0);
    assert!(daemon.has_event("returned", "it serves again"));
    // The requests that waited there were answered at last.
    assert_eq!(clients.snapshot().expect("clients").total.errors, 0);
}

#[test]
fn killed_process_is_out_without_any_check_and_back_when_it_lives() {
    let mut rig = Rig::of("leastconn", emulated(&[1.0; 3]), 1).without_checks();
    let daemon = rig.daemon();
    let clients = rig.clients(120.0);
    until_all_serve(&daemon);
    rig.processes[0].kill();
    until("it to have failed", || is_in(&daemon, "s4", "failed"));
    until("its weight to be 0", || rig.weight("s4") == 0);
    assert_eq!(daemon.events("failed", ""), ["s4"], "and nobody else");
    rig.processes[0].start_again();
    until("it to serve again", || rig.weight("s4") > 0);
    // HAProxy sends them elsewhere, but for those whose answer had begun.
    let report = clients.snapshot().expect("clients");
    assert!(report.total.errors <= 2, "{report:?}");
}
