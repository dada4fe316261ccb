//! What every connection has: a SYN, replies, later packets; and what is not the balancer's.

use plimsoll_cookie::{Epoch, ServerId};
use plimsoll_l4::BackendState;
use plimsoll_l4bench::packet::{
    ACK, DROP, FIN, PASS, REDIRECT, RST, SYN, Segment, intact, option, read_timestamps,
    syn_options, timestamps,
};
use plimsoll_l4bench::{Replies, SERVER_LEG_MAC, VIP, VIP6, keys, server_mac};

use super::support::Rig;
use super::support::rig::{at, privileged};
use super::{CLIENT, CLIENT6, codec, cookie, tuple};

/// Two servers; replies go by the kernel's routes.
fn two() -> Rig {
    Rig::new(plimsoll_l4::Policy::RoundRobin, 2, Replies::Asked)
}

#[test]
fn a_connection_goes_to_one_server_and_its_clock_comes_back() {
    if !privileged() {
        return;
    }
    let b = two();
    for (client, vip, header) in [(CLIENT, VIP, 20), (CLIENT6, VIP6, 40)] {
        let (verdict, out) =
            b.by_client(&Segment::new(client, vip, SYN, syn_options(5, 0)).bytes());
        assert_eq!(verdict, REDIRECT);
        let mac: [u8; 6] = out[..6].try_into().expect("six");
        assert!(mac == server_mac(1) || mac == server_mac(2), "{mac:?}");
        assert_eq!(out[6..12], SERVER_LEG_MAC, "the balancer's own address");
        assert_eq!(read_timestamps(&out, 26), (5, 0));
        assert!(intact(&out));

        // The server's answer gets its cookie; only the upper half of TSval changes, and the hop counts.
        let real = 0x1234_5678;
        let answer = Segment::new(vip, client, SYN | ACK, syn_options(real, 5)).sent_by(mac);
        let (verdict, back) = b.by_server(&answer.bytes());
        assert_eq!(verdict, REDIRECT);
        assert_eq!(back[..12], [2, 0, 0, 0, 1, 2, 2, 0, 0, 0, 1, 1]);
        assert!(intact(&back));
        let (wire, echo) = read_timestamps(&back, 26);
        let id = if mac == server_mac(1) { ServerId(1) } else { ServerId(2) };
        let expected =
            codec(&keys(), Epoch::Even).encode(id, &tuple(client, vip), real, Epoch::Even);
        assert_eq!(Some(wire), expected);
        assert_eq!(echo, 5);
        let mut hops = answer.bytes();
        let ttl = 14 + if header == 20 { 8 } else { 7 };
        assert_eq!(back[ttl], hops[ttl] - 1);
        hops.truncate(0);

        // The echo finds the server again and is put back to what the server sent.
        let (verdict, on) =
            b.by_client(&Segment::new(client, vip, ACK, timestamps(6, wire)).bytes());
        assert_eq!(verdict, REDIRECT);
        assert_eq!(on[..6], mac);
        assert_eq!(read_timestamps(&on, 22), (6, real));
        assert!(intact(&on));
    }
    assert_eq!(b.counted("slow_options"), 0);
}

#[test]
fn every_fallback_is_counted_and_goes_where_the_hash_says() {
    if !privileged() {
        return;
    }
    let mut b = two();
    // Without timestamps a connection goes by hash, from its SYN to its last packet.
    let (_, first) = b.by_client(&Segment::new(CLIENT, VIP, SYN, vec![2, 4, 5, 0xb4]).bytes());
    for flags in [ACK, ACK | FIN, RST] {
        let (verdict, out) = b.by_client(&Segment::new(CLIENT, VIP, flags, vec![]).bytes());
        assert_eq!((verdict, &out[..6]), (REDIRECT, &first[..6]));
    }
    assert_eq!((b.counted("syn_no_timestamp"), b.counted("no_timestamp")), (1, 3));
    // A foreign cookie: id 9 is no server's; and a salt that there is not.
    let foreign = cookie(CLIENT, VIP, 9, 77);
    for wire in [foreign, foreign | 1 << 27] {
        let (verdict, out) =
            b.by_client(&Segment::new(CLIENT, VIP, ACK, timestamps(1, wire)).bytes());
        assert_eq!((verdict, &out[..6]), (REDIRECT, &first[..6]));
        assert_eq!(read_timestamps(&out, 22), (1, wire), "left alone");
    }
    assert_eq!(b.counted("foreign_cookie"), 2);
    // A server not heard yet: its packet goes to it, with no echo.
    let unheard = Segment::new(CLIENT, VIP, ACK, timestamps(1, cookie(CLIENT, VIP, 2, 0x9_1234)));
    let (_, out) = b.by_client(&unheard.bytes());
    assert_eq!(out[..6], server_mac(2));
    assert_eq!(read_timestamps(&out, 22), (1, 0));
    assert!(intact(&out));
    assert_eq!(b.counted("clock_unknown"), 1);
    // Down: its cookies are stale.
    b.config.vips[0].backends[1].state = BackendState::Down;
    let config = b.config.clone();
    b.balancer.apply(&config).expect("applied");
    let (_, out) = b.by_client(&unheard.bytes());
    assert_eq!((&out[..6], out[47]), (&unheard.from_mac[..], RST));
    assert_eq!(b.counted("stale_cookie"), 1);
    // No server left.
    b.config.vips[0].backends[0].state = BackendState::Down;
    let config = b.config.clone();
    b.balancer.apply(&config).expect("applied");
    let syn = Segment::new(CLIENT, VIP, SYN, syn_options(1, 0));
    assert_eq!(b.by_client(&syn.bytes()).0, DROP);
    assert_eq!(b.counted("no_server"), 1);
}

