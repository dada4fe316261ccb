//! Nanoseconds per packet of the forwarder, beside a table of least recently used flows with the same VXLAN:
//! `cargo run --release -p plimsoll-edge --example edge_ns_per_packet [ROUNDS] [REPEAT]`, as root. All cases take turns
//! in every round; the preamble that makes packets is measured alone and subtracted.

#[allow(dead_code)]
#[path = "../tests/it/packet.rs"]
mod packet;
#[allow(dead_code)]
#[path = "../tests/it/rig/mod.rs"]
mod rig;

use plimsoll_edge::bench::{Bench, Program};

const SECTION: &str = "
  flows: { limit: 2097152, idle: 1h }
  services: [ { name: inspect, match: { destination: \"10.2.0.0/24\" }, chain: [ { xdp: counter } ] } ]
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0], services: [inspect] }
";
/// More than any run has packets.
const ENDLESS: u64 = 1 << 36;

fn main() {
    if !rig::privileged() {
        return;
    }
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |otherwise: u32| arguments.next().map_or(otherwise, |text| text.parse().expect("a number"));
    let (rounds, repeat) = (number(9), number(1 << 20));
    let mut rig = rig::Rig::new(SECTION);
    rig.start_node("n1");
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    rig::until("slots are filled", || rig.status().places.iter().any(|place| place.weight > 0.0));
    let bytes = packet::ip4(rig::CLIENT, rig::SERVER, 17, 0x4000, &packet::udp(4000, 53, &[0; 32]));
    println!(
        "{rounds} rounds of {repeat} packets; ns per packet less the preamble's: minimum, median"
    );
    println!("{:<12} {:>22} {:>22} {:>7}", "flows", "forwarder", "LRU table", "ratio");
    let config = rig.config.clone();
    rig.net
        .inside("fwd", || {
            let links = plimsoll_l4::network::links().expect("links");
            let eth0 = links.iter().find(|link| link.name == "eth0").expect("there").index;
            let mut bench = Bench::on(&config).expect("loads");
            for flows in [1u64, 1 << 16, 1 << 20, ENDLESS] {
                measure(&mut bench, &bytes, eth0, flows, rounds, repeat);
            }
        })
        .expect("a thread");
}

fn measure(bench: &mut Bench, bytes: &[u8], eth0: u32, flows: u64, rounds: u32, repeat: u32) {
    let is_new = flows == ENDLESS;
    // New flows fill the table: fewer of them.
    let repeat = if is_new { repeat.min(100_000) } else { repeat };
    let mut taken = [Vec::new(), Vec::new(), Vec::new()];
    let programs = [Program::Preamble, Program::Forwarder, Program::Lru];
    for round in 0..=rounds {
        for (program, taken) in programs.into_iter().zip(&mut taken) {
            let turn = if is_new { (u64::from(round) + 1) << 26 } else { 0 };
            if !is_new && round == 0 {
                let fill = (flows as u32).max(1);
                bench.run(program, bytes, eth0, (flows, turn), fill).expect("runs");
            }
            let ns = bench.run(program, bytes, eth0, (flows, turn), repeat).expect("runs");
            // The first round warms up.
            if round > 0 {
                taken.push(ns);
            }
        }
    }
    let [preamble, forwarder, lru] = taken.map(|mut values| {
        values.sort_by(f64::total_cmp);
        (values[0], values[values.len() / 2])
    });
    let less = |of: (f64, f64)| (of.0 - preamble.0, of.1 - preamble.1);
    let (forwarder, lru) = (less(forwarder), less(lru));
    let title = if is_new { "all new".to_owned() } else { flows.to_string() };
    println!(
        "{title:<12} {:>10.1} {:>11.1} {:>10.1} {:>11.1} {:>7.2}",
        forwarder.0,
        forwarder.1,
        lru.0,
        lru.1,
        forwarder.0 / lru.0
    );
}
