//! Packets, made byte by byte.

use std::net::Ipv4Addr;

pub const DROP: u32 = 1;
pub const PASS: u32 = 2;
pub const REDIRECT: u32 = 4;
pub const VXLAN: u16 = 4789;

pub fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Ethernet and IPv4 around a payload; `fragment` is the whole field.
pub fn ip4(
    source: &str,
    destination: &str,
    protocol: u8,
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let mut header = vec![0x45, 0];
    header.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    header.extend_from_slice(&[0x12, 0x34]);
    header.extend_from_slice(&fragment.to_be_bytes());
    header.extend_from_slice(&[64, protocol, 0, 0]);
    for address in [source, destination] {
        header.extend_from_slice(&address.parse::<Ipv4Addr>().expect("an address").octets());
    }
    let checksum = sum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend_from_slice(&header);
    packet.extend_from_slice(payload);
    packet
}

pub fn ip6(source: &str, destination: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    packet.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[next, 64]);
    for address in [source, destination] {
        packet.extend_from_slice(
            &address.parse::<std::net::Ipv6Addr>().expect("an address").octets(),
        );
    }
    packet.extend_from_slice(payload);
    packet
}

pub fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [source, destination, 8 + payload.len() as u16, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// What a node sends: ids are flags, server, core and service; `inner` begins with its EtherType.
pub fn vxlan(source: &str, destination: &str, vni: u32, ids: [u8; 4], inner: &[u8]) -> Vec<u8> {
    let mut payload = vec![8, 0, 0, 0];
    payload.extend_from_slice(&(vni << 8).to_be_bytes());
    payload.extend_from_slice(&[2, 0x50, 0, 0, 0, 0, 2, ids[0], ids[1], ids[2], ids[3], 0x50]);
    payload.extend_from_slice(inner);
    ip4(source, destination, 17, 0x4000, &udp(50_000, VXLAN, &payload))
}
