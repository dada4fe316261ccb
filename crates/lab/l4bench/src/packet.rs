//! Packets, byte by byte, with right checksums.

use std::net::{IpAddr, SocketAddr};

/// TCP flag.
pub const FIN: u8 = 1;
/// TCP flag.
pub const SYN: u8 = 2;
/// TCP flag.
pub const RST: u8 = 4;
/// TCP flag.
pub const ACK: u8 = 16;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// `XDP_DROP`.
pub const DROP: u32 = 1;
/// `XDP_PASS`.
pub const PASS: u32 = 2;
/// `XDP_TX`.
pub const TX: u32 = 3;
/// `XDP_REDIRECT`.
pub const REDIRECT: u32 = 4;

/// A TCP segment to be.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Ethernet source.
    pub from_mac: [u8; 6],
    /// Ethernet destination.
    pub to_mac: [u8; 6],
    /// Source.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Of TCP.
    pub flags: u8,
    /// TCP options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// What it carries.
    pub payload: Vec<u8>,
    /// Hops it has left.
    pub ttl: u8,
}

/// NOP NOP TS, as data segments have it.
pub fn timestamps(value: u32, echo: u32) -> Vec<u8> {
    let mut options = vec![1, 1];
    options.extend(option(value, echo));
    options
}

/// The bare timestamp option.
pub fn option(value: u32, echo: u32) -> Vec<u8> {
    let mut bytes = vec![8, 10];
    bytes.extend(value.to_be_bytes());
    bytes.extend(echo.to_be_bytes());
    bytes
}

/// A Linux SYN's options.
pub fn syn_options(value: u32, echo: u32) -> Vec<u8> {
    let mut options = vec![2, 4, 5, 0xb4, 4, 2];
    options.extend(option(value, echo));
    options.extend([1, 3, 3, 7]);
    options
}

impl Segment {
    /// From a client next to the balancer, with a small payload.
    ///
    /// # Panics
    /// When an address is none.
    pub fn new(from: &str, to: &str, flags: u8, options: Vec<u8>) -> Segment {
        Segment {
            from_mac: [2, 0, 0, 0, 1, 2],
            to_mac: [2, 0, 0, 0, 1, 1],
            from: from.parse().expect("address"),
            to: to.parse().expect("address"),
            flags,
            options,
            payload: b"payload".to_vec(),
            ttl: 64,
        }
    }

    /// From a server with this MAC address.
    pub fn sent_by(mut self, mac: [u8; 6]) -> Segment {
        self.from_mac = mac;
        self
    }

    /// The whole packet.
    ///
    /// # Panics
    /// When the addresses are of two families.
    pub fn bytes(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.from.port().to_be_bytes());
        tcp.extend(self.to.port().to_be_bytes());
        tcp.extend(0x0102_0304u32.to_be_bytes());
        tcp.extend(0x0506_0708u32.to_be_bytes());
        tcp.push((((20 + self.options.len()) / 4) << 4) as u8);
        tcp.push(self.flags);
        tcp.extend([0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(&self.options);
        tcp.extend(&self.payload);
        let sum = checksum(&[&pseudo(self.from.ip(), self.to.ip(), tcp.len(), TCP), &tcp]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut packet = Vec::new();
        packet.extend(self.to_mac);
        packet.extend(self.from_mac);
        packet.extend(ip(self.from.ip(), self.to.ip(), tcp.len(), self.ttl, TCP));
        packet.extend(tcp);
        packet
    }
}

/// A ping from a client next to the balancer; `kind` and `code` as of ICMP.
///
/// # Panics
/// When the addresses are none, or of two families.
pub fn ping(from: &str, to: &str, kind: u8, code: u8) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) =
        (from.parse().expect("address"), to.parse().expect("address"));
    let mut icmp = vec![kind, code, 0, 0, 0x12, 0x34, 0, 7];
    icmp.extend(b"and what a ping carries, of an odd length");
    icmp_between(from, to, &icmp)
}

