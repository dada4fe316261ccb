//! RSTs without a cookie: to which server they go.

use aya::maps::{Array, Map, MapData};
use plimsoll_l4bench::packet::{ACK, FIN, RST, Segment, syn_options, timestamps};
use plimsoll_l4bench::{VIP, VIP6, server_mac};

use super::support::Rig;
use super::support::rig::privileged;
use super::{cookie, rig};

const SERVERS: u8 = 4;

impl Rig {
    fn reset(&self, client: &str, vip: &str) -> u8 {
        self.by_client(&Segment::new(client, vip, RST, vec![]).bytes()).1[5]
    }

    /// The server takes no notice of what it got, and sends again what was not acknowledged.
    fn pushes(&self, client: &str, vip: &str, server: u8) {
        let segment = Segment::new(vip, client, ACK, timestamps(0x1234_5678, 1));
        self.by_server(&segment.sent_by(server_mac(server)).bytes());
    }

    /// Has the program forget all SYNs.
    fn forget_syns(&self) {
        let pinned = MapData::from_pin(self.net.pins().join("maps/connections")).expect("pinned");
        let mut last: Array<_, [u64; 512]> =
            Map::from_map_data(pinned).expect("a map").try_into().expect("an array");
        (0..last.len()).for_each(|row| last.set(row, [0; 512], 0).expect("written"));
    }
}

/// Clients of both families.
fn clients() -> impl Iterator<Item = (String, &'static str)> {
    let v4 = (0..30).map(|n| (format!("10.0.1.2:{}", 5000 + n), VIP));
    v4.chain((0..30).map(|n| (format!("[fd00:1::2]:{}", 5000 + n), VIP6)))
}

#[test]
fn rst_goes_where_the_syn_went() {
    if !privileged() {
        return;
    }
    let b = rig(SERVERS);
    for (client, vip) in clients() {
        let server = b.begin(&client, vip, 7, syn_options(1, 0));
        assert_eq!(b.reset(&client, vip), server, "{client}");
        // A cookie of no server is as none.
        let foreign = timestamps(2, cookie(&client, vip, 99, 0x1234_5678));
        let rst = Segment::new(&client, vip, RST | ACK, foreign).bytes();
        assert_eq!(b.by_client(&rst).1[5], server, "{client}");
    }
}

#[test]
fn second_rst_goes_to_the_server_that_sends_again_when_the_syn_is_forgotten() {
    if !privileged() {
        return;
    }
    let b = rig(SERVERS);
    for (client, vip) in clients() {
        let by_hash = b.reset(&client, vip);
        for server in 1..=SERVERS {
            b.pushes(&client, vip, server);
            assert_eq!(b.reset(&client, vip), server, "{client}, by its hash to {by_hash}");
        }
    }
}

#[test]
fn replies_are_looked_up_though_the_tables_are_written_meanwhile() {
    if !privileged() {
        return;
    }
    let mut b = rig(SERVERS);
    let config = b.config.clone();
    for server in 1..=SERVERS {
        let client = format!("10.0.1.2:{}", 6000 + u16::from(server));
        b.reset(&client, VIP);
        b.balancer.apply(&config).expect("applies");
        b.pushes(&client, VIP, server);
        assert_eq!(b.reset(&client, VIP), server, "{client}");
    }
}

#[test]
fn rst_after_a_fin_goes_where_the_fin_went_when_the_syn_is_forgotten() {
    if !privileged() {
        return;
    }
    let b = rig(SERVERS);
    for (client, vip) in clients() {
        let server = b.begin(&client, vip, 7, syn_options(1, 0));
        b.forget_syns();
        let options = timestamps(2, cookie(&client, vip, u16::from(server), 0x1234_5678));
        b.by_client(&Segment::new(&client, vip, ACK | FIN, options).bytes());
        assert_eq!(b.reset(&client, vip), server, "{client}");
    }
}
