//! Packets that contradict themselves, by the ten thousand, through the program. Whatever comes in: the
//! verdict is one of three, what leaves goes to a server, to the client's next hop, or as an answer to the one that
//! sent it, what the kernel gets is untouched, what is dropped was sent to a VIP's address, no more than the
//! fields in question change, and the counters account for it.

use plimsoll_l4::lab::MemberCount;
use plimsoll_l4::xdp::Ran;
use plimsoll_l4::{Mac, Policy, REASONS};
use plimsoll_l4bench::packet::{
    ACK, DROP, FIN, PASS, REDIRECT, RST, SYN, Segment, TX, icmp_error, ping, syn_options,
    timestamps,
};
use plimsoll_l4bench::{
    CLIENT_LEG_MAC, CLIENT_MAC, Connection, Replies, SERVER_LEG_MAC, VIP, VIP6, server_mac,
};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::support::rig::privileged;
use super::support::{ARM_MAC, Rig};

const SERVERS: u8 = 4;
const PACKETS: usize = 30_000;
const CLIENT: &str = "172.16.0.1:40000";
const CLIENT6: &str = "[fd00:1::2]:40000";
/// To the kernel, each for one of these or because it is not the balancer's at all.
const PASSED: [&str; 5] = ["no_route", "fragment_lost", "malformed", "vlan", "ttl"];
/// Dropped for one of these.
const DROPPED: [&str; 6] =
    ["no_server", "no_port", "no_service", "unknown_source", "fragment_lost", "malformed"];

/// Reads counters before and after a packet: both services' and the row of those without one.
struct Counters {
    reasons: [u64; REASONS.len()],
    forwarded: u64,
}

impl Counters {
    fn read(rig: &Rig) -> Counters {
        let maps = rig.balancer.maps();
        let mut reasons = [0; REASONS.len()];
        for row in [0, 1, maps.meta().vips] {
            for (sum, one) in reasons.iter_mut().zip(maps.reasons(row).expect("read")) {
                *sum += one;
            }
        }
        let places = (0..2 * maps.meta().stride)
            .filter(|place| (1..=u32::from(SERVERS)).contains(&(place % maps.meta().stride)));
        let counts = places.map(|place| maps.count(place).expect("read"));
        let forwarded = counts
            .map(|MemberCount { packets_in, packets_out, .. }| packets_in + packets_out)
            .sum();
        Counters { reasons, forwarded }
    }

    fn since(&self, before: &Counters, names: &[&str]) -> u64 {
        let places = REASONS.iter().enumerate().filter(|(_, name)| names.contains(name));
        places.map(|(place, _)| self.reasons[place] - before.reasons[place]).sum()
    }
}

fn with_ipv4_options(packet: &[u8], words: u8) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes[14] = 0x40 | (5 + words);
    bytes.splice(34..34, vec![1; 4 * usize::from(words)]);
    let length = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Puts an extension header between IPv6 and TCP.
fn with_extension(packet: &[u8], kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    let next = std::mem::replace(&mut bytes[20], kind);
    let mut header = vec![next];
    header.extend(body);
    bytes.splice(54..54, header);
    let length = (bytes.len() - 54) as u16;
    bytes[18..20].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn with_fragment(packet: &[u8], field: u16) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes[20..22].copy_from_slice(&field.to_be_bytes());
    bytes
}

fn with_tags(packet: &[u8], kinds: &[u16]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    for kind in kinds {
        let [high, low] = kind.to_be_bytes();
        bytes.splice(12..12, [high, low, 0, 5]);
    }
    bytes
}

