//! Packets a second through namespaces, native XDP on veth, beside the kernel's own forwarding over
//! interfaces with the same offloads: `cargo run --release -p plimsoll-l4 --example throughput [ROUNDS]
//! [FRAMES]`, as root.
//!
//! Two ways, each c0 → lbc [lb] lbs → s0: in one `lb` the balancer rewrites and redirects, in the other
//! the kernel routes to one next hop. The same generator sends the same frames into both in turns; at the
//! end of both the same program counts and drops.

mod support;

use plimsoll_l4::Policy;
use plimsoll_l4::bench::packet::{ACK, Segment, timestamps};
use plimsoll_l4::bench::{
    CLIENT_LEG_MAC, Load, Replies, SERVERS, Settings, VIP, ifindex, min_and_median, server_mac,
};
use support::rig::{Net, privileged};
use support::{Rig, legs};

const FLOWS: u64 = 1 << 16;

/// GRO on, for veth then hands frames on by NAPI with or without a program; no checksum offload.
fn same_offloads(net: &Net) {
    for (space, interface) in [("lb", "lbc"), ("lb", "lbs"), ("out", "c0"), ("out", "s0")] {
        net.exec(space, &format!("ethtool -K {interface} gro on tx off tso off gso off"));
    }
}

/// A way through the kernel alone: the service's address is routed to s0.
fn forwarding() -> Net {
    let net = legs();
    let hop = "10.0.2.253";
    net.exec("lb", &format!("ip neigh replace {hop} lladdr 02:00:00:00:02:fe dev lbs"));
    net.exec("lb", &format!("ip route add 10.0.9.9/32 via {hop} dev lbs"));
    net
}

fn main() {
    if !privileged() {
        return;
    }
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (rounds, frames) = (arguments.next().unwrap_or(11), arguments.next().unwrap_or(1_000_000));
    let rig = Rig::new(Policy::Maglev, SERVERS, Replies::Uplink);
    let mut load = Load::on(&rig.balancer).expect("loads");
    let settings = Settings { turn: 0, flows: FLOWS, servers: u32::from(SERVERS), field_at: 0 };
    let client = "10.0.0.1:1";
    // Every server is heard first, so that its clock is known.
    let mut reply = Segment::new(VIP, client, ACK, timestamps(1, 2)).sent_by(server_mac(1));
    reply.to_mac = CLIENT_LEG_MAC;
    load.set(Settings { field_at: 34 + 24, ..settings }).expect("set");
    load.run("reply_v4_balancer", &reply.bytes(), rig.servers, 1000).expect("runs");

    let mut segment = Segment::new(client, VIP, ACK, timestamps(1, 2));
    segment.to_mac = CLIENT_LEG_MAC;
    segment.payload = vec![0; 62];
    let packet = segment.bytes();
    load.set_head(&packet).expect("set");
    let kernel = forwarding();
    let ways = [("XDP balancer", &rig.net), ("kernel forwarding", &kernel)];
    let mut rates = [Vec::new(), Vec::new()];
    for (_, net) in ways {
        same_offloads(net);
        net.enter("out");
        load.count_at(ifindex("s0").expect("there")).expect("attaches");
    }
    for round in 0..=rounds {
        for ((title, net), rates) in ways.iter().zip(&mut rates) {
            net.enter("out");
            load.set(Settings { field_at: 34 + 28, ..settings }).expect("set");
            let before = load.arrived().expect("read");
            let took = load.send(&packet, ifindex("c0").expect("there"), frames).expect("sends");
            let arrived = load.arrived().expect("read") - before;
            assert!(arrived > 0, "{title}: nothing arrives");
            // The first round warms up.
            if round > 0 {
                rates.push(arrived as f64 / took.as_secs_f64() / 1e6);
                if arrived < u64::from(frames) {
                    println!("{title}: {} of {frames} lost", u64::from(frames) - arrived);
                }
            }
        }
    }
    println!("{} bytes, {FLOWS} flows, {rounds} rounds of {frames} packets", packet.len());
    for ((title, _), rates) in ways.iter().zip(&rates) {
        let best = rates.iter().copied().fold(0.0, f64::max);
        println!("{title:<20} {:>6.3} Mpps median, {best:.3} best", min_and_median(rates).1);
    }
    let ratios: Vec<f64> =
        rates[0].iter().zip(&rates[1]).map(|(xdp, kernel)| xdp / kernel).collect();
    println!("ratio, median of rounds {:>6.2}", min_and_median(&ratios).1);
    rig.net.leave();
}
