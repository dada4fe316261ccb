//! The values of the program's maps, field by field as in `bpf/types.h`, written as bytes: the kernel
//! takes them as they are, and neither padding nor a cast is left to the compiler (`repr(C)` would need `unsafe` for
//! both). Tests hold them against the type information of the compiled programs.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use crate::config::Policy;

#[cfg(test)]
mod bound;
#[cfg(test)]
pub(crate) mod btf;
mod way;

pub use way::{By, FOR_EVER, MAX_ASKED, WAY_BYTES, Way};

/// Changes with every change of a layout; what pinned maps of one before hold moves to new ones (carry.rs), which must
/// understand it, and maps of any other are refused.
pub const META_LAYOUT: u32 = 10;
/// Places in a list of servers.
pub const MAX_SLOTS: usize = 8192;
/// Interfaces a packet can leave by.
pub const MAX_PORTS: u32 = 64;
/// What comes by an interface goes back by `XDP_TX`.
pub const PORT_TURNS_BACK: u32 = 1;
/// No client's route leads by an interface.
pub const PORT_SHUT: u32 = 2;
/// The widest permutation.
pub const MAX_IDS: usize = 16384;
/// Entries of a bucket of the table of MAC addresses.
pub const MAC_WAYS: usize = 6;
/// Of an id in a bucket: the server has an agent.
pub const SOURCE_AGENT: u16 = 0x8000;
/// Bytes of a name, its ending zero included.
pub const NAME_BYTES: usize = 64;

/// `struct config`.
pub const CONFIG_BYTES: usize = 1024;
/// Where in it `ways` begin; before them is what [`ConfigValue`] holds.
pub const WAYS_AT: usize = 320;
/// `struct permutation`.
pub const PERMUTATION_BYTES: usize = 4 * MAX_IDS;
/// `struct vip`, `struct member` and `struct note`.
pub const LINE_BYTES: usize = 64;
/// `struct slots`.
pub const SLOTS_BYTES: usize = 8 + 8 * MAX_SLOTS;

/// log2 of the connections whose last event is remembered.
const LAST_BITS: u32 = 16;
/// So many in a row.
pub const LAST_ROW: usize = 512;
/// Rows of them.
pub const LAST_ROWS: u32 = (1 << LAST_BITS) / LAST_ROW as u32;
/// The part of an event, less its lowest bit, that names its member.
pub const LAST_AT: u32 = (1 << 22) - 1;

/// A MAC address.
pub type Mac = [u8; 6];

/// Writes fields one after the other.
struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    fn skip(&mut self, bytes: usize) -> &mut Self {
        self.at += bytes;
        self
    }
}

/// `struct flow_key`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowKey {
    /// Keys of NH.
    pub words: [u32; 10],
    /// Of the last mixing.
    pub multiplier: u64,
}

/// A secret.
impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowKey").finish_non_exhaustive()
    }
}

impl FlowKey {
    /// What a VIP's address adds to the hash of an IPv6 connection: its two pairs of NH.
    pub fn of_vip(&self, address: [u32; 4]) -> u64 {
        let word = |n: usize| u64::from(address[n].wrapping_add(self.words[4 + n]));
        word(0).wrapping_mul(word(1)).wrapping_add(word(2).wrapping_mul(word(3)))
    }
}

/// `struct vip_index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VipIndex {
    /// Of key, first and second half of the address.
    pub seed: [u64; 3],
    /// A bit for each port in use, as `port_bit` has it.
    pub ports: u64,
}

/// `struct config` but for its ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigValue {
    /// For each half of `vips`.
    pub index: [VipIndex; 2],
    /// For each half of `macs`.
    pub mac_seed: [u64; 2],
    /// When `epoch` took over, by the program's clock.
    pub switch_ms: u64,
    /// The half that is read.
    pub vip_half: u8,
    /// The half that is read.
    pub mac_half: u8,
    /// The salt of new cookies.
    pub epoch: u8,
    /// Bit e: epoch e has a salt.
    pub salts: u8,
    /// The salts' keys.
    pub salt: [FlowKey; 2],
    /// The key for what has no cookie.
    pub spread: FlowKey,
}

