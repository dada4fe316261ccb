//! What is rare, by IPv6: fragments and ICMPv6 errors.

use plimsoll_l4bench::packet::{
    ACK, DROP, PASS, REDIRECT, SYN, Segment, icmp_error, syn_options, timestamps,
};
use plimsoll_l4bench::{VIP6, server_mac};

use super::support::rig::privileged;
use super::{CLIENT6, rig};

/// A piece of a packet's payload, as `field` (offset, and 1 for more) says.
fn fragment(whole: &[u8], id: u32, field: u16, piece: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = whole[..54].to_vec();
    bytes[18..20].copy_from_slice(&(8 + piece.len() as u16).to_be_bytes());
    bytes[20] = 44;
    bytes.extend([6, 0]);
    bytes.extend(field.to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend(&whole[54..][piece]);
    bytes
}

#[test]
fn later_fragments_follow_the_first() {
    if !privileged() {
        return;
    }
    let b = rig(8);
    for (server, id) in [(5, 77), (2, 78)] {
        let wire = b.hear(VIP6, CLIENT6, server, 1_000_000);
        let whole = Segment::new(CLIENT6, VIP6, ACK, timestamps(9, wire)).bytes();
        let lost = b.counted("fragment_lost");
        assert_eq!(b.by_client(&fragment(&whole, id, 32, 32..39)).0, DROP, "its first is unknown");
        assert_eq!(b.counted("fragment_lost"), lost + 1);
        for (field, piece) in [(1, 0..32), (32, 32..39)] {
            let (verdict, out) = b.by_client(&fragment(&whole, id, field, piece));
            assert_eq!((verdict, &out[..6]), (REDIRECT, &server_mac(server)[..]), "{field}");
        }
    }
    // Another packet's, of the same connection.
    let whole = Segment::new(CLIENT6, VIP6, ACK, timestamps(9, 1)).bytes();
    assert_eq!(b.by_client(&fragment(&whole, 79, 32, 32..39)).0, DROP);
    assert_eq!(b.counted("fragment"), 2);
}

#[test]
fn an_icmp_error_reaches_the_server_it_is_about() {
    if !privileged() {
        return;
    }
    let b = rig(8);
    // Destination unreachable, packet too big, time exceeded.
    for kind in [1, 2, 3] {
        for server in 1..=8 {
            let reply = Segment::new(VIP6, CLIENT6, ACK, timestamps(7_000_000, 1));
            let (_, sent) = b.by_server(&reply.sent_by(server_mac(server)).bytes());
            let (verdict, out) = b.by_client(&icmp_error(&sent, kind, 0, 32));
            assert_eq!((verdict, &out[..6]), (REDIRECT, &server_mac(server)[..]), "type {kind}");
            // With only 8 bytes of TCP no cookie comes back: one place, always the same.
            let (verdict, short) = b.by_client(&icmp_error(&sent, kind, 0, 8));
            let (_, again) = b.by_client(&icmp_error(&sent, kind, 0, 8));
            assert_eq!((verdict, &short[..6]), (REDIRECT, &again[..6]));
        }
    }
    assert_eq!((b.counted("icmp"), b.counted("icmp_spread")), (24, 48));
    let reply = Segment::new(VIP6, CLIENT6, ACK, timestamps(1, 1)).bytes();
    let mut told_another = icmp_error(&reply, 2, 0, 32);
    told_another[53] = 8;
    assert_eq!(b.by_client(&told_another).0, PASS, "not the VIP whose packet is quoted");
    assert_eq!((b.counted("icmp"), b.counted("icmp_spread")), (24, 48));
    for (kind, what) in [(135, PASS), (5, DROP)] {
        assert_eq!(b.by_client(&icmp_error(&reply, kind, 0, 32)).0, what, "no error");
    }
}

#[test]
fn an_error_about_an_answer_to_a_first_packet_finds_its_server_too() {
    if !privileged() {
        return;
    }
    let b = rig(8);
    for server in 1..=8 {
        let answer = Segment::new(VIP6, CLIENT6, SYN | ACK, syn_options(7_000_000, 1));
        let (_, sent) = b.by_server(&answer.sent_by(server_mac(server)).bytes());
        let (verdict, out) = b.by_client(&icmp_error(&sent, 2, 0, 40));
        assert_eq!((verdict, &out[..6]), (REDIRECT, &server_mac(server)[..]));
    }
    assert_eq!((b.counted("icmp"), b.counted("icmp_spread")), (8, 0));
}
