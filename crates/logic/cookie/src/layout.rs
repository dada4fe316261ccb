//! How the 32 bits of a timestamp are shared out.

use thiserror::Error;

/// A server's number in a cookie: stable for as long as one of its connections may live. Zero is
/// no server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u16);

/// The widths of the parts. The trade: each version bit doubles how long a connection may stay silent,
/// and halves how many servers there can be.
///
/// | n | silence below | servers |
/// |---|---|---|
/// | 1 | 65 s | 16,383 |
/// | 2 | 131 s | 8,191 |
/// | 4 (default) | 8.7 min | 2,047 |
/// | 6 | 35 min | 511 |
/// | 8 | 2.3 h | 127 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    version_bits: u32,
}

/// The number of version bits is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected 1 to 8 version bits, found {0}")]
pub struct BadLayout(pub u32);

impl Default for Layout {
    fn default() -> Self {
        Layout { version_bits: 4 }
    }
}

impl Layout {
    /// A layout with so many version bits.
    ///
    /// # Errors
    /// Fewer than 1 (connections would break at the first wrap, 65.5 s) or more than 8.
    pub fn new(version_bits: u32) -> Result<Self, BadLayout> {
        match version_bits {
            1..=8 => Ok(Layout { version_bits }),
            _ => Err(BadLayout(version_bits)),
        }
    }

    /// How many bits of the clock's upper half stay readable.
    pub fn version_bits(self) -> u32 {
        self.version_bits
    }

    /// The width of the cookie.
    pub fn id_bits(self) -> u32 {
        15 - self.version_bits
    }

    /// The largest server id, and as many servers can be distinguished.
    pub fn max_id(self) -> ServerId {
        ServerId((1 << self.id_bits()) - 1)
    }

    /// From here on a client may take a timestamp for an old one (PAWS) after a silence.
    pub fn silence_limit_ms(self) -> u64 {
        1 << (15 + self.version_bits)
    }

    /// How likely a cookie that this balancer did not write is taken for a valid one: the share of ids
    /// in use. Every packet carries a cookie, so this holds for a connection as a whole, not per packet.
    pub fn undetected_foreign(self, ids_in_use: usize) -> f64 {
        ids_in_use as f64 / f64::from(1u32 << self.id_bits())
    }

    /// The timestamp on the wire.
    pub(crate) fn join(self, real: u32, epoch: u32, cookie: u16) -> u32 {
        let version = (real >> 16) & ((1 << self.version_bits) - 1);
        version << (32 - self.version_bits)
            | epoch << (31 - self.version_bits)
            | u32::from(cookie) << 16
            | real & 0xffff
    }

    /// Epoch bit, cookie, and the low 16 + n bits of the server's clock.
    pub(crate) fn split(self, wire: u32) -> (u32, u16, u32) {
        let epoch = (wire >> (31 - self.version_bits)) & 1;
        let cookie = (wire >> 16) as u16 & self.max_id().0;
        let known = (wire >> (32 - self.version_bits)) << 16 | wire & 0xffff;
        (epoch, cookie, known)
    }
}
