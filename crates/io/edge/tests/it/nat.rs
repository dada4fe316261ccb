//! Flows through real nftables: replies find the instance that holds their state, while nodes come and go.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use plimsoll_edge::Forwarder;

use crate::live::{Echo, client, exchange};
use crate::rig::{CLIENT, PATIENCE, Rig, SERVER, privileged, until};

/// Masquerade behind a stateful firewall: what belongs to no flow of this instance's is counted and dropped.
const RULES: &str = "
table inet edge {
    counter strangers { }
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname \"lan\" ct state new accept
        counter name strangers drop
    }
    chain input {
        type filter hook input priority 0; policy accept;
        iifname \"wan\" counter name strangers drop
    }
    chain postrouting {
        type nat hook postrouting priority 100;
        oifname \"wan\" masquerade
    }
}
";

const SECTION: &str = "
  services: [ { name: cgnat, match: { destination: \"10.2.0.0/24\" }, chain: [ { nftables: RULES }, { xdp: counter } ] } ]
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0, 1], services: [cgnat], external: { cgnat: [\"203.0.113.1\"] } }
    - { name: n2, address: \"10.3.0.12\", cpus: [0, 1], services: [cgnat], external: { cgnat: [\"203.0.113.2\"] } }
";

/// These nodes and a forwarder, and the server that answers; none where such a network cannot be made.
fn serving(nodes: &[&str]) -> Option<(Rig, String, Echo)> {
    serving_with(nodes, "")
}

/// The same with more keys of the section.
fn serving_with(nodes: &[&str], more: &str) -> Option<(Rig, String, Echo)> {
    if !privileged() {
        return None;
    }
    let mut rig = Rig::with_rules(&format!("{more}{SECTION}"), RULES);
    nodes.iter().for_each(|node| rig.start_node(node));
    rig.start_forwarder();
    rig.until_serving(nodes);
    let to = format!("{SERVER}:7000");
    let echo = Echo::start(&rig, &to);
    Some((rig, to, echo))
}

/// Flows, unless `PLIMSOLL_EDGE_FLOWS` says otherwise.
const FLOWS: usize = 2_000;

fn flows() -> usize {
    std::env::var("PLIMSOLL_EDGE_FLOWS").ok().and_then(|text| text.parse().ok()).unwrap_or(FLOWS)
}

/// Packets that came to an instance which does not know their flow.
fn strangers(rig: &Rig, node: &str) -> u64 {
    let namespace = &rig.namespaces(node)[0];
    let listed = std::process::Command::new("ip")
        .args(["netns", "exec", namespace, "nft", "list", "counter", "inet", "edge", "strangers"])
        .output()
        .expect("nft");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let after = text.split("packets ").nth(1).unwrap_or_else(|| panic!("{text}"));
    after.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

/// Seconds after which conntrack of a node's namespace forgets an established connection.
fn established(rig: &Rig, node: &str) -> u64 {
    let path = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";
    let read = std::process::Command::new("ip")
        .args(["netns", "exec", &rig.namespaces(node)[0], "cat", path])
        .output()
        .expect("ip");
    let text = String::from_utf8_lossy(&read.stdout).into_owned();
    text.trim().parse().unwrap_or_else(|_| panic!("{text:?}"))
}

#[test]
fn replies_find_the_nat_that_made_their_address() {
    let Some((rig, to, _echo)) = serving(&["n1", "n2"]) else { return };
    let mut addresses = BTreeMap::<String, usize>::new();
    let mut sides = Vec::new();
    for flow in 0..20 {
        let socket = client(&rig, &format!("{CLIENT}:0"));
        let first = exchange(&socket, &to, &format!("first {flow}"));
        for again in 0..5 {
            assert_eq!(
                exchange(&socket, &to, &format!("{again} {flow}")),
                first,
                "one address for all of a flow"
            );
        }
        let (address, _) = first.split_once(':').expect("an address");
        *addresses.entry(address.to_owned()).or_default() += 1;
        sides.extend([socket.local_addr().expect("bound").to_string(), first]);
    }
    assert_eq!(addresses.keys().collect::<Vec<_>>(), ["203.0.113.1", "203.0.113.2"], "both nodes");
    for from in sides {
        let question = serde_json::json!({ "where": format!("udp:{from}-{to}") });
        let place = plimsoll_edge::ask(&rig.config.socket, &question).expect("an answer");
        let is_answered = place["answered"] == true && place["rewritten"] == true;
        assert!(is_answered, "{question}: {place}");
    }
    until("entries of either side are answered", || {
        let table = rig.status().table;
        table.entries4 == 40 && table.answered == 40
    });
    assert_eq!(established(&rig, "n1"), rig.config.flows.idle.as_secs(), "no longer than flows");
    assert_eq!((strangers(&rig, "n1"), strangers(&rig, "n2")), (0, 0));
}

#[test]
fn both_entries_of_a_flow_go_when_it_is_silent() {
    let Some((rig, to, _echo)) = serving_with(&["n1", "n2"], "  flows: { limit: 1000, idle: 2s }")
    else {
        return;
    };
    let busy = client(&rig, &format!("{CLIENT}:0"));
    let was = exchange(&busy, &to, "first");
    for flow in 0..10 {
        exchange(&client(&rig, &format!("{CLIENT}:0")), &to, &format!("flow {flow}"));
    }
    let entries = || rig.status().table.entries4;
    until("there are entries of others", || {
        exchange(&busy, &to, "still");
        entries() > 2
    });
    until("the silent ones are gone, and one flow goes on", || {
        assert_eq!(exchange(&busy, &to, "still"), was, "a flow with packets keeps its NAT");
        entries() == 2
    });
}

/// Sockets, one port after the other; each is two flows, to the server's two ports, so that limits of open files do.
fn open(rig: &Rig, range: std::ops::Range<usize>) -> Vec<UdpSocket> {
    let of = |number: usize| {
        let socket = UdpSocket::bind((CLIENT, 20_000 + number as u16)).expect("bound");
        socket.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
        socket
    };
    rig.net.inside("client", || range.map(of).collect()).expect("a thread")
}

/// Flows that a node was ever given.
fn opened(rig: &Rig, node: &str) -> u64 {
    rig.status().places.iter().filter(|one| one.node == node).map(|one| one.opened).sum()
}

/// Says of what is pinned that it was made by a forwarder of another layout; returns what was said before.
fn set_layout(rig: &Rig, layout: u32) -> u32 {
    let path = plimsoll_edge::forwarder_dir(&rig.config).join("maps/meta");
    let data = aya::maps::MapData::from_pin(path).expect("pinned");
    let map = aya::maps::Map::from_map_data(data).expect("a map");
    let mut meta: aya::maps::Array<_, u32> = map.try_into().expect("an array");
    let was = meta.get(&0, 0).expect("read");
    meta.set(0, layout, 0).expect("written");
    was
}

/// One round of all flows: each sends until the server has answered with the address that the flow had before.
fn round(
    sockets: &[UdpSocket],
    to: &[String; 2],
    seen: &mut BTreeMap<usize, String>,
    lost: &mut u64,
) {
    for (second, to) in to.iter().enumerate() {
        for batch in (0..sockets.len()).collect::<Vec<_>>().chunks(64) {
            for at in batch {
                sockets[*at].send_to(format!("{}", 2 * at + second).as_bytes(), to).expect("sent");
            }
            for at in batch {
                let flow = 2 * at + second;
                let from = answered(&sockets[*at], to, flow, lost);
                let before = seen.entry(flow).or_insert_with(|| from.clone());
                assert_eq!(*before, from, "flow {flow} came from elsewhere");
            }
        }
    }
}

/// The address that the server saw of a flow, which has sent and sends again until it is answered.
fn answered(socket: &UdpSocket, to: &str, flow: usize, lost: &mut u64) -> String {
    let (mut buffer, mut tries) = ([0; 2048], 0);
    loop {
        let Ok((bytes, _)) = socket.recv_from(&mut buffer) else {
            tries += 1;
            assert!(tries < 60, "flow {flow} is not answered any more");
            *lost += 1;
            socket.send_to(format!("{flow}").as_bytes(), to).expect("sent");
            continue;
        };
        let answer = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
        let (from, what) = answer.split_once(' ').expect("an answer");
        // Else a late one to what was sent again.
        if what == flow.to_string() {
            return from.to_owned();
        }
    }
}

#[test]
fn flows_stay_with_their_nat_while_nodes_join_drain_and_leave_and_the_forwarder_is_replaced() {
    let Some((mut rig, to, _echo)) = serving(&["n1"]) else { return };
    let to = [to, format!("{SERVER}:7010")];
    let _second = Echo::start(&rig, &to[1]);
    // Sockets of the three times that new flows come.
    let part = flows().div_ceil(6);
    let many = 6 * part;
    let (mut seen, mut lost) = (BTreeMap::new(), 0);
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: Some(65_536), maximum: Some(65_536) },
    );
    let mut sockets = open(&rig, 0..part);
    round(&sockets, &to, &mut seen, &mut lost);
    // A node joins; new flows go there as well, old ones stay.
    rig.start_node("n2");
    rig.until_serving(&["n1", "n2"]);
    sockets.extend(open(&rig, part..2 * part));
    round(&sockets, &to, &mut seen, &mut lost);
    // The forwarder is started over, or another version of it: one with other layouts refuses, and packets go on.
    rig.stop_forwarder();
    round(&sockets, &to, &mut seen, &mut lost);
    let layout = set_layout(&rig, 99);
    let refused =
        rig.net.inside("fwd", || Forwarder::start(&rig.config).map(drop)).expect("a thread");
    let why = refused.expect_err("it has another layout").to_string();
    assert!(why.contains("99") && why.contains("forwarder"), "{why}");
    round(&sockets, &to, &mut seen, &mut lost);
    set_layout(&rig, layout);
    rig.start_forwarder();
    rig.until_serving(&["n1", "n2"]);
    round(&sockets, &to, &mut seen, &mut lost);
    // A node drains: its flows stay, new ones go elsewhere.
    rig.forwarder.as_ref().expect("it runs").drain(0, true);
    until("n1 drains", || rig.status().nodes[0].state == "draining");
    std::thread::sleep(Duration::from_millis(100));
    let before = opened(&rig, "n1");
    sockets.extend(open(&rig, 2 * part..3 * part));
    round(&sockets, &to, &mut seen, &mut lost);
    round(&sockets, &to, &mut seen, &mut lost);
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(opened(&rig, "n1"), before, "no new flow at a node that drains");
    let by = |address: &str| seen.values().filter(|from| from.starts_with(address)).count();
    let (one, two) = (by("203.0.113.1:"), by("203.0.113.2:"));
    assert_eq!(one + two, many);
    assert!(one > 0 && two >= many / 3, "{one} and {two}");
    assert_eq!(
        (strangers(&rig, "n1"), strangers(&rig, "n2")),
        (0, 0),
        "at an instance that does not know the flow"
    );
    // It leaves: its flows, whose state is gone, go on at the other one by new addresses; no others do.
    rig.stop_node("n1");
    until("n1 is down", || rig.status().nodes[0].state == "down");
    seen.retain(|_, from| !from.starts_with("203.0.113.1:"));
    round(&sockets, &to, &mut seen, &mut lost);
    assert!(seen.values().all(|from| from.starts_with("203.0.113.2:")));
    assert_eq!(strangers(&rig, "n2"), 0, "at an instance that does not know the flow");
    until("they are counted", || rig.status().reasons["rehomed"] >= one as u64);
    eprintln!("{many} flows: {one} by n1, {two} by n2; {lost} packets sent again");
}

#[test]
fn a_node_that_fails_is_noticed_and_its_flows_go_on_elsewhere() {
    let Some((mut rig, to, _echo)) = serving(&["n1", "n2"]) else { return };
    let sockets: Vec<UdpSocket> = (0..20).map(|_| client(&rig, &format!("{CLIENT}:0"))).collect();
    let was: Vec<String> = sockets.iter().map(|socket| exchange(socket, &to, "before")).collect();
    rig.stop_node("n1");
    until("n1 is down", || rig.status().nodes[0].state == "down");
    for (socket, was) in sockets.iter().zip(was) {
        let now = exchange(socket, &to, "after");
        if was.starts_with("203.0.113.2") {
            assert_eq!(now, was, "what was elsewhere stays");
        } else {
            assert!(now.starts_with("203.0.113.2"), "{now}: its state is lost, a new one is made");
        }
    }
    assert_eq!(rig.status().nodes[1].state, "serving");
    let rehomed = || rig.status().reasons["rehomed"];
    until("they are counted", || rehomed() > 0);
}

/// TCP with packets as long as the client's link takes: it is informed what fits, and checksums are right everywhere.
#[test]
fn tcp_passes_through_the_nat_both_ways() {
    const BYTES: usize = 2 << 20;
    let Some((rig, _, _echo)) = serving(&["n1", "n2"]) else { return };
    until("slots are filled", || rig.status().places.iter().all(|place| place.weight > 0.0));
    let listener = rig
        .net
        .inside("server", || TcpListener::bind((SERVER, 7001)))
        .expect("a thread")
        .expect("listens");
    let served = std::thread::spawn(move || {
        for stream in listener.incoming().take(4) {
            let mut stream = stream.expect("a connection");
            let peer = stream.peer_addr().expect("connected").ip().to_string();
            assert!(peer.starts_with("203.0.113."), "{peer}");
            let mut got = Vec::new();
            stream.read_to_end(&mut got).expect("read");
            stream.write_all(&got).expect("written");
        }
    });
    let sent: Vec<u8> = (0..BYTES).map(|n| (n * 31 % 251) as u8).collect();
    for _ in 0..4 {
        let mut stream = rig
            .net
            .inside("client", || TcpStream::connect((SERVER, 7001)))
            .expect("a thread")
            .expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(&sent).expect("written");
        stream.shutdown(std::net::Shutdown::Write).expect("ended");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("read");
        assert_eq!(got, sent);
    }
    served.join().expect("no panic");
    assert_eq!((strangers(&rig, "n1"), strangers(&rig, "n2")), (0, 0));
    until("packets that do not fit were told", || rig.status().reasons["too_big"] > 0);
}