impl ConfigValue {
    /// From what the kernel holds.
    pub fn from_bytes(bytes: &[u8; WAYS_AT]) -> Self {
        let long = |at: usize| {
            u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte: usize| bytes[at + byte]))
        };
        let index = |at: usize| VipIndex {
            seed: [long(at), long(at + 8), long(at + 16)],
            ports: long(at + 24),
        };
        let key = |at: usize| {
            let pair = |n: usize| [long(at + 8 * n) as u32, (long(at + 8 * n) >> 32) as u32];
            let mut words = [0; 10];
            for (n, two) in words.as_chunks_mut().0.iter_mut().enumerate() {
                *two = pair(n);
            }
            FlowKey { words, multiplier: long(at + 40) }
        };
        let switch_epoch = long(80) as i64;
        ConfigValue {
            index: [index(0), index(32)],
            mac_seed: [long(64), long(72)],
            switch_ms: (switch_epoch >> 1) as u64,
            vip_half: bytes[88] & 1,
            mac_half: bytes[89] & 1,
            epoch: (switch_epoch & 1) as u8,
            salts: bytes[90],
            salt: [key(96), key(160)],
            spread: key(224),
        }
    }

    /// As the kernel holds it.
    pub fn to_bytes(self) -> [u8; WAYS_AT] {
        let mut bytes = [0; WAYS_AT];
        let mut writer = Writer { bytes: &mut bytes, at: 0 };
        for index in self.index {
            for word in index.seed.iter().chain([&index.ports]) {
                writer.put(&word.to_le_bytes());
            }
        }
        let switch_epoch = self.switch_ms << 1 | u64::from(self.epoch & 1);
        for word in self.mac_seed.iter().chain([&switch_epoch]) {
            writer.put(&word.to_le_bytes());
        }
        writer.put(&[self.vip_half, self.mac_half, self.salts]).skip(5);
        for (key, after) in self.salt.iter().zip([16, 16]).chain([(&self.spread, 0)]) {
            for word in key.words {
                writer.put(&word.to_le_bytes());
            }
            writer.put(&key.multiplier.to_le_bytes()).skip(after);
        }
        bytes
    }
}

/// `struct vip`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VipValue {
    /// Words as in a packet; IPv4 in the first.
    pub address: [u32; 4],
    /// Port, protocol and family.
    pub key: u32,
    /// Its number.
    pub number: u32,
    /// The place of its member 0.
    pub base: u32,
    /// How SYNs find their server.
    pub policy: u8,
    /// The half of `slots` that is read.
    pub slot_half: u8,
    /// What an IPv6 address adds to a connection's hash, by either salt and by the spread's key.
    pub part: [u64; 3],
}

/// But for `part`, which the keys can be worked out from.
impl fmt::Debug for VipValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VipValue")
            .field("address", &self.address())
            .field("number", &self.number)
            .field("policy", &self.policy)
            .field("slot_half", &self.slot_half)
            .finish_non_exhaustive()
    }
}

impl VipValue {
    /// As the kernel holds it.
    pub fn to_bytes(self) -> [u8; LINE_BYTES] {
        let mut bytes = [0; LINE_BYTES];
        let mut writer = Writer { bytes: &mut bytes, at: 0 };
        for word in self.address {
            writer.put(&word.to_le_bytes());
        }
        for word in [self.key, self.number, self.base] {
            writer.put(&word.to_le_bytes());
        }
        writer.put(&[self.policy, self.slot_half]).skip(2);
        for part in self.part {
            writer.put(&part.to_le_bytes());
        }
        bytes
    }
}

