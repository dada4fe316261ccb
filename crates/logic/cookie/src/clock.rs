//! Putting the clock back: which timestamp the server really sent, and when a new salt takes over.
//!
//! A cookie replaces the upper half of a server's clock but for n version bits. What the client echoes
//! therefore tells 16 + n bits of it, and the rest follows from what that clock shows now: one learned
//! offset per server, the difference of its timestamps to the balancer's clock.
//!
//! ```text
//! now   = balancer's clock + offset + slack         slack = 2^(13+n) ms: 131 s at n = 4
//! real  = now - ((now - known) mod 2^(16+n))
//! ```
//!
//! So the offset need not be exact: any error below the slack restores every echo up to
//! 2^(16+n) - slack old (15 min at n = 4) to the bit. That matters, for since Linux 6.14 a server
//! rejects a handshake whose echo is not exactly what it sent.

use crate::layout::Layout;
use crate::salt::Epoch;

/// How long after a switch of salts packets stamped before it may still pass.
const SETTLED_MS: i64 = 200_000;

/// One server's clock as the balancer knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restorer {
    offset_ms: Option<u32>,
}

impl Restorer {
    /// An offset is only replaced when the clock is this far from it: writes are rare, and the instant
    /// at which a new salt takes over does not move.
    const TOLERANCE_MS: u32 = 1000;

    /// Learns from a timestamp that the server sent just now.
    pub fn observe(&mut self, real: u32, now_ms: u64) {
        let offset = real.wrapping_sub(now_ms as u32);
        match self.offset_ms {
            Some(known)
                if offset.wrapping_sub(known).wrapping_add(Self::TOLERANCE_MS)
                    <= 2 * Self::TOLERANCE_MS => {}
            _ => self.offset_ms = Some(offset),
        }
    }

    /// The difference of the server's clock to the balancer's, once known.
    pub fn offset_ms(&self) -> Option<u32> {
        self.offset_ms
    }

    /// The timestamp of which the low 16 + n bits are `known`; `None` before the server was heard.
    pub fn restore(&self, known: u32, now_ms: u64, layout: Layout) -> Option<u32> {
        let bits = 16 + layout.version_bits();
        let slack = 1u32 << (bits - 3);
        let now = (now_ms as u32).wrapping_add(self.offset_ms?).wrapping_add(slack);
        Some(now.wrapping_sub(now.wrapping_sub(known) & ((1 << bits) - 1)))
    }
}

/// A change of salts. Each server's connections change when that server's clock passes a version
/// boundary: there the wire's timestamp grows by the version whatever the cookie does, so that no
/// client sees time run backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaltSwitch {
    /// The epoch that takes over.
    pub to: Epoch,
    /// From when, by the balancer's clock.
    pub at_ms: u64,
}

impl SaltSwitch {
    /// The epoch in which a packet that the server stamped with `real` gets its cookie.
    pub fn epoch(&self, real: u32, now_ms: u64, offset_ms: u32) -> Epoch {
        let since = now_ms.wrapping_sub(self.at_ms) as i64;
        if since >= SETTLED_MS {
            return self.to;
        }
        if since < 0 {
            return self.to.other();
        }
        let first = (((self.at_ms as u32).wrapping_add(offset_ms) >> 16) as u16).wrapping_add(1);
        let passed = ((real >> 16) as u16).wrapping_sub(first) as i16 >= 0;
        if passed { self.to } else { self.to.other() }
    }
}
