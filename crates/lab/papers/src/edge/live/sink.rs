//! What arrives at the server: counted by its interfaces, and timed where it was sent to be.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_testbed::net::Namespaces;

use super::traffic::{TIMED_PORT, clock_ns};
use crate::Failure;

/// What is not timed is dropped before a socket is looked for.
const RULES: &str = "table ip cell { chain early { type filter hook prerouting priority -300; udp dport != 7001 drop; }; }";

/// Times that packets took from the client to the server, microseconds.
#[derive(Debug)]
pub struct Latency {
    seen: Arc<Mutex<Vec<f64>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Latency {
    pub(super) fn start(net: &Namespaces) -> Result<Latency, Failure> {
        net.run("server", &format!("nft '{RULES}' && ip route add local 10.2.0.0/16 dev lo"))?;
        let socket = net
            .inside("server", || UdpSocket::bind(("0.0.0.0", TIMED_PORT)))?
            .map_err(Failure::file("open a UDP socket"))?;
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .map_err(Failure::file("set a socket"))?;
        let (seen, stop) = (Arc::<Mutex<Vec<f64>>>::default(), Arc::new(AtomicBool::new(false)));
        let (to, until) = (seen.clone(), stop.clone());
        let body = move || {
            let mut buffer = [0u8; 256];
            while !until.load(Ordering::Relaxed) {
                let Ok((bytes, _)) = socket.recv_from(&mut buffer) else { continue };
                let Some(sent) = buffer[..bytes].first_chunk::<8>() else { continue };
                let took = clock_ns().saturating_sub(u64::from_le_bytes(*sent));
                to.lock().unwrap_or_else(PoisonError::into_inner).push(took as f64 / 1e3);
            }
        };
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(body);
        let thread = Some(thread.map_err(Failure::file("start a thread"))?);
        Ok(Latency { seen, stop, thread })
    }

    /// Those since the last time.
    pub fn take(&self) -> Vec<f64> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Latency {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Packets that have come in by the server's interfaces.
pub(super) fn arrived(net: &Namespaces) -> Result<u64, Failure> {
    let text = net
        .inside("server", || std::fs::read_to_string("/proc/thread-self/net/dev"))?
        .map_err(Failure::file("read /proc/thread-self/net/dev"))?;
    Ok(counted(&text))
}

/// Packets received by s1 and s2: the second number behind the name.
fn counted(text: &str) -> u64 {
    let of = |line: &str| -> Option<u64> {
        let (name, rest) = line.trim().split_once(':')?;
        ["s1", "s2"].contains(&name).then(|| rest.split_whitespace().nth(1)?.parse().ok()).flatten()
    };
    text.lines().filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn received_packets_of_both_interfaces_are_counted() {
        let text = "Inter-|   Receive |\n face |bytes packets\n    lo: 1 2 0\n    s1: 100 7 0 0\n    s2: 50 5 0 0\n";
        assert_eq!(super::counted(text), 12);
    }
}