impl VipValue {
    /// From what the kernel holds; `None` for a free place.
    pub fn from_bytes(bytes: &[u8; LINE_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        (word(16) != 0).then(|| VipValue {
            address: [word(0), word(4), word(8), word(12)],
            key: word(16),
            number: word(20),
            base: word(24),
            policy: bytes[28],
            slot_half: bytes[29],
            part: [32, 40, 48].map(|at| u64::from(word(at)) | u64::from(word(at + 4)) << 32),
        })
    }

    /// What clients connect to.
    pub fn address(&self) -> SocketAddr {
        let port = u16::from_be_bytes([self.key.to_le_bytes()[0], self.key.to_le_bytes()[1]]);
        let ip = if self.key >> 24 == 4 {
            IpAddr::from(self.address[0].to_le_bytes())
        } else {
            let mut octets = [0; 16];
            for (word, four) in self.address.iter().zip(octets.chunks_exact_mut(4)) {
                four.copy_from_slice(&word.to_le_bytes());
            }
            IpAddr::from(octets)
        };
        SocketAddr::new(ip, port)
    }
}

/// What the program knows of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// No server.
    #[default]
    Unused,
    /// Serves its connections.
    Live,
    /// Its cookies are stale, its connections are reset.
    Gone,
    /// Keeps its connections, but no interface leads to it, or its MAC address is not known yet.
    Lost,
}

/// `struct member`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberValue {
    /// The server's address.
    pub mac: Mac,
    /// Of the interface towards it.
    pub source_mac: Mac,
    /// The interface's index in `ports`.
    pub port: u32,
    /// Its index in the kernel.
    pub ifindex: u32,
    /// Whether it serves.
    pub state: MemberState,
    /// Whether to send back by `XDP_TX` what came in by the same interface.
    pub hairpin_tx: bool,
    /// Whether its own agent writes and restores timestamps.
    pub agent: bool,
    /// In force, for reading only: the program has it in its lists.
    pub weight: u16,
}

impl MemberValue {
    /// As the kernel holds it.
    pub fn to_bytes(self) -> [u8; LINE_BYTES] {
        let mut bytes = [0; LINE_BYTES];
        let state = match self.state {
            MemberState::Unused => 0,
            MemberState::Live => 1,
            MemberState::Gone => 2,
            MemberState::Lost => 3,
        };
        let mut writer = Writer { bytes: &mut bytes, at: 0 };
        writer.put(&self.mac).put(&self.source_mac);
        writer.put(&self.port.to_le_bytes()).put(&self.ifindex.to_le_bytes());
        let flags = u8::from(self.hairpin_tx) | u8::from(self.agent) << 1;
        writer.put(&[state, flags]).put(&self.weight.to_le_bytes());
        bytes
    }

