//! What travels between forwarder and nodes, and how flows are named: the Rust side of `bpf/wire.h`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use plimsoll_l4::Mac;

/// UDP port of VXLAN.
pub(crate) const VXLAN_PORT: u16 = 4789;
/// `struct wrap`.
pub(crate) const WRAP_BYTES: usize = 64;

/// What a packet grows by on its way to a node and back: VXLAN, and the key of a flow that was rewritten. By IPv4 and IPv6.
pub(crate) const GROWS: [u32; 2] = [70, 94];
/// The largest packets that native XDP takes on the cables of a namespace, where a packet is in one page.
pub(crate) const CABLE_MTU: u32 = 3_498;

/// A flow: protocol and both ends, the one that began it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// IP protocol number.
    pub protocol: u8,
    /// The side that began it.
    pub source: SocketAddr,
    /// The side it was for.
    pub destination: SocketAddr,
}

impl FromStr for FlowKey {
    type Err = String;

    /// `udp:SRC:PORT-DST:PORT`, `tcp:[2001:db8::1]:40000-[2001:db8::2]:443`, `icmp:SRC:ID-DST:ID`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected a flow such as udp:10.0.0.1:40000-192.0.2.1:53 (tcp, udp or icmp; IPv6 in brackets), found {text:?}"
            )
        };
        let (protocol, ends) = text.split_once(':').ok_or_else(wrong)?;
        let (source, destination) = ends.split_once('-').ok_or_else(wrong)?;
        let source: SocketAddr = source.parse().map_err(|_| wrong())?;
        let destination: SocketAddr = destination.parse().map_err(|_| wrong())?;
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(wrong());
        }
        let protocol = match (protocol, source.is_ipv4()) {
            ("tcp", _) => 6,
            ("udp", _) => 17,
            ("icmp", true) => 1,
            ("icmp", false) => 58,
            _ => return Err(wrong()),
        };
        Ok(FlowKey { protocol, source, destination })
    }
}

impl FlowKey {
    /// `struct key4`, where the flow is one of IPv4.
    pub(crate) fn key4(&self) -> Option<[u8; 16]> {
        let (low, high) = self.ordered();
        let (IpAddr::V4(first), IpAddr::V4(second)) = (low.ip(), high.ip()) else { return None };
        let mut key = [0; 16];
        key[..4].copy_from_slice(&first.octets());
        key[4..8].copy_from_slice(&second.octets());
        key[8..12].copy_from_slice(&ports(low, high));
        key[12..].copy_from_slice(&u32::from(self.protocol).to_ne_bytes());
        Some(key)
    }

    /// `struct key6`, where the flow is one of IPv6.
    pub(crate) fn key6(&self) -> Option<[u8; 40]> {
        let (low, high) = self.ordered();
        let (IpAddr::V6(first), IpAddr::V6(second)) = (low.ip(), high.ip()) else { return None };
        let mut key = [0; 40];
        key[..16].copy_from_slice(&first.octets());
        key[16..32].copy_from_slice(&second.octets());
        key[32..36].copy_from_slice(&ports(low, high));
        key[36..].copy_from_slice(&u32::from(self.protocol).to_ne_bytes());
        Some(key)
    }

    /// The lower end first, as the program compares them: words as they lie in the packet.
    fn ordered(&self) -> (SocketAddr, SocketAddr) {
        let place = |end: &SocketAddr| {
            let port = u16::from_ne_bytes(end.port().to_be_bytes());
            match end.ip() {
                IpAddr::V4(v4) => (u64::from(u32::from_ne_bytes(v4.octets())), 0, port),
                IpAddr::V6(v6) => {
                    let octets = v6.octets();
                    let word = |at: usize| {
                        u64::from_ne_bytes(octets[at..at + 8].try_into().expect("eight bytes"))
                    };
                    (word(0), word(8), port)
                }
            }
        };
        if place(&self.source) > place(&self.destination) {
            (self.destination, self.source)
        } else {
            (self.source, self.destination)
        }
    }
}

fn ports(low: SocketAddr, high: SocketAddr) -> [u8; 4] {
    let ([a, b], [c, d]) = (low.port().to_be_bytes(), high.port().to_be_bytes());
    [a, b, c, d]
}

/// What is written in front of packets to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrap {
    pub(crate) to_mac: Mac,
    pub(crate) from_mac: Mac,
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) vni: u32,
    pub(crate) server: u8,
    pub(crate) core: u8,
    pub(crate) service: u8,
}

impl Wrap {
    /// `struct wrap` with lengths and source port 0, its checksum that of length 0.
    pub(crate) fn to_bytes(self) -> [u8; WRAP_BYTES] {
        let mut bytes = [0; WRAP_BYTES];
        bytes[..6].copy_from_slice(&self.to_mac);
        bytes[6..12].copy_from_slice(&self.from_mac);
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14] = 0x45;
        // Don't fragment, hops, UDP.
        bytes[20] = 0x40;
        bytes[22] = 64;
        bytes[23] = 17;
        bytes[26..30].copy_from_slice(&self.source.octets());
        bytes[30..34].copy_from_slice(&self.destination.octets());
        let sum = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes[36..38].copy_from_slice(&VXLAN_PORT.to_be_bytes());
        bytes[42] = 0x08;
        bytes[46..50].copy_from_slice(&(self.vni << 8).to_be_bytes());
        bytes[50..56].copy_from_slice(&[2, 0x50, 0, 0, 0, self.server]);
        bytes[56..62].copy_from_slice(&[2, 0, self.server, self.core, self.service, 0x50]);
        bytes
    }
}

/// The Internet checksum (RFC 1071).
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A VNI as it lies in the packet, for the program to compare.
pub(crate) fn vni_word(vni: u32) -> [u8; 4] {
    (vni << 8).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_flow_have_one_key() {
        for (one, other) in [
            ("udp:10.0.0.1:40000-192.0.2.1:53", "udp:192.0.2.1:53-10.0.0.1:40000"),
            ("tcp:10.0.0.1:80-10.0.0.1:81", "tcp:10.0.0.1:81-10.0.0.1:80"),
            ("tcp:[2001:db8::1]:1-[2001:db8::2]:2", "tcp:[2001:db8::2]:2-[2001:db8::1]:1"),
        ] {
            let (one, other): (FlowKey, FlowKey) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!((one.key4(), one.key6()), (other.key4(), other.key6()));
            assert!(one.key4().is_some() != one.key6().is_some());
        }
    }

    #[test]
    fn what_is_no_flow_is_refused_with_an_example() {
        for text in ["", "udp", "udp:1-2", "sctp:10.0.0.1:1-10.0.0.2:2", "udp:10.0.0.1:1-[::1]:2"] {
            let error = text.parse::<FlowKey>().unwrap_err();
            assert!(error.contains("expected a flow such as udp:"), "{error}");
        }
    }

    #[test]
    fn a_wrap_has_a_checksum_of_its_own() {
        let wrap = Wrap {
            to_mac: [1; 6],
            from_mac: [2; 6],
            source: Ipv4Addr::new(10, 3, 0, 1),
            destination: Ipv4Addr::new(10, 3, 0, 2),
            vni: 4096,
            server: 1,
            core: 0,
            service: 0,
        };
        assert_eq!(checksum(&wrap.to_bytes()[14..34]), 0);
    }
}
