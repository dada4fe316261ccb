//! A digest of everything that a controller did in a run: refactorings must not change it.

use std::fmt::{self, Write};
use std::ops::Add;

use plimsoll_control::Action;

/// A digest of actions, their times and the kinds of records, without texts. The digests of several runs add up in any
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

/// FNV-1a, 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

impl Default for Digest {
    fn default() -> Self {
        Digest(BASIS)
    }
}

impl Digest {
    /// Adds an action at this time, nanoseconds.
    pub fn note(&mut self, at: u64, action: &Action) {
        // Writing into a hash cannot fail.
        let _ = match action {
            Action::Program(plan) | Action::Correct(plan) => {
                write!(self, "{at} {} {:?}", plan.epoch, plan.entries)
            }
            Action::Record(record) => write!(self, "{at} {:?} {:?}", record.kind, record.backend),
            other => write!(self, "{at} {other:?}"),
        };
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(PRIME);
        }
        Ok(())
    }
}

impl Add for Digest {
    type Output = Digest;

    fn add(self, other: Digest) -> Digest {
        Digest(self.0.wrapping_add(other.0.wrapping_sub(BASIS)))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_control::{Record, RecordKind};

    use super::*;

    #[test]
    fn digest_depends_on_actions_and_times_but_not_on_texts() {
        let of = |at: u64, kind: RecordKind, reason: &str| {
            let mut digest = Digest::default();
            let record = Record { kind, backend: None, reason: reason.to_owned() };
            digest.note(at, &Action::Record(record));
            digest
        };
        let one = of(1, RecordKind::Drift, "a");
        assert_eq!(one, of(1, RecordKind::Drift, "b"));
        assert_ne!(one, of(2, RecordKind::Drift, "a"));
        assert_ne!(one, of(1, RecordKind::Plan, "a"));
        let two = of(2, RecordKind::Plan, "");
        assert_eq!(one + two, two + one);
        assert_eq!(one + Digest::default(), one);
    }
}
