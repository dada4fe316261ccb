//! Namespaces, a forwarder and two nodes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_edge::{Key, PlaceStatus, Status, ask};
use plimsoll_lanes::Interrupt;
use plimsoll_testbed::net::{Namespaces, requirements};

use super::busy::{self, Threads};
use super::sink::{self, Latency};
use super::traffic::{Load, ports};
use crate::Failure;

/// How long daemons may take to serve.
const STARTS: Duration = Duration::from_secs(60);
/// What is shown is brought up to date twice a second.
const FRESH: Duration = Duration::from_secs(3);
const BLINK: Duration = Duration::from_millis(10);

/// What is to run.
#[derive(Clone, Debug)]
pub struct CellPlan {
    /// How weights are set.
    pub policy: &'static str,
    /// A chain for each service, as the configuration has it; `RULES` is the file with `rules`.
    pub chains: Vec<String>,
    /// Rules of nftables.
    pub rules: &'static str,
    /// CPUs: n1's, and n2's where there is one.
    pub cpus: Vec<u32>,
    /// Whether n2 is a standby.
    pub standby: bool,
}

impl CellPlan {
    /// Two nodes, one on each of two CPUs, with one service that works so many microseconds on every packet.
    pub fn two_nodes(policy: &'static str, work_us: u32) -> CellPlan {
        let chains = vec![format!("[ {{ xdp: {{ work: {work_us}us }} }} ]")];
        CellPlan { policy, chains, rules: "", cpus: vec![0, 1], standby: false }
    }

    fn yaml(&self, dir: &Path, pins: &Path) -> String {
        let mut text = format!(
            "edge:\n  interfaces: [ {{ name: c0 }}, {{ name: e1 }}, {{ name: e2 }} ]\n  policy: {}\n  pin_dir: {}\n  \
             socket: {}\n  control: {{ key: {} }}\n  flows: {{ limit: 600000, idle: 15s }}\n  services:\n",
            self.policy,
            pins.display(),
            dir.join("edge.sock").display(),
            dir.join("edge.key").display(),
        );
        let rules = dir.join("rules.nft").display().to_string();
        for (number, chain) in self.chains.iter().enumerate() {
            let chain = chain.replace("RULES", &rules);
            // The first one has what is timed as well.
            let timed = if number == 0 { ", { protocol: udp, ports: 7001 }" } else { "" };
            let _ = writeln!(
                text,
                "    - {{ name: chain{number}, match: [ {{ protocol: udp, ports: {} }}{timed} ], chain: {chain} }}",
                ports(number as u64)
            );
        }
        let services: Vec<String> = (0..self.chains.len()).map(|n| format!("chain{n}")).collect();
        text.push_str("  nodes:\n");
        for (number, cpu) in self.cpus.iter().enumerate() {
            let standby = if number == 1 && self.standby { ", standby: true" } else { "" };
            let _ = writeln!(
                text,
                "    - {{ name: n{0}, address: \"10.3.0.1{0}\", cpus: [{cpu}], services: [{1}]{standby} }}",
                number + 1,
                services.join(", "),
            );
        }
        text
    }
}

/// Ended with the cell.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One that runs.
pub struct Cell {
    net: Namespaces,
    socket: PathBuf,
    daemons: Vec<Daemon>,
    others: BTreeSet<u32>,
    cpus: Vec<u32>,
}

impl Cell {
    /// Starts it, and waits until all nodes serve that are no standby.
    ///
    /// # Errors
    /// Without root, or the `plimsoll` beside this program; when a daemon does not come to serve: with what it said.
    pub fn start(plan: &CellPlan, interrupt: &Interrupt) -> Result<Cell, Failure> {
        requirements()?;
        let program = plimsoll_lanes::plimsoll()?;
        let others = busy::others();
        let net = network()?;
        let key = net.dir().join("edge.key");
        Key::create(&key).map_err(|error| Failure::Other(error.to_string()))?;
        let write = |name: &str, text: &str| {
            let file = net.dir().join(name);
            std::fs::write(&file, text)
                .map_err(Failure::file("write a configuration"))
                .map(|()| file)
        };
        write("rules.nft", plan.rules)?;
        let file = write("edge.yaml", &plan.yaml(net.dir(), &net.pins()))?;
        let (socket, cpus) = (net.dir().join("edge.sock"), plan.cpus.clone());
        let mut cell = Cell { net, socket, daemons: Vec::new(), others, cpus };
        for number in 1..=plan.cpus.len() {
            let name = format!("n{number}");
            cell.spawn(&program, &name, &["edge", "node", "run", "--name", &name], &file)?;
        }
        cell.spawn(&program, "fwd", &["edge", "run"], &file)?;
        let began = Instant::now();
        let serves =
            |place: &PlaceStatus| place.weight > 0.0 || (plan.standby && place.node == "n2");
        let known = |status: &Status| {
            let standby =
                !plan.standby || status.nodes.get(1).is_some_and(|n| n.state == "standby");
            standby && !status.places.is_empty() && status.places.iter().all(serves)
        };
        while !cell.status().is_some_and(|status| known(&status)) {
            if interrupt.came() {
                return Err(Failure::Interrupted);
            }
            if began.elapsed() > STARTS {
                return Err(Failure::Other(format!("the nodes do not serve:\n{}", cell.said())));
            }
            std::thread::sleep(BLINK * 10);
        }
        Ok(cell)
    }

