//! What is rare, and what is hostile: fragments, ICMP errors, malformed packets, forged cookies, floods,
//! and clocks that are not what they should be.

mod rig;

use plimsoll_cookie::{CookieCodec, Epoch, Layout, Salt, ServerId, Tuple};
use plimsoll_l4::bench::packet::{
    ACK, PASS, REDIRECT, SYN, Segment, checksum, intact, read_timestamps, syn_options, timestamps,
};
use plimsoll_l4::{Balancer, Keys, Limits, Policy, REASONS};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use rig::{Net, at, backend, config, keys, privileged, vip};

const CLIENT: &str = "10.0.1.2:40000";
const VIP: &str = "10.0.9.9:80";
const VIP6: &str = "[fd00:9::9]:80";
const CLIENT6: &str = "[fd00:1::2]:40000";
const VERDICTS: u32 = 4;

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 2, n]
}

/// A balancer on one leg, with servers s1, s2 … of MAC addresses 02:00:00:00:02:01 and on.
struct OneLeg {
    net: Net,
    balancer: Balancer,
    ifindex: u32,
}

fn one_leg(servers: u8) -> OneLeg {
    let net = Net::new(&["lb", "out"]);
    net.cable(
        ("lb", "leg", "02:00:00:00:01:01", "10.0.2.1/16"),
        ("out", "o0", "02:00:00:00:01:02", "10.0.2.254/16"),
    );
    net.exec("lb", "ip addr add fd00:2::ff/64 dev leg nodad");
    net.enter("lb");
    let four = (1..=servers).map(|n| backend(&format!("s{n}"), &format!("10.0.3.{n}"), mac(n)));
    let six = (1..=servers).map(|n| backend(&format!("s{n}"), &format!("fd00:2::{n:x}"), mac(n)));
    let mut config = config(&net, &["leg"], vip("shop", VIP, Policy::RoundRobin, four.collect()));
    config.vips.push(vip("shop6", VIP6, Policy::RoundRobin, six.collect()));
    // Replies need no route here.
    config.uplink = Some(plimsoll_l4::Uplink {
        interface: "leg".to_owned(),
        gateway: None,
        mac: Some([2, 0, 0, 0, 1, 2]),
    });
    config.limits = Limits { vips: 4, backends: 255, fragments: 64 };
    let (balancer, pending) = Balancer::start_with(&config, keys()).expect("starts");
    assert_eq!(pending.0, Vec::<String>::new());
    let links = plimsoll_l4::network::links().expect("links");
    let ifindex = links.iter().find(|link| link.name == "leg").expect("there").index;
    OneLeg { net, balancer, ifindex }
}

impl OneLeg {
    fn run(&self, packet: &[u8]) -> (u32, Vec<u8>) {
        let ran = self.balancer.run(packet, self.ifindex).expect("runs");
        (ran.verdict, ran.packet)
    }

    fn reason(&self, name: &str) -> u64 {
        let place = REASONS.iter().position(|one| *one == name).expect("a reason");
        (0..=4).map(|row| self.balancer.maps().reasons(row).expect("read")[place]).sum()
    }

    /// A reply of a server, which tells the program its clock.
    fn hear(&self, vip: &str, client: &str, server: u8, real: u32) -> u32 {
        let reply = Segment::new(vip, client, ACK, timestamps(real, 1)).sent_by(mac(server));
        let (verdict, out) = self.run(&reply.bytes());
        assert_eq!(verdict, REDIRECT);
        assert!(intact(&out));
        read_timestamps(&out, 22).0
    }
}

fn codec(keys: &Keys, epoch: Epoch) -> CookieCodec {
    let layout = Layout::default();
    let secret = keys.salts[epoch.bit() as usize].expect("a salt");
    CookieCodec::new(layout, epoch, Salt::derive(&secret, layout))
}

fn tuple(client: &str, vip: &str) -> Tuple {
    Tuple { client: at(client), vip: at(vip), protocol: 6 }
}

