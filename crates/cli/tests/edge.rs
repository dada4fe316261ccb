//! `plimsoll edge` as people run it: a forwarder and a node as processes, in namespaces of their own.

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use plimsoll_testbed::net::{CableEnd, Namespaces, requirements};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output().expect("run plimsoll")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Ended when it is dropped, whatever a test found.
struct Daemon(Child);

impl Daemon {
    fn start(net: &Namespaces, namespace: &str, words: &[&str], config: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(words).args(["--config", config]).stdin(Stdio::null());
        Daemon(net.spawn(namespace, &mut command).expect("start plimsoll"))
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("a signal");
        assert!(self.0.wait().expect("ended").success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SECTION: &str = "edge:
  interfaces: [ { name: clients }, { name: nodes }, { name: servers } ]
  pin_dir: PINS
  socket: DIR/edge.sock
  control: { key: DIR/edge.key }
  metrics: { listen: \"127.0.0.1:7403\" }
  services: [ { name: inspect, match: { destination: \"10.2.0.0/24\", protocol: udp }, chain: [ { xdp: counter } ] } ]
  nodes: [ { name: n1, address: \"10.3.0.2\", cpus: [0], services: [inspect] } ]
";

fn configured(net: &Namespaces) -> PathBuf {
    let file = net.dir().join("edge.yaml");
    let (pins, dir) = (net.pins(), net.dir().to_owned());
    let text = SECTION.replace("PINS", pins.to_str().expect("UTF-8"));
    fs::write(&file, text.replace("DIR", dir.to_str().expect("UTF-8"))).expect("written");
    file
}

#[test]
fn a_forwarder_and_a_node_as_processes() {
    if let Err(why) = requirements() {
        eprintln!("skipped: {why}");
        return;
    }
    let net = Namespaces::new(&["fwd", "client", "server", "n1"]).expect("a network");
    let end = |namespace, interface, mac, address| CableEnd { namespace, interface, mac, address };
    net.cable(
        end("client", "eth0", "02:00:00:00:01:02", "10.1.0.2/24"),
        end("fwd", "clients", "02:00:00:00:01:01", "10.1.0.1/24"),
    )
    .expect("a cable");
    net.cable(
        end("fwd", "nodes", "02:00:00:00:03:01", "10.3.0.1/24"),
        end("n1", "eth0", "02:00:00:00:03:02", "10.3.0.2/24"),
    )
    .expect("a cable");
    net.cable(
        end("server", "eth0", "02:00:00:00:02:02", "10.2.0.9/24"),
        end("fwd", "servers", "02:00:00:00:02:01", "10.2.0.1/24"),
    )
    .expect("a cable");
    for (namespace, interfaces) in
        [("client", "eth0"), ("server", "eth0"), ("fwd", "clients nodes servers"), ("n1", "eth0")]
    {
        let line = format!("for i in {interfaces}; do ethtool -K $i gro on tx off; done");
        net.run(namespace, &line).expect("set");
        net.set_sysctl(namespace, "net.ipv4.ip_forward", "1").expect("set");
    }
    net.run("client", "ip route add default via 10.1.0.1").expect("a route");
    // The node's way to everything leads by the forwarder: what it did not rewrite is handed back to be routed.
    net.run("n1", "ip route add default via 10.3.0.1").expect("a route");
    net.run("server", "ip route add default via 10.2.0.1").expect("a route");
    let file = configured(&net);
    let config = file.to_str().expect("UTF-8");
    let ok = plimsoll(&["check", "--config", config]);
    assert!(text(&ok.stdout).ends_with("ok (edge: 1 service, 1 node)\n"), "{ok:?}");
    let refused = plimsoll(&["edge", "run", "--config", config]);
    assert!(text(&refused.stderr).contains("plimsoll edge key"), "without a key: {refused:?}");
    assert!(plimsoll(&["edge", "key", "--config", config]).status.success());
    assert!(!plimsoll(&["edge", "key", "--config", config]).status.success(), "not twice");
    let status = || -> Value {
        let told = plimsoll(&["edge", "status", "--config", config, "-o", "json"]);
        serde_json::from_slice(&told.stdout).unwrap_or(Value::Null)
    };
    assert_eq!(
        plimsoll(&["edge", "status", "--config", config]).status.code(),
        Some(4),
        "nobody there"
    );
    let node = Daemon::start(&net, "n1", &["edge", "node", "run", "--name", "n1"], config);
    let forwarder = Daemon::start(&net, "fwd", &["edge", "run"], config);
    until("the node serves", || {
        status()["nodes"][0]["state"] == "serving" && status()["places"][0]["weight"] == 1.0
    });
    let socket = |namespace, address: &str| {
        let bound = net.inside(namespace, || UdpSocket::bind(address)).expect("a thread");
        bound.expect("bound")
    };
    let (sender, receiver) = (socket("client", "10.1.0.2:4000"), socket("server", "10.2.0.9:53"));
    receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
    let mut buffer = [0; 64];
    until("a packet passes", || {
        sender.send_to(b"hello", "10.2.0.9:53").expect("sent");
        receiver.recv_from(&mut buffer).is_ok()
    });
    until("it is counted", || status()["places"][0]["packets"].as_u64() > Some(0));
    let get = || ureq::get("http://127.0.0.1:7403/metrics").call().expect("metrics").into_body();
    let scraped = net.inside("fwd", || get().read_to_string()).expect("a thread").expect("a page");
    let of = |name: &str| {
        format!("\nplimsoll_edge_{name}{{node=\"n1\",cpu=\"0\",service=\"inspect\"}} ")
    };
    for name in ["packets_total", "bytes_total", "flows_opened_total", "flows", "predicted_load"] {
        assert!(scraped.contains(&of(name)), "{name} is missing:\n{scraped}");
    }
    assert!(scraped.contains(&format!("{}1\n", of("weight"))), "{scraped}");
    assert!(scraped.contains("\nplimsoll_edge_node_up{node=\"n1\"} 1\n"), "{scraped}");
    assert!(scraped.contains("\nplimsoll_edge_table_entries{family=\"4\"} "), "{scraped}");
    let flow = "udp:10.1.0.2:4000-10.2.0.9:53";
    let found = plimsoll(&["edge", "where", "--config", config, "--flow", flow]);
    let place: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert_eq!((&place["node"], &place["service"]), (&"n1".into(), &"inspect".into()));
    let unknown =
        plimsoll(&["edge", "where", "--config", config, "--flow", "udp:10.9.9.9:1-10.2.0.9:53"]);
    assert!(!unknown.status.success() && text(&unknown.stderr).contains("no such flow"));
    assert!(plimsoll(&["edge", "drain", "n1", "--config", config]).status.success());
    until("it drains", || status()["nodes"][0]["state"] == "draining");
    assert!(plimsoll(&["edge", "drain", "nobody", "--config", config]).status.code() != Some(0));
    let table = text(&plimsoll(&["edge", "status", "--config", config]).stdout);
    assert!(table.contains("PREDICTED %") && table.contains("inspect"), "{table}");
    let doctor = net
        .output(
            "fwd",
            Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["doctor", "--config", config]),
        )
        .expect("runs");
    assert!(text(&doctor.stdout).contains("edge nodes"), "{doctor:?}");
    let refused = plimsoll(&["edge", "detach", "--config", config]);
    assert!(text(&refused.stderr).contains("stop it first"), "{refused:?}");
    forwarder.end();
    assert!(plimsoll(&["edge", "detach", "--config", config]).status.success());
    node.end();
}
