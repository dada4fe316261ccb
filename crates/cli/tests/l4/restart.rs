//! Restarts and upgrades while packets flow, counted packet by packet.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll_l4::bench::packet::{ACK, Segment, timestamps};
use plimsoll_l4::bench::{self, CLIENT_LEG_MAC, Frames, Load, Settings, VIP, ifindex, server_mac};
use rustix::process::Signal;

use crate::daemon::Daemon;
use crate::rig::service::PATIENCE;
use crate::rig::{Net, privileged};
use crate::total;

const SERVERS: u8 = 4;
/// Between two looks at whether it is over.
const BURST: u32 = 4096;
const CLIENT: &str = "10.0.0.1:1";

/// The program on the clients' leg.
fn program_id(net: &Net) -> String {
    let shown = net.exec("lb", "ip -d link show lbc");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let (_, after) = text.split_once("prog/xdp id ").expect("a program is attached");
    after.split_whitespace().next().expect("a number").to_owned()
}

/// A packet of every connection, with its cookie; ready to be sent from `out` and counted there.
fn load(net: &Net) -> (Load, Vec<u8>) {
    let mut load = Load::pinned(&net.pins()).expect("loads");
    let settings =
        Settings { turn: 0, flows: 1 << 16, servers: u32::from(SERVERS), field_at: 34 + 24 };
    // Every server is heard, so that its clock is known.
    let servers = net.inside("lb", || ifindex("lbs").expect("there")).expect("enters");
    let mut reply = Segment::new(VIP, CLIENT, ACK, timestamps(1, 2)).sent_by(server_mac(1));
    reply.to_mac = CLIENT_LEG_MAC;
    load.set(settings).expect("set");
    net.enter("lb");
    load.run("reply_v4_balancer", &reply.bytes(), servers, 1000).expect("runs");
    net.leave();
    let mut segment = Segment::new(CLIENT, VIP, ACK, timestamps(1, 2));
    segment.to_mac = CLIENT_LEG_MAC;
    segment.payload = vec![0; 62];
    let packet = segment.bytes();
    load.set(Settings { field_at: 34 + 28, ..settings }).expect("set");
    load.set_head(&packet).expect("set");
    (load, packet)
}

/// Until more packets have been sent.
fn flow(sent: &AtomicU64) {
    let (before, began) = (sent.load(Ordering::Relaxed), Instant::now());
    while sent.load(Ordering::Relaxed) < before + 4 * u64::from(BURST) {
        assert!(began.elapsed() < PATIENCE, "nothing is sent");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends, starts, replaces the daemon in every way, while packets flow; each daemon brings a program of its
/// own.
fn change_daemons(net: &Net, daemon: &mut Daemon<'_>, sent: &AtomicU64) {
    let mut programs = vec![program_id(net)];
    flow(sent);
    daemon.kill();
    flow(sent);
    daemon.start();
    programs.push(program_id(net));
    flow(sent);
    daemon.signal(Signal::TERM);
    daemon.hand_over().wait().expect("ended");
    flow(sent);
    daemon.start();
    programs.push(program_id(net));
    flow(sent);
    // An upgrade: another file, started while the one before still runs.
    let newer = daemon.dir.path().join("plimsoll");
    fs::copy(&daemon.binary, &newer).expect("copied");
    daemon.binary = newer;
    let mut older = daemon.hand_over();
    daemon.start();
    flow(sent);
    older.kill().expect("killed");
    older.wait().expect("ended");
    flow(sent);
    programs.push(program_id(net));
    let count = programs.len();
    programs.sort();
    programs.dedup();
    assert_eq!(programs.len(), count, "each daemon's own program: {programs:?}");
}

#[test]
fn restarts_and_an_upgrade_under_load_lose_no_packet_and_no_count() {
    if !privileged() {
        return;
    }
    let net = Net::new(&["lb", "out"]);
    net.exec("lb", &format!("sh -c '{}'", bench::legs(&net.full("out"))));
    for (space, interface) in [("lb", "lbc"), ("lb", "lbs"), ("out", "c0"), ("out", "s0")] {
        net.exec(space, &format!("ethtool -K {interface} gro on tx off"));
    }
    let mut daemon = Daemon::new(&net);
    let legs = ["lbc", "lbs"].map(|name| format!("{{ name: {name} }}"));
    let backend = |n: u8| {
        format!("{{ name: s{n}, address: 10.0.2.{n}, mac: \"02:00:00:00:02:{n:02x}\", id: {n} }}")
    };
    daemon.write(&legs, VIP, &(1..=SERVERS).map(backend).collect::<Vec<_>>());
    daemon.start();
    let (mut load, packet) = load(&net);
    let before = total(&daemon.status(), "packets_in");
    let (from, to) = net
        .inside("out", || (ifindex("c0").expect("there"), ifindex("s0").expect("there")))
        .expect("enters");
    let (done, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let arrived = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            net.enter("out");
            load.count_at(to).expect("attaches");
            while !done.load(Ordering::Relaxed) {
                load.send(Frames::Requests, &packet, from, BURST).expect("sends");
                sent.fetch_add(u64::from(BURST), Ordering::Relaxed);
            }
            load.arrived().expect("read")
        });
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            change_daemons(&net, &mut daemon, &sent);
        }));
        done.store(true, Ordering::Relaxed);
        let counted = sender.join().expect("sends");
        if let Err(failure) = changed {
            std::panic::resume_unwind(failure);
        }
        counted
    });
    let sent = sent.into_inner();
    assert_eq!(arrived, sent, "packets that came out");
    let after = daemon.status();
    assert_eq!(total(&after, "packets_in") - before, sent, "packets that were counted");
    for (reason, count) in after["vips"][0]["fallbacks"].as_object().expect("a mapping") {
        assert_eq!(count.as_u64(), Some(0), "{reason}");
    }
}
