//! How a server's timestamps behave, seen in the SYN-ACKs of a few connections to it.
//!
//! With `net.ipv4.tcp_timestamps=2` the stamps of all connections are one clock in milliseconds; with 1
//! each has an offset of its own (Linux since 2026; one for each pair of addresses before, which shows
//! from several addresses only); with 0 there are none. Where a route has `tcp_usec_ts`, the one clock
//! runs in microseconds.
//!
//! A raw socket sees the answers to connections that the kernel makes; it needs CAP_NET_RAW.

use std::io::Result;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, recv, socket, sockopt};

const CONNECTIONS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(1);
/// Between connections, so that the clock's rate shows.
const PAUSE: Duration = Duration::from_millis(20);
/// Clocks read this far apart are the same; random ones are so by chance once in 400,000 pairs.
const SAME_MS: u32 = 5_000;

/// How a server's timestamps behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// One clock in milliseconds.
    OneClock,
    /// An offset for each connection.
    Random,
    /// One clock in microseconds.
    Microseconds,
    /// None.
    Absent,
    /// No SYN was answered with a SYN-ACK.
    NoAnswer,
}

/// A SYN-ACK's timestamp, if any, and when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    value: Option<u32>,
    at_us: u64,
}

/// Connects a few times.
///
/// # Errors
/// Without the right to open raw sockets.
pub fn probe(server: SocketAddr) -> Result<Stamps> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let raw = socket(family, SocketType::RAW, Some(ipproto::TCP))?;
    sockopt::set_socket_timeout(&raw, sockopt::Timeout::Recv, Some(Duration::from_millis(200)))?;
    let began = Instant::now();
    let mut stamps = Vec::new();
    for _ in 0..CONNECTIONS {
        let Ok(stream) = TcpStream::connect_timeout(&server, PATIENCE) else { break };
        let at_us = began.elapsed().as_micros() as u64;
        let port = stream.local_addr()?.port();
        if let Some(value) = answer(&raw, server, port) {
            stamps.push(Stamp { value, at_us });
        }
        std::thread::sleep(PAUSE);
    }
    Ok(judge(&stamps))
}

/// The SYN-ACK's timestamp among what the raw socket saw.
fn answer(raw: &OwnedFd, server: SocketAddr, port: u16) -> Option<Option<u32>> {
    let mut packet = vec![0; 64 * 1024];
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let Ok((length, _)) = recv(raw, &mut packet[..], RecvFlags::empty()) else { return None };
        let bytes = &packet[..length];
        // Raw sockets deliver the header of IPv4, and none of IPv6.
        let tcp = match server.ip() {
            IpAddr::V4(_) => bytes.get(usize::from(bytes.first()? & 15) * 4..).unwrap_or_default(),
            IpAddr::V6(_) => bytes,
        };
        if let Some(value) = syn_ack(tcp, server.port(), port) {
            return Some(value);
        }
    }
    None
}

/// The timestamp of a SYN-ACK between these ports; `None` for any other segment.
fn syn_ack(tcp: &[u8], from: u16, to: u16) -> Option<Option<u32>> {
    let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
    if tcp.get(..4)? != ports || tcp.get(13)? & 0x12 != 0x12 {
        return None;
    }
    let mut options = tcp.get(20..usize::from(tcp[12] >> 4) * 4).unwrap_or_default();
    loop {
        options = match options {
            [1, rest @ ..] => rest,
            [8, 10, a, b, c, d, ..] => return Some(Some(u32::from_be_bytes([*a, *b, *c, *d]))),
            [0, ..] | [] | [_] => return Some(None),
            [_, length, ..] if *length >= 2 => {
                options.get(usize::from(*length)..).unwrap_or_default()
            }
            _ => return Some(None),
        };
    }
}

fn judge(stamps: &[Stamp]) -> Stamps {
    if stamps.len() < 2 {
        return Stamps::NoAnswer;
    }
    let Some(values) = stamps.iter().map(|one| one.value).collect::<Option<Vec<u32>>>() else {
        return Stamps::Absent;
    };
    let spread = |unit_us: u64| {
        let clock = |at: usize| values[at].wrapping_sub((stamps[at].at_us / unit_us) as u32);
        (1..values.len()).map(|at| (clock(at).wrapping_sub(clock(0)) as i32).unsigned_abs()).max()
    };
    // The microsecond clock is the rarer: looked for only where milliseconds do not fit.
    if spread(1000) <= Some(SAME_MS) && !runs_in_usec(&values, stamps) {
        return Stamps::OneClock;
    }
    if spread(1) <= Some(SAME_MS * 1000) {
        return Stamps::Microseconds;
    }
    Stamps::Random
}

/// Whether the clock moved by far more than milliseconds did.
fn runs_in_usec(values: &[u32], stamps: &[Stamp]) -> bool {
    let last = values.len() - 1;
    let passed_us = stamps[last].at_us - stamps[0].at_us;
    u64::from(values[last].wrapping_sub(values[0])) > passed_us / 4 && passed_us > 20_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(values: &[(u32, u64)]) -> Vec<Stamp> {
        values.iter().map(|(value, at_us)| Stamp { value: Some(*value), at_us: *at_us }).collect()
    }

    #[test]
    fn timestamp_clocks_are_distinguished() {
        let of = |values: &[(u32, u64)]| judge(&stamps(values));
        assert_eq!(of(&[(5000, 0), (5020, 20_300), (5041, 41_000)]), Stamps::OneClock);
        let wraps = u32::MAX - 10;
        assert_eq!(of(&[(wraps, 0), (9, 20_000), (30, 40_100)]), Stamps::OneClock);
        assert_eq!(of(&[(5000, 0), (900_000_000, 20_000), (77, 40_000)]), Stamps::Random);
        assert_eq!(of(&[(5000, 0), (25_200, 20_000), (45_100, 40_000)]), Stamps::Microseconds);
        assert_eq!(of(&[(5000, 0)]), Stamps::NoAnswer);
        let none = Stamp { value: None, at_us: 1 };
        assert_eq!(judge(&[none, none]), Stamps::Absent);
    }

    #[test]
    fn a_syn_ack_is_read_and_options_that_lie_are_none() {
        let segment = |flags: u8, options: &[u8]| {
            let mut tcp = vec![0, 80, 0x9c, 0x40, 0, 0, 0, 0, 0, 0, 0, 0];
            tcp.extend([(((20 + options.len()) / 4) << 4) as u8, flags, 0, 0, 0, 0, 0, 0]);
            tcp.extend(options);
            tcp
        };
        let linux = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 1, 2, 0, 0, 0, 0, 1, 3, 3, 7];
        assert_eq!(syn_ack(&segment(0x12, &linux), 80, 40000), Some(Some(0x102)));
        assert_eq!(syn_ack(&segment(0x10, &linux), 80, 40000), None, "not a SYN-ACK");
        assert_eq!(syn_ack(&segment(0x12, &linux), 81, 40000), None, "another port");
        assert_eq!(syn_ack(&segment(0x12, &[2, 0, 0, 0]), 80, 40000), Some(None));
        assert_eq!(syn_ack(&segment(0x12, &[8, 10, 1, 1]), 80, 40000), Some(None));
        assert_eq!(syn_ack(&[0, 80], 80, 40000), None);
    }
}
