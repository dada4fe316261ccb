//! The values of the agent's maps, field by field as in `bpf/agent.h`.

use std::fmt;
use std::net::SocketAddr;

use plimsoll_cookie::{Epoch, Layout, Salt};

use crate::keys::Keys;
use crate::layout::permutation_to_bytes;
use crate::tables::{address_words, vip_key};

/// Changes with every change of a layout; pinned maps of another one are refused.
pub const AGENT_LAYOUT: u32 = 1;
/// Services at most.
pub const MAX_AGENT_VIPS: u32 = 256;
/// `struct agent_settings`.
pub const SETTINGS_BYTES: usize = 112;
/// Counters of a service.
pub const COUNTS: usize = 6;

const TCP: u8 = 6;
const SWITCH_AT: usize = 0;
const SALTS_AT: usize = 8;
const KEYS_AT: usize = 16;
const KEY_BYTES: usize = 48;

/// `struct agent_settings`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The salt of new cookies.
    pub epoch: Epoch,
    /// When it took over, by the clock of the server's timestamps. Before zero is long ago.
    pub switch_ms: i64,
    /// Bit e: epoch e has a salt.
    pub salts: u8,
    /// The salts' keys as the kernel holds them.
    pub keys: [[u8; KEY_BYTES]; 2],
}

/// The keys are secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("epoch", &self.epoch)
            .field("switch_ms", &self.switch_ms)
            .field("salts", &self.salts)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// As the kernel holds it.
    pub fn to_bytes(self) -> [u8; SETTINGS_BYTES] {
        let mut bytes = [0; SETTINGS_BYTES];
        let word = self.switch_ms << 1 | i64::from(self.epoch.bit());
        bytes[SWITCH_AT..SWITCH_AT + 8].copy_from_slice(&word.to_le_bytes());
        bytes[SALTS_AT] = self.salts;
        for (index, key) in self.keys.iter().enumerate() {
            let at = KEYS_AT + KEY_BYTES * index;
            bytes[at..at + KEY_BYTES].copy_from_slice(key);
        }
        bytes
    }

    /// From what the kernel holds.
    pub fn from_bytes(bytes: &[u8; SETTINGS_BYTES]) -> Self {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[SWITCH_AT..SWITCH_AT + 8]);
        let word = i64::from_le_bytes(word);
        let mut keys = [[0; KEY_BYTES]; 2];
        for (index, key) in keys.iter_mut().enumerate() {
            let at = KEYS_AT + KEY_BYTES * index;
            key.copy_from_slice(&bytes[at..at + KEY_BYTES]);
        }
        Settings {
            epoch: Epoch::from_bit((word & 1) as u32),
            switch_ms: word >> 1,
            salts: bytes[SALTS_AT],
            keys,
        }
    }
}

/// A salt as the kernel holds it: the hash's key, and the permutation with its inverse.
pub struct SaltBytes {
    /// The key.
    pub key: [u8; KEY_BYTES],
    /// `struct permutation`.
    pub permutation: Box<[u8; crate::layout::PERMUTATION_BYTES]>,
}

/// The salt of an epoch, where there is one.
pub fn salt_bytes(keys: &Keys, epoch: Epoch, layout: Layout) -> Option<SaltBytes> {
    let secret = keys.salts[epoch.bit() as usize].as_ref()?;
    let salt = Salt::derive(secret, layout);
    let mut key = [0; KEY_BYTES];
    for (place, word) in key.chunks_exact_mut(4).zip(salt.hash().words()) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    key[40..].copy_from_slice(&salt.hash().multiplier().to_le_bytes());
    Some(SaltBytes { key, permutation: permutation_to_bytes(salt.forward(), salt.inverse()) })
}

/// `struct agent_vip_key`.
pub fn vip_words(address: SocketAddr) -> [u32; 5] {
    let [a, b, c, d] = address_words(address.ip());
    [a, b, c, d, vip_key(address, TCP)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::btf::Btf;

    #[test]
    fn settings_come_back_as_they_went_even_from_before_the_clock_began() {
        let settings = Settings {
            epoch: Epoch::Odd,
            switch_ms: -900_000,
            salts: 3,
            keys: [[7; KEY_BYTES], [9; KEY_BYTES]],
        };
        assert_eq!(Settings::from_bytes(&settings.to_bytes()), settings);
    }

    #[test]
    fn values_are_written_as_the_programs_read_them() {
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/agent.bpf.o"));
        let btf = Btf::of(object);
        let keys = [[7; KEY_BYTES], [9; KEY_BYTES]];
        let settings = Settings { epoch: Epoch::Odd, switch_ms: 0x5_0000_0001, salts: 3, keys };
        let switch_epoch = (settings.switch_ms << 1 | 1).to_le_bytes();
        let salts: &[u8] = &keys.concat();
        let fields = [("switch_epoch", &switch_epoch[..]), ("salts", &[3]), ("salt", salts)];
        btf.has("agent_settings", &settings.to_bytes(), &fields);
        let words = vip_words("[fd00:9::9]:80".parse().expect("an address"));
        let key = words.map(u32::to_le_bytes).concat();
        btf.has("agent_vip_key", &key, &[("address", &key[..16]), ("key", &key[16..])]);
        // As `AgentMaps::set_vip` writes it.
        let vip = [5u32, 6].map(u32::to_le_bytes).concat();
        btf.has("agent_vip", &vip, &[("number", &vip[..4]), ("id", &vip[4..])]);
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let keys = [[201; KEY_BYTES]; 2];
        let settings = Settings { epoch: Epoch::Odd, switch_ms: -5, salts: 3, keys };
        let shown = format!("{settings:?}");
        assert!(shown.contains("switch_ms: -5") && !shown.contains("201"), "{shown}");
    }
}
