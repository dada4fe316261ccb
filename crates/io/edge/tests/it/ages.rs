//! Young flows are distinguished from old ones as the policies have it: by age, and by packets.

use std::time::Duration;

use plimsoll_feedback::Ages;

use crate::bad::{rig, run};
use crate::packet::{REDIRECT, ip4, udp};
use crate::rig::{CLIENT, Rig, SERVER, privileged, until};

fn packet(flow: u16) -> Vec<u8> {
    ip4(CLIENT, SERVER, 17, 0x4000, &udp(flow, 53, b"question"))
}

/// Packets of young flows, of those that age, and of old ones, when all of `sent` are counted.
fn counted(rig: &Rig, sent: u64) -> [u64; 3] {
    let mut seen = [0; 3];
    until("all are counted", || {
        let place = &rig.status().places[0];
        seen = [place.packets - place.aging - place.old, place.aging, place.old];
        place.packets == sent
    });
    seen
}

#[test]
fn a_flow_is_old_by_its_packets_before_it_is_by_its_age() {
    if !privileged() {
        return;
    }
    const MORE: u64 = 9;
    let rig = rig("forward");
    let heavy = u64::from(Ages::default().heavy);
    let (mut sent, mut flow, mut before) = (0, 5_000, [0; 3]);
    // Where the machine pauses among them, age decides: once more, with another flow.
    until("a flow is heavy while it is young", || {
        flow += 1;
        let packets = vec![packet(flow); (heavy + MORE) as usize];
        assert!(run(&rig, &packets).iter().all(|ran| ran.verdict == REDIRECT));
        sent += heavy + MORE;
        let now = counted(&rig, sent);
        let [young, aging, old] = [0, 1, 2].map(|class| now[class] - before[class]);
        before = now;
        assert!(old >= MORE && young + aging <= heavy, "{young} young, {aging} aging, {old} old");
        (young, old) == (heavy, MORE)
    });
}

#[test]
fn flows_age_before_they_are_old() {
    if !privileged() {
        return;
    }
    let ages = Ages::default();
    let rig = rig("forward");
    let (mut sent, mut flow, mut before) = (0, 6_000, [0; 3]);
    let mut step = |after: Duration, class: usize| {
        until("a packet is counted for that age", || {
            flow += 1;
            run(&rig, &[packet(flow)]);
            std::thread::sleep(after);
            run(&rig, &[packet(flow)]);
            sent += 2;
            let now = counted(&rig, sent);
            let more = [0, 1, 2].map(|class| now[class] - before[class]);
            before = now;
            assert!(more[0] >= 1, "the first packet of a flow is young: {more:?}");
            more[class] == 1
        });
    };
    // The clock has steps of up to 4 ms.
    step(ages.aging + Duration::from_millis(5), 1);
    step(ages.old + Duration::from_millis(5), 2);
}
