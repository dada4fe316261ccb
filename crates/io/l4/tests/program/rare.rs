//! What is rare: fragments, ICMP errors, a salt that changes, and clocks that are not what they should be.
//! What is hostile is in `attacks`.

use plimsoll_cookie::{Epoch, ServerId};
use plimsoll_l4::{Balancer, Keys, status};
use plimsoll_l4bench::packet::{
    ACK, DROP, PASS, REDIRECT, SYN, Segment, checksum, icmp_error, syn_options, timestamps,
};
use plimsoll_l4bench::{VIP, keys, server_mac};

use super::support::rig::privileged;
use super::{CLIENT, codec, rig, tuple};

#[test]
fn later_fragments_follow_the_first() {
    if !privileged() {
        return;
    }
    let b = rig(8);
    let wire = b.hear(VIP, CLIENT, 5, 1_000_000);
    let whole = Segment::new(CLIENT, VIP, ACK, timestamps(9, wire)).bytes();
    let fragment = |flags: [u8; 2], from: usize, to: usize| {
        let mut bytes = whole[..34].to_vec();
        bytes.extend(&whole[34 + from..34 + to]);
        bytes[16..18].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
        bytes[20..22].copy_from_slice(&flags);
        bytes[24..26].copy_from_slice(&[0, 0]);
        let sum = checksum(&[&bytes[14..34]]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let (verdict, _) = b.by_client(&fragment([0, 5], 32, 39));
    assert_eq!(verdict, DROP, "nothing is known of its first");
    assert_eq!(b.counted("fragment_lost"), 1);
    let (verdict, out) = b.by_client(&fragment([0x20, 0], 0, 32));
    assert_eq!((verdict, &out[..6]), (REDIRECT, &server_mac(5)[..]));
    let (verdict, out) = b.by_client(&fragment([0, 4], 32, 39));
    assert_eq!((verdict, &out[..6]), (REDIRECT, &server_mac(5)[..]));
    assert_eq!(b.counted("fragment"), 1);
}

#[test]
fn an_icmp_error_reaches_the_server_it_is_about() {
    if !privileged() {
        return;
    }
    let b = rig(8);
    for server in 1..=8 {
        let reply =
            Segment::new(VIP, CLIENT, ACK, timestamps(7_000_000, 1)).sent_by(server_mac(server));
        let (_, sent) = b.by_server(&reply.bytes());
        let (verdict, out) = b.by_client(&icmp_error(&sent, 3, 4, 32));
        assert_eq!((verdict, &out[..6]), (REDIRECT, &server_mac(server)[..]));
        assert_eq!(out[12..], icmp_error(&sent, 3, 4, 32)[12..], "as it came");
        // With only 8 bytes of TCP no cookie comes back: one place, always the same.
        let (verdict, short) = b.by_client(&icmp_error(&sent, 3, 4, 8));
        let (_, again) = b.by_client(&icmp_error(&sent, 3, 4, 8));
        assert_eq!((verdict, &short[..6]), (REDIRECT, &again[..6]));
    }
    assert_eq!((b.counted("icmp"), b.counted("icmp_spread")), (8, 16));
    // More options than are quoted, behind the timestamps; and the whole of an answer to a SYN,
    // which has them elsewhere.
    let more = [timestamps(7_000_000, 1), vec![1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat();
    for (flags, options, quoted) in [(ACK, more, 32), (SYN | ACK, syn_options(7_000_000, 1), 40)] {
        let reply = Segment::new(VIP, CLIENT, flags, options).sent_by(server_mac(6));
        let (_, sent) = b.by_server(&reply.bytes());
        let (verdict, out) = b.by_client(&icmp_error(&sent, 3, 4, quoted));
        assert_eq!((verdict, &out[..6]), (REDIRECT, &server_mac(6)[..]), "flags {flags}");
    }
    assert_eq!((b.counted("icmp"), b.counted("icmp_spread")), (10, 16));
    // Sent to another address than the VIP whose packet is quoted; and in the middle of a packet.
    let reply = Segment::new(VIP, CLIENT, ACK, timestamps(7_000_000, 1)).sent_by(server_mac(6));
    let (_, sent) = b.by_server(&reply.bytes());
    let good = icmp_error(&sent, 3, 4, 32);
    for (at, byte, verdict) in [(33, 8, PASS), (21, 2, DROP)] {
        let mut odd = good.clone();
        odd[at] = byte;
        assert_eq!(b.by_client(&odd), (verdict, odd));
    }
    assert_eq!((b.counted("icmp"), b.counted("icmp_spread")), (10, 16));
}

#[test]
fn a_salt_changes_at_each_servers_next_version_and_old_cookies_stay_good() {
    if !privileged() {
        return;
    }
    let mut b = rig(2);
    // 768 ms before its next version, which comes while the offset still holds.
    let before = b.hear(VIP, CLIENT, 1, 0x0003_fd00);
    let next = keys().rotated(plimsoll_now()).expect("random");
    b.balancer.set_keys(next.clone()).expect("set");
    let id = ServerId(1);
    // Within the same version nothing changes: the client would see time run backwards.
    assert_eq!(b.hear(VIP, CLIENT, 1, 0x0003_fd10), before + 0x10);
    let later = b.hear(VIP, CLIENT, 1, 0x0004_0010);
    let expected =
        codec(&next, Epoch::Odd).encode(id, &tuple(CLIENT, VIP), 0x0004_0010, Epoch::Odd);
    assert_eq!(Some(later), expected);
    assert!((later.wrapping_sub(before) as i32) > 0);
    for (wire, real) in [(before, 0x0003_fd00), (later, 0x0004_0010)] {
        assert_eq!(b.echo(VIP, CLIENT, 1, wire), real);
    }
    assert_eq!(b.counted("foreign_cookie"), 0);
    // A daemon that starts over when the clock on the wall was put back an hour: for it the change is yet
    // to come. What was written stays in force, or the client would see time run backwards.
    let later_by_that_clock = Keys { since_unix_ms: next.since_unix_ms + 3_600_000, ..next };
    let again = Balancer::start_with(&b.config, later_by_that_clock).expect("starts");
    assert_eq!(b.hear(VIP, CLIENT, 1, 0x0004_0020), later + 0x10);
    drop(again);
}

fn plimsoll_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_millis() as u64
}

#[test]
fn a_server_with_random_offsets_gets_wrong_echoes() {
    if !privileged() {
        return;
    }
    // `tcp_timestamps=1`: every connection of a server has a clock of its own. The second one's reply
    // teaches the program another offset, and the first one's echo comes back wrong. With `=2` both
    // share one clock and come back right.
    let b = rig(2);
    let other = "10.0.1.2:40001";
    let echo = |client: &str, wire: u32| b.echo(VIP, client, 1, wire);
    for (first, second, same) in
        [(0x1234_0000, 0x1234_0007, true), (0x1234_0000, 0x7abc_0007, false)]
    {
        let wire = b.hear(VIP, CLIENT, 1, first);
        let wire2 = b.hear(VIP, other, 1, second);
        assert_eq!(echo(other, wire2), second);
        assert_eq!(echo(CLIENT, wire) == first, same);
        assert_eq!(b.counted("clock_moved"), u64::from(!same), "the server's clock has moved");
    }
    let seen = status(&b.net.pins()).expect("status");
    let moved: Vec<u64> = seen.vips[0].backends.iter().map(|one| one.clock_moved).collect();
    assert_eq!(moved, [1, 0], "and it is told whose");
}
