//! What set the weights, and what servers reported of their load: kept beside the counters, so that a daemon
//! that starts over goes on with the weights of the last one, and `l4 status` needs no daemon.
//! `struct note` of `bpf/types.h`.

use serde::Serialize;

use crate::fill::WHOLE;
use crate::layout::{LINE_BYTES, name_from_bytes, name_to_bytes};

/// Bytes of a controller's name for itself, its ending zero included.
const WHO_BYTES: usize = 30;
const WHO_AT: usize = LINE_BYTES - WHO_BYTES;
/// A server has no such name: within its place are [`MemberNote::since_ms`] and [`MemberNote::spared`].
const SINCE_AT: usize = 40;
const SPARED_AT: usize = 48;
const HAS_WEIGHT: u8 = 1;
const HAS_LOAD: u8 = 2;
const PPM: f64 = 1e6;

/// What set the weights of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SetBy {
    /// They are as configured.
    #[default]
    Configuration,
    /// A controller, through the daemon's socket.
    Controller,
    /// The balancer itself, by the servers' load (`awrr`).
    Load,
}

/// Of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VipNote {
    pub(crate) set_by: SetBy,
    /// The controller's name for itself.
    pub(crate) who: String,
    /// Of its plan.
    pub(crate) epoch: u64,
    /// When.
    pub(crate) unix_ms: u64,
}

/// Of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberNote {
    /// The weight in force, when it is not the configured one.
    pub(crate) weight: Option<u16>,
    /// The busy part of its CPUs, millionths, as last reported; `None` when that is too long ago.
    pub(crate) load_ppm: Option<u32>,
    /// When it reported.
    pub(crate) unix_ms: u64,
    /// How often it did not.
    pub(crate) failures: u64,
    /// Its part of what has no cookie: the last configured weight above 0, which a server that drains keeps.
    pub(crate) share: u16,
    /// When one that is no longer named is forgotten, by [`boot_ms`]; 0: it is named.
    pub(crate) until_ms: u64,
    /// Since when it takes SYNs, by [`boot_ms`]; 0: it takes none.
    pub(crate) since_ms: u64,
    /// So many hundredths of its weight do not count: see balancer/newcomer.rs.
    pub(crate) spared: u16,
}

/// Milliseconds since the machine started, its sleep included: maps last as long, and no clock is set.
pub(crate) fn boot_ms() -> u64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since.tv_sec as u64 * 1000 + since.tv_nsec as u64 / 1_000_000
}

impl VipNote {
    /// With a name as short as it is kept.
    pub(crate) fn as_kept(&self) -> Self {
        VipNote::from_bytes(&self.to_bytes())
    }

    pub(crate) fn to_bytes(&self) -> [u8; LINE_BYTES] {
        let set_by = match self.set_by {
            SetBy::Configuration => 0,
            SetBy::Controller => 1,
            SetBy::Load => 2,
        };
        let mut bytes = line([self.epoch, self.unix_ms, 0], 0, [0; 2], [set_by, 0]);
        let who = name_to_bytes(&self.who);
        bytes[WHO_AT..LINE_BYTES - 1].copy_from_slice(&who[..WHO_BYTES - 1]);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; LINE_BYTES]) -> Self {
        let mut who = [0; LINE_BYTES];
        who[..WHO_BYTES].copy_from_slice(&bytes[WHO_AT..]);
        VipNote {
            set_by: match bytes[32] {
                1 => SetBy::Controller,
                2 => SetBy::Load,
                _ => SetBy::Configuration,
            },
            who: name_from_bytes(&who),
            epoch: word(bytes, 0),
            unix_ms: word(bytes, 8),
        }
    }
}

impl MemberNote {
    /// Notes a load, as a part of all CPUs.
    pub(crate) fn set_load(&mut self, load: Option<f64>) {
        self.load_ppm = load.map(|part| (part.clamp(0.0, 1.0) * PPM) as u32);
    }

