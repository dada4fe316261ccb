//! Many at once: a flood of SYNs, guessed cookies, a rotation of the salt in the middle of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use plimsoll_cookie::Epoch;
use plimsoll_l4::{Keys, Policy, status};
use plimsoll_l4bench::packet::{ACK, REDIRECT, SYN, Segment, syn_options, timestamps};
use plimsoll_l4bench::{
    BenchError, Connection, Load, Replies, Settings, VIP, chi_square, flood, forge, keys,
};

use super::support::Rig;
use super::support::rig::privileged;

const SERVERS: u8 = 16;
/// So many that none comes twice.
const ENDLESS: u64 = 1 << 37;
const TEN_MILLION: u32 = 10_000_000;
const BURST: u32 = 1 << 16;
/// Connections whose last event is remembered.
const REMEMBERED: u64 = 1 << 16;

#[test]
fn a_flood_of_first_packets_grows_nothing_and_drops_nothing_established() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(Policy::LeastConnections, SERVERS, Replies::Uplink);
    let told = |_| Ok::<(), BenchError>(());
    let flood = flood(&rig, u64::from(TEN_MILLION), 64, told).expect("runs");
    assert!(flood.before.bytes() > 1 << 17, "{:?}", flood.before);
    assert_eq!(flood.after, flood.before);
    assert!(flood.asked > 64 * 2 * 100 && flood.astray == 0, "{} of {}", flood.astray, flood.asked);
    let opened = &flood.opened;
    assert_eq!(opened.iter().sum::<u64>(), flood.sent + 64, "every first packet is counted");
    let (least, most) = (opened.iter().min().expect("some"), opened.iter().max().expect("some"));
    assert!(most - least <= 1, "the fewest connections get the next: {opened:?}");
    // None of these ends; but the latest have taken the places of those before, which count no more.
    rig.balancer.refresh().expect("refreshes");
    let seen = status(&rig.net.pins()).expect("status");
    let open: u64 = seen.vips[0].backends.iter().map(|one| one.open_connections).sum();
    assert!(open > REMEMBERED * 9 / 10 && open <= REMEMBERED, "{open}");
    let reasons = rig.reasons().expect("read");
    assert!(reasons.iter().all(|count| *count == 0), "{reasons:?}");
}

#[test]
fn forged_cookies_of_many_spread_evenly_and_are_counted() {
    if !privileged() {
        return;
    }
    let rig = Rig::new(Policy::RoundRobin, SERVERS, Replies::Uplink);
    let forged = forge(&rig, TEN_MILLION).expect("runs");
    let counts = &forged.by_server;
    assert_eq!(counts.iter().sum::<u64>(), forged.sent, "each goes to one server");
    // 15 degrees of freedom: 44.3 is passed by one sample in 10,000.
    let statistic = chi_square(counts);
    assert!(statistic < 44.3, "{statistic}: {counts:?}");
    // One in two names the salt that there is; 16 ids of 2,048 are servers'.
    let missed = 1.0 - forged.counted as f64 / forged.sent as f64;
    assert!((missed * 256.0 - 1.0).abs() < 0.05, "{missed} of them are taken for valid");
}

#[test]
fn each_server_has_exactly_one_valid_cookie_per_version() {
    if !privileged() {
        return;
    }
    let rig = Rig::new(Policy::RoundRobin, SERVERS, Replies::Uplink);
    for upper in 0..=0xffffu32 {
        let ack = Segment::new("10.0.0.1:1", VIP, ACK, timestamps(1, upper << 16));
        assert_eq!(rig.balancer.run(&ack.bytes(), rig.clients).expect("runs").verdict, REDIRECT);
    }
    // Of each version's 2,048 cookies exactly one is each server's, and all others lead to one and the
    // same server, that of the hash.
    let valid = 16 * u64::from(SERVERS);
    assert_eq!(rig.reason("foreign_cookie").expect("read"), 65_536 - valid);
    let mut counts = rig.packets_in(0).expect("read");
    counts.sort_unstable();
    assert_eq!(counts.pop(), Some(65_536 - valid + 16));
    assert!(counts.iter().all(|count| *count == 16), "{counts:?}");
}

fn client(n: usize) -> String {
    format!("172.16.{}.{}:40000", n / 200, n % 200 + 1)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

#[test]
fn a_rotation_of_the_salt_under_load_breaks_nothing() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(Policy::RoundRobin, SERVERS, Replies::Uplink);
    let mut load = Load::on(&rig.balancer).expect("loads");
    let began = Instant::now();
    // Each server's clock stands elsewhere between two versions, so that they change at other times.
    let real = |server: u8| {
        0x5000_0000 + u32::from(server) * 0x0101_1000 + began.elapsed().as_millis() as u32
    };
    let mut live: Vec<_> =
        (0..64).map(|n| Connection::open(&rig, client(n)).expect("opens")).collect();
    for one in &mut live {
        assert!(one.reply(&rig, real(one.server)).expect("runs"));
        assert_eq!(one.wire >> 27 & 1, 0, "the first salt's cookie");
    }
    let syn = Segment::new("10.0.0.1:1", VIP, SYN, syn_options(1, 0)).bytes();
    let settings = Settings { servers: u32::from(SERVERS), ..Settings::of(ENDLESS) };
    let (clients, done) = (rig.clients, AtomicBool::new(false));
    let both = [Some([7; 32]), Some([9; 32])];
    // Where the epoch is, since when, and how many of 64 connections carry the second salt's cookie.
    let stages = [
        (Epoch::Odd, -30_000, 1..64),
        (Epoch::Even, -300_000, 0..1),
        (Epoch::Odd, 10_000, 0..1),
        (Epoch::Even, -300_000, 0..1),
        (Epoch::Odd, -300_000, 64..65),
    ];
    let bursts = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let turn = bursts.load(Ordering::Relaxed) << 16;
                load.set(Settings { turn, ..settings }).expect("set");
                load.run("plain_v4_balancer", &syn, clients, BURST).expect("runs");
                bursts.fetch_add(1, Ordering::Relaxed);
            }
        });
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (epoch, since, expected) in stages {
                // Under load indeed, however busy the machine is otherwise.
                let before = bursts.load(Ordering::Relaxed);
                while bursts.load(Ordering::Relaxed) == before && !flood.is_finished() {
                    std::thread::yield_now();
                }
                let since_unix_ms = unix_ms().wrapping_add_signed(since);
                let next = Keys { epoch, since_unix_ms, salts: both, ..keys() };
                rig.balancer.set_keys(next).expect("set");
                for one in &live {
                    assert!(one.ask(&rig).expect("runs"), "{}", one.client);
                }
                for one in &mut live {
                    assert!(one.reply(&rig, real(one.server)).expect("runs"));
                    assert!(one.ask(&rig).expect("runs"), "{}", one.client);
                }
                let second = live.iter().filter(|one| one.wire >> 27 & 1 == 1).count();
                assert!(expected.contains(&second), "{epoch:?} {since}: {second}");
            }
        }));
        done.store(true, Ordering::Relaxed);
        flood.join().expect("floods");
        if let Err(failure) = checked {
            std::panic::resume_unwind(failure);
        }
    });
    assert_eq!(
        rig.reason("foreign_cookie").expect("read") + rig.reason("stale_cookie").expect("read"),
        0
    );
}
