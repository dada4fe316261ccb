//! Nodes that report nonsense, by mistake or on purpose; services that no node serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_edge::liar::{Liar, Lie};

use crate::bad::{one, run};
use crate::packet::{DROP, REDIRECT, ip4, udp};
use crate::rig::{CLIENT, Rig, SERVER, privileged, until};

const SECTION: &str = "
  services:
    - { name: inspect, match: { destination: \"10.2.0.0/24\" }, chain: [ { xdp: counter } ] }
    - { name: spare, match: { destination: \"10.9.0.0/24\" }, chain: [ { xdp: counter } ] }
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0], services: [inspect] }
    - { name: n2, address: \"10.3.0.12\", cpus: [1], services: [spare] }
";
/// What the liar says of calibration.
const CALIBRATED_NS: f64 = 5_000.0;
const WINDOW_NS: u64 = 100_000_000;

/// What is said, as a number of `KINDS`; it can be changed.
const HONEST: u64 = 0;
const BUSIER_THAN_TIME: u64 = 1;
const MORE_THAN_SENT: u64 = 2;
const CLOCK_BACK: u64 = 3;
const CLOCK_FAST: u64 = 4;
const DEAR: u64 = 5;

/// Answers until it is stopped; packets that it was sent are in `sent`.
fn lie(liar: &Liar, kind: &AtomicU64, sent: &AtomicU64, stop: &AtomicBool) {
    let (mut clock_ns, mut busy_ns, mut packets, mut last) = (1 << 40, 0u64, 0u64, 0u64);
    while !stop.load(Ordering::Relaxed) {
        let all = sent.load(Ordering::Relaxed);
        let came = all - last;
        last = all;
        clock_ns += WINDOW_NS;
        packets += came;
        busy_ns += came * CALIBRATED_NS as u64;
        match kind.load(Ordering::Relaxed) {
            BUSIER_THAN_TIME => busy_ns += 100 * WINDOW_NS,
            MORE_THAN_SENT => packets += 1_000_000,
            CLOCK_BACK => clock_ns -= 2 * WINDOW_NS,
            CLOCK_FAST => clock_ns += 1_000 * WINDOW_NS,
            DEAR if came > 0 => busy_ns += WINDOW_NS * 9 / 10,
            _ => {}
        }
        let lie = Lie { clock_ns, busy_ns, packets, calibrated_ns: CALIBRATED_NS };
        // No node is asked before the forwarder has started.
        let _ = liar.answer(lie);
    }
}

#[test]
fn a_node_that_lies_bends_its_own_costs_and_no_further_than_four_times() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(SECTION);
    let (kind, sent) = (Arc::new(AtomicU64::new(HONEST)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let (config, of) = (rig.config.clone(), (kind.clone(), sent.clone(), stop.clone()));
    let thread = rig.net.inside("n1", move || {
        let liar = Liar::start(&config, "n1").expect("in the node's place");
        std::thread::spawn(move || lie(&liar, &of.0, &of.1, &of.2))
    });
    let thread = thread.expect("a thread");
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    until("slots are filled", || rig.status().places.iter().any(|place| place.weight > 0.0));
    let packets: Vec<Vec<u8>> =
        (0..20).map(|n| ip4(CLIENT, SERVER, 17, 0, &udp(7_000 + n, 53, b""))).collect();
    let cost = |rig: &Rig| rig.status().places[0].cost_us;
    let calibrated = CALIBRATED_NS / 1e3;
    for said in [BUSIER_THAN_TIME, MORE_THAN_SENT, CLOCK_BACK, CLOCK_FAST, DEAR, HONEST] {
        kind.store(said, Ordering::Relaxed);
        let refused = |rig: &Rig| rig.status().refused_reports.values().sum::<u64>();
        let before = refused(&rig);
        // As long as a dozen answers take.
        for _ in 0..24 {
            assert!(run(&rig, &packets).iter().all(|ran| ran.verdict == REDIRECT));
            sent.fetch_add(packets.len() as u64, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(50));
            let cost = cost(&rig);
            assert!(cost >= calibrated / 4.01 && cost <= calibrated * 4.01, "{said}: {cost} µs");
        }
        if [BUSIER_THAN_TIME, MORE_THAN_SENT].contains(&said) {
            until("it is told", || refused(&rig) > before);
        }
    }
    // Once it is honest again, what it said before is unlearned.
    until("its cost is right", || {
        run(&rig, &packets);
        sent.fetch_add(packets.len() as u64, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
        (cost(&rig) - calibrated).abs() < 0.3 * calibrated
    });
    // n2 does not answer, so no node serves its service: new flows are dropped and counted, others go on.
    let before = rig.status().reasons["no_node"];
    let orphan = ip4(CLIENT, "10.9.0.5", 17, 0, &udp(7_000, 53, b""));
    assert_eq!(one(&rig, &orphan).verdict, DROP);
    until("it is counted", || rig.status().reasons["no_node"] > before);
    assert!(run(&rig, &packets).iter().all(|ran| ran.verdict == REDIRECT));
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("no panic");
}
