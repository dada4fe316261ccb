//! What the doctor says of good and bad set-ups.

use serde_json::Value;

use plimsoll_testbed::Mode;

use crate::rig::{Rig, arg, out, plimsoll};

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
