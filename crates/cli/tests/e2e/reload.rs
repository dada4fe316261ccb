//! The configuration changes while the daemon runs.

use crate::rig::{Rig, until};

fn names(daemon: &crate::rig::Daemon) -> Vec<String> {
    let weights = daemon.weights();
    let backends = weights["backends"].as_array().expect("a list").iter();
    backends.map(|b| b["backend"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn backends_join_and_leave_and_mistakes_change_nothing() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0, 1.0]);
    rig.configured.truncate(2);
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.backend("s1")["programmed"] == 100);
    assert_eq!(names(&daemon), ["s1", "s2"]);

    rig.configured.push("s3".to_owned());
    rig.write_config();
    // No signal: the file's change is enough.
    until("s3 to join", || names(&daemon) == ["s1", "s2", "s3"]);
    until("s3 to be read", || daemon.backend("s3")["programmed"].is_u64());
    assert!(daemon.has_event("joined", "added to the configuration"));

    let good = rig.config();
    let bad = good.replace("/work", "work").replace("listen:", "lisen:");
    std::fs::write(rig.path("plimsoll.yaml"), bad).expect("written");
    daemon.signal("HUP");
    until("the refusal", || daemon.has_event("warning", "the old one stays"));
    for mistake in ["services[0].probe.path", "api.lisen"] {
        daemon.until_log_has(mistake);
    }
    assert_eq!(names(&daemon), ["s1", "s2", "s3"]);

    rig.configured.remove(0);
    rig.write_config();
    daemon.signal("HUP");
    until("s1 to leave", || names(&daemon) == ["s2", "s3"]);
    assert!(daemon.has_event("left", "removed from the configuration"));
    assert_eq!(daemon.http("/readyz").0, 200);
}

#[test]
fn services_come_and_go_and_the_others_stay() {
    let rig = Rig::new("roundrobin", &[1.0]);
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.backend("s1")["programmed"] == 100);
    let one = rig.config();
    let (head, tail) = one.split_once("store:").expect("a store");
    let second = head.replace("services:\n", "").replace("name: shop\n", "name: other\n");
    let second = second.replace("backend: shop", "backend: elsewhere");
    std::fs::write(rig.path("plimsoll.yaml"), format!("{head}{second}store:{tail}"))
        .expect("written");
    daemon.signal("HUP");
    let named = |name: &str| {
        let services = daemon.ask("status")["services"].clone();
        services.as_array().expect("a list").iter().find(|s| s["service"] == name).cloned()
    };
    until("the new one, with its trouble", || {
        let trouble = named("other").map(|other| other["trouble"].to_string());
        trouble.is_some_and(|trouble| {
            trouble.contains("no backend") && trouble.contains("it has shop")
        })
    });
    assert_eq!(named("shop").expect("the first")["trouble"], serde_json::Value::Null);
    assert_eq!(daemon.http("/readyz").0, 503);
    std::fs::write(rig.path("plimsoll.yaml"), one).expect("written");
    daemon.signal("HUP");
    until("it to be gone", || named("other").is_none());
    assert_eq!(daemon.http("/readyz").0, 200);
}

#[test]
fn what_takes_effect_at_the_next_start_is_said() {
    let mut rig = Rig::new("roundrobin", &[1.0]);
    let daemon = rig.daemon();
    let api = rig.api;
    rig.api = crate::rig::free_address();
    rig.write_config();
    daemon.signal("HUP");
    until("it to be said", || daemon.log().contains("api: takes effect at the next start"));
    rig.api = api;
    assert_eq!(daemon.http("/healthz").0, 200);
}
