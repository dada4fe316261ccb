//! A forwarder, nodes, a client and a server in namespaces of their own, on one link.
//!
//! The client is 10.1.0.10, the server 10.2.0.20; their ways to each other, and that to what a NAT makes of clients
//! (203.0.113.0/24), lead by the forwarder, which is 10.3.0.1 to nodes. Checksums are made where packets are: a cable would
//! promise to make them, and XDP would see them unmade.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_config::Document;
use plimsoll_edge::config::EdgeConfig;
use plimsoll_edge::{Forwarder, Handle, Key, Node, Status};
use plimsoll_testbed::net::{Namespaces, requirements};

/// How long something may take that must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const CLIENT: &str = "10.1.0.10";
pub const SERVER: &str = "10.2.0.20";

/// Whether such a network can be made here; says why not.
pub fn privileged() -> bool {
    let nft = Command::new("nft").arg("--version").output().is_ok();
    match requirements() {
        Err(why) => eprintln!("skipped: {why}"),
        Ok(()) if !nft => eprintln!("skipped: nft is missing (Debian: apt-get install nftables)"),
        Ok(()) => return true,
    }
    false
}

/// Waits for something that must happen.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    namespaces: Vec<String>,
}

pub struct Rig {
    pub net: Namespaces,
    pub config: EdgeConfig,
    nodes: BTreeMap<String, Running>,
    pub forwarder: Option<Handle>,
}

impl Rig {
    /// With a forwarder's namespace, a client, a server, and two nodes (n1: 10.3.0.11, n2: 10.3.0.12). `section` is the
    /// rest of `edge`.
    pub fn new(section: &str) -> Rig {
        Rig::with_rules(section, "")
    }

    /// The same, with rules of nftables in the file that `section` calls RULES.
    pub fn with_rules(section: &str, rules: &str) -> Rig {
        let net =
            Namespaces::new(&["sw", "fwd", "client", "server", "n1", "n2"]).expect("a network");
        net.run("sw", "ip link add br0 type bridge mcast_snooping 0 && ip link set br0 up")
            .expect("a bridge");
        for (name, addresses) in [
            ("fwd", &["10.1.0.1/24", "10.2.0.1/24", "10.3.0.1/24", "fd01::1/64", "fd02::1/64"][..]),
            ("client", &["10.1.0.10/24", "fd01::10/64"]),
            ("server", &["10.2.0.20/24", "fd02::20/64"]),
            ("n1", &["10.3.0.11/24"]),
            ("n2", &["10.3.0.12/24"]),
        ] {
            let full = net.full(name);
            net.run("sw", &format!(
                "ip link add p-{name} type veth peer name eth0 netns {full} && ip link set p-{name} master br0 up && ethtool -K p-{name} gro on tx off"
            )).expect("a cable");
            net.run(name, "ethtool -K eth0 gro on tx off && ip link set eth0 up")
                .expect("an interface");
            for address in addresses {
                let nodad = if address.contains(':') { "nodad" } else { "" };
                net.run(name, &format!("ip addr add {address} dev eth0 {nodad}"))
                    .expect("an address");
            }
        }
        for name in ["fwd", "n1", "n2"] {
            net.run(name, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0").expect("a router");
        }
        net.run(
            "client",
            "ip route add default via 10.1.0.1 && ip -6 route add default via fd01::1",
        )
        .expect("a route");
        net.run(
            "server",
            "ip route add default via 10.2.0.1 && ip -6 route add default via fd02::1",
        )
        .expect("a route");
        // Nodes reach both without the forwarder.
        for name in ["n1", "n2"] {
            net.run(name, "ip route add 10.1.0.0/24 dev eth0 && ip route add 10.2.0.0/24 dev eth0 && ip -6 route add fd01::/64 dev eth0 && ip -6 route add fd02::/64 dev eth0").expect("routes");
        }
        let key = net.dir().join("edge.key");
        Key::create(&key).expect("a key");
        let file = net.dir().join("rules.nft");
        std::fs::write(&file, rules).expect("written");
        let section = section.replace("RULES", file.to_str().expect("UTF-8"));
        let text = format!(
            "edge:\n  interfaces: [ {{ name: eth0 }} ]\n  pin_dir: {}\n  socket: {}\n  control: {{ key: {} }}\n{section}",
            net.pins().display(),
            net.dir().join("edge.sock").display(),
            key.display(),
        );
        let config = parse(&text);
        Rig { net, config, nodes: BTreeMap::new(), forwarder: None }
    }

    /// Starts a node.
    pub fn start_node(&mut self, name: &str) {
        let stop = Arc::new(AtomicBool::new(false));
        let (of, config, own) = (stop.clone(), self.config.clone(), name.to_owned());
        let (tell, told) = mpsc::channel();
        let thread = self.net.inside(name, move || {
            std::thread::spawn(move || {
                let mut node = Node::start(&config, &own)
                    .unwrap_or_else(|error| panic!("node {own}: {error}"));
                tell.send(node.namespaces()).expect("heard");
                node.run(&of);
            })
        });
        let namespaces = told.recv_timeout(PATIENCE).expect("a node");
        self.nodes.insert(
            name.to_owned(),
            Running { stop, thread: thread.expect("a thread"), namespaces },
        );
    }

    /// Ends a node, and its namespaces with it.
    pub fn stop_node(&mut self, name: &str) {
        let running = self.nodes.remove(name).expect("it runs");
        running.stop.store(true, Ordering::Relaxed);
        running.thread.join().expect("ended");
    }

    pub fn start_forwarder(&mut self) {
        let config = self.config.clone();
        let started =
            self.net.inside("fwd", move || Forwarder::start(&config).and_then(Forwarder::spawn));
        self.forwarder =
            Some(started.expect("a thread").unwrap_or_else(|error| panic!("forwarder: {error}")));
    }

    pub fn stop_forwarder(&mut self) {
        self.forwarder.take().expect("it runs").stop();
    }

    pub fn status(&self) -> Status {
        self.forwarder.as_ref().expect("it runs").status()
    }

    /// Waits until these nodes serve.
    pub fn until_serving(&self, names: &[&str]) {
        let serves = |status: &Status, name: &str| {
            status.nodes.iter().any(|node| node.name == name && node.state == "serving")
        };
        let began = Instant::now();
        loop {
            let status = self.status();
            if names.iter().all(|name| serves(&status, name)) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "never: {names:?} serve: {:#?}", status.nodes);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Namespaces of a node's services.
    pub fn namespaces(&self, node: &str) -> &[String] {
        &self.nodes[node].namespaces
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(handle) = self.forwarder.take() {
            handle.stop();
        }
        for (_, running) in std::mem::take(&mut self.nodes) {
            running.stop.store(true, Ordering::Relaxed);
            let _ = running.thread.join();
        }
    }
}

pub fn parse(text: &str) -> EdgeConfig {
    let document = Document::parse("edge.yaml", text).expect("YAML");
    let read = document.read(|cursor| {
        let fields = cursor.fields(&["edge"])?;
        fields.required("edge", "the section", EdgeConfig::read)
    });
    read.unwrap_or_else(|errors| panic!("{errors:#?}"))
}
