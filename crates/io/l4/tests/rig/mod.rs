//! Network namespaces that a test makes and removes, even when it fails.
#![allow(dead_code, unused_imports)] // each test file uses a part

pub mod service;

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_l4::bench;
pub use plimsoll_l4::bench::{keys, vip};
use plimsoll_l4::{Backend, L4Config, Mac, Vip};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether this process may make namespaces and load programs; says so when not.
pub fn privileged() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root (network namespaces, BPF)");
    }
    root
}

/// Runs a command that must succeed.
pub fn run(command: &str) -> Output {
    let output = Command::new("sh").args(["-c", command]).output().expect("sh runs");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Removes what test processes that were killed have left.
fn sweep() {
    let pins = std::fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten();
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for entry in names.chain(pins) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("plt").and_then(|rest| rest.split('-').next());
        let Some(Ok(id)) = process.map(str::parse::<u32>) else { continue };
        if !PathBuf::from(format!("/proc/{id}")).exists() {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
            let _ = plimsoll_l4::detach(&PathBuf::from("/sys/fs/bpf").join(&name));
        }
    }
}

/// A set of namespaces; removed with all that was pinned when dropped.
pub struct Net {
    prefix: String,
    namespaces: Vec<String>,
    pins: PathBuf,
    home: File,
}

impl Net {
    /// Namespaces named by this process and test.
    pub fn new(names: &[&str]) -> Net {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("plt{}-{number}", std::process::id());
        let home = File::open("/proc/thread-self/ns/net").expect("a namespace");
        let pins = PathBuf::from(format!("/sys/fs/bpf/{prefix}"));
        let mut net = Net { prefix, namespaces: Vec::new(), pins, home };
        for name in names {
            let full = net.full(name);
            run(&format!("ip netns add {full} && ip -n {full} link set lo up"));
            net.namespaces.push(full);
        }
        net
    }

    /// The kernel's name of a namespace.
    pub fn full(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Where to pin.
    pub fn pins(&self) -> PathBuf {
        self.pins.clone()
    }

    /// Runs a command in a namespace.
    pub fn exec(&self, name: &str, command: &str) -> Output {
        // Not `ip netns exec`, which would hide bpffs.
        run(&format!("nsenter --net=/run/netns/{} {command}", self.full(name)))
    }

    /// Moves this thread into a namespace.
    pub fn enter(&self, name: &str) {
        let file = File::open(format!("/run/netns/{}", self.full(name))).expect("a namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("enters");
    }

    /// Moves this thread back to where it began.
    pub fn leave(&self) {
        move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("goes home");
    }

    /// A cable between two namespaces, as (namespace, interface, MAC address, address/prefix).
    pub fn cable(&self, one: (&str, &str, &str, &str), two: (&str, &str, &str, &str)) {
        run(&format!(
            "ip link add {} netns {} address {} type veth peer name {} netns {} address {}",
            one.1,
            self.full(one.0),
            one.2,
            two.1,
            self.full(two.0),
            two.2
        ));
        for (name, interface, _, address) in [one, two] {
            let full = self.full(name);
            let family = if address.contains(':') { "nodad" } else { "" };
            run(&format!(
                "ip -n {full} addr add {address} dev {interface} {family} && ip -n {full} link set \
                 {interface} up"
            ));
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.leave();
        let _ = plimsoll_l4::detach(&self.pins);
        for name in &self.namespaces {
            let _ = Command::new("sh")
                .args([
                    "-c",
                    &format!("ip netns pids {name} | xargs -r kill -9; ip netns del {name}"),
                ])
                .output();
        }
    }
}

/// A configuration with one service.
pub fn config(net: &Net, interfaces: &[&str], vip: Vip) -> L4Config {
    bench::config(net.pins(), interfaces, vip)
}

/// A server with a known MAC address.
pub fn backend(name: &str, address: &str, mac: Mac) -> Backend {
    bench::backend(name, address.parse().expect("address"), mac)
}

/// An address and port.
pub fn at(text: &str) -> SocketAddr {
    text.parse().expect("address")
}