#[test]
fn later_fragments_follow_the_first() {
    if !privileged() {
        return;
    }
    let b = one_leg(8);
    let wire = b.hear(VIP, CLIENT, 5, 1_000_000);
    let whole = Segment::new(CLIENT, VIP, ACK, timestamps(9, wire)).bytes();
    let fragment = |flags: [u8; 2], from: usize, to: usize| {
        let mut bytes = whole[..34].to_vec();
        bytes.extend(&whole[34 + from..34 + to]);
        bytes[20..22].copy_from_slice(&flags);
        bytes[24..26].copy_from_slice(&[0, 0]);
        let sum = checksum(&[&bytes[14..34]]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let (verdict, _) = b.run(&fragment([0, 5], 32, 39));
    assert_eq!(verdict, PASS, "nothing is known of its first");
    let (verdict, out) = b.run(&fragment([0x20, 0], 0, 32));
    assert_eq!((verdict, &out[..6]), (REDIRECT, &mac(5)[..]));
    let (verdict, out) = b.run(&fragment([0, 4], 32, 39));
    assert_eq!((verdict, &out[..6]), (REDIRECT, &mac(5)[..]));
    assert_eq!(b.reason("fragment"), 1);
    b.net.leave();
}

/// An ICMPv4 error of a router, which quotes so many bytes of a reply.
fn icmp_error(reply: &[u8], quoted: usize) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 2, 8, 0];
    let length = (20 + 8 + quoted) as u16;
    packet.extend([0x45, 0]);
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 7, 7, 10, 0, 9, 9]);
    // Fragmentation needed, next-hop MTU 1400.
    packet.extend([3, 4, 0, 0, 0, 0, 5, 120]);
    packet.extend(&reply[14..14 + quoted]);
    packet
}

#[test]
fn an_icmp_error_reaches_the_server_it_is_about() {
    if !privileged() {
        return;
    }
    let b = one_leg(8);
    for server in 1..=8 {
        let reply = Segment::new(VIP, CLIENT, ACK, timestamps(7_000_000, 1)).sent_by(mac(server));
        let (_, sent) = b.run(&reply.bytes());
        let (verdict, out) = b.run(&icmp_error(&sent, 52));
        assert_eq!((verdict, &out[..6]), (REDIRECT, &mac(server)[..]));
        // With only 8 bytes of TCP no cookie comes back: one place, always the same.
        let (verdict, short) = b.run(&icmp_error(&sent, 28));
        let (_, again) = b.run(&icmp_error(&sent, 28));
        assert_eq!((verdict, &short[..6]), (REDIRECT, &again[..6]));
    }
    assert_eq!((b.reason("icmp"), b.reason("icmp_spread")), (8, 16));
    let mut echo = icmp_error(&Segment::new(VIP, CLIENT, ACK, timestamps(1, 1)).bytes(), 52);
    echo[34] = 8;
    assert_eq!(b.run(&echo).0, PASS, "a ping of the VIP");
    b.net.leave();
}

#[test]
fn no_malformed_packet_harms_the_program() {
    if !privileged() {
        return;
    }
    let b = one_leg(4);
    let mut rng = ChaCha20Rng::seed_from_u64(17);
    let seeds: Vec<Vec<u8>> = vec![
        Segment::new(CLIENT, VIP, ACK, timestamps(1, b.hear(VIP, CLIENT, 2, 77))).bytes(),
        Segment::new(CLIENT, VIP, SYN, syn_options(1, 0)).bytes(),
        Segment::new(CLIENT6, VIP6, ACK, timestamps(1, b.hear(VIP6, CLIENT6, 3, 77))).bytes(),
        Segment::new(VIP, CLIENT, SYN | ACK, syn_options(1, 2)).sent_by(mac(1)).bytes(),
        icmp_error(&Segment::new(VIP, CLIENT, ACK, timestamps(1, 1)).bytes(), 52),
    ];
    for round in 0..60_000 {
        let mut packet = seeds[round % seeds.len()].clone();
        for _ in 0..rng.random_range(0..5) {
            // Mostly in the headers, where it matters.
            let place = rng.random_range(12..packet.len());
            packet[place] = match rng.random_range(0..3) {
                0 => rng.random(),
                1 => packet[place] ^ (1 << rng.random_range(0..8)),
                _ => [0, 1, 2, 8, 10, 20, 40, 255][rng.random_range(0..8)],
            };
        }
        if rng.random_range(0..3) == 0 {
            packet.truncate(rng.random_range(14..=packet.len()));
        }
        let (verdict, out) = b.run(&packet);
        assert!((1..=VERDICTS).contains(&verdict), "aborted: {packet:02x?}");
        assert_eq!(out.len(), packet.len(), "{packet:02x?}");
        if verdict == REDIRECT {
            // Nothing leaves but to a server or the uplink.
            assert_eq!(out[..5], if out[4] == 1 { [2, 0, 0, 0, 1] } else { [2, 0, 0, 0, 2] });
            let changed = packet.iter().zip(&out).skip(12).filter(|(a, b)| a != b).count();
            assert!(changed <= 8, "TTL, two checksums, a timestamp: {packet:02x?} {out:02x?}");
        }
    }
    b.net.leave();
}