#[test]
fn what_is_not_the_balancers_goes_to_the_kernel_untouched() {
    if !privileged() {
        return;
    }
    let b = two();
    let base = Segment::new(CLIENT, VIP, ACK, timestamps(1, 2));
    let other_host = Segment { to: at("10.0.9.8:80"), ..base.clone() };
    let reply = Segment::new(VIP, CLIENT, ACK, timestamps(1, 2)).sent_by(server_mac(1)).bytes();
    let tagged = |packet: &[u8], tags: &[u8]| [&packet[..12], tags, &packet[12..]].concat();
    let mut udp = other_host.bytes();
    udp[23] = 17;
    let mut header = base.bytes();
    header[14] = 0x44;
    let mut version = base.bytes();
    version[14] = 0x65;
    let spent = Segment { ttl: 1, ..Segment::new(VIP, CLIENT, ACK, timestamps(1, 2)) }
        .sent_by(server_mac(1));
    for (packet, reason) in [
        (other_host.bytes(), None),
        (tagged(&base.bytes(), &[0x81, 0, 0, 5]), Some("vlan")),
        (tagged(&base.bytes(), &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5]), Some("vlan")),
        (tagged(&reply, &[0x81, 0, 0, 5]), Some("vlan")),
        (udp, None),
        (header, Some("malformed")),
        (version, Some("malformed")),
        (other_host.bytes()[..40].to_vec(), Some("malformed")),
        (spent.bytes(), Some("ttl")),
    ] {
        let before = reason.map_or(0, |name| b.counted(name));
        let ran = b.balancer.run(&packet, b.clients).expect("runs");
        assert_eq!((ran.verdict, &ran.packet), (PASS, &packet), "{reason:?}");
        if let Some(name) = reason {
            assert_eq!(b.counted(name), before + 1, "{name}");
        }
    }
}

#[test]
fn reply_from_an_unknown_mac_address_does_not_leave_without_a_cookie() {
    if !privileged() {
        return;
    }
    let b = two();
    for (client, vip) in [(CLIENT, VIP), (CLIENT6, VIP6)] {
        for options in [timestamps(1, 2), syn_options(1, 2), vec![]] {
            let before = b.counted("unknown_source");
            let stranger = Segment::new(vip, client, ACK, options).sent_by([2, 9, 9, 9, 9, 9]);
            assert_eq!(b.by_server(&stranger.bytes()).0, DROP);
            assert_eq!(b.counted("unknown_source"), before + 1);
        }
    }
}

#[test]
fn options_in_every_order_are_found_and_lies_about_them_are_not_believed() {
    if !privileged() {
        return;
    }
    let b = two();
    let ts = |value| option(value, 5);
    let join = |parts: &[&[u8]]| {
        let mut bytes = parts.concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let real = 0x0077_1234;
    let layouts = [
        (join(&[&[1, 1], &ts(real)]), 22, false),
        (join(&[&[2, 4, 5, 0xb4, 4, 2], &ts(real), &[1, 3, 3, 7]]), 26, false),
        (join(&[&[2, 4, 5, 0xb4, 1, 1], &ts(real)]), 26, false),
        (join(&[&[2, 4, 5, 0xb4, 1, 3, 3, 6, 1, 1], &ts(real), &[4, 2]]), 30, false),
        (join(&[&[1, 1], &ts(real), &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]]), 22, false),
        // Beginning at an odd offset, where the checksum sees the bytes the other way round.
        (join(&[&[1, 3, 3, 7, 1], &ts(real)]), 25, true),
        (join(&[&ts(real), &[3, 3, 7]]), 20, true),
        (join(&[&[1; 29], &ts(real)]), 49, true),
        (join(&[&[30, 20], &[9; 18], &ts(real)]), 40, true),
    ];
    let wanted = cookie(CLIENT, VIP, 1, real);
    for (options, offset, slow) in layouts {
        let before = b.counted("slow_options");
        let segment = Segment::new(VIP, CLIENT, ACK, options.clone()).sent_by(server_mac(1));
        let (verdict, out) = b.by_server(&segment.bytes());
        assert_eq!(verdict, REDIRECT);
        assert_eq!(read_timestamps(&out, offset), (wanted, 5), "{options:?}");
        assert!(intact(&out), "{options:?}");
        assert_eq!(b.counted("slow_options") - before, u64::from(slow), "{options:?}");
    }
    for lie in [
        vec![8, 10, 0, 0],                         // ends before its length
        vec![8, 8, 0, 0, 0, 1, 0, 0],              // another length
        vec![30, 0, 8, 10, 0, 0, 0, 0],            // a length of nothing
        vec![30, 1, 8, 10, 0, 0, 0, 0],            // of less than itself
        vec![30, 255, 1, 1],                       // beyond the header
        vec![0, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0], // after the end of options
        vec![1, 1, 1, 8],                          // cut after its kind
        vec![1; 40],
    ] {
        let before = b.counted("reply_no_timestamp");
        let segment = Segment::new(VIP, CLIENT, ACK, lie.clone()).sent_by(server_mac(1));
        let (verdict, out) = b.by_server(&segment.bytes());
        assert_eq!(verdict, REDIRECT, "{lie:?}");
        assert!(intact(&out), "{lie:?}");
        assert_eq!(out[34..], segment.bytes()[34..], "not a byte of TCP changes: {lie:?}");
        assert_eq!(b.counted("reply_no_timestamp"), before + 1, "{lie:?}");
    }
}
