//! ICMP echo (RFC 792) over a raw socket, for whoever may open one.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, connect, ipproto, recv, send, socket,
};

const REQUEST: u8 = 8;
const REPLY: u8 = 0;
/// Ours among other pings on this host.
const IDENTIFIER: u16 = 0x504C;
const PATIENCE: Duration = Duration::from_secs(1);

/// Pings one host.
pub struct Echo {
    socket: OwnedFd,
    sequence: u16,
}

impl Echo {
    /// Nothing where the system lets only others open raw sockets.
    pub fn to(host: Ipv4Addr) -> Option<Self> {
        let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).ok()?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).ok()?;
        connect(&socket, &SocketAddrV4::new(host, 0)).ok()?;
        Some(Echo { socket, sequence: 0 })
    }

    /// How long one request and its reply take; nothing when none comes.
    pub fn ping(&mut self) -> Option<Duration> {
        self.sequence = self.sequence.wrapping_add(1);
        let begin = Instant::now();
        send(&self.socket, &request(self.sequence), SendFlags::empty()).ok()?;
        let mut packet = [0; 256];
        while begin.elapsed() < PATIENCE {
            let (length, _) = recv(&self.socket, &mut packet, RecvFlags::empty()).ok()?;
            if replies(&packet[..length.min(packet.len())], self.sequence) {
                return Some(begin.elapsed());
            }
        }
        None
    }
}

fn request(sequence: u16) -> [u8; 8] {
    let [i, d] = IDENTIFIER.to_be_bytes();
    let [high, low] = sequence.to_be_bytes();
    let mut message = [REQUEST, 0, 0, 0, i, d, high, low];
    let [a, b] = checksum(&message).to_be_bytes();
    (message[2], message[3]) = (a, b);
    message
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// Whether this IPv4 packet is the reply: raw sockets see the requests on a loopback as well.
fn replies(packet: &[u8], sequence: u16) -> bool {
    let Some(first) = packet.first() else { return false };
    let header = usize::from(first & 0x0F) * 4;
    let Some(message) = packet.get(header..header + 8) else { return false };
    let [i, d] = IDENTIFIER.to_be_bytes();
    let [high, low] = sequence.to_be_bytes();
    message[0] == REPLY && message[4..] == [i, d, high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_sums_up_to_nothing_with_its_checksum() {
        assert_eq!(checksum(&request(513)), 0);
        assert_ne!(request(1), request(2));
    }

    #[test]
    fn only_the_reply_to_this_request_counts() {
        let mut packet = vec![0x45; 20];
        packet.extend(request(7));
        assert!(!replies(&packet, 7), "a request");
        packet[20] = REPLY;
        assert!(replies(&packet, 7) && !replies(&packet, 8));
        assert!(!replies(&packet[..24], 7) && !replies(&[], 7));
    }
}
