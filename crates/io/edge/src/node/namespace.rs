//! The namespace of a service: rules of nftables between two cables. Packets of the side that begins flows come in by
//! `lan` and leave by `wan`; replies come in by `wan` and leave by `lan`.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_l4::network::Link;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::EdgeError;
use crate::wire::CABLE_MTU;

const PREFIX: &str = "plimsoll-edge";
/// Next hops that are no machine: what leaves goes to the program at the other end of the cable.
const NEXT4: [&str; 2] = ["169.254.78.1", "169.254.77.1"];
const NEXT6: [&str; 2] = ["fe80::78", "fe80::77"];
const INSIDE: [&str; 2] = ["lan", "wan"];
const TABLE: &str = "100";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A namespace; it goes when it is dropped.
#[derive(Debug)]
pub(super) struct ServiceNamespace {
    pub(super) name: String,
    /// The cables' ends on this side: 0 towards the side that begins flows.
    pub(super) outside: [String; 2],
}

impl ServiceNamespace {
    /// Makes it, with these rules and addresses; `node` is set for the rules (`nft -D`). Its conntrack forgets no
    /// later than the forwarder does, after `idle`.
    pub(super) fn create(
        uplink: &Link,
        rules: &Path,
        external: &[IpAddr],
        (node, idle): (&str, Duration),
    ) -> Result<ServiceNamespace, EdgeError> {
        sweep();
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("{PREFIX}-{process}-{number}");
        // Named by the process, as other nodes may be on the machine; 15 bytes at the most.
        let outside = ["l", "w"].map(|side| format!("pe{process}-{number}{side}"));
        let mac: Vec<String> = uplink.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let (mac, mtu) = (mac.join(":"), uplink.mtu.min(CABLE_MTU));
        command(&format!("ip netns add {name}"))?;
        let made = ServiceNamespace { name: name.clone(), outside };
        for (end, inside) in made.outside.iter().zip(INSIDE) {
            command(&format!(
                "ip link add {end} address {mac} mtu {mtu} type veth peer name {inside} mtu {mtu} netns {name}"
            ))?;
            command(&format!("ip link set {end} up"))?;
            command(&format!("ip -n {name} link set {inside} up"))?;
        }
        command(&format!("ip -n {name} link set lo up"))?;
        made.inside(settle)??;
        for ((inside, next4), next6) in INSIDE.iter().zip(NEXT4).zip(NEXT6) {
            let table = if *inside == "lan" { TABLE } else { "main" };
            for (family, next) in [("-4", next4), ("-6", next6)] {
                command(&format!(
                    "ip {family} -n {name} neigh replace {next} lladdr {mac} dev {inside} nud permanent"
                ))?;
                command(&format!(
                    "ip {family} -n {name} route add default via {next} dev {inside} onlink table {table}"
                ))?;
            }
        }
        for family in ["-4", "-6"] {
            command(&format!("ip {family} -n {name} rule add iif wan lookup {TABLE} pref 100"))?;
        }
        for address in external {
            let (bits, nodad) = if address.is_ipv4() { (32, "") } else { (128, "nodad") };
            command(&format!("ip -n {name} addr add {address}/{bits} dev wan {nodad}"))?;
        }
        made.load(rules, node)?;
        // The rules have brought conntrack, where they use it.
        made.inside(move || forget_after(idle))??;
        Ok(made)
    }

    fn load(&self, rules: &Path, node: &str) -> Result<(), EdgeError> {
        let mut nft = Command::new("nft");
        nft.arg("-D").arg(format!("node={node}")).arg("-f").arg(rules);
        self.inside(move || succeeded(&mut nft))?
    }

    /// Does something on a thread that is in it.
    pub(super) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, EdgeError> {
        let path = format!("/run/netns/{}", self.name);
        let file = fs::File::open(&path).map_err(EdgeError::system(format!("open {path}")))?;
        std::thread::scope(|scope| {
            let body = move || {
                move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&file),
                    Some(LinkNameSpaceType::Network),
                )
                .map_err(|errno| EdgeError::system("enter a namespace")(errno.into()))?;
                Ok(work())
            };
            let thread = std::thread::Builder::new().spawn_scoped(scope, body);
            let thread = thread.map_err(EdgeError::system("start a thread"))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for ServiceNamespace {
    fn drop(&mut self) {
        for end in &self.outside {
            let _ = Command::new("ip").args(["link", "del", end]).output();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// A router that believes any source: what comes in by one cable leaves by the other.
fn settle() -> Result<(), EdgeError> {
    let values = [
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/lan/rp_filter", "0"),
        ("net/ipv4/conf/wan/rp_filter", "0"),
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/conf/lan/send_redirects", "0"),
        ("net/ipv4/conf/wan/send_redirects", "0"),
        ("net/ipv6/conf/all/forwarding", "1"),
        ("net/ipv6/conf/all/accept_dad", "0"),
    ];
    for (key, value) in values {
        let file = Path::new("/proc/sys").join(key);
        // A kernel without IPv6.
        if key.contains("ipv6") && !file.exists() {
            continue;
        }
        fs::write(&file, value).map_err(EdgeError::system(format!("set {key} to {value}")))?;
    }
    // Segments that were merged would be cut again without a checksum, for the cable promises to make it.
    for inside in INSIDE {
        command(&format!("ethtool -K {inside} tx off gro off"))?;
    }
    Ok(())
}

/// A connection of conntrack's that the forwarder has forgotten would hold its port for nothing.
fn forget_after(idle: Duration) -> Result<(), EdgeError> {
    for key in ["nf_conntrack_tcp_timeout_established", "nf_conntrack_udp_timeout_stream"] {
        let file = Path::new("/proc/sys/net/netfilter").join(key);
        // Rules without state, and a kernel that has not loaded it.
        if !file.exists() {
            continue;
        }
        let read = fs::read_to_string(&file).map_err(EdgeError::system(format!("read {key}")))?;
        let most = idle.as_secs();
        if read.trim().parse::<u64>().is_ok_and(|seconds| seconds > most) {
            fs::write(&file, most.to_string())
                .map_err(EdgeError::system(format!("set {key} to {most}")))?;
        }
    }
    Ok(())
}

fn command(line: &str) -> Result<(), EdgeError> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a command"));
    succeeded(command.args(words))
}

fn succeeded(command: &mut Command) -> Result<(), EdgeError> {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let line = words.join(" ");
    let output = command.output().map_err(EdgeError::system(format!("run `{line}`")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = if said.is_empty() { output.status.to_string() } else { said };
    Err(EdgeError::Command { command: line, said })
}

/// Removes what nodes that were killed have left.
fn sweep() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('-'));
        let id = id.and_then(|rest| rest.split('-').next()).and_then(|id| id.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}
