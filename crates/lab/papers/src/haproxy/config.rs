//! A HAProxy's configuration with a knob turned.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use plimsoll_lanes::{Family, Haproxy, PATIENCE};

use super::pool::Addresses;
use crate::Failure;

/// Lines that a knob adds, each section's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// What it is called.
    pub name: &'static str,
    /// Threads.
    pub threads: u32,
    /// In `global`.
    pub global: &'static str,
    /// In `defaults`.
    pub defaults: &'static str,
    /// After each server's address.
    pub server: &'static str,
}

/// HAProxy's defaults with one thread.
pub const PLAIN: Lines =
    Lines { name: "default", threads: 1, global: "", defaults: "", server: "" };

/// Starts one under roundrobin.
///
/// # Errors
/// When it does not take its configuration.
pub fn start(
    family: &Family,
    name: &str,
    lines: Lines,
    servers: &Addresses,
) -> Result<Haproxy, Failure> {
    Ok(Haproxy::start_with(family, name, |socket| text(socket, lines, servers))?)
}

fn text(socket: &Path, lines: Lines, servers: &Addresses) -> String {
    let Lines { threads, global, defaults, server, .. } = lines;
    let mut text = format!(
        "global
    stats socket {} mode 600 level admin
    no strict-limits
    nbthread {threads}
{global}
defaults
    mode http
    timeout connect 2s
    timeout queue {patience}ms
    timeout client 60s
    timeout server {patience}ms
{defaults}
frontend clients
    bind fd@0
    default_backend pool
backend pool
    balance roundrobin
",
        socket.display(),
        patience = PATIENCE.as_millis() + 2_000,
    );
    for (name, address) in servers {
        text.push_str(&format!("    server {name} {address} {server}\n"));
    }
    text
}

/// What a HAProxy has used since its start.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// CPU time of all its threads.
    pub cpu: Duration,
    /// Bytes that it has sent, to clients and to servers.
    pub sent: u64,
}

/// What the HAProxy of this admin socket has used.
pub fn used(socket: &Path) -> Option<Used> {
    let mut admin = UnixStream::connect(socket).ok()?;
    admin.write_all(b"show info\n").ok()?;
    let mut said = String::new();
    admin.read_to_string(&mut said).ok()?;
    let number = |key| -> Option<u64> {
        said.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
    };
    let (pid, sent) = (number("Pid: ")?, number("TotalBytesOut: ")?);
    let mut ns = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        ns += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(Used { cpu: Duration::from_nanos(ns), sent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_stands_in_its_section() {
        let servers = vec![("s1".to_owned(), "127.0.0.1:81".parse().unwrap())];
        let lines = Lines {
            global: "    busy-polling",
            defaults: "    option httpclose",
            server: "maxconn 4",
            threads: 2,
            ..PLAIN
        };
        let text = text(Path::new("/x"), lines, &servers);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in\n{text}"));
        assert!(at("nbthread 2") < at("busy-polling") && at("busy-polling") < at("defaults"));
        assert!(at("defaults") < at("httpclose") && at("httpclose") < at("frontend"));
        at("server s1 127.0.0.1:81 maxconn 4");
    }
}
