//! Segments whose headers contradict themselves: counted as such, and no connection's.

use plimsoll_l4bench::packet::{ACK, DROP, FIN, PASS, REDIRECT, RST, SYN, Segment, timestamps};
use plimsoll_l4bench::{VIP, VIP6, server_mac};

use super::support::rig::privileged;
use super::{CLIENT, CLIENT6, rig};

/// A packet with one byte more or another one.
fn with(packet: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes[at] = byte;
    bytes
}

#[test]
fn lengths_and_flags_that_contradict_each_other_are_malformed() {
    if !privileged() {
        return;
    }
    let b = rig(4);
    let (mut malformed, before) = (0, b.counted("no_timestamp"));
    for (client, vip, ip) in [(CLIENT, VIP, 20), (CLIENT6, VIP6, 40)] {
        let tcp = 14 + ip;
        let length = if ip == 20 { 17 } else { 19 };
        // 20 bytes of header; 28, which end in unknown options; and those of a SYN.
        let plain = Segment::new(client, vip, ACK, vec![]).bytes();
        let odd = Segment::new(client, vip, ACK, vec![30, 8, 0, 0, 0, 0, 0, 0]).bytes();
        let syn = |flags| Segment::new(client, vip, flags, timestamps(1, 0)).bytes();
        let reply = |flags, options| Segment::new(vip, client, flags, options).bytes();
        let mut cases = vec![
            ("data offset 2", with(&plain, tcp + 12, 0x20)),
            ("data offset 0", with(&plain, tcp + 12, 0)),
            ("header beyond the packet", with(&plain, tcp + 12, 0xf0)),
            ("header beyond IP's length", with(&odd, length, odd[length] - 8)),
            ("IP ends within its own header", with(&plain, length, 0)),
            ("IP says more than came", with(&plain, length, plain[length] + 1)),
            ("SYN and FIN", syn(SYN | FIN)),
            ("SYN and RST", syn(SYN | RST)),
            ("SYN, FIN and RST", syn(SYN | FIN | RST)),
        ];
        for (what, flags) in [("a reply: SYN and RST", SYN | RST), ("SYN, ACK and FIN", 0x13)] {
            let mut reply = reply(flags, timestamps(1, 2));
            reply[6..12].copy_from_slice(&server_mac(1));
            cases.push((what, reply));
        }
        for (what, packet) in cases {
            let (verdict, out) = b.by_client(&packet);
            let expected = if packet[6..12] == server_mac(1) { PASS } else { DROP };
            assert_eq!((verdict, &out), (expected, &packet), "{what}, to {vip}");
            malformed += 1;
            assert_eq!(b.counted("malformed"), malformed, "{what}, to {vip}");
        }
        // The same without the lie.
        for packet in [plain, odd, syn(SYN)] {
            assert_eq!(b.by_client(&packet).0, REDIRECT, "to {vip}");
        }
    }
    assert_eq!(b.counted("malformed"), malformed);
    assert_eq!(b.counted("no_timestamp") - before, 4);
    assert_eq!(b.connections(), (2, 2), "only the two that are no lie began");
}
