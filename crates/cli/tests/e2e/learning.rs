//! The main thing: weights that follow the backends' capacities.

use std::time::Instant;

use crate::rig::{PATIENCE, Rig, until, until_within};

#[test]
fn a_slow_backend_gets_less_under_roundrobin() {
    // Equal shares of 130 req/s overload s3, which can do 25.
    let rig = Rig::new("roundrobin", &[1.0, 1.0, 0.125]);
    let daemon = rig.daemon();
    let clients = rig.clients(130.0);
    until_within(3 * PATIENCE, "weights to follow the speeds", || {
        rig.weight("s3") * 2 < rig.weight("s1").min(rig.weight("s2"))
    });
    let weights = daemon.weights();
    assert_eq!(weights["method"], "split");
    assert!(weights["epoch"].as_u64() >= Some(1), "{weights}");
    assert!(daemon.has_event("plan", "plan 1: "), "{}", daemon.log());
    until("a probe to succeed", || daemon.http("/metrics").1.contains("outcome=\"success\""));
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
    until_within(3 * PATIENCE, "weights to follow the speeds", || {
        rig.weight("s2") * 2 < rig.weight("s1")
    });
    assert_eq!(daemon.weights()["method"], "in_flight");
    drop(clients);
}

#[test]
fn observing_programs_nothing() {
    let rig = Rig::new("roundrobin", &[1.0, 0.125]);
    let daemon = rig.daemon_with(&["--observe"]);
    let clients = rig.clients(80.0);
    until_within(3 * PATIENCE, "a weight to be wanted that is not held", || {
        let slow = daemon.backend("s2");
        slow["weight"].as_u64().is_some_and(|wanted| wanted > 0 && slow["programmed"] != wanted)
    });
    let weights = daemon.weights();
    assert_eq!((&weights["phase"], &weights["epoch"]), (&"observing".into(), &0.into()));
    assert_eq!((rig.weight("s1"), rig.weight("s2")), (100, 100));
    drop(clients);
}

#[test]
fn the_drain_time_is_learned_from_a_backend_parked_at_weight_0() {
    // A third of 100 req/s overloads s2, which can do 6: without it all are served sooner, but its queue goes on. The
    // two others are each other's reserve.
    let mut rig = Rig::new("roundrobin", &[1.0, 0.03, 1.0]);
    // A backend that leaves its probes unanswered would have failed, and such drains are not learned from.
    rig.service = "    probe: { path: /work, timeout: 60s }\n    liveness: { path: /health, interval: 100ms, \
                   requests: 3, timeout: 5s }\n"
        .to_owned();
    let daemon = rig.daemon();
    let clients = rig.clients(100.0);
    let drained_s = || {
        let service = daemon.http("/v1/services/shop").1;
        let service: serde_json::Value = serde_json::from_str(&service).expect("JSON");
        service["drain_s"].as_f64()
    };
    // The last look that saw a weight; since when it was seen to have none, and for how long of that it was busy. A
    // drain that is cut short by a new weight is not told, so the first that is told is the one of this moment.
    let mut held = Instant::now();
    let mut parked: Option<(Instant, f64)> = None;
    let mut told = None;
    until_within(6 * PATIENCE, "the time of a drain to be told", || {
        told = drained_s();
        if told.is_some() {
            // A weight that it has by now came after the drain.
            return true;
        }
        let look = Instant::now();
        if rig.weight("s2") > 0 {
            (held, parked) = (look, None);
        } else {
            let (since, busy_s) = parked.get_or_insert((Instant::now(), 0.0));
            if rig.haproxy.in_flight("s2") > 0 {
                *busy_s = look.duration_since(*since).as_secs_f64();
            }
        }
        false
    });
    let told_s = told.expect("told");
    let (_, busy_s) = parked.expect("told while it is parked");
    let most_s = held.elapsed().as_secs_f64();
    let what = format!("{busy_s} to {most_s} s, but told were {told_s}: {}", daemon.log());
    // The daemon knows of the weight by the answer, after HAProxy holds it: a moment, or more on a busy machine.
    assert!((busy_s - 3.0..=most_s + 1.0).contains(&told_s), "{what}");
    let metrics = daemon.http("/metrics").1;
    assert!(metrics.contains("plimsoll_service_drain_seconds{service=\"shop\"} "), "{metrics}");
    drop(clients);
}