    /// From what the kernel holds.
    pub fn from_bytes(bytes: &[u8; LINE_BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let mac = |at: usize| [0, 1, 2, 3, 4, 5].map(|byte| bytes[at + byte]);
        MemberValue {
            mac: mac(0),
            source_mac: mac(6),
            port: word(12),
            ifindex: word(16),
            state: match bytes[20] {
                1 => MemberState::Live,
                2 => MemberState::Gone,
                3 => MemberState::Lost,
                _ => MemberState::Unused,
            },
            hairpin_tx: bytes[21] & 1 == 1,
            agent: bytes[21] & 2 == 2,
            weight: u16::from_le_bytes([bytes[22], bytes[23]]),
        }
    }
}

/// `struct slots`: which servers take SYNs, what each of these costs, and which take what has no cookie.
pub fn slots_to_bytes(policy: &[u16], costs: &[u32], spread: &[u16]) -> Box<[u8; SLOTS_BYTES]> {
    let mut bytes = Box::new([0; SLOTS_BYTES]);
    let mut writer = Writer { bytes: bytes.as_mut_slice(), at: 0 };
    for list in [policy, spread] {
        writer.put(&(list.len().min(MAX_SLOTS) as u32).to_le_bytes());
    }
    for (index, list) in [policy, spread].into_iter().enumerate() {
        writer.at = 8 + 2 * MAX_SLOTS * index;
        for id in list.iter().take(MAX_SLOTS) {
            writer.put(&id.to_le_bytes());
        }
    }
    writer.at = 8 + 4 * MAX_SLOTS;
    for cost in costs.iter().take(MAX_SLOTS) {
        writer.put(&cost.to_le_bytes());
    }
    bytes
}

/// `enum policy` of bpf/types.h.
pub fn policy_code(policy: Policy) -> u8 {
    match policy {
        Policy::RoundRobin | Policy::WeightedRoundRobin | Policy::Awrr(_) => 0,
        Policy::PowerOfTwo => 1,
        Policy::LeastConnections => 2,
        Policy::Hash | Policy::Maglev => 3,
    }
}

/// `struct permutation`.
pub fn permutation_to_bytes(forward: &[u16], inverse: &[u16]) -> Box<[u8; PERMUTATION_BYTES]> {
    let mut bytes = Box::new([0; PERMUTATION_BYTES]);
    let mut writer = Writer { bytes: bytes.as_mut_slice(), at: 0 };
    for (index, table) in [forward, inverse].into_iter().enumerate() {
        writer.at = 2 * MAX_IDS * index;
        for id in table {
            writer.put(&id.to_le_bytes());
        }
    }
    bytes
}

/// `struct mac_bucket`.
pub fn bucket_to_bytes(entries: &[(u64, u16)]) -> [u8; LINE_BYTES] {
    let mut bytes = [0; LINE_BYTES];
    for (way, (key, id)) in entries.iter().take(MAC_WAYS).enumerate() {
        bytes[8 * way..8 * way + 8].copy_from_slice(&key.to_le_bytes());
        bytes[48 + 2 * way..50 + 2 * way].copy_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// A name as it is kept beside the counters; what does not fit is cut.
pub fn name_to_bytes(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    let kept = name.as_bytes().iter().take(NAME_BYTES - 1);
    for (to, from) in bytes.iter_mut().zip(kept) {
        *to = *from;
    }
    bytes
}

/// The name kept; empty where there is none.
pub fn name_from_bytes(bytes: &[u8; NAME_BYTES]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_comes_back_as_it_went() {
        let member = MemberValue {
            mac: [2, 0, 0, 0, 2, 2],
            source_mac: [2, 0, 0, 0, 2, 1],
            port: 3,
            ifindex: 77,
            state: MemberState::Gone,
            hairpin_tx: true,
            agent: true,
            weight: 300,
        };
        assert_eq!(MemberValue::from_bytes(&member.to_bytes()), member);
    }

    #[test]
    fn settings_come_back_as_they_went() {
        let mut number = 0u64;
        let mut next = || {
            number += 0x0123_4567_89ab_cdef;
            number
        };
        let mut key = || FlowKey { words: [(); 10].map(|()| next() as u32), multiplier: next() };
        let (salt, spread) = ([key(), key()], key());
        let mut index = || VipIndex { seed: [(); 3].map(|()| next()), ports: next() };
        let settings = ConfigValue {
            index: [index(), index()],
            mac_seed: [next(), next()],
            switch_ms: next(),
            vip_half: 1,
            mac_half: 0,
            epoch: 1,
            salts: 3,
            salt,
            spread,
        };
        assert_eq!(ConfigValue::from_bytes(&settings.to_bytes()), settings);
        // From before the clock began.
        let early = ConfigValue { switch_ms: 0u64.wrapping_sub(900_000), epoch: 0, ..settings };
        assert_eq!(ConfigValue::from_bytes(&early.to_bytes()), early);
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let key = FlowKey { words: [777_001; 10], multiplier: 777_002 };
        let settings = ConfigValue { salt: [key; 2], spread: key, ..ConfigValue::default() };
        // Worked out by the keys.
        let vip = VipValue {
            address: [1, 0, 0, 0],
            key: 2,
            number: 3,
            base: 4,
            policy: 0,
            slot_half: 0,
            part: [777_003; 3],
        };
        let shown = format!("{settings:?} {vip:?}");
        assert!(shown.contains("number: 3") && !shown.contains("777"), "{shown}");
    }

    #[test]
    fn a_long_name_is_cut_and_a_short_one_is_not() {
        assert_eq!(name_from_bytes(&name_to_bytes("shop")), "shop");
        assert_eq!(name_from_bytes(&name_to_bytes(&"x".repeat(90))).len(), NAME_BYTES - 1);
    }
}
