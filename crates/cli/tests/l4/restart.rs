//! Restarts and upgrades while packets flow, counted packet by packet wherever they pass.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_l4::status;
use plimsoll_l4bench::packet::{ACK, Segment, timestamps};
use plimsoll_l4bench::{
    self as bench, CLIENT_LEG_MAC, Frames, Load, Settings, VIP, ifindex, server_mac,
};
use rustix::process::Signal;

use crate::daemon::{Daemon, PATIENCE};
use crate::rig::{Net, privileged};

const SERVERS: u8 = 4;
/// Between two looks at whether it is over.
const BURST: u32 = 4096;
const CLIENT: &str = "10.0.0.1:1";
/// How long packets may lie in a ring of a busy machine when nobody sends any more.
const IN_A_RING: Duration = Duration::from_secs(10);

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
        Settings { servers: u32::from(SERVERS), field_at: 34 + 24, ..Settings::of(1 << 16) };
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

/// Packets that the program has sent on to servers, whether or not a daemon runs.
fn forwarded(net: &Net) -> u64 {
    let told = status(&net.pins()).expect("pinned");
    told.vips[0].backends.iter().map(|backend| backend.packets_in).sum()
}

/// Until the program has sent on more packets.
fn flow(net: &Net) {
    let (before, began) = (forwarded(net), Instant::now());
    while forwarded(net) < before + 4 * u64::from(BURST) {
        assert!(began.elapsed() < PATIENCE, "nothing is sent on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What an interface counts over its queues (`ethtool -S`).
fn counter(net: &Net, space: &str, interface: &str, name: &str) -> u64 {
    let told = net.exec(space, &format!("ethtool -S {interface}")).stdout;
    let told = String::from_utf8_lossy(&told).into_owned();
    let of_queue = |line: &str| {
        let (key, value) = line.trim().split_once(": ")?;
        let (_, key) = key.strip_prefix("tx_queue_")?.split_once('_')?;
        (key == name).then(|| value.parse::<u64>().expect("a number"))
    };
    let all: Vec<u64> = told.lines().filter_map(of_queue).collect();
    assert!(!all.is_empty(), "no {name} of {interface} in:\n{told}");
    all.iter().sum()
}

/// Frames given to an end of a pair: those that the other end took, and those for which its ring was full,
/// as it is when this machine has no time to empty it.
fn given(net: &Net, space: &str, interface: &str) -> (u64, u64) {
    let of = |name| counter(net, space, interface, name);
    (of("xdp_xmit"), of("xdp_xmit_errors"))
}

/// Of packets on their way from c0 by lbc and lbs to s0, how many passed where.
#[derive(Debug)]
struct Passed {
    /// From c0 to lbc.
    in_front: (u64, u64),
    program: u64,
    /// From lbs to s0.
    behind: (u64, u64),
    arrived: u64,
}

impl Passed {
    fn read(net: &Net, load: &mut Load, before: u64) -> Passed {
        Passed {
            in_front: given(net, "out", "c0"),
            program: forwarded(net) - before,
            behind: given(net, "lb", "lbs"),
            arrived: load.arrived().expect("read"),
        }
    }

    /// Where packets were lost that no full ring explains.
    fn lost(&self) -> Option<&'static str> {
        let Passed { in_front, program, behind, arrived } = *self;
        [
            (in_front.0 != program, "between the balancer's interface and its program"),
            (program != behind.0 + behind.1, "between the program and the servers' link"),
            (behind.0 != arrived, "behind the balancer"),
        ]
        .into_iter()
        .find_map(|(is_lost, place)| is_lost.then_some(place))
    }
}

/// Ends, starts, replaces the daemon in every way, while packets flow; each daemon brings a program of its
/// own.
fn change_daemons(net: &Net, daemon: &mut Daemon<'_>) {
    let mut programs = vec![program_id(net)];
    flow(net);
    daemon.kill();
    flow(net);
    daemon.start();
    programs.push(program_id(net));
    flow(net);
    daemon.signal(Signal::TERM);
    daemon.hand_over().wait().expect("ended");
    flow(net);
    daemon.start();
    programs.push(program_id(net));
    flow(net);
    // An upgrade: another file, started while the one before still runs.
    let newer = daemon.dir.path().join("plimsoll");
    fs::copy(&daemon.binary, &newer).expect("copied");
    daemon.binary = newer;
    let mut older = daemon.hand_over();
    daemon.start();
    flow(net);
    older.kill().expect("killed");
    older.wait().expect("ended");
    flow(net);
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
    let before = forwarded(&net);
    let (from, to) = net
        .inside("out", || (ifindex("c0").expect("there"), ifindex("s0").expect("there")))
        .expect("enters");
    let done = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            net.enter("out");
            load.count_at(to).expect("attaches");
            let mut sent = 0;
            while !done.load(Ordering::Relaxed) {
                load.send(Frames::Requests, &packet, from, BURST).expect("sends");
                sent += u64::from(BURST);
            }
            sent
        });
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            change_daemons(&net, &mut daemon);
        }));
        done.store(true, Ordering::Relaxed);
        let sent = sender.join().expect("sends");
        if let Err(failure) = changed {
            std::panic::resume_unwind(failure);
        }
        sent
    });
    let began = Instant::now();
    let mut passed = Passed::read(&net, &mut load, before);
    while passed.lost().is_some() && began.elapsed() < IN_A_RING {
        std::thread::sleep(Duration::from_millis(50));
        passed = Passed::read(&net, &mut load, before);
    }
    eprintln!("{sent} sent: {passed:?}");
    assert_eq!(passed.lost(), None, "{passed:?}");
    assert_eq!(passed.in_front.0 + passed.in_front.1, sent, "{passed:?}");
    let told = status(&net.pins()).expect("pinned");
    assert!(told.vips[0].fallbacks.values().all(|count| *count == 0), "{:?}", told.vips[0]);
}
