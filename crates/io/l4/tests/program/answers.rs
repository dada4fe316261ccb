//! What is sent to a VIP's address and is no service's does not go round between router and balancer; pings
//! are answered; a connection whose server is down is reset.

use plimsoll_l4::{BackendState, MemberState, status};
use plimsoll_l4bench::packet::{
    ACK, DROP, FIN, PASS, REDIRECT, RST, SYN, Segment, intact, ping, syn_options, timestamps,
};
use plimsoll_l4bench::{VIP, VIP6, server_mac};

use super::support::Rig;
use super::support::rig::{at, privileged};
use super::{CLIENT, CLIENT6, cookie, rig};

/// One of each kind that is no service's, to both VIPs' addresses.
fn of_no_service() -> Vec<(&'static str, Vec<u8>)> {
    let mut packets = Vec::new();
    for (client, vip, other) in [(CLIENT, VIP, "10.0.9.9:81"), (CLIENT6, VIP6, "[fd00:9::9]:81")] {
        let to = |flags, options| {
            Segment { to: at(other), ..Segment::new(client, vip, flags, options) }.bytes()
        };
        packets.push(("a first packet to another port", to(SYN, syn_options(1, 0))));
        packets.push(("a later one", to(ACK, timestamps(1, 2))));
        let next = if client == CLIENT { 23 } else { 20 };
        let mut udp = to(ACK, timestamps(1, 2));
        udp[next] = 17;
        packets.push(("UDP", udp));
        let (from, to) = (at(client).ip().to_string(), at(vip).ip().to_string());
        let (reply, odd) = if client == CLIENT { (0, 8) } else { (129, 128) };
        packets.push(("an answer to a ping", ping(&from, &to, reply, 0)));
        packets.push(("a ping with a code", ping(&from, &to, odd, 1)));
        packets.push(("an error about nothing", ping(&from, &to, 3, 0)));
    }
    // Behind an extension header, which the balancer does not read.
    let mut behind = Segment::new(CLIENT6, VIP6, ACK, timestamps(1, 2)).bytes();
    behind[20] = 0;
    behind.splice(54..54, [6, 0, 1, 4, 0, 0, 0, 0]);
    packets.push(("behind a hop-by-hop header", behind));
    packets
}

#[test]
fn what_is_no_services_is_dropped_and_counted_at_a_vips_address_alone() {
    if !privileged() {
        return;
    }
    let mut b = rig(2);
    for (dropped, (what, packet)) in of_no_service().into_iter().enumerate() {
        let (verdict, out) = b.by_client(&packet);
        assert_eq!((verdict, &out), (DROP, &packet), "{what}");
        assert_eq!(b.counted("no_service"), dropped as u64 + 1, "{what}");
        // The same to the next address, which is no machine's.
        let mut next = packet;
        let last = if next[12] == 8 { 33 } else { 53 };
        next[last] += 1;
        assert_eq!(b.by_client(&next).0, PASS, "{what}, to another address");
    }
    let counted = b.counted("no_service");
    assert_eq!(counted, of_no_service().len() as u64);
    // What is asked on the link is the kernel's to answer.
    assert_eq!(b.by_client(&ping("fd00:1::2", "fd00:9::9", 135, 0)).0, PASS);
    assert_eq!(b.by_client(&ping("fd00:1::2", "fd00:9::9", 136, 0)).0, PASS);
    // An address of the machine's own is used for more than the service, such as to log in.
    b.net.exec("lb", "ip addr add 10.0.9.9/32 dev lo");
    b.net.exec("lb", "ip addr add fd00:9::9/128 dev lo nodad");
    b.balancer.refresh().expect("refreshes");
    for (what, packet) in of_no_service() {
        assert_eq!(b.by_client(&packet).0, PASS, "{what}");
    }
    assert_eq!(b.by_client(&ping("10.0.1.2", "10.0.9.9", 8, 0)).0, PASS);
    assert_eq!((b.counted("no_service"), b.counted("echo")), (counted, 0));
}

#[test]
fn a_ping_of_a_vip_is_answered() {
    if !privileged() {
        return;
    }
    let b = rig(2);
    for (n, (from, to, ask, answer)) in
        [("10.0.1.2", "10.0.9.9", 8, 0), ("fd00:1::2", "fd00:9::9", 128, 129)]
            .into_iter()
            .enumerate()
    {
        let asked = ping(from, to, ask, 0);
        let (verdict, out) = b.by_client(&asked);
        assert_eq!(verdict, REDIRECT, "back by the interface it came by");
        let mut expected = ping(to, from, answer, 0);
        expected[..6].copy_from_slice(&asked[6..12]);
        expected[6..12].copy_from_slice(&asked[..6]);
        let hops = if ask == 8 { 22 } else { 21 };
        expected[hops] = 64;
        expected[24..26].copy_from_slice(&out[24..26]);
        assert_eq!(out, expected);
        assert!(intact(&out));
        assert_eq!(b.counted("echo"), n as u64 + 1);
    }
    let mut piece = ping("10.0.1.2", "10.0.9.9", 8, 0);
    piece[20] = 0x20;
    assert_eq!(b.by_client(&piece).0, DROP, "a fragment of one");
}