    fn spawn(
        &mut self,
        program: &Path,
        namespace: &str,
        words: &[&str],
        file: &Path,
    ) -> Result<(), Failure> {
        let log = std::fs::File::create(self.net.dir().join(namespace));
        let mut command = Command::new(program);
        command.args(words).arg("--config").arg(file).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log.map_err(Failure::file("write a log"))?);
        self.daemons.push(Daemon(self.net.spawn(namespace, &mut command)?));
        Ok(())
    }

    /// What daemons have said.
    fn said(&self) -> String {
        let of =
            |name: &str| std::fs::read_to_string(self.net.dir().join(name)).unwrap_or_default();
        ["fwd", "n1", "n2"].map(of).concat()
    }

    /// How things are, as the forwarder tells; no older than half a second.
    pub fn status(&self) -> Option<Status> {
        serde_json::from_value(ask(&self.socket, &serde_json::json!("status")).ok()?).ok()
    }

    /// The same, just brought up to date: it waits for that. Packets must be on their way.
    ///
    /// # Errors
    /// When nothing changes any more, or the forwarder does not answer: with what it said.
    pub fn fresh(&self) -> Result<Status, Failure> {
        let packets = |status: &Status| status.places.iter().map(|one| one.packets).sum::<u64>();
        let began = Instant::now();
        let mut before = None;
        while began.elapsed() < FRESH {
            if let Some(status) = self.status() {
                let now = packets(&status);
                if before.is_some_and(|before| before != now) {
                    return Ok(status);
                }
                before = Some(now);
            }
            std::thread::sleep(BLINK);
        }
        Err(Failure::Other(format!("the forwarder tells of no packets:\n{}", self.said())))
    }

    /// The threads of each node.
    pub fn threads(&self) -> Vec<Threads> {
        self.cpus.iter().map(|cpu| Threads::of(*cpu, &self.others)).collect()
    }

    /// Packets that functions have let pass.
    ///
    /// # Errors
    /// When the server's counters cannot be read.
    pub fn arrived(&self) -> Result<u64, Failure> {
        sink::arrived(&self.net)
    }

    /// Clients that send nothing yet; on one CPU alone where one is named.
    ///
    /// # Errors
    /// When the system refuses a socket, UDP_SEGMENT, or a thread.
    pub fn clients(&self, cpu: Option<u32>) -> Result<Load, Failure> {
        Load::start(&self.net, cpu)
    }

    /// Begins to time packets. Once.
    ///
    /// # Errors
    /// When rules, a socket or a thread are refused.
    pub fn time(&self) -> Result<Latency, Failure> {
        Latency::start(&self.net)
    }
}

/// Client, forwarder, nodes and server, each with cables to those it sends to.
fn network() -> Result<Namespaces, Failure> {
    let net = Namespaces::new(&["fwd", "client", "server", "n1", "n2"])?;
    for (one, end, other, peer) in [
        ("client", "eth0", "fwd", "c0"),
        ("n1", "eth0", "fwd", "e1"),
        ("n2", "eth0", "fwd", "e2"),
        ("n1", "s0", "server", "s1"),
        ("n2", "s0", "server", "s2"),
    ] {
        let to = net.full(other);
        net.run(one, &format!("ip link add {end} type veth peer name {peer} netns {to}"))?;
        for (name, interface) in [(one, end), (other, peer)] {
            net.run(
                name,
                &format!("ethtool -K {interface} gro on tx off && ip link set {interface} up"),
            )?;
        }
    }
    for name in ["fwd", "n1", "n2", "server"] {
        for key in ["ip_forward=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0"] {
            let (key, value) = key.split_once('=').unwrap_or((key, "0"));
            net.set_sysctl(name, &format!("net.ipv4.{key}"), value)?;
        }
    }
    net.run("client", "ip addr add 10.1.0.10/24 dev eth0 && ip route add default via 10.1.0.1")?;
    net.run("fwd", "ip addr add 10.1.0.1/24 dev c0 && sysctl -qw net.ipv4.conf.c0.rp_filter=0 net.ipv4.conf.e1.rp_filter=0 net.ipv4.conf.e2.rp_filter=0")?;
    for number in ["1", "2"] {
        let node = format!("n{number}");
        net.run("fwd", &format!("ip addr add 10.3.0.1/32 dev e{number} && ip route add 10.3.0.1{number}/32 dev e{number} src 10.3.0.1"))?;
        net.run(&node, &format!("sysctl -qw net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.s0.rp_filter=0 && ip addr add 10.3.0.1{number}/32 dev eth0 && ip route add 10.3.0.1/32 dev eth0 && ip addr add 10.4.{number}.1/24 dev s0 && ip route add 10.2.0.0/16 via 10.4.{number}.20"))?;
        net.run("server", &format!("sysctl -qw net.ipv4.conf.s{number}.rp_filter=0 && ip addr add 10.4.{number}.20/24 dev s{number}"))?;
    }
    Ok(net)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_configurations_that_the_product_reads() {
        let mut plan = CellPlan::two_nodes("monitor", 8);
        plan.chains.push("[ { nftables: RULES }, { xdp: counter } ]".to_owned());
        plan.standby = true;
        let text = plan.yaml(Path::new("/tmp/cell"), Path::new("/sys/fs/bpf/cell"));
        let document = plimsoll_config::Document::parse("edge.yaml", &text).expect("YAML");
        let read = document.read(|cursor| {
            let fields = cursor.fields(&["edge"])?;
            fields.required("edge", "the section", plimsoll_edge::config::EdgeConfig::read)
        });
        let config = read.unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"));
        assert_eq!((config.nodes.len(), config.services.len()), (2, 2));
        assert!(config.nodes[1].standby && !config.nodes[0].standby);
    }
}
