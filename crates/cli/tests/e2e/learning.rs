//! The main thing: weights that follow what the backends can bear.

use crate::rig::{Rig, until};

#[test]
fn a_slow_backend_gets_less_under_roundrobin() {
    // Equal shares of 130 req/s overload s3, which can do 25.
    let rig = Rig::new("roundrobin", &[1.0, 1.0, 0.125]);
    let daemon = rig.daemon();
    let clients = rig.clients(130.0);
    until("weights to follow the speeds", || {
        rig.weight("s3") * 2 < rig.weight("s1").min(rig.weight("s2"))
    });
    let weights = daemon.weights();
    assert_eq!(weights["method"], "split");
    assert!(weights["epoch"].as_u64() >= Some(1), "{weights}");
    assert!(daemon.has_event("plan", "plan 1: "), "{}", daemon.log());
    let (status, metrics) = daemon.http("/metrics");
    assert_eq!(status, 200);
    for part in
        ["plimsoll_plans_total{service=\"shop\"}", "outcome=\"success\"", "plimsoll_ready 1"]
    {
        assert!(metrics.contains(part), "{part} in {metrics}");
    }
    drop(clients);
}

#[test]
fn a_slow_backend_gets_less_under_leastconn() {
    let rig = Rig::new("leastconn", &[1.0, 0.125]);
    let daemon = rig.daemon();
    let clients = rig.clients(120.0);
    until("weights to follow the speeds", || rig.weight("s2") * 2 < rig.weight("s1"));
    assert_eq!(daemon.weights()["method"], "in_flight");
    drop(clients);
}

#[test]
fn observing_programs_nothing() {
    let rig = Rig::new("roundrobin", &[1.0, 0.125]);
    let daemon = rig.daemon_with(&["--observe"]);
    let clients = rig.clients(80.0);
    until("a weight to be wanted that is not held", || {
        let slow = daemon.backend("s2");
        slow["weight"].as_u64().is_some_and(|wanted| wanted > 0 && slow["programmed"] != wanted)
    });
    let weights = daemon.weights();
    assert_eq!((&weights["phase"], &weights["epoch"]), (&"observing".into(), &0.into()));
    assert_eq!((rig.weight("s1"), rig.weight("s2")), (100, 100));
    drop(clients);
}