#[test]
fn forged_cookies_reach_every_server_alike_and_are_counted() {
    if !privileged() {
        return;
    }
    let b = one_leg(16);
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let mut hits = [0u32; 17];
    let rounds = 16_000u32;
    for _ in 0..rounds {
        let client = format!("11.{}.{}.9:{}", rng.random::<u8>(), rng.random::<u8>(), 1024);
        let forged = Segment::new(&client, VIP, ACK, timestamps(1, rng.random()));
        let (verdict, out) = b.run(&forged.bytes());
        assert_eq!(verdict, REDIRECT);
        hits[usize::from(out[5])] += 1;
    }
    // 1,000 each, deviation 31: six of them.
    assert!(hits[1..].iter().all(|hit| hit.abs_diff(1000) < 190), "{hits:?}");
    // 16 of 2,048 ids are in use in one of two epochs: 62 of 16,000 pass for valid.
    let caught = b.reason("foreign_cookie");
    assert!((u64::from(rounds) - caught).abs_diff(62) < 48, "{caught}");
    b.net.leave();
}

#[test]
fn a_flood_of_first_packets_leaves_a_connection_alone_and_fills_nothing() {
    if !privileged() {
        return;
    }
    let b = one_leg(4);
    let wire = b.hear(VIP, CLIENT, 3, 123_456_789);
    let mine = Segment::new(CLIENT, VIP, ACK, timestamps(9, wire)).bytes();
    let mut rng = ChaCha20Rng::seed_from_u64(6);
    for round in 0..20_000 {
        let client =
            format!("12.{}.{}.1:{}", rng.random::<u8>(), rng.random::<u8>(), rng.random::<u16>());
        b.run(&Segment::new(&client, VIP, SYN, syn_options(1, 0)).bytes());
        if round % 100 == 0 {
            let (verdict, out) = b.run(&mine);
            assert_eq!((verdict, &out[..6]), (REDIRECT, &mac(3)[..]));
            assert_eq!(read_timestamps(&out, 22), (9, 123_456_789));
        }
    }
    b.net.leave();
}

#[test]
fn a_salt_changes_at_each_servers_next_version_and_old_cookies_stay_good() {
    if !privileged() {
        return;
    }
    let mut b = one_leg(2);
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
        let (verdict, out) = b.run(&Segment::new(CLIENT, VIP, ACK, timestamps(9, wire)).bytes());
        assert_eq!((verdict, &out[..6]), (REDIRECT, &mac(1)[..]));
        assert_eq!(read_timestamps(&out, 22).1, real);
    }
    assert_eq!(b.reason("foreign_cookie"), 0);
    b.net.leave();
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
    let b = one_leg(2);
    let other = "10.0.1.2:40001";
    let echo = |client: &str, wire: u32| {
        let (verdict, out) = b.run(&Segment::new(client, VIP, ACK, timestamps(9, wire)).bytes());
        assert_eq!(
            (verdict, &out[..6]),
            (REDIRECT, &mac(1)[..]),
            "the cookie is right all the same"
        );
        read_timestamps(&out, 22).1
    };
    for (first, second, same) in
        [(0x1234_0000, 0x1234_0007, true), (0x1234_0000, 0x7abc_0007, false)]
    {
        let wire = b.hear(VIP, CLIENT, 1, first);
        let wire2 = b.hear(VIP, other, 1, second);
        assert_eq!(echo(other, wire2), second);
        assert_eq!(echo(CLIENT, wire) == first, same);
    }
    b.net.leave();
}
