//! Where replies of one family go, as the program has it: `struct way` of `bpf/types.h`.

use std::net::{IpAddr, Ipv6Addr};

use super::{Mac, Writer};
use crate::replies::{Prefix, Why};

/// Prefixes of a way for which the kernel's routes are asked.
pub const MAX_ASKED: usize = 8;
/// `struct way`.
pub const WAY_BYTES: usize = 256;
/// Bytes of an interface's name, its ending zero included.
const INTERFACE_BYTES: usize = 16;
/// Of a way that holds until it is changed.
pub const FOR_EVER: u64 = u64::MAX;

/// What decides where replies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The kernel's routes, for each packet.
    Asked(Why),
    /// The operator.
    Configured,
    /// The kernel's default route.
    DefaultRoute,
}

/// `struct way`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// By the program's clock: from then on the kernel's routes are asked.
    pub until_ms: u64,
    /// The next hop's address.
    pub mac: Mac,
    /// Of the interface.
    pub source_mac: Mac,
    /// Its index in `ports`.
    pub port: u32,
    /// Its index in the kernel.
    pub ifindex: u32,
    /// Longer packets are the kernel's routes'.
    pub mtu: u32,
    /// Whether to send back by `XDP_TX` what came in by the same interface.
    pub hairpin_tx: bool,
    /// What decides so.
    pub by: By,
    /// Clients for which the kernel's routes are asked all the same; [`MAX_ASKED`] at most.
    pub asked: Vec<Prefix>,
    /// The next hop's address, where it is known.
    pub gateway: Option<IpAddr>,
    /// The interface's name.
    pub interface: String,
    /// When the daemon last said so, by CLOCK_MONOTONIC.
    pub renewed_ms: u64,
    /// By the program's clock: until then it remembers what the kernel's routes answered for a destination.
    pub hops_until_ms: u64,
    /// What was remembered under another one is forgotten.
    pub generation: u64,
}

impl Way {
    /// None: the kernel's routes are asked for each packet.
    pub fn none(why: Why) -> Way {
        Way {
            until_ms: 0,
            mac: [0; 6],
            source_mac: [0; 6],
            port: 0,
            ifindex: 0,
            mtu: 0,
            hairpin_tx: false,
            by: By::Asked(why),
            asked: Vec::new(),
            gateway: None,
            interface: String::new(),
            renewed_ms: 0,
            hops_until_ms: 0,
            generation: 0,
        }
    }

    /// As the kernel holds it.
    pub fn to_bytes(&self) -> [u8; WAY_BYTES] {
        let mut bytes = [0; WAY_BYTES];
        let (by, why) = match self.by {
            By::Asked(why) => (0, why.code()),
            By::Configured => (1, 0),
            By::DefaultRoute => (2, 0),
        };
        let asked = &self.asked[..self.asked.len().min(MAX_ASKED)];
        let mut writer = Writer { bytes: &mut bytes, at: 0 };
        writer.put(&self.until_ms.to_le_bytes()).put(&self.mac).put(&self.source_mac);
        for word in [self.port, self.ifindex, self.mtu, asked.len() as u32] {
            writer.put(&word.to_le_bytes());
        }
        writer.put(&[u8::from(self.hairpin_tx), by, why]).skip(1);
        for (prefix, mask) in asked.iter().map(Prefix::words) {
            writer.put(&prefix.to_le_bytes()).put(&mask.to_le_bytes());
        }
        writer.skip(16 * (MAX_ASKED - asked.len()));
        // Replies over IPv6 may go to a gateway that is told by its IPv4 address.
        let gateway = match self.gateway {
            Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped(),
            Some(IpAddr::V6(v6)) => v6,
            None => Ipv6Addr::UNSPECIFIED,
        };
        let mut name = [0; INTERFACE_BYTES];
        let kept = self.interface.as_bytes().iter().take(INTERFACE_BYTES - 1);
        name.iter_mut().zip(kept).for_each(|(to, from)| *to = *from);
        writer.put(&gateway.octets()).put(&name);
        for word in [self.renewed_ms, self.hops_until_ms, self.generation] {
            writer.put(&word.to_le_bytes());
        }
        bytes
    }

    /// From what the kernel holds of a family.
    pub fn from_bytes(bytes: &[u8; WAY_BYTES], v4: bool) -> Way {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let mac = |at: usize| [0, 1, 2, 3, 4, 5].map(|byte| bytes[at + byte]);
        let prefix = |n: usize| Prefix::from_words(long(40 + 16 * n), long(48 + 16 * n), v4);
        let gateway: [u8; 16] = std::array::from_fn(|byte| bytes[168 + byte]);
        let gateway = Ipv6Addr::from(gateway);
        let name = bytes[184..184 + INTERFACE_BYTES].split(|byte| *byte == 0).next();
        Way {
            until_ms: long(0),
            mac: mac(8),
            source_mac: mac(14),
            port: word(20),
            ifindex: word(24),
            mtu: word(28),
            hairpin_tx: bytes[36] != 0,
            by: match bytes[37] {
                1 => By::Configured,
                2 => By::DefaultRoute,
                _ => By::Asked(Why::from_code(bytes[38])),
            },
            asked: (0..MAX_ASKED.min(word(32) as usize)).map(prefix).collect(),
            gateway: (!gateway.is_unspecified()).then(|| gateway.to_canonical()),
            interface: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
            renewed_ms: long(200),
            hops_until_ms: long(208),
            generation: long(216),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_comes_back_as_it_went() {
        let mut way = Way {
            until_ms: 0x0123_4567_89ab_cdef,
            mac: [2, 0, 0, 0, 1, 2],
            source_mac: [2, 0, 0, 0, 1, 1],
            port: 3,
            ifindex: 77,
            mtu: 1500,
            hairpin_tx: true,
            by: By::DefaultRoute,
            asked: vec![
                Prefix::new([10, 1, 0, 0].into(), 16),
                Prefix::new([9, 8, 7, 6].into(), 32),
            ],
            gateway: Some([10, 0, 1, 2].into()),
            interface: "enp1s0f0np0.4000".chars().take(15).collect(),
            renewed_ms: 99,
            hops_until_ms: 0x0fed_cba9_8765_4321,
            generation: 7,
        };
        assert_eq!(Way::from_bytes(&way.to_bytes(), true), way);
        way.asked.clear();
        assert_eq!(Way::from_bytes(&way.to_bytes(), false), way, "the gateway's IPv4 address");
        way.gateway = Some([0xfe80, 0, 0, 0, 0, 0, 0, 1].into());
        way.asked = (1..=MAX_ASKED as u16)
            .map(|n| Prefix::new([0xfd00, n, 0, 0, 0, 0, 0, 0].into(), 64))
            .collect();
        assert_eq!(Way::from_bytes(&way.to_bytes(), false), way);
        for why in Why::ALL {
            let none = Way::none(why);
            assert_eq!(Way::from_bytes(&none.to_bytes(), true), none);
        }
    }
}
