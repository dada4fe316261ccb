//! What breaks in practice, looked for on this machine: the kernel, its interfaces and addresses, and
//! the servers' timestamps. Changes nothing but for a few connections to the servers.
//!
//! A machine that has the address of a backend is looked at as a server, any other as a balancer; without
//! a configuration only what every machine needs is looked at.

mod bypass;
mod ethtool;
pub(crate) mod features;
mod interfaces;
pub(crate) use interfaces::NATIVE_MTU;
mod kernel;
mod local;
mod probe;
mod reach;
mod refused;
mod servers;

use std::fs;
use std::net::IpAddr;

use serde::Serialize;

pub use local::{interface_of, local_addresses};

use crate::config::L4Config;
use local::Machine;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, with a risk or at a cost.
    Warn,
    /// Connections or packets will be lost.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name; docs/doctor.md lists them.
    pub check: &'static str,
    /// What was looked at: an interface, a server, the machine.
    pub about: String,
    /// How it came out.
    pub level: Level,
    /// What is so.
    pub found: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do; empty where nothing is.
    pub advice: String,
}

impl Finding {
    fn new(check: &'static str, about: &str, why: &'static str) -> Finding {
        let (found, advice) = (String::new(), String::new());
        Finding { check, about: about.to_owned(), level: Level::Ok, found, why, advice }
    }

    fn ok(mut self, found: impl Into<String>) -> Finding {
        self.found = found.into();
        self
    }

    fn bad(mut self, level: Level, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        self.level = level;
        self.advice = advice.into();
        self.ok(found)
    }

    fn warn(self, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        self.bad(Level::Warn, found, advice)
    }

    fn fail(self, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        self.bad(Level::Fail, found, advice)
    }
}

/// What this machine is to a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Has the address of a backend; whether all its backends have agents.
    Server { agent: bool },
    /// Has none.
    Balancer,
}

/// Looks at everything; findings in the order of looking.
pub fn examine(config: Option<&L4Config>) -> Vec<Finding> {
    let machine = match Machine::look() {
        Ok(machine) => machine,
        Err(error) => {
            let why = "interfaces, addresses and routes cannot be looked at";
            let finding = Finding::new("netlink", "machine", why);
            return vec![finding.fail(error.to_string(), "allow NETLINK_ROUTE sockets")];
        }
    };
    let role = config.map_or(Role::Balancer, |config| role(config, &machine));
    let before = config.and_then(|config| bypass::Reading::of(&config.pin_dir));
    let mut findings = kernel::examine(role);
    findings.extend(refused::examine(role));
    let Some(config) = config else {
        findings.extend(interfaces::examine_all(&machine));
        return findings;
    };
    findings.push(who(config, role, &machine));
    findings.extend(interfaces::examine(config, role, &machine));
    findings.extend(local::examine(config, role, &machine));
    if role == Role::Balancer {
        findings.extend(reach::examine(config, &machine));
        findings.extend(bypass::examine(config, before.as_ref()));
    }
    findings.extend(servers::examine(config, role, &machine));
    findings
}

fn role(config: &L4Config, machine: &Machine) -> Role {
    let mut own = config
        .vips
        .iter()
        .flat_map(|vip| &vip.backends)
        .filter(|backend| machine.has(backend.address));
    let Some(first) = own.next() else { return Role::Balancer };
    Role::Server { agent: first.agent && own.all(|backend| backend.agent) }
}

fn who(config: &L4Config, role: Role, machine: &Machine) -> Finding {
    let finding = Finding::new("role", "machine", "what is needed differs by role");
    if role == Role::Balancer {
        return finding.ok("a balancer: it has no backend's address");
    }
    let mut names = Vec::new();
    for vip in &config.vips {
        for backend in vip.backends.iter().filter(|one| machine.has(one.address)) {
            names.push(format!("{}/{}", vip.name, backend.name));
        }
    }
    finding.ok(format!("a server: {}", names.join(", ")))
}

/// A setting under /proc/sys, as the caller's network namespace has it.
fn sysctl(name: &str) -> Option<u64> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A setting of an interface; its name may hold dots, so that it is no part of a dotted one.
pub(crate) fn interface_sysctl(family: &str, interface: &str, what: &str) -> Option<u64> {
    let path = format!("/proc/sys/net/{family}/conf/{interface}/{what}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ipv4" } else { "ipv6" }
}
