//! A world that changes: what is real is acted on, and what is not is left alone.

use std::time::{Duration, Instant};

use plimsoll_testbed::Change;

use crate::rig::Rig;

/// Learning takes its time, on a busy machine more.
const LEARNED: Duration = Duration::from_secs(180);

/// And so may the relief of a backend that slows down.
const RELIEVED: Duration = Duration::from_secs(60);

#[test]
fn a_backend_that_slows_down_is_seen_and_relieved_and_more_traffic_is_not_taken_for_that() {
    // Two of 200 req/s each.
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let daemon = rig.daemon();
    let clients = rig.clients(180.0);
    let began = Instant::now();
    while daemon.weights()["phase"] != "steady" {
        assert!(began.elapsed() < LEARNED, "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    let more = rig.clients(40.0);
    // Long enough that its cores are sure.
    std::thread::sleep(Duration::from_secs(20));
    assert!(!daemon.has_event("drift", "works at"), "{}", daemon.log());
    // The one with the larger weight is slowed: the other may have weight 0 while it is measured.
    let (slow, fast) =
        if rig.weight("s1") < rig.weight("s2") { ("s2", "s1") } else { ("s1", "s2") };
    rig.bed.set(slow, Change::speed(0.5)).expect("the testbed runs");
    // Seen as a change of its speed or, on a machine too busy for that, by its queue.
    let began = Instant::now();
    while rig.weight(slow) >= rig.weight(fast) {
        assert!(began.elapsed() < RELIEVED, "the slowed backend gets less: {}", daemon.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!daemon.has_event("drift", "works at 1."), "nobody is faster: {}", daemon.log());
    drop((clients, more));
}
