//! The vectors of `crates/logic/cookie`, which bind this program to the codec in Rust, at every width.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plimsoll_cookie::{Epoch, Layout};
use plimsoll_l4::{Balancer, Keys, L4Config, Limits, Mac, Policy, Uplink, UplinkMode};
use plimsoll_l4bench::packet::{ACK, Segment, read_timestamps, timestamps};
use plimsoll_l4bench::{CLIENT_MAC, ifindex};

use super::support::legs;
use super::support::rig::{Net, backend, config, privileged};

struct Vector<'a> {
    line: &'a str,
    version_bits: u32,
    keys: Keys,
    client: &'a str,
    vip: &'a str,
    id: u16,
    real: u32,
    wire: u32,
}

fn vector(line: &str) -> Vector<'_> {
    let field: Vec<&str> = line.split(',').collect();
    let mut secret = [0; 32];
    for (place, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&field[0][2 * place..2 * place + 2], 16).expect("hex");
    }
    let epoch = Epoch::from_bit(field[2].parse().expect("bit"));
    let mut salts = [None, None];
    salts[epoch.bit() as usize] = Some(secret);
    Vector {
        line,
        version_bits: field[1].parse().expect("bits"),
        keys: Keys { epoch, since_unix_ms: 0, salts, spread: [1; 32] },
        client: field[3],
        vip: field[4],
        id: field[5].parse().expect("id"),
        real: field[6].parse().expect("real"),
        wire: field[7].parse().expect("wire"),
    }
}

impl Vector<'_> {
    fn mac(&self) -> Mac {
        let [upper, lower] = self.id.to_be_bytes();
        [2, 0, 0, 9, upper, lower]
    }

    /// One service with one server, which has the vector's id.
    fn config(&self, net: &Net) -> L4Config {
        let v4 = self.vip.parse::<SocketAddr>().expect("address").is_ipv4();
        let address = if v4 { "10.0.2.9" } else { "fd00:2::9" };
        let mut server = backend(&format!("s{}", self.id), address, self.mac());
        server.id = Some(self.id);
        let service = plimsoll_l4bench::vip("shop", self.vip, Policy::RoundRobin, vec![server]);
        let mut config = config(net, &["lbc", "lbs"], service);
        config.cookie.layout = Layout::new(self.version_bits).expect("in range");
        let backends = u32::from(config.cookie.layout.max_id().0);
        config.limits = Limits { vips: 1, backends, ..config.limits };
        config.uplink = UplinkMode::Fixed(Uplink {
            interface: "lbc".to_owned(),
            gateway: None,
            mac: Some(CLIENT_MAC),
        });
        config
    }

    fn try_on(&self, balancer: &Balancer) {
        let (clients, servers) = (ifindex("lbc").expect("a leg"), ifindex("lbs").expect("a leg"));
        let reply = Segment::new(self.vip, self.client, ACK, timestamps(self.real, 9));
        let ran = balancer.run(&reply.sent_by(self.mac()).bytes(), servers).expect("runs");
        assert_eq!(read_timestamps(&ran.packet, 22).0, self.wire, "{}", self.line);
        let later = Segment::new(self.client, self.vip, ACK, timestamps(9, self.wire));
        let ran = balancer.run(&later.bytes(), clients).expect("runs");
        assert_eq!(ran.packet[..6], self.mac(), "{}", self.line);
        assert_eq!(read_timestamps(&ran.packet, 22).1, self.real, "{}", self.line);
    }
}

#[test]
fn the_program_passes_every_vector_at_every_width() {
    if !privileged() {
        return;
    }
    let text = include_str!("../../../../logic/cookie/tests/vectors.csv");
    let mut by_width: BTreeMap<u32, Vec<Vector<'_>>> = BTreeMap::new();
    for vector in text.lines().skip(1).map(vector) {
        by_width.entry(vector.version_bits).or_default().push(vector);
    }
    let net = legs();
    net.enter("lb");
    for vectors in by_width.values() {
        plimsoll_l4::detach(&net.pins()).expect("clean");
        let first = &vectors[0];
        let started = Balancer::start_with(&first.config(&net), first.keys.clone());
        let (mut balancer, _) = started.expect("starts");
        for vector in vectors {
            balancer.set_keys(vector.keys.clone()).expect("set");
            balancer.apply(&vector.config(&net)).expect("applied");
            vector.try_on(&balancer);
        }
    }
    let tried: Vec<(u32, usize)> = by_width.iter().map(|(bits, all)| (*bits, all.len())).collect();
    assert_eq!(tried, [(1, 40), (2, 40), (4, 40), (6, 40), (8, 40)]);
}
