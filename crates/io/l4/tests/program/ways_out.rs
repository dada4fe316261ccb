//! How a packet leaves: by a configured interface only, and on one arm by the way it came.

use plimsoll_cookie::{Epoch, ServerId};
use plimsoll_l4::{Mac, Policy};
use plimsoll_l4bench::packet::{
    ACK, PASS, REDIRECT, SYN, Segment, TX, intact, read_timestamps, syn_options, timestamps,
};
use plimsoll_l4bench::{CLIENT_MAC, Replies, VIP, VIP6, ifindex, keys, server_mac};

use super::support::rig::privileged;
use super::support::{ARM_MAC, Rig};
use super::{CLIENT, CLIENT6, codec, tuple};

#[test]
fn a_reply_by_an_interface_that_is_not_named_is_left_to_the_kernel() {
    if !privileged() {
        return;
    }
    let b = Rig::new(Policy::RoundRobin, 2, Replies::Asked);
    b.net.exec(
        "lb",
        "sh -c 'set -e
        ip link add other type veth peer name far; ip link set far up; ip link set other up
        ip addr add 10.77.0.1/24 dev other; ip addr add fd77::1/64 dev other nodad
        for hop in 10.77.0.2 fd77::2; do
            ip neigh replace $hop lladdr 02:00:00:00:77:02 dev other
        done'",
    );
    for (n, (client, named, vip)) in
        [("10.77.0.2:4000", CLIENT, VIP), ("[fd77::2]:4000", CLIENT6, VIP6)].into_iter().enumerate()
    {
        let real = 0x0042_4242;
        let reply =
            Segment::new(vip, client, ACK, timestamps(real, 1)).sent_by(server_mac(1)).bytes();
        let (verdict, out) = b.by_server(&reply);
        assert_eq!(verdict, PASS, "{client}");
        assert_eq!(out[..12], reply[..12], "the kernel sends it, with addresses of its own");
        let hops = if n == 0 { 22 } else { 21 };
        assert_eq!(out[hops], reply[hops], "the kernel counts the hop");
        let wanted =
            codec(&keys(), Epoch::Even).encode(ServerId(1), &tuple(client, vip), real, Epoch::Even);
        assert_eq!(Some(read_timestamps(&out, 22).0), wanted, "with its cookie all the same");
        assert!(intact(&out));
        assert_eq!(b.counted("no_route"), n as u64 + 1);

        let reply = Segment::new(vip, named, ACK, timestamps(real, 1)).sent_by(server_mac(1));
        assert_eq!(b.by_server(&reply.bytes()).0, REDIRECT, "{named}");
        assert_eq!(b.counted("no_route"), n as u64 + 1);
    }
}

#[test]
fn on_one_arm_packets_go_back_out_the_way_they_came() {
    if !privileged() {
        return;
    }
    let b = Rig::one_armed(Policy::RoundRobin, 2);
    let macs = |out: &[u8]| -> (Mac, Mac) {
        (out[..6].try_into().expect("six"), out[6..12].try_into().expect("six"))
    };
    for (client, vip) in [(CLIENT, VIP), (CLIENT6, VIP6)] {
        let (verdict, out) =
            b.by_client(&Segment::new(client, vip, SYN, syn_options(5, 0)).bytes());
        let (server, from) = macs(&out);
        assert_eq!((verdict, from), (TX, ARM_MAC));
        let id = [1, 2].into_iter().find(|id| server == server_mac(*id)).expect("a server");
        assert!(intact(&out));

        let real = 0x1234_5678;
        let reply = Segment::new(vip, client, ACK, timestamps(real, 5)).sent_by(server).bytes();
        let (verdict, out) = b.by_server(&reply);
        assert_eq!((verdict, macs(&out)), (TX, (CLIENT_MAC, ARM_MAC)));
        assert!(intact(&out));
        let (wire, echo) = read_timestamps(&out, 22);
        let id = ServerId(u16::from(id));
        let wanted = codec(&keys(), Epoch::Even).encode(id, &tuple(client, vip), real, Epoch::Even);
        assert_eq!((Some(wire), echo), (wanted, 5));

        let later = Segment::new(client, vip, ACK, timestamps(6, wire)).bytes();
        let (verdict, out) = b.by_client(&later);
        assert_eq!((verdict, macs(&out)), (TX, (server, ARM_MAC)));
        assert_eq!(read_timestamps(&out, 22), (6, real));
        assert!(intact(&out));

        // By another interface it came: out of the arm, then, is no way back.
        let lo = ifindex("lo").expect("there");
        let ran = b.balancer.run(&later, lo).expect("runs");
        assert_eq!((ran.verdict, macs(&ran.packet)), (REDIRECT, (server, ARM_MAC)));
    }
}
