//! What the doctor says of good and bad set-ups.

use serde_json::Value;

use plimsoll_testbed::{Change, Mode};

use crate::rig::{Rig, arg, out, plimsoll, until};

fn doctor(rig: &Rig) -> (Option<i32>, Vec<(String, String, String)>) {
    let output = plimsoll(&["doctor", "--config", arg(&rig.write_config()), "-o", "json"]);
    let answer: Value = serde_json::from_str(&out(&output)).expect("JSON");
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let findings = answer["findings"].as_array().expect("a list").iter();
    let findings = findings
        .map(|f| (text(f, "severity"), text(f, "about"), text(f, "message")))
        .collect::<Vec<_>>();
    let wrong = findings.iter().any(|(severity, ..)| severity == "error");
    assert_eq!(answer["ok"], !wrong);
    (output.status.code(), findings)
}

fn says(findings: &[(String, String, String)], severity: &str, about: &str, part: &str) -> bool {
    findings.iter().any(|(s, a, m)| s == severity && a == about && m.contains(part))
}

#[test]
fn a_good_set_up_is_found_good() {
    let rig = Rig::new("leastconn", &[1.0, 1.0]);
    let (code, findings) = doctor(&rig);
    assert_eq!(code, Some(0), "{findings:?}");
    for (severity, about, part) in [
        ("ok", "shop", "level admin"),
        ("ok", "shop", "`leastconn`: weights scale"),
        ("ok", "shop/s1", "probe /work: status 200"),
        ("ok", "shop/s2", "liveness /health: status 200"),
        ("ok", "store", "can be made"),
        ("ok", "api", "is free"),
    ] {
        assert!(says(&findings, severity, about, part), "{part} in {findings:?}");
    }
    assert!(!rig.path("state").exists(), "the doctor makes nothing");
    let daemon = rig.daemon();
    let (code, findings) = doctor(&rig);
    assert_eq!(code, Some(0), "{findings:?}");
    assert!(says(&findings, "ok", "api", "a daemon answers"), "{findings:?}");
    assert!(says(&findings, "ok", "store", &format!("process {}", daemon.pid())));
}

#[test]
fn what_is_wrong_is_found_all_at_once() {
    let mut rig = Rig::new("static-rr", &[1.0, 1.0, 1.0]);
    rig.configured = vec!["s1".to_owned(), "s2".to_owned(), "s9".to_owned()];
    rig.service = "    probe: { path: /work, interval: 10ms, requests: 1 }\n".to_owned();
    rig.set_mode("s2", Mode::Status(404));
    rig.haproxy.ask("set server shop/s1 state maint");
    let (code, findings) = doctor(&rig);
    assert_eq!(code, Some(1));
    for (severity, about, part) in [
        ("error", "shop", "static-rr"),
        ("error", "shop/s9", "no such server"),
        ("warning", "shop/s3", "the configuration has not"),
        ("warning", "shop/s2", "status 404"),
        ("warning", "shop/s1", "probes a second cost"),
        ("note", "shop/s1", "an administrator has it"),
    ] {
        assert!(says(&findings, severity, about, part), "{part} in {findings:?}");
    }
    rig.haproxy.stop();
    let (code, findings) = doctor(&rig);
    assert_eq!(code, Some(1));
    assert!(says(&findings, "error", "shop", "is HAProxy running"), "{findings:?}");
}

#[test]
fn what_the_daemon_says_is_a_note_beside_an_error_that_was_found_by_looking() {
    let mut rig = Rig::new("roundrobin", &[1.0; 2]).without_checks();
    let _daemon = rig.daemon();
    rig.haproxy.stop();
    until("the daemon to notice", || {
        let (code, found) = doctor(&rig);
        code == Some(1)
            && says(&found, "error", "shop", "is HAProxy running")
            && says(&found, "note", "shop", "the daemon cannot steer it: ")
    });
}

#[test]
fn it_says_in_a_sentence_each_what_clients_suffer_from() {
    let rig = Rig::new("roundrobin", &[1.0; 4]).without_checks();
    let daemon = rig.daemon();
    let clients = rig.clients(120.0);
    let all_serve = || doctor(&rig).1;
    until("all to serve", || {
        says(&all_serve(), "ok", "shop", "4 of 4 backends serve; clients wait")
    });
    let status = || out(&plimsoll(&["status", "--api", daemon.api()]));
    until("no complaint", || !status().contains("WARNING"));
    // One is gone, one hangs, and what is left is thirty times as slow.
    rig.set_mode("s1", Mode::Refuse);
    rig.bed.set("s2", Change::speed(1e-9)).expect("the testbed runs");
    until("both to be named", || {
        let (code, found) = doctor(&rig);
        assert_eq!(code, Some(0), "warnings alone: {found:?}");
        says(&found, "warning", "shop/s1", "it has failed and gets nothing")
            && says(&found, "warning", "shop/s2", "it is set aside and gets nothing")
    });
    assert!(status().contains("WARNING shop/s2: it is set aside and gets nothing"), "{}", status());
    for slow in ["s3", "s4"] {
        rig.bed.set(slow, Change::speed(0.2)).expect("the testbed runs");
    }
    until("the wait to be said", || {
        says(&doctor(&rig).1, "warning", "shop", "times as long as an unloaded backend takes")
    });
    drop(clients);
    for gone in ["s2", "s3", "s4"] {
        rig.set_mode(gone, Mode::Refuse);
    }
    until("the outage to be said", || {
        let (code, found) = doctor(&rig);
        code == Some(1) && says(&found, "error", "shop", "no backend serves")
    });
    assert!(status().contains("OUTAGE shop: no backend serves"), "{}", status());
    assert_eq!(daemon.weights()["phase"], "short_of_capacity");
}

#[test]
fn weights_of_zero_and_queues_are_seen_in_haproxy_without_a_daemon() {
    let rig = Rig::new("leastconn\n  default-server maxconn 1", &[1.0, 0.001]);
    rig.haproxy.ask("set server shop/s1 weight 0");
    let _clients = rig.clients(20.0);
    until("requests to wait", || {
        let (code, found) = doctor(&rig);
        let queued = |about| says(&found, "warning", about, "in HAProxy's queue");
        assert_eq!(code, Some(0), "{found:?}");
        assert!(says(&found, "warning", "shop/s1", "its weight in HAProxy is 0"), "{found:?}");
        queued("shop") || queued("shop/s2")
    });
}