impl Rig {
    fn set_states(&mut self, state: BackendState) {
        for vip in &mut self.config.vips {
            vip.backends.iter_mut().for_each(|backend| backend.state = state);
        }
        let config = self.config.clone();
        self.balancer.apply(&config).expect("applied");
    }
}

#[test]
fn a_connection_whose_server_is_down_is_reset_by_the_balancer() {
    if !privileged() {
        return;
    }
    let mut b = rig(2);
    for (client, vip) in [(CLIENT, VIP), (CLIENT6, VIP6)] {
        b.begin(client, vip, 1, syn_options(1, 0));
    }
    assert_eq!(b.connections(), (2, 2));
    // No server is left that could reset them.
    b.set_states(BackendState::Down);
    for (client, vip) in [(CLIENT, VIP), (CLIENT6, VIP6)] {
        let echo = timestamps(9, cookie(client, vip, 1, 0x1234_5678));
        let later = Segment::new(client, vip, ACK, echo.clone());
        // One that begins NOP NOP TS, and one whose options are walked.
        let walked = [&[1, 3, 3, 7][..], &echo[1..], &[1]].concat();
        for options in [echo.clone(), walked] {
            let before = b.counted("stale_cookie");
            let packet = Segment { options, ..later.clone() }.bytes();
            let (verdict, out) = b.by_client(&packet);
            assert_eq!(verdict, REDIRECT, "back by the interface it came by");
            assert_eq!((&out[..6], &out[6..12]), (&packet[6..12], &packet[..6]));
            assert!(intact(&out));
            let mut expected = Segment::new(vip, client, RST, vec![]);
            expected.payload.clear();
            let expected = expected.bytes();
            let ip = if client == CLIENT { 20 } else { 40 };
            let tcp = 14 + ip;
            assert_eq!(out.len(), (tcp + 20).max(60), "what Ethernet pads to");
            assert_eq!(out[12..14], expected[12..14]);
            assert_eq!(out[tcp - ip / 20 * 8..tcp + 4], expected[tcp - ip / 20 * 8..tcp + 4]);
            assert_eq!(out[tcp + 4..tcp + 8], packet[tcp + 8..tcp + 12], "what it expects next");
            assert_eq!(out[tcp + 8..tcp + 16], [0, 0, 0, 0, 0x50, RST, 0, 0]);
            assert_eq!(b.counted("stale_cookie"), before + 1);
        }
        // Neither a RST nor what acknowledges nothing is answered.
        for flags in [RST, RST | ACK, FIN, 0] {
            let silent = Segment { flags, ..later.clone() }.bytes();
            assert_eq!(b.by_client(&silent).0, DROP, "flags {flags}");
        }
    }
    assert_eq!(b.connections(), (2, 0), "they have ended");
    b.set_states(BackendState::Up);
    let (verdict, out) = b.by_client(
        &Segment::new(CLIENT, VIP, ACK, timestamps(9, cookie(CLIENT, VIP, 1, 7))).bytes(),
    );
    assert_eq!((verdict, &out[..6]), (REDIRECT, &server_mac(1)[..]));
}

#[test]
fn a_connection_whose_server_is_not_found_yet_waits() {
    if !privileged() {
        return;
    }
    let mut b = rig(2);
    let mut config = b.config.clone();
    // Another balancer's connection; this one has just started and waits for the neighbour's answer.
    let mut unknown = config.vips[0].backends[0].clone();
    unknown.name = "new".to_owned();
    unknown.address = [10, 0, 2, 77].into();
    unknown.mac = None;
    config.vips[0].backends.push(unknown);
    b.balancer.apply(&config).expect("applied");
    let seen = status(&b.net.pins()).expect("status");
    let new = seen.vips[0].backends.iter().find(|one| one.name == "new").expect("there");
    assert_eq!(new.state, MemberState::Lost);
    let id = u16::try_from(new.id).expect("an id");
    let later = Segment::new(CLIENT, VIP, ACK, timestamps(9, cookie(CLIENT, VIP, id, 7))).bytes();
    assert_eq!(b.by_client(&later), (DROP, later));
    assert_eq!((b.counted("no_port"), b.counted("stale_cookie")), (1, 0));
}
