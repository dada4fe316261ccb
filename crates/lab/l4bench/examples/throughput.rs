//! Packets a second through namespaces, native XDP on veth, beside the kernel's own forwarding over
//! interfaces with the same offloads, both directions: `cargo run --release -p plimsoll-l4bench --example
//! throughput [ROUNDS] [FRAMES]`, as root.
//!
//! Two ways, each c0 ↔ lbc [lb] lbs ↔ s0: in one `lb` the balancer rewrites and redirects, replies by the
//! default route (`uplink: auto`), in the other the kernel routes to one next hop on either side. The same
//! generator sends the same frames into both in turns; at the end of both the same program counts and drops.

#[path = "../../../io/l4/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use plimsoll_l4::Policy;
use plimsoll_l4bench::packet::{ACK, Segment, timestamps};
use plimsoll_l4bench::{
    CLIENT_LEG_MAC, Frames, Load, Replies, SERVER_LEG_MAC, SERVERS, Settings, VIP, ifindex,
    min_and_median, server_mac,
};
use support::rig::{Net, privileged};
use support::{Rig, legs};

const FLOWS: u64 = 1 << 16;
const CLIENT: &str = "10.0.0.1:1";

/// One direction: what is sent into which end.
struct Direction {
    title: &'static str,
    frames: Frames,
    packet: Vec<u8>,
    /// Where in it the generator writes the upper half of a timestamp.
    field_at: u32,
    into: &'static str,
}

/// Packets a second of either way, by round.
type Rates = [Vec<f64>; 2];

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

fn directions() -> [Direction; 2] {
    let mut request = Segment::new(CLIENT, VIP, ACK, timestamps(1, 2));
    request.to_mac = CLIENT_LEG_MAC;
    let mut reply = Segment::new(VIP, CLIENT, ACK, timestamps(1, 2)).sent_by(server_mac(1));
    reply.to_mac = SERVER_LEG_MAC;
    let [request, reply] =
        [request, reply].map(|one| Segment { payload: vec![0; 62], ..one }.bytes());
    let (title, frames, field_at, into) = ("client to server", Frames::Requests, 34 + 28, "c0");
    let there = Direction { title, frames, packet: request, field_at, into };
    let (title, frames, field_at, into) = ("server to client", Frames::Replies, 34 + 24, "s0");
    [there, Direction { title, frames, packet: reply, field_at, into }]
}

/// Sends frames one way; how many arrived and how long it took.
fn send(load: &mut Load, net: &Net, direction: &Direction, frames: u32) -> (u64, Duration) {
    net.enter("out");
    let servers = u32::from(SERVERS);
    let settings = Settings { servers, field_at: direction.field_at, ..Settings::of(FLOWS) };
    load.set(settings).expect("set");
    load.set_head(&direction.packet).expect("set");
    let before = load.arrived().expect("read");
    let into = ifindex(direction.into).expect("there");
    let took = load.send(direction.frames, &direction.packet, into, frames).expect("sends");
    let arrived = load.arrived().expect("read") - before;
    assert!(arrived > 0, "{}: nothing arrives", direction.title);
    (arrived, took)
}

fn print(direction: &Direction, titles: [&str; 2], rates: &Rates) {
    println!("{}", direction.title);
    for (title, rates) in titles.iter().zip(rates) {
        let best = rates.iter().copied().fold(0.0, f64::max);
        println!("  {title:<20} {:>6.3} Mpps median, {best:.3} best", min_and_median(rates).1);
    }
    let [xdp, kernel] = rates;
    let ratios: Vec<f64> = xdp.iter().zip(kernel).map(|(xdp, kernel)| xdp / kernel).collect();
    println!("  ratio, median of rounds {:>6.2}", min_and_median(&ratios).1);
}

fn main() {
    if !privileged() {
        return;
    }
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (rounds, frames) = (arguments.next().unwrap_or(11), arguments.next().unwrap_or(1_000_000));
    let mut rig = Rig::new(Policy::Maglev, SERVERS, Replies::DefaultRoute);
    let mut load = Load::on(&rig.balancer).expect("loads");
    let kernel = forwarding();
    let titles = ["XDP balancer", "kernel forwarding"];
    for net in [&rig.net, &kernel] {
        same_offloads(net);
        net.enter("out");
        for end in ["c0", "s0"] {
            load.count_at(ifindex(end).expect("there")).expect("attaches");
        }
    }
    let directions = directions();
    let mut rates: [Rates; 2] = Default::default();
    // Every server is heard first, so that its clock is known.
    send(&mut load, &rig.net, &directions[1], 1000);
    for round in 0..=rounds {
        for (direction, rates) in directions.iter().zip(&mut rates) {
            for (way, rates) in rates.iter_mut().enumerate() {
                // As a daemon does once a second.
                rig.net.enter("lb");
                rig.balancer.refresh().expect("refreshes");
                let net = if way == 0 { &rig.net } else { &kernel };
                let (arrived, took) = send(&mut load, net, direction, frames);
                // The first round warms up.
                if round > 0 {
                    rates.push(arrived as f64 / took.as_secs_f64() / 1e6);
                    let lost = u64::from(frames) - arrived;
                    if lost > 0 {
                        println!("{}, {}: {lost} of {frames} lost", direction.title, titles[way]);
                    }
                }
            }
        }
    }
    let bytes = directions[0].packet.len();
    println!("{bytes} bytes, {FLOWS} flows, {rounds} rounds of {frames} packets");
    for (direction, rates) in directions.iter().zip(&rates) {
        print(direction, titles, rates);
    }
    println!("replies for which routes were asked: {}", rig.reason("route_asked").expect("read"));
    rig.net.leave();
}
