//! Wraps of the timestamps' lower half and silences of every length, at every width: the program sees
//! time only in timestamps, so time is what the packets say. `real_time.rs` shows the same by the clock.
//!
//! A connection is alive while its client takes what its server stamps for new (PAWS, RFC 7323 §5), and
//! while its server gets back exactly what it stamped: since 6.14 Linux checks that in handshakes.

use plimsoll_cookie::Layout;
use plimsoll_l4bench::{VIP, keys};

use super::support::Rig;
use super::support::rig::privileged;
use super::{CLIENT, rig};

const OTHER: &str = "10.0.1.2:40001";
const SERVER: u8 = 2;
const WRAP_MS: u32 = 1 << 16;

/// RFC 7323, 5.2: an older timestamp than the last one taken is of an old segment.
fn taken_for_new(wire: u32, recent: u32) -> bool {
    wire.wrapping_sub(recent) as i32 >= 0
}

/// A balancer with this layout; the default one has four version bits.
fn with_version_bits(version_bits: u32) -> Rig {
    let mut rig = rig(3);
    let mut config = rig.config.clone();
    config.cookie.layout = Layout::new(version_bits).expect("in range");
    plimsoll_l4::detach(&config.pin_dir).expect("clean");
    let (balancer, _) = plimsoll_l4::Balancer::start_with(&config, keys()).expect("starts");
    rig.balancer = balancer;
    rig.config = config;
    rig
}

#[test]
fn a_transfer_over_many_wraps_never_looks_old_and_its_echoes_are_exact() {
    if !privileged() {
        return;
    }
    let rig = with_version_bits(4);
    // Five wraps, through the wrap of all 32 bits; segments a tenth to ten seconds apart.
    let mut real = 0u32.wrapping_sub(2 * WRAP_MS + 77);
    let mut recent = rig.hear(VIP, CLIENT, SERVER, real);
    let (mut gone_ms, mut step) = (0, 0);
    while gone_ms < 5 * WRAP_MS {
        let gap = [100, 1, 950, 10_000, 333][step % 5];
        (gone_ms, step, real) = (gone_ms + gap, step + 1, real.wrapping_add(gap));
        let wire = rig.hear(VIP, CLIENT, SERVER, real);
        assert!(taken_for_new(wire, recent), "{gone_ms} ms in");
        recent = wire;
        assert_eq!(rig.echo(VIP, CLIENT, SERVER, wire), real, "{gone_ms} ms in");
    }
    assert_eq!(rig.counted("foreign_cookie") + rig.counted("clock_unknown"), 0);
}

/// Lengths of silence up to this one: of every magnitude, and around each wrap.
fn silences(limit_ms: u32) -> impl Iterator<Item = u32> {
    let magnitudes = (0..32).map(|bit| 1u32 << bit);
    let wraps = (1..=limit_ms / WRAP_MS).flat_map(|n| [n * WRAP_MS - 1, n * WRAP_MS + 1]);
    let end = [limit_ms - 1000, limit_ms - 1];
    let all = magnitudes.chain((1..60).map(move |n| limit_ms / 60 * n)).chain(wraps).chain(end);
    all.filter(move |ms| *ms < limit_ms)
}

/// Connections that fall silent at different places within a wrap, while their server goes on serving
/// others: its next segment is new to the client, and an echo as old as the silence comes back exact.
#[test]
fn silent_connections_live_up_to_the_documented_limit_and_not_beyond() {
    if !privileged() {
        return;
    }
    for version_bits in [1, 2, 4, 6] {
        let rig = with_version_bits(version_bits);
        let limit_ms = rig.config.cookie.layout.silence_limit_ms() as u32;
        assert_eq!(limit_ms, 1 << (15 + version_bits));
        for start in [0, 1, WRAP_MS / 2, WRAP_MS - 1, 0x7fff_0000, 0xfffe_ffff] {
            for silence in silences(limit_ms) {
                let (stamped, now) = (start, silence.wrapping_add(start));
                let before = rig.hear(VIP, CLIENT, SERVER, stamped);
                rig.hear(VIP, OTHER, SERVER, now);
                let told = format!("n={version_bits}: {silence} ms from {start:#x}");
                assert_eq!(rig.echo(VIP, CLIENT, SERVER, before), stamped, "{told}");
                assert!(taken_for_new(rig.hear(VIP, CLIENT, SERVER, now), before), "{told}");
            }
            // From the limit on the client takes what is new for old: the limit is no smaller than documented.
            let before = rig.hear(VIP, CLIENT, SERVER, start);
            let late = rig.hear(VIP, CLIENT, SERVER, start.wrapping_add(limit_ms + 1));
            assert!(!taken_for_new(late, before), "n={version_bits} from {start:#x}");
        }
    }
}

/// Handshakes whose last ACK comes late, each connection beside those of two other servers.
#[test]
fn late_ends_of_handshakes_are_restored_to_the_millisecond() {
    if !privileged() {
        return;
    }
    let rig = with_version_bits(4);
    for (n, delay) in silences(60_000).enumerate() {
        let client = format!("10.0.1.2:{}", 20_000 + n);
        let stamped = 0x0123_ff00u32.wrapping_add(n as u32 * 7919);
        let answered = rig.hear(VIP, &client, SERVER, stamped);
        for other in [1, 3] {
            rig.hear(VIP, OTHER, other, stamped ^ 0x5555_0000);
        }
        rig.hear(VIP, OTHER, SERVER, stamped + delay);
        assert_eq!(rig.echo(VIP, &client, SERVER, answered), stamped, "{delay} ms late");
    }
    // Nothing goes another way; but what lets a minute pass in an instant moves the servers' clocks.
    let all = rig.reasons().expect("read").iter().sum::<u64>();
    assert_eq!(all, rig.counted("clock_moved"));
}
