//! Connections that are open, as `plimsoll l4 status` shows them: what is sent again is counted once, and
//! what belongs to no connection not at all.

use plimsoll_l4::{Policy, status};
use plimsoll_l4bench::packet::{ACK, FIN, RST, SYN, Segment, syn_options, timestamps};
use plimsoll_l4bench::{VIP, VIP6, server_mac};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::support::Rig;
use super::support::rig::privileged;
use super::{CLIENT, CLIENT6, cookie, rig};

/// A SYN's options.
const NO_TIMESTAMPS: [u8; 4] = [2, 4, 5, 0xb4];

impl Rig {
    /// New and open connections, over all servers.
    pub fn connections(&self) -> (u64, u64) {
        let seen = status(&self.net.pins()).expect("status");
        let all = seen.vips.iter().flat_map(|vip| &vip.backends);
        all.fold((0, 0), |(new, open), one| {
            (new + one.new_connections, open + one.open_connections)
        })
    }

    /// New and open connections of each server of the first service.
    fn by_server_id(&self) -> Vec<(u64, u64)> {
        let seen = status(&self.net.pins()).expect("status");
        let all = seen.vips[0].backends.iter();
        all.map(|one| (one.new_connections, one.open_connections)).collect()
    }

    /// A client's SYN: its server.
    pub fn begin(&self, client: &str, vip: &str, sequence: u32, options: Vec<u8>) -> u8 {
        let mut syn = Segment::new(client, vip, SYN, options).bytes();
        let at = if syn[12] == 8 { 38 } else { 58 };
        syn[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        self.by_client(&syn).1[5]
    }

    fn client_says(&self, client: &str, vip: &str, flags: u8, server: u8) {
        let options = timestamps(2, cookie(client, vip, u16::from(server), 0x1234_5678));
        self.by_client(&Segment::new(client, vip, flags, options).bytes());
    }

    /// With a sequence number, where no cookie shows whose it is.
    fn client_sends(&self, client: &str, vip: &str, flags: u8, sequence: u32, options: Vec<u8>) {
        let mut packet = Segment::new(client, vip, flags, options).bytes();
        let at = if packet[12] == 8 { 38 } else { 58 };
        packet[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        self.by_client(&packet);
    }

    fn server_says(&self, client: &str, vip: &str, flags: u8, server: u8, options: Vec<u8>) {
        let segment = Segment::new(vip, client, flags, options).sent_by(server_mac(server));
        self.by_server(&segment.bytes());
    }
}

#[test]
fn what_is_sent_again_is_counted_once() {
    if !privileged() {
        return;
    }
    let b = rig(4);
    let mut new = 0;
    for (client, vip) in [(CLIENT, VIP), (CLIENT6, VIP6)] {
        // By turns each of these SYNs goes to another server: the last one has the connection.
        let servers: Vec<u8> = (0..3).map(|_| b.begin(client, vip, 1, syn_options(1, 0))).collect();
        new += 1;
        assert_eq!(b.connections(), (new, 1), "SYNs to {servers:?}");
        for flags in [ACK | FIN, ACK | FIN, RST, RST] {
            b.client_says(client, vip, flags, servers[2]);
            assert_eq!(b.connections(), (new, 0), "flags {flags}");
        }
        // A reset from either side; the other's, and a FIN, after it.
        let server = b.begin(client, vip, 2, syn_options(1, 0));
        b.server_says(client, vip, RST | ACK, server, timestamps(9, 9));
        b.client_says(client, vip, RST, server);
        b.client_says(client, vip, ACK | FIN, server);
        new += 1;
        assert_eq!(b.connections(), (new, 0), "a reset");
        // The end of one was not seen, and its client's port is used again.
        b.begin(client, vip, 3, syn_options(1, 0));
        let server = b.begin(client, vip, 4, syn_options(5, 0));
        new += 2;
        assert_eq!(b.connections(), (new, 1), "a port used again");
        b.client_says(client, vip, ACK | FIN, server);
        assert_eq!(b.connections(), (new, 0));
    }
}

#[test]
fn a_first_packet_that_is_sent_again_is_counted_where_it_goes_now() {
    if !privileged() {
        return;
    }
    let b = rig(4);
    for client in (0..20).map(|n| format!("10.0.1.9:{}", 4000 + n)) {
        let before = b.by_server_id();
        let servers: Vec<u8> =
            (0..3).map(|_| b.begin(&client, VIP, 7, syn_options(1, 0))).collect();
        assert!(servers[0] != servers[1] && servers[1] != servers[2], "{servers:?}");
        let mut expected = before;
        let last = &mut expected[usize::from(servers[2]) - 1];
        *last = (last.0 + 1, last.1 + 1);
        assert_eq!(b.by_server_id(), expected, "SYNs to {servers:?}");
    }
}

#[test]
fn what_shows_no_connection_ends_none_but_its_own() {
    if !privileged() {
        return;
    }
    let b = rig(4);
    let others: Vec<String> = (0..8).map(|n| format!("10.0.1.{}:4000", 10 + n)).collect();
    for other in &others {
        b.begin(other, VIP, 1, syn_options(1, 0));
    }
    assert_eq!(b.connections(), (8, 8));
    // Resets without timestamps, of connections that there are not: a scan, and what servers answer to it.
    for port in 1..200 {
        let stranger = format!("10.0.7.7:{port}");
        b.by_client(&Segment::new(&stranger, VIP, RST, vec![]).bytes());
        b.server_says(&stranger, VIP, RST, 1 + (port % 4) as u8, vec![]);
    }
    assert_eq!(b.connections(), (8, 8));
    // Cookies that happen to be right, of no connection: a guess makes no server look idle.
    for port in 1..200 {
        let stranger = format!("10.0.7.7:{port}");
        let flags = if port % 2 == 0 { ACK | FIN } else { RST };
        b.client_says(&stranger, VIP, flags, 1 + (port % 4) as u8);
        b.server_says(&stranger, VIP, RST | ACK, 1 + (port % 4) as u8, timestamps(9, 9));
    }
    assert_eq!(b.connections(), (8, 8));
    // Without timestamps altogether.
    let plain = "10.0.7.8:99";
    let server = b.begin(plain, VIP, 1, NO_TIMESTAMPS.to_vec());
    assert_eq!(b.connections(), (9, 9));
    b.server_says(plain, VIP, RST, server, vec![]);
    assert_eq!(b.connections(), (9, 8));
}

#[test]
fn fin_or_rst_without_a_valid_cookie_does_not_change_the_load_of_a_server() {
    if !privileged() {
        return;
    }
    let b = rig(4);
    for (client, vip) in [(CLIENT, VIP), (CLIENT6, VIP6)] {
        let before = b.by_server_id();
        let server = b.begin(client, vip, 0x1122_3344, syn_options(1, 0));
        let plain = client.replace("40000", "40001");
        let plain_server = b.begin(&plain, vip, 0x1122_3344, NO_TIMESTAMPS.to_vec());
        let open = b.connections();
        for flags in [FIN | ACK, RST, RST | ACK] {
            for client in [client, &plain] {
                b.client_sends(client, vip, flags, 0, vec![]);
                b.client_sends(client, vip, flags, 0x9922_3345, vec![]);
                // An id that is no server's.
                let foreign = timestamps(2, cookie(client, vip, 99, 0x1234_5678));
                b.client_sends(client, vip, flags, 0x1122_3345, foreign);
            }
            b.client_sends(client, vip, flags, 0x1122_3345, vec![]);
        }
        b.client_sends(&plain, vip, FIN | ACK, 0x1122_3345, vec![]);
        assert_eq!(b.connections(), open, "the servers have said nothing");
        b.server_says(client, vip, FIN | ACK, server, timestamps(9, 9));
        b.server_says(&plain, vip, FIN | ACK, plain_server, vec![]);
        let sum = |counts: Vec<(u64, u64)>| counts.iter().map(|one| one.1).sum::<u64>();
        assert_eq!(sum(b.by_server_id()), sum(before), "the servers' FINs end them");
    }
}

#[test]
fn rst_of_a_client_without_timestamps_ends_its_connection_by_its_sequence_number() {
    if !privileged() {
        return;
    }
    let b = rig(4);
    for (n, sequence) in [0, 0x1122_3344, 0xffff_fff0u32].into_iter().enumerate() {
        let client = format!("10.0.1.2:{}", 40_100 + n);
        b.begin(&client, VIP, sequence, NO_TIMESTAMPS.to_vec());
        for far in [1u32 << 31, 1 << 26, 0u32.wrapping_sub(1 << 26)] {
            b.client_sends(&client, VIP, RST, sequence.wrapping_add(far), vec![]);
        }
        assert_eq!(b.connections(), (n as u64 + 1, 1));
        b.client_sends(&client, VIP, RST, sequence.wrapping_add(10_000), vec![]);
        assert_eq!(b.connections(), (n as u64 + 1, 0));
    }
}

#[test]
fn half_open_connections_of_spoofed_syns_count_no_longer_once_their_server_repeats_its_syn_ack() {
    if !privileged() {
        return;
    }
    let b = rig(4);
    let spoofed: Vec<String> = (0..40).map(|n| format!("198.51.100.{n}:7")).collect();
    let servers: Vec<u8> =
        spoofed.iter().map(|one| b.begin(one, VIP, 5, syn_options(1, 0))).collect();
    let true_one = b.begin(CLIENT, VIP, 5, syn_options(1, 0));
    b.server_says(CLIENT, VIP, SYN | ACK, true_one, syn_options(9, 1));
    let answer = || {
        for (client, server) in spoofed.iter().zip(&servers) {
            b.server_says(client, VIP, SYN | ACK, *server, syn_options(9, 1));
        }
    };
    answer();
    assert_eq!(b.connections().1, 41, "as any that begins");
    answer();
    assert_eq!(b.connections().1, 1);
    answer();
    b.server_says(CLIENT, VIP, ACK, true_one, timestamps(10, 2));
    assert_eq!(b.connections().1, 1);
    // A SYN that is sent again and goes elsewhere: the first server's answer to it says nothing of the second.
    let other = "10.0.1.2:40001";
    let [first, second] = [(); 2].map(|()| b.begin(other, VIP, 6, syn_options(1, 0)));
    for server in [second, first, first] {
        b.server_says(other, VIP, SYN | ACK, server, syn_options(9, 1));
    }
    assert_eq!(b.connections().1, 2);
    // One that was late after all begins again.
    b.begin(&spoofed[0], VIP, 5, syn_options(1, 0));
    assert_eq!(b.connections().1, 3);
}

#[test]
fn spoofed_syns_are_no_traffic_to_the_controller_and_what_it_reads_never_falls() {
    if !privileged() {
        return;
    }
    let mut b = rig(4);
    let name = b.config.vips[0].name.clone();
    let begun = |b: &mut Rig| {
        let reading = b.balancer.reading(&name).expect("read");
        reading.servers.iter().map(|one| one.new_connections).sum::<u64>()
    };
    let flood = |b: &Rig, third: u8| {
        let spoofed: Vec<String> = (0..40).map(|n| format!("198.51.{third}.{n}:7")).collect();
        let servers: Vec<u8> =
            spoofed.iter().map(|one| b.begin(one, VIP, 5, syn_options(1, 0))).collect();
        (spoofed, servers)
    };
    let give_up = |b: &Rig, (spoofed, servers): (Vec<String>, Vec<u8>)| {
        for _ in 0..2 {
            for (client, server) in spoofed.iter().zip(&servers) {
                b.server_says(client, VIP, SYN | ACK, *server, syn_options(9, 1));
            }
        }
    };
    let first = flood(&b, 1);
    assert_eq!(begun(&mut b), 40, "as long as nothing else is known");
    give_up(&b, first);
    assert_eq!(begun(&mut b), 40, "it does not fall");
    for third in 2..6 {
        let next = flood(&b, third);
        give_up(&b, next);
        assert_eq!(begun(&mut b), 40, "nor does it rise");
    }
    for n in 0..80 {
        b.begin(&format!("10.0.1.2:{}", 3000 + n), VIP, 5, syn_options(1, 0));
    }
    assert_eq!(begun(&mut b), 80);
}

#[test]
fn after_thousands_of_connections_with_losses_every_server_has_what_it_has() {
    if !privileged() {
        return;
    }
    let b = Rig::new(Policy::LeastConnections, 4, plimsoll_l4bench::Replies::Uplink);
    let mut rng = ChaCha20Rng::seed_from_u64(11);
    let (mut live, mut truth) = (Vec::new(), [0u64; 5]);
    for n in 0..3000u32 {
        let client = format!("10.1.{}.{}:{}", n >> 8, n & 255, 1024 + n % 7);
        let mut server = 0;
        for _ in 0..rng.random_range(1..4) {
            server = b.begin(&client, VIP, n.wrapping_mul(0x9e37_79b9), syn_options(n, 0));
        }
        truth[usize::from(server)] += 1;
        live.push((client, server));
        if rng.random_bool(0.9) {
            let (client, server) = live.swap_remove(rng.random_range(0..live.len()));
            truth[usize::from(server)] -= 1;
            for _ in 0..rng.random_range(1..4) {
                match rng.random_range(0..4) {
                    0 => b.client_says(&client, VIP, RST | ACK, server),
                    1 => b.server_says(&client, VIP, RST | ACK, server, timestamps(n, 3)),
                    _ => b.client_says(&client, VIP, FIN | ACK, server),
                }
            }
            b.by_client(&Segment::new(&client, VIP, RST, vec![]).bytes());
        }
    }
    let seen = status(&b.net.pins()).expect("status");
    let open: Vec<u64> = seen.vips[0].backends.iter().map(|one| one.open_connections).collect();
    // Of 3,000 connections some lose their place of 65,536 to another: their ends are not known.
    let off: u64 = open.iter().zip(&truth[1..]).map(|(open, true_)| open.abs_diff(*true_)).sum();
    assert!(off <= 8, "{open:?}, in truth {:?}", &truth[1..]);
    let new: u64 = seen.vips[0].backends.iter().map(|one| one.new_connections).sum();
    assert!((3000..=3003).contains(&new), "{new}");
}