/// An ICMP error of a router on the way to a client, which quotes a reply: its IP header and so many bytes of
/// its segment, as far as there are any; `kind` and `code` as of ICMP.
pub fn icmp_error(reply: &[u8], kind: u8, code: u8, quoted: usize) -> Vec<u8> {
    let vip = addresses(reply).0;
    let (router, header) = match vip {
        IpAddr::V4(_) => (IpAddr::from([10, 0, 7, 7]), 20),
        IpAddr::V6(_) => (IpAddr::from([0xfd00, 7, 0, 0, 0, 0, 0, 7]), 40),
    };
    let quote = &reply[14..(14 + header + quoted).min(reply.len())];
    // The next hop's MTU, where that is what is wrong.
    icmp_between(router, vip, &[&[kind, code, 0, 0, 0, 0, 5, 120], quote].concat())
}

/// A packet to the balancer with an ICMP message, whose checksum is worked out here.
fn icmp_between(from: IpAddr, to: IpAddr, message: &[u8]) -> Vec<u8> {
    let protocol = if from.is_ipv4() { ICMP } else { ICMPV6 };
    let mut packet = vec![2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 2];
    packet.extend(ip(from, to, message.len(), 59, protocol));
    let at = packet.len() + 2;
    let sum = checksum(&[&pseudo(from, to, message.len(), protocol), message]);
    packet.extend(message);
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// EtherType and header of IP.
fn ip(from: IpAddr, to: IpAddr, payload: usize, ttl: u8, protocol: u8) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = ipv4(from.octets(), to.octets(), payload, ttl, protocol);
            [vec![8, 0], header].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut header = vec![0x86, 0xdd, 0x60, 0, 0, 0];
            header.extend((payload as u16).to_be_bytes());
            header.extend([protocol, ttl]);
            header.extend(from.octets());
            header.extend(to.octets());
            header
        }
        _ => panic!("one family"),
    }
}

fn ipv4(from: [u8; 4], to: [u8; 4], payload: usize, ttl: u8, protocol: u8) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend(((20 + payload) as u16).to_be_bytes());
    header.extend([0x12, 0x34, 0x40, 0, ttl, protocol, 0, 0]);
    header.extend(from);
    header.extend(to);
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// What TCP's checksum covers besides, and that of ICMPv6; that of ICMP covers nothing.
fn pseudo(from: IpAddr, to: IpAddr, length: usize, protocol: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    if protocol == ICMP {
        return bytes;
    }
    for address in [from, to] {
        match address {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
    }
    bytes.extend((length as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// The Internet checksum over parts, of which all but the last have an even length.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IP packet's source and destination.
fn addresses(packet: &[u8]) -> (IpAddr, IpAddr) {
    if packet[12] == 8 {
        let octets = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).expect("four");
        (octets(26).into(), octets(30).into())
    } else {
        let octets = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).expect("sixteen");
        (octets(22).into(), octets(38).into())
    }
}

/// Whether a packet's checksums are right: of IP, and of TCP or ICMP.
pub fn intact(packet: &[u8]) -> bool {
    let v4 = packet[12] == 8;
    let header = if v4 { usize::from(packet[14] & 15) * 4 } else { 40 };
    let (from, to) = addresses(packet);
    let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (end, protocol) =
        if v4 { (14 + word(16), packet[23]) } else { (54 + word(18), packet[20]) };
    let payload = &packet[14 + header..end];
    (!v4 || checksum(&[&packet[14..14 + header]]) == 0)
        && checksum(&[&pseudo(from, to, payload.len(), protocol), payload]) == 0
}

/// TSval and TSecr of a packet whose timestamp option begins at this offset of its TCP header.
pub fn read_timestamps(packet: &[u8], offset: usize) -> (u32, u32) {
    let at = 14 + if packet[12] == 8 { usize::from(packet[14] & 15) * 4 } else { 40 } + offset;
    assert_eq!(packet[at..at + 2], [8, 10], "the option stays where it was");
    let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().expect("four"));
    (word(at + 2), word(at + 6))
}
