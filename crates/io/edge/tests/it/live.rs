//! Real packets through a forwarder and two nodes.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::rig::{CLIENT, Rig, SERVER, privileged, until};

/// A server that sends back what it gets, with the address that it saw in front.
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Echo {
    pub fn start(rig: &Rig, address: &str) -> Echo {
        let socket = rig
            .net
            .inside("server", || UdpSocket::bind(address))
            .expect("a thread")
            .expect("bound");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
        let stop = Arc::new(AtomicBool::new(false));
        let of = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !of.load(Ordering::Relaxed) {
                let Ok((bytes, from)) = socket.recv_from(&mut buffer) else { continue };
                let mut answer = format!("{from} ").into_bytes();
                answer.extend_from_slice(&buffer[..bytes]);
                let _ = socket.send_to(&answer, from);
            }
        });
        Echo { stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

pub fn client(rig: &Rig, address: &str) -> UdpSocket {
    let socket =
        rig.net.inside("client", || UdpSocket::bind(address)).expect("a thread").expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    socket
}

/// Sends until it is answered; the address that the server saw.
pub fn exchange(socket: &UdpSocket, to: &str, text: &str) -> String {
    let mut buffer = [0; 2048];
    let mut seen = None;
    until(&format!("{to} answers {text}"), || {
        socket.send_to(text.as_bytes(), to).expect("sent");
        while let Ok((bytes, _)) = socket.recv_from(&mut buffer) {
            let answer = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
            if let Some((from, what)) = answer.split_once(' ')
                && what == text
            {
                seen = Some(from.to_owned());
                return true;
            }
        }
        false
    });
    seen.expect("an answer")
}

const COUNTED: &str = "
  services: [ { name: inspect, match: { destination: \"10.2.0.0/24\" }, chain: [ { xdp: counter }, { xdp: { work: 5us } } ] } ]
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0], services: [inspect] }
    - { name: n2, address: \"10.3.0.12\", cpus: [1], services: [inspect] }
";

#[test]
fn flows_pass_through_functions_both_ways_and_are_spread() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(COUNTED);
    for node in ["n1", "n2"] {
        rig.start_node(node);
    }
    rig.start_forwarder();
    rig.until_serving(&["n1", "n2"]);
    let _echo = Echo::start(&rig, &format!("{SERVER}:7000"));
    let to = format!("{SERVER}:7000");
    for flow in 0..20 {
        let socket = client(&rig, &format!("{CLIENT}:0"));
        for _ in 0..5 {
            let seen = exchange(&socket, &to, &format!("flow {flow}"));
            assert_eq!(seen, socket.local_addr().expect("bound").to_string(), "not rewritten");
        }
    }
    let mut status = rig.status();
    until("all packets are counted both ways", || {
        status = rig.status();
        let (packets, replies) =
            status.places.iter().fold((0, 0), |(p, r), one| (p + one.packets, r + one.replies));
        packets >= 200 && replies >= 100
    });
    let used: BTreeSet<&str> = status
        .places
        .iter()
        .filter(|place| place.opened > 0)
        .map(|place| place.node.as_str())
        .collect();
    assert_eq!(used.len(), 2, "{status:#?}");
    until("the cost of every place is calibrated", || {
        status = rig.status();
        status.places.iter().all(|place| place.calibrated_us.is_some_and(|cost| cost > 1.0))
    });
}

const DUAL: &str = "
  scale: { up: 0.30, down: 0.20, hold: 500ms }
  services:
    - { name: inspect, match: { protocol: udp, ports: 7000 }, chain: [ { xdp: { work: 100us } } ] }
    - { name: npt, match: { destination: \"10.2.0.0/24\", protocol: udp }, chain: [ { xdp: { rewrite: { from: \"10.1.0.0/24\", to: \"203.0.113.0/24\" } } } ] }
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0], services: [inspect, npt] }
    - { name: n2, address: \"10.3.0.12\", cpus: [1], services: [inspect, npt], standby: true }
";

#[test]
fn ipv6_passes_functions_rewrite_and_standbys_come_and_go() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(DUAL);
    for node in ["n1", "n2"] {
        rig.start_node(node);
    }
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    let state = |rig: &Rig| rig.status().nodes[1].state.clone();
    until("n2 is a standby", || state(&rig) == "standby");
    let _v6 = Echo::start(&rig, "[fd02::20]:7000");
    let six = client(&rig, "[fd01::10]:0");
    assert!(exchange(&six, "[fd02::20]:7000", "six").starts_with("[fd01::10]:"));
    // One network becomes another, and back, without state.
    let _v4 = Echo::start(&rig, &format!("{SERVER}:7002"));
    let four = client(&rig, &format!("{CLIENT}:0"));
    assert!(exchange(&four, &format!("{SERVER}:7002"), "four").starts_with("203.0.113.10:"));
    assert_eq!(rig.status().nodes[0].state, "serving");
    // 100 µs a packet: 6,000 of them a second are 60 % of the core.
    let stop = Arc::new(AtomicBool::new(false));
    let of = stop.clone();
    let flood = std::thread::spawn(move || {
        while !of.load(Ordering::Relaxed) {
            for _ in 0..6 {
                let _ = six.send_to(b"load", "[fd02::20]:7000");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    until("the standby serves", || state(&rig) == "serving");
    stop.store(true, Ordering::Relaxed);
    flood.join().expect("no panic");
    until("the standby is given back", || state(&rig) == "standby");
}
