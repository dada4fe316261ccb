//! Packets into the real program, and what comes out.

mod rig;

use plimsoll_cookie::{CookieCodec, Epoch, Layout, Salt, ServerId, Tuple};
use plimsoll_l4::bench::packet::{
    ACK, DROP, FIN, PASS, REDIRECT, RST, SYN, Segment, intact, option, read_timestamps,
    syn_options, timestamps,
};
use plimsoll_l4::{Backend, BackendState, Balancer, Keys, L4Config, Policy, REASONS};
use rig::{Net, at, backend, config, keys, privileged, vip};

const S1: [u8; 6] = [2, 0, 0, 0, 2, 2];
const S2: [u8; 6] = [2, 0, 0, 0, 2, 3];
const CLIENT: &str = "10.0.1.2:40000";
const VIP: &str = "10.0.9.9:80";
const CLIENT6: &str = "[fd00:1::2]:40000";
const VIP6: &str = "[fd00:9::9]:80";

/// A balancer with a leg to clients and one to servers.
struct Bench {
    net: Net,
    balancer: Balancer,
    config: L4Config,
}

fn bench(policy: Policy, servers: Vec<Backend>) -> Bench {
    let net = Net::new(&["lb", "out"]);
    net.cable(
        ("lb", "lbc", "02:00:00:00:01:01", "10.0.1.1/24"),
        ("out", "c0", "02:00:00:00:01:02", "10.0.1.2/24"),
    );
    net.cable(
        ("lb", "lbs", "02:00:00:00:02:01", "10.0.2.1/24"),
        ("out", "s0", "02:00:00:00:02:99", "10.0.2.99/24"),
    );
    for address in ["fd00:1::1/64 dev lbc", "fd00:2::ff/64 dev lbs"] {
        net.exec("lb", &format!("ip addr add {address} nodad"));
    }
    net.exec("lb", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    for entry in ["10.0.1.2", "fd00:1::2"] {
        net.exec("lb", &format!("ip neigh replace {entry} lladdr 02:00:00:00:01:02 dev lbc"));
    }
    net.enter("lb");
    let mut config = config(&net, &["lbc", "lbs"], vip("shop", VIP, policy, servers.clone()));
    let six = servers.into_iter().map(|one| Backend {
        address: format!("fd00:2::{}", one.name.trim_start_matches('s')).parse().expect("address"),
        ..one
    });
    config.vips.push(vip("shop6", VIP6, policy, six.collect()));
    let (balancer, pending) = Balancer::start_with(&config, keys()).expect("starts");
    assert_eq!(pending.0, Vec::<String>::new());
    Bench { net, balancer, config }
}

fn two() -> Vec<Backend> {
    vec![backend("s1", "10.0.2.2", S1), backend("s2", "10.0.2.3", S2)]
}

impl Bench {
    fn ifindex(&self, name: &str) -> u32 {
        let links = plimsoll_l4::network::links().expect("links");
        links.iter().find(|link| link.name == name).expect("there").index
    }

    /// Sends a packet in by the clients' leg.
    fn in_client(&self, segment: &Segment) -> (u32, Vec<u8>) {
        let ran = self.balancer.run(&segment.bytes(), self.ifindex("lbc")).expect("runs");
        (ran.verdict, ran.packet)
    }

    fn in_server(&self, segment: &Segment) -> (u32, Vec<u8>) {
        let ran = self.balancer.run(&segment.bytes(), self.ifindex("lbs")).expect("runs");
        (ran.verdict, ran.packet)
    }

    fn reason(&self, name: &str) -> u64 {
        let place = REASONS.iter().position(|one| *one == name).expect("a reason");
        let rows = 0..=self.balancer.maps().meta().vips;
        rows.map(|row| self.balancer.maps().reasons(row).expect("read")[place]).sum()
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
fn a_connection_goes_to_one_server_and_its_clock_comes_back() {
    if !privileged() {
        return;
    }
    let b = bench(Policy::RoundRobin, two());
    for (client, vip, header) in [(CLIENT, VIP, 20), (CLIENT6, VIP6, 40)] {
        let (verdict, out) = b.in_client(&Segment::new(client, vip, SYN, syn_options(5, 0)));
        assert_eq!(verdict, REDIRECT);
        let mac: [u8; 6] = out[..6].try_into().expect("six");
        assert!(mac == S1 || mac == S2, "{mac:?}");
        assert_eq!(out[6..12], [2, 0, 0, 0, 2, 1], "the balancer's own address");
        assert_eq!(read_timestamps(&out, 26), (5, 0));
        assert!(intact(&out));

        // The server's answer gets its cookie; only the upper half of TSval changes, and the hop counts.
        let real = 0x1234_5678;
        let answer = Segment::new(vip, client, SYN | ACK, syn_options(real, 5)).sent_by(mac);
        let (verdict, back) = b.in_server(&answer);
        assert_eq!(verdict, REDIRECT);
        assert_eq!(back[..12], [2, 0, 0, 0, 1, 2, 2, 0, 0, 0, 1, 1]);
        assert!(intact(&back));
        let (wire, echo) = read_timestamps(&back, 26);
        let id = if mac == S1 { ServerId(1) } else { ServerId(2) };
        let expected =
            codec(&keys(), Epoch::Even).encode(id, &tuple(client, vip), real, Epoch::Even);
        assert_eq!(Some(wire), expected);
        assert_eq!(echo, 5);
        let mut hops = answer.bytes();
        let ttl = 14 + if header == 20 { 8 } else { 7 };
        assert_eq!(back[ttl], hops[ttl] - 1);
        hops.truncate(0);

        // The echo finds the server again and is put back to what the server sent.
        let (verdict, on) = b.in_client(&Segment::new(client, vip, ACK, timestamps(6, wire)));
        assert_eq!(verdict, REDIRECT);
        assert_eq!(on[..6], mac);
        assert_eq!(read_timestamps(&on, 22), (6, real));
        assert!(intact(&on));
    }
    assert_eq!(b.reason("slow_options"), 0);
    b.net.leave();
}

#[test]
fn the_program_passes_every_vector() {
    if !privileged() {
        return;
    }
    let text = include_str!("../../../logic/cookie/tests/vectors.csv");
    let mut tried = 0;
    let net = Net::new(&["lb", "out"]);
    net.cable(
        ("lb", "lbs", "02:00:00:00:02:01", "10.0.2.1/24"),
        ("out", "s0", "02:00:00:00:02:99", "10.0.2.99/24"),
    );
    net.enter("lb");
    let ifindex = plimsoll_l4::network::links().expect("links");
    let ifindex = ifindex.iter().find(|link| link.name == "lbs").expect("there").index;
    for line in text.lines().skip(1).filter(|line| line.split(',').nth(1) == Some("4")) {
        let field: Vec<&str> = line.split(',').collect();
        let (id, real, wire): (u16, u32, u32) = (
            field[5].parse().expect("id"),
            field[6].parse().expect("real"),
            field[7].parse().expect("wire"),
        );
        let mut secret = [0; 32];
        for (place, byte) in secret.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&field[0][2 * place..2 * place + 2], 16).expect("hex");
        }
        let epoch = Epoch::from_bit(field[2].parse().expect("bit"));
        let mut salts = [None, None];
        salts[epoch.bit() as usize] = Some(secret);
        let keys = Keys { epoch, since_unix_ms: 0, salts, spread: [1; 32] };
        let mut server = backend("s1", "10.0.2.2", S1);
        server.id = Some(id);
        let mut config =
            config(&net, &["lbs"], vip("shop", field[4], Policy::RoundRobin, vec![server]));
        config.limits.backends = 2047;
        config.limits.vips = 1;
        plimsoll_l4::detach(&net.pins()).expect("clean");
        let (balancer, _) = Balancer::start_with(&config, keys).expect("starts");
        let reply = Segment::new(field[4], field[3], ACK, timestamps(real, 9)).sent_by(S1);
        let ran = balancer.run(&reply.bytes(), ifindex).expect("runs");
        assert_eq!(read_timestamps(&ran.packet, 22).0, wire, "{line}");
        let back = Segment::new(field[3], field[4], ACK, timestamps(9, wire));
        let ran = balancer.run(&back.bytes(), ifindex).expect("runs");
        assert_eq!(ran.packet[..6], S1, "{line}");
        assert_eq!(read_timestamps(&ran.packet, 22).1, real, "{line}");
        tried += 1;
    }
    assert_eq!(tried, 40);
}

/// A cookie of server `id` for a connection, stamped `real`.
fn cookie(client: &str, vip: &str, id: u16, real: u32) -> u32 {
    codec(&keys(), Epoch::Even)
        .encode(ServerId(id), &tuple(client, vip), real, Epoch::Even)
        .expect("a salt")
}

#[test]
fn every_fallback_is_counted_and_goes_where_the_hash_says() {
    if !privileged() {
        return;
    }
    let mut b = bench(Policy::RoundRobin, two());
    // Without timestamps a connection goes by hash, from its first packet to its last.
    let (_, first) = b.in_client(&Segment::new(CLIENT, VIP, SYN, vec![2, 4, 5, 0xb4]));
    for flags in [ACK, ACK | FIN, RST] {
        let (verdict, out) = b.in_client(&Segment::new(CLIENT, VIP, flags, vec![]));
        assert_eq!((verdict, &out[..6]), (REDIRECT, &first[..6]));
    }
    assert_eq!((b.reason("syn_no_timestamp"), b.reason("no_timestamp")), (1, 3));
    // A foreign cookie: id 9 is nobody's; and a salt that there is not.
    let foreign = cookie(CLIENT, VIP, 9, 77);
    for wire in [foreign, foreign | 1 << 27] {
        let (verdict, out) = b.in_client(&Segment::new(CLIENT, VIP, ACK, timestamps(1, wire)));
        assert_eq!((verdict, &out[..6]), (REDIRECT, &first[..6]));
        assert_eq!(read_timestamps(&out, 22), (1, wire), "left alone");
    }
    assert_eq!(b.reason("foreign_cookie"), 2);
    // A server not heard yet: its packet goes to it, with no echo.
    let unheard = Segment::new(CLIENT, VIP, ACK, timestamps(1, cookie(CLIENT, VIP, 2, 0x9_1234)));
    let (_, out) = b.in_client(&unheard);
    assert_eq!(out[..6], S2);
    assert_eq!(read_timestamps(&out, 22), (1, 0));
    assert!(intact(&out));
    assert_eq!(b.reason("clock_unknown"), 1);
    // Down: its cookies are stale, and the other server, which knows nothing of them, resets.
    b.config.vips[0].backends[1].state = BackendState::Down;
    b.balancer.apply(&b.config.clone()).expect("applied");
    let (_, out) = b.in_client(&unheard);
    assert_eq!(out[..6], S1);
    assert_eq!(b.reason("stale_cookie"), 1);
    // Nobody left.
    b.config.vips[0].backends[0].state = BackendState::Down;
    b.balancer.apply(&b.config.clone()).expect("applied");
    let syn = Segment::new(CLIENT, VIP, SYN, syn_options(1, 0));
    assert_eq!(b.in_client(&syn).0, DROP);
    assert_eq!(b.reason("no_server"), 1);
    b.net.leave();
}

#[test]
fn what_is_not_the_balancers_goes_to_the_kernel_untouched() {
    if !privileged() {
        return;
    }
    let b = bench(Policy::RoundRobin, two());
    let base = Segment::new(CLIENT, VIP, ACK, timestamps(1, 2));
    let other_port = Segment { to: at("10.0.9.9:81"), ..base.clone() };
    let other_host = Segment { to: at("10.0.9.8:80"), ..base.clone() };
    let mut vlan = base.bytes();
    vlan.splice(12..12, [0x81, 0, 0, 5]);
    let mut udp = base.bytes();
    udp[23] = 17;
    let mut header = base.bytes();
    header[14] = 0x44;
    let mut version = base.bytes();
    version[14] = 0x65;
    let stranger = Segment::new(VIP, CLIENT, ACK, timestamps(1, 2)).sent_by([2, 9, 9, 9, 9, 9]);
    let spent = Segment { ttl: 1, ..Segment::new(VIP, CLIENT, ACK, timestamps(1, 2)) }.sent_by(S1);
    for (packet, reason) in [
        (other_port.bytes(), None),
        (other_host.bytes(), None),
        (vlan, Some("vlan")),
        (udp, None),
        (header, Some("malformed")),
        (version, Some("malformed")),
        (base.bytes()[..40].to_vec(), Some("malformed")),
        (stranger.bytes(), Some("unknown_source")),
        (spent.bytes(), Some("ttl")),
    ] {
        let before = reason.map_or(0, |name| b.reason(name));
        let ran = b.balancer.run(&packet, b.ifindex("lbc")).expect("runs");
        assert_eq!((ran.verdict, &ran.packet), (PASS, &packet), "{reason:?}");
        if let Some(name) = reason {
            assert_eq!(b.reason(name), before + 1, "{name}");
        }
    }
    b.net.leave();
}

#[test]
fn options_in_every_order_are_found_and_lies_about_them_are_not_believed() {
    if !privileged() {
        return;
    }
    let b = bench(Policy::RoundRobin, two());
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
        let before = b.reason("slow_options");
        let segment = Segment::new(VIP, CLIENT, ACK, options.clone()).sent_by(S1);
        let (verdict, out) = b.in_server(&segment);
        assert_eq!(verdict, REDIRECT);
        assert_eq!(read_timestamps(&out, offset), (wanted, 5), "{options:?}");
        assert!(intact(&out), "{options:?}");
        assert_eq!(b.reason("slow_options") - before, u64::from(slow), "{options:?}");
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
        let before = b.reason("reply_no_timestamp");
        let segment = Segment::new(VIP, CLIENT, ACK, lie.clone()).sent_by(S1);
        let (verdict, out) = b.in_server(&segment);
        assert_eq!(verdict, REDIRECT, "{lie:?}");
        assert!(intact(&out), "{lie:?}");
        assert_eq!(out[34..], segment.bytes()[34..], "not a byte of TCP changes: {lie:?}");
        assert_eq!(b.reason("reply_no_timestamp"), before + 1, "{lie:?}");
    }
    b.net.leave();
}