/// Whole packets of every kind, with the interface they come in by.
fn bases(rig: &Rig) -> Vec<(Vec<u8>, u32)> {
    let mut connection = Connection::open(rig, CLIENT.to_owned()).expect("opens");
    assert!(connection.reply(rig, 0x1234_5678).expect("runs"));
    let cookie = timestamps(3, connection.wire);
    let mut bases = Vec::new();
    for (client, vip) in [(CLIENT, VIP), (CLIENT6, VIP6)] {
        let mut whole = vec![
            Segment::new(client, vip, SYN, syn_options(1, 0)).bytes(),
            Segment::new(client, vip, SYN, vec![2, 4, 5, 0xb4]).bytes(),
        ];
        for flags in [ACK, ACK | FIN, RST, SYN | ACK, 0, 0xff] {
            whole.push(Segment::new(client, vip, flags, cookie.clone()).bytes());
        }
        let reply = Segment::new(vip, client, ACK, cookie.clone()).sent_by(server_mac(1)).bytes();
        let stranger = Segment::new(vip, client, ACK, cookie.clone()).bytes();
        // What a router on the way to the client has seen.
        let seen = Segment::new(vip, client, ACK, timestamps(connection.wire, 3)).bytes();
        let ack = whole[2].clone();
        if client == CLIENT {
            whole.extend([1, 4, 10].map(|words| with_ipv4_options(&ack, words)));
            whole.extend([0x2000, 0x2001, 0x0001, 0x1fff].map(|field| with_fragment(&ack, field)));
        } else {
            for kind in [0, 43, 51, 60, 135] {
                whole.push(with_extension(&ack, kind, &[0, 1, 4, 0, 0, 0, 0]));
            }
            for offset in [1u8, 0, 8, 9] {
                whole.push(with_extension(&ack, 44, &[0, 0, offset, 0, 0, 0, 9]));
            }
        }
        for tags in [&[0x8100][..], &[0x8100, 0x88a8], &[0x88a8]] {
            whole.push(with_tags(&ack, tags));
        }
        for quoted in [0, 4, 8, 20, 31, 32, 100] {
            let kinds = if client == CLIENT { [3, 11, 12, 0] } else { [1, 2, 3, 135] };
            whole.extend(kinds.map(|kind| icmp_error(&seen, kind, 4, quoted)));
        }
        let (kind, from, to) = if client == CLIENT {
            (8, "172.16.0.1", "10.0.9.9")
        } else {
            (128, "fd00:1::2", "fd00:9::9")
        };
        whole.push(ping(from, to, kind, 0));
        bases.extend(whole.into_iter().map(|packet| (packet, rig.clients)));
        let spent = Segment { ttl: 1, ..Segment::new(vip, client, ACK, cookie.clone()) };
        let spent = spent.sent_by(server_mac(1)).bytes();
        bases.extend([reply, stranger, spent].map(|packet| (packet, rig.servers)));
    }
    bases
}

/// Spoils a packet in one to three ways.
fn spoil(packet: &mut Vec<u8>, rng: &mut ChaCha20Rng) {
    for _ in 0..rng.random_range(1..=3) {
        let length = packet.len();
        match rng.random_range(0..6) {
            0 => packet.truncate(rng.random_range(14..=length.max(14))),
            1 => {
                let at = rng.random_range(12..length);
                packet[at] = rng.random();
            }
            2 => {
                let at = rng.random_range(12..length);
                packet[at] ^= 1 << rng.random_range(0..8);
            }
            // Options at random, behind a header that is as long as they say, or not.
            3 if length > 60 => {
                let tcp = if packet[12] == 8 { 34 } else { 54 };
                let end = length.min(tcp + 60);
                if let Some(options) = packet.get_mut(tcp + 20..end) {
                    for byte in options {
                        *byte = [0, 1, 2, 3, 4, 8, 10, 255, rng.random()][rng.random_range(0..9)];
                    }
                    packet[tcp + 12] = rng.random_range(0..16) << 4;
                }
            }
            // A length that lies: of IPv4, its header, IPv6.
            4 => {
                let at = [14, 16, 17, 18, 19][rng.random_range(0..5)].min(length - 1);
                packet[at] = rng.random();
            }
            _ => {
                let mut tail = vec![0; rng.random_range(1..64)];
                rng.fill_bytes(&mut tail);
                packet.extend(tail);
            }
        }
    }
}

/// Whether a segment contradicts itself: `tcp` is where it begins, `end` where it ends by IP.
fn is_malformed(packet: &[u8], tcp: usize, end: usize) -> bool {
    let (header, flags) = (usize::from(packet[tcp + 12] >> 4) * 4, packet[tcp + 13]);
    header < 20
        || tcp + header > end
        || end > packet.len()
        || (flags & SYN != 0 && flags & (FIN | RST) != 0)
}

/// Whether this is what the balancer must not let pass: all headers there and in order, to a VIP.
fn is_ours(packet: &[u8]) -> bool {
    let vip4 = packet.len() >= 54
        && packet[12..15] == [8, 0, 0x45]
        && packet[20] & 0x3f == 0
        && packet[21] == 0
        && packet[23] == 6
        && packet[30..34] == [10, 0, 9, 9]
        && packet[36..38] == [0, 80]
        && !is_malformed(packet, 34, 14 + usize::from(packet[16]) * 256 + usize::from(packet[17]));
    let vip6 = packet.len() >= 74
        && packet[12..14] == [0x86, 0xdd]
        && packet[20] == 6
        && packet[38..54] == [0xfd, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]
        && packet[56..58] == [0, 80]
        && !is_malformed(packet, 54, 54 + usize::from(packet[18]) * 256 + usize::from(packet[19]));
    vip4 || vip6
}

