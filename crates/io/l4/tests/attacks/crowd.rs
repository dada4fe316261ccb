//! Many at once: a flood of first packets, guessed cookies, a rotation of the salt in the middle of it.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use aya::maps::{HashMap, Map, MapData};
use plimsoll_cookie::Epoch;
use plimsoll_l4::{Keys, Policy};

use super::Connection;
use super::support::rig::packet::{ACK, REDIRECT, SYN, Segment, syn_options, timestamps};
use super::support::rig::{keys, privileged};
use super::support::{Load, Replies, Rig, Settings, VIP};

const SERVERS: u8 = 16;
/// So many that none comes twice.
const ENDLESS: u64 = 1 << 37;
const TEN_MILLION: u64 = 10_000_000;
const BURST: u32 = 1 << 16;

fn flows(turn: u64, flows: u64, field_at: u32) -> Settings {
    Settings { turn, flows, servers: u32::from(SERVERS), field_at }
}

fn client(n: usize) -> String {
    format!("172.16.{}.{}:40000", n / 200, n % 200 + 1)
}

/// What the kernel holds for each pinned map, in bytes, and how many fragments are remembered.
fn memory(dir: &Path) -> (Vec<(String, u64)>, usize) {
    let mut held = Vec::new();
    for entry in fs::read_dir(dir.join("maps")).expect("pinned").flatten() {
        let map = MapData::from_pin(entry.path()).expect("a map");
        let info = format!("/proc/self/fdinfo/{}", map.fd().as_fd().as_raw_fd());
        let text = fs::read_to_string(info).expect("known");
        let line = text.lines().find_map(|line| line.strip_prefix("memlock:")).expect("memlock");
        let name = entry.file_name().to_string_lossy().into_owned();
        held.push((name, line.trim().parse().expect("bytes")));
    }
    held.sort();
    let map = MapData::from_pin(dir.join("maps/fragments")).expect("a map");
    let map = Map::from_map_data(map).expect("a hash");
    let fragments: HashMap<MapData, [u32; 10], u32> = map.try_into().expect("a hash");
    (held, fragments.keys().count())
}

#[test]
fn a_flood_of_first_packets_grows_nothing_and_drops_nothing_established() {
    if !privileged() {
        return;
    }
    let rig = Rig::new(Policy::LeastConnections, SERVERS, Replies::Uplink);
    let mut load = Load::on(&rig.balancer);
    let mut live: Vec<_> = (0..64).map(|n| Connection::open(&rig, client(n))).collect();
    let dir = rig.balancer.maps().dir().to_owned();
    let before = memory(&dir);
    assert!(before.0.iter().map(|(_, bytes)| bytes).sum::<u64>() > 1 << 17, "{before:?}");
    let syn = Segment::new("10.0.0.1:1", VIP, SYN, syn_options(1, 0)).bytes();
    let began = Instant::now();
    let mut sent = 0;
    while sent < TEN_MILLION {
        load.set(flows(sent, ENDLESS, 0));
        let (verdict, _) = load.run("plain_v4_balancer", &syn, rig.clients, BURST);
        assert_eq!(verdict, REDIRECT);
        sent += u64::from(BURST);
        for one in &mut live {
            one.reply(&rig, 0x1234_0000 + began.elapsed().as_millis() as u32);
            one.ask(&rig);
        }
    }
    assert_eq!(memory(&dir), before);
    let opened: Vec<u64> = (1..=u32::from(SERVERS))
        .map(|id| rig.balancer.maps().count(id).expect("read").opened)
        .collect();
    assert_eq!(opened.iter().sum::<u64>(), sent + 64, "every first packet is counted");
    let (least, most) = (opened.iter().min().expect("some"), opened.iter().max().expect("some"));
    assert!(most - least <= 1, "the fewest connections get the next: {opened:?}");
    assert!(rig.reasons().iter().all(|count| *count == 0), "{:?}", rig.reasons());
    rig.net.leave();
}

/// Pearson's statistic against equal shares.
fn chi_square(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum()
}

#[test]
fn forged_cookies_of_many_spread_evenly_and_are_counted() {
    if !privileged() {
        return;
    }
    let rig = Rig::new(Policy::RoundRobin, SERVERS, Replies::Uplink);
    let mut load = Load::on(&rig.balancer);
    let ack = Segment::new("10.0.0.1:1", VIP, ACK, timestamps(1, 2)).bytes();
    load.set(flows(0, ENDLESS, 34 + 28));
    let (verdict, _) = load.run("forged_v4_balancer", &ack, rig.clients, TEN_MILLION as u32);
    assert_eq!(verdict, REDIRECT);
    let counts = rig.packets_in(0);
    assert_eq!(counts.iter().sum::<u64>(), TEN_MILLION, "each goes to one server");
    // 15 degrees of freedom: 44.3 is passed by one sample in 10,000.
    let statistic = chi_square(&counts);
    assert!(statistic < 44.3, "{statistic}: {counts:?}");
    // One in two names the salt that there is; 16 ids of 2,048 are somebody's.
    let missed = 1.0 - rig.reason("foreign_cookie") as f64 / TEN_MILLION as f64;
    assert!((missed * 256.0 - 1.0).abs() < 0.05, "{missed} of them are taken for valid");
    rig.net.leave();
}

#[test]
fn one_who_tries_every_cookie_learns_to_reach_a_server_only_by_trying() {
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
    assert_eq!(rig.reason("foreign_cookie"), 65_536 - valid);
    let mut counts = rig.packets_in(0);
    counts.sort_unstable();
    assert_eq!(counts.pop(), Some(65_536 - valid + 16));
    assert!(counts.iter().all(|count| *count == 16), "{counts:?}");
    rig.net.leave();
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
    let mut load = Load::on(&rig.balancer);
    let began = Instant::now();
    // Each server's clock stands elsewhere between two versions, so that they change at other times.
    let real = |server: u8| {
        0x5000_0000 + u32::from(server) * 0x0101_1000 + began.elapsed().as_millis() as u32
    };
    let mut live: Vec<_> = (0..64).map(|n| Connection::open(&rig, client(n))).collect();
    for one in &mut live {
        one.reply(&rig, real(one.server));
        assert_eq!(one.wire >> 27 & 1, 0, "the first salt's cookie");
    }
    let syn = Segment::new("10.0.0.1:1", VIP, SYN, syn_options(1, 0)).bytes();
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
    let flooded = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut bursts = 0;
            while !done.load(Ordering::Relaxed) {
                load.set(flows(bursts << 16, ENDLESS, 0));
                load.run("plain_v4_balancer", &syn, clients, BURST);
                bursts += 1;
            }
            bursts
        });
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (epoch, since, expected) in stages {
                let since_unix_ms = unix_ms().wrapping_add_signed(since);
                let next = Keys { epoch, since_unix_ms, salts: both, ..keys() };
                rig.balancer.set_keys(next).expect("set");
                for one in &live {
                    one.ask(&rig);
                }
                for one in &mut live {
                    one.reply(&rig, real(one.server));
                    one.ask(&rig);
                }
                let second = live.iter().filter(|one| one.wire >> 27 & 1 == 1).count();
                assert!(expected.contains(&second), "{epoch:?} {since}: {second}");
            }
        }));
        done.store(true, Ordering::Relaxed);
        let bursts = flood.join().expect("floods");
        if let Err(failure) = checked {
            std::panic::resume_unwind(failure);
        }
        bursts
    });
    assert!(flooded > 0);
    assert_eq!(rig.reason("foreign_cookie") + rig.reason("stale_cookie"), 0);
    rig.net.leave();
}
