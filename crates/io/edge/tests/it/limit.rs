//! A forwarder whose flow table has another size than that of the forwarder before.

use plimsoll_edge::Ran;

use crate::bad::{one, request, rig, run};
use crate::packet::{DROP, REDIRECT, ip4, ip6, udp};
use crate::rig::{CLIENT, Rig, SERVER, privileged, until};

fn flow(port: u16) -> Vec<u8> {
    ip4(CLIENT, SERVER, 17, 0x4000, &udp(port, 53, b"question"))
}

fn restart(rig: &mut Rig, limit: u32) {
    rig.stop_forwarder();
    rig.config.flows.limit = limit;
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    until("slots are filled", || rig.status().places.iter().any(|place| place.weight > 0.0));
    until("the table is shown", || rig.status().table.entries4 > 0);
}

fn opened(rig: &Rig) -> u64 {
    until("places are shown", || !rig.status().places.is_empty());
    rig.status().places[0].opened
}

#[test]
fn a_table_of_another_size_takes_over_all_flows() {
    if !privileged() {
        return;
    }
    let mut rig = rig("forward");
    let mut packets: Vec<Vec<u8>> = (0..700).map(|n| flow(10_000 + n)).collect();
    packets.push(ip6("fd01::10", "fd02::20", 17, &udp(4000, 53, b"question")));
    let known: Vec<Ran> = run(&rig, &packets);
    assert!(known.iter().all(|ran| ran.verdict == REDIRECT));
    assert_eq!(rig.status().table.limit, 1_000);
    until("all are counted", || opened(&rig) == 701);
    restart(&mut rig, 20_000);
    assert_eq!(rig.status().table.limit, 20_000);
    assert_eq!(run(&rig, &packets), known);
    // More than fit before; and none of the others was new.
    let more: Vec<Vec<u8>> = (0..3_000).map(|n| flow(20_000 + n)).collect();
    assert!(run(&rig, &more).iter().all(|ran| ran.verdict == REDIRECT));
    until("all are counted", || opened(&rig) == 3_701);
    // They would not fit into this one: the table stays, and what is shown is what there is.
    restart(&mut rig, 4_000);
    assert_eq!(rig.status().table.limit, 20_000);
    assert_eq!(run(&rig, &packets), known);
    // Into this one they do.
    restart(&mut rig, 5_000);
    assert_eq!(rig.status().table.limit, 5_000);
    assert_eq!(run(&rig, &packets), known);
    until("both families are shown", || {
        let table = rig.status().table;
        (table.entries4, table.entries6) == (3_700, 1)
    });
    assert_eq!(opened(&rig), 3_701);
    let flood: Vec<Vec<u8>> = (0..2_000).map(|n| flow(30_000 + n)).collect();
    assert!(run(&rig, &flood).iter().any(|ran| ran.verdict == DROP), "it is full by its own size");
    // And a full one by that size forgets what was not answered.
    until("there is room again", || one(&rig, &request()).verdict == REDIRECT);
}

#[test]
fn a_change_that_was_interrupted_goes_on_with_the_next_start() {
    if !privileged() {
        return;
    }
    let mut rig = rig("forward");
    let packets: Vec<Vec<u8>> = (0..200).map(|n| flow(10_000 + n)).collect();
    let known = run(&rig, &packets);
    rig.stop_forwarder();
    let maps = plimsoll_edge::forwarder_dir(&rig.config).join("maps");
    // As a start leaves it that ended after one of the tables was set aside, then after both.
    for tables in [&["flows6"][..], &["flows4", "flows6"]] {
        for name in tables {
            std::fs::rename(maps.join(name), maps.join(format!("old_{name}"))).expect("renamed");
        }
        rig.config.flows.limit += 1_000;
        rig.start_forwarder();
        rig.until_serving(&["n1"]);
        assert_eq!(run(&rig, &packets), known);
        assert!(!maps.join("old_flows4").exists() && !maps.join("old_flows6").exists());
        rig.stop_forwarder();
    }
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    assert_eq!(run(&rig, &packets), known);
    until("the table is shown", || rig.status().table.limit == rig.config.flows.limit);
}
