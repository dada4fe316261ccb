//! Cookies of constant size (Cheetah, appendix B), for carriers with only a few bits.
//!
//! * [`ConfigTags`]: the cookie names one of the last 2^bits sets of servers, and a hash picks within
//!   it. A connection lives on while its server was in a set that is still remembered, and breaks
//!   after 2^bits changes.
//! * [`HashIndex`]: the cookie names the hash function by which the server was found, so that the
//!   power of d choices needs no memory of what was chosen. Breaks when the set of servers changes,
//!   unless used with a tag.
//!
//! Cost: one hash a packet; d hashes for the first one.

use std::collections::VecDeque;

use thiserror::Error;

use crate::layout::ServerId;
use crate::salt::{SpreadKey, Tuple};

/// What a tag cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TagError {
    /// No server takes connections.
    #[error("expected at least one server")]
    Empty,
    /// The configuration behind the tag was forgotten, or never was.
    #[error("no configuration is remembered under this tag")]
    Forgotten,
    /// The number of bits or hash functions.
    #[error("expected 1 to 8 bits, found {0}")]
    Bits(u32),
}

/// The last few sets of servers, by tag.
#[derive(Clone, Debug)]
pub struct ConfigTags {
    bits: u32,
    key: SpreadKey,
    newest: u8,
    /// Newest first.
    sets: VecDeque<Vec<ServerId>>,
}

impl ConfigTags {
    /// Remembers 2^bits sets.
    ///
    /// # Errors
    /// Other than 1 to 8 bits.
    pub fn new(bits: u32, key: SpreadKey) -> Result<Self, TagError> {
        if !(1..=8).contains(&bits) {
            return Err(TagError::Bits(bits));
        }
        Ok(ConfigTags { bits, key, newest: 0, sets: VecDeque::new() })
    }

    /// A new set of servers takes connections from now on; the oldest may be forgotten. Answers its
    /// tag.
    ///
    /// # Errors
    /// An empty set.
    pub fn push(&mut self, servers: Vec<ServerId>) -> Result<u8, TagError> {
        if servers.is_empty() {
            return Err(TagError::Empty);
        }
        self.newest = self.newest.wrapping_add(1) & self.mask();
        self.sets.push_front(servers);
        self.sets.truncate(1 << self.bits);
        Ok(self.newest)
    }

    /// The server of a connection that carries this tag.
    ///
    /// # Errors
    /// A tag that is not remembered.
    pub fn server(&self, tag: u8, tuple: &Tuple) -> Result<ServerId, TagError> {
        let age = self.newest.wrapping_sub(tag) & self.mask();
        let set = self.sets.get(usize::from(age)).ok_or(TagError::Forgotten)?;
        Ok(set[self.key.slot(tuple, set.len() as u32) as usize])
    }

    fn mask(&self) -> u8 {
        ((1u16 << self.bits) - 1) as u8
    }
}

/// Power of d choices whose choice the cookie remembers.
#[derive(Clone, Debug)]
pub struct HashIndex {
    keys: Vec<SpreadKey>,
}

impl HashIndex {
    /// One key for each hash function; 2 of them need a cookie of one bit.
    ///
    /// # Errors
    /// Fewer than 2 keys, or more than 256.
    pub fn new(keys: Vec<SpreadKey>) -> Result<Self, TagError> {
        if (2..=256).contains(&keys.len()) {
            Ok(HashIndex { keys })
        } else {
            Err(TagError::Bits(keys.len() as u32))
        }
    }

    /// The SYN: the least loaded of the candidates, the first of equals. Answers the cookie.
    ///
    /// # Errors
    /// No servers.
    pub fn choose(
        &self,
        tuple: &Tuple,
        servers: &[ServerId],
        load: impl Fn(ServerId) -> u64,
    ) -> Result<u8, TagError> {
        let candidates = (0..self.keys.len()).map(|index| index as u8);
        let loads =
            candidates.map(|index| Some((load(self.server(index, tuple, servers)?), index)));
        match loads.min() {
            Some(Some((_, index))) => Ok(index),
            _ => Err(TagError::Empty),
        }
    }

    /// Every later packet; `None` for an index beyond the hash functions, or without servers.
    pub fn server(&self, index: u8, tuple: &Tuple, servers: &[ServerId]) -> Option<ServerId> {
        let key = self.keys.get(usize::from(index))?;
        servers.get(key.slot(tuple, servers.len() as u32) as usize).copied()
    }
}