    /// The load that was noted.
    pub(crate) fn load(&self) -> Option<f64> {
        self.load_ppm.map(|ppm| f64::from(ppm) / PPM)
    }

    /// So many hundredths of its weight count.
    pub(crate) fn part(&self) -> u16 {
        WHOLE.saturating_sub(self.spared)
    }

    pub(crate) fn to_bytes(self) -> [u8; LINE_BYTES] {
        let flags = [(self.weight.is_some(), HAS_WEIGHT), (self.load_ppm.is_some(), HAS_LOAD)];
        let flags = flags.iter().filter(|(has, _)| *has).map(|(_, flag)| flag).sum();
        let words = [self.until_ms, self.unix_ms, self.failures];
        let shorts = [self.weight.unwrap_or(0), self.share];
        let mut bytes = line(words, self.load_ppm.unwrap_or(0), shorts, [0, flags]);
        bytes[SINCE_AT..SINCE_AT + 8].copy_from_slice(&self.since_ms.to_le_bytes());
        bytes[SPARED_AT..SPARED_AT + 2].copy_from_slice(&self.spared.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; LINE_BYTES]) -> Self {
        let load_ppm = u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[24 + byte]));
        let weight = u16::from_le_bytes([bytes[28], bytes[29]]);
        let flags = bytes[33];
        MemberNote {
            weight: (flags & HAS_WEIGHT != 0).then_some(weight),
            load_ppm: (flags & HAS_LOAD != 0).then_some(load_ppm),
            unix_ms: word(bytes, 8),
            failures: word(bytes, 16),
            share: u16::from_le_bytes([bytes[30], bytes[31]]),
            until_ms: word(bytes, 0),
            since_ms: word(bytes, SINCE_AT),
            spared: u16::from_le_bytes([bytes[SPARED_AT], bytes[SPARED_AT + 1]]),
        }
    }
}

fn line(words: [u64; 3], load_ppm: u32, shorts: [u16; 2], marks: [u8; 2]) -> [u8; LINE_BYTES] {
    let mut bytes = [0; LINE_BYTES];
    for (eight, word) in bytes.chunks_exact_mut(8).zip(words) {
        eight.copy_from_slice(&word.to_le_bytes());
    }
    bytes[24..28].copy_from_slice(&load_ppm.to_le_bytes());
    bytes[28..30].copy_from_slice(&shorts[0].to_le_bytes());
    bytes[30..32].copy_from_slice(&shorts[1].to_le_bytes());
    bytes[32..34].copy_from_slice(&marks);
    bytes
}

fn word(bytes: &[u8; LINE_BYTES], at: usize) -> u64 {
    u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[at + byte]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_as_they_went() {
        let vip = VipNote {
            set_by: SetBy::Controller,
            who: "plimsoll run, process 4711".to_owned(),
            epoch: u64::MAX - 1,
            unix_ms: 1_700_000_000_123,
        };
        assert_eq!(VipNote::from_bytes(&vip.to_bytes()), vip);
        let long = VipNote { who: "x".repeat(90), ..vip };
        assert_eq!(VipNote::from_bytes(&long.to_bytes()).who.len(), WHO_BYTES - 1);

        let mut member = MemberNote {
            weight: Some(0),
            load_ppm: None,
            unix_ms: 7,
            failures: 1 << 40,
            share: 0xabcd,
            until_ms: u64::MAX - 2,
            since_ms: u64::MAX - 3,
            spared: 0x1234,
        };
        assert_eq!(MemberNote::from_bytes(&member.to_bytes()), member);
        member.set_load(Some(0.25));
        assert_eq!(member.load(), Some(0.25));
        member.weight = None;
        assert_eq!(MemberNote::from_bytes(&member.to_bytes()), member);
    }

    #[test]
    fn a_place_that_was_never_written_says_nothing() {
        assert_eq!(VipNote::from_bytes(&[0; LINE_BYTES]), VipNote::default());
        assert_eq!(MemberNote::from_bytes(&[0; LINE_BYTES]), MemberNote::default());
    }
}