/// Whether a packet is sent to a VIP's address, for whatever there.
fn is_to_a_vip(packet: &[u8]) -> bool {
    let vip6 = [0xfd, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    match packet[12..14] {
        [8, 0] => packet.get(30..34) == Some(&[10, 0, 9, 9]),
        [0x86, 0xdd] => packet.get(38..54) == Some(&vip6),
        _ => false,
    }
}

/// What forwarding looks like.
struct Forwarded {
    verdict: u32,
    towards_servers: Mac,
    towards_clients: Mac,
}

fn check(packet: &[u8], ran: &Ran, before: &Counters, after: &Counters, way: &Forwarded) {
    let (forwarded, answered) =
        (after.forwarded - before.forwarded, after.since(before, &["echo"]));
    let (passed, dropped) = (after.since(before, &PASSED), after.since(before, &DROPPED));
    assert_eq!(ran.packet.len(), packet.len(), "{packet:?}");
    let as_counted = match ran.verdict {
        verdict if verdict == way.verdict => (forwarded + answered, passed, dropped) == (1, 0, 0),
        DROP => (forwarded + answered, dropped) == (0, 1),
        PASS => (forwarded + answered, passed) == (0, passed.min(1)),
        other => panic!("verdict {other}: {packet:?}"),
    };
    let counted = (forwarded, answered, passed, dropped);
    assert!(as_counted, "verdict {}, counted {counted:?}: {packet:?}", ran.verdict);
    if ran.verdict != way.verdict {
        assert_eq!(ran.packet, packet, "untouched");
        assert!(!is_ours(packet), "let pass or dropped: {packet:?}");
        let is_stranger = after.since(before, &["unknown_source"]) == 1;
        assert!(ran.verdict == PASS || is_stranger || is_to_a_vip(packet), "dropped: {packet:?}");
        return;
    }
    if answered > 0 {
        let ends = (&ran.packet[..6], &ran.packet[6..12]);
        assert_eq!(ends, (&packet[6..12], &packet[..6]), "{packet:?}");
        assert!(is_to_a_vip(packet), "{packet:?}");
        return;
    }
    let to_server = (1..=SERVERS).any(|n| ran.packet[..6] == server_mac(n))
        && ran.packet[6..12] == way.towards_servers;
    let to_client = ran.packet[..6] == CLIENT_MAC && ran.packet[6..12] == way.towards_clients;
    assert!(to_server || to_client, "{:?}: {packet:?}", &ran.packet[..12]);
    // One timestamp, at most whole; the TCP checksum; a hop and its checksum.
    let changed = packet.iter().zip(&ran.packet).skip(12).filter(|(a, b)| a != b).count();
    assert!(changed <= if to_server { 6 } else { 7 }, "{changed} bytes: {packet:?}");
}

#[test]
fn whatever_comes_in_the_program_keeps_its_promises() {
    if !privileged() {
        return;
    }
    let rig = Rig::new(Policy::RoundRobin, SERVERS, Replies::Uplink);
    let way = Forwarded {
        verdict: REDIRECT,
        towards_servers: SERVER_LEG_MAC,
        towards_clients: CLIENT_LEG_MAC,
    };
    keeps_its_promises(&rig, &way, PACKETS);
}

#[test]
fn on_one_arm_it_keeps_them_too() {
    if !privileged() {
        return;
    }
    let rig = Rig::one_armed(Policy::RoundRobin, SERVERS);
    let way = Forwarded { verdict: TX, towards_servers: ARM_MAC, towards_clients: ARM_MAC };
    keeps_its_promises(&rig, &way, PACKETS / 3);
}

fn keeps_its_promises(rig: &Rig, way: &Forwarded, packets: usize) {
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let bases = bases(rig);
    let mut verdicts = [0usize; 5];
    let mut before = Counters::read(rig);
    let whole = bases.iter().cloned();
    let spoilt = (0..packets).map(|n| {
        let (mut packet, ifindex) = bases[n % bases.len()].clone();
        spoil(&mut packet, &mut rng);
        (packet, ifindex)
    });
    for (packet, ifindex) in whole.chain(spoilt) {
        let ran = rig.balancer.run(&packet, ifindex).expect("runs");
        let after = Counters::read(rig);
        check(&packet, &ran, &before, &after, way);
        verdicts[ran.verdict as usize] += 1;
        before = after;
    }
    // The packets were of every kind, or nothing was tried.
    assert!(verdicts[PASS as usize] > packets / 10, "{verdicts:?}");
    assert!(verdicts[way.verdict as usize] > packets / 10, "{verdicts:?}");
    let tried = [
        "slow_options",
        "no_service",
        "echo",
        "icmp",
        "icmp_spread",
        "fragment",
        "fragment_lost",
        "vlan",
    ];
    for name in tried.iter().chain(&[
        "foreign_cookie",
        "no_timestamp",
        "malformed",
        "unknown_source",
        "ttl",
    ]) {
        let place = REASONS.iter().position(|one| one == name).expect("a reason");
        assert!(before.reasons[place] > 0, "{name} was never met");
    }
}
