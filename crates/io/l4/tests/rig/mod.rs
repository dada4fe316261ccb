//! Network namespaces that a test makes and removes, even when it fails.
#![allow(dead_code, unused_imports)] // each test file uses a part

pub mod direct;
pub mod raw;
pub mod second;
pub mod service;

use std::net::SocketAddr;
use std::ops::Deref;
use std::process::{Command, Output};

use plimsoll_l4::{Backend, L4Config, Mac, Vip};
use plimsoll_l4bench as bench;
pub use plimsoll_l4bench::{keys, vip};
use plimsoll_testbed::net::{CableEnd, Namespaces};

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

/// A set of namespaces, where whatever fails fails the test.
pub struct Net(Namespaces);

impl Deref for Net {
    type Target = Namespaces;

    fn deref(&self) -> &Namespaces {
        &self.0
    }
}

impl From<Namespaces> for Net {
    fn from(namespaces: Namespaces) -> Net {
        Net(namespaces)
    }
}

impl Net {
    /// Namespaces named by this process and test.
    pub fn new(names: &[&str]) -> Net {
        Net(Namespaces::new(names).expect("namespaces"))
    }

    /// Runs a command in a namespace.
    pub fn exec(&self, name: &str, command: &str) -> Output {
        self.0.run(name, command).expect("runs")
    }

    /// Moves this thread into a namespace.
    pub fn enter(&self, name: &str) {
        self.0.enter(name).expect("enters");
    }

    /// Moves this thread back to where it began.
    pub fn leave(&self) {
        self.0.leave().expect("goes home");
    }

    /// A cable between two namespaces, as (namespace, interface, MAC address, address/prefix).
    pub fn cable(&self, one: (&str, &str, &str, &str), two: (&str, &str, &str, &str)) {
        let [one, two] = [one, two].map(|(namespace, interface, mac, address)| CableEnd {
            namespace,
            interface,
            mac,
            address,
        });
        self.0.cable(one, two).expect("a cable");
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
