//! The keyed permutation that hides server ids.
//!
//! ```text
//! h       = mix(NH(client, VIP, ports, protocol))      64 bits, keyed
//! a, b    = the top bits of h, and those below them    w bits each
//! cookie  = P[id ^ a] + b  mod 2^w                     P: a secret permutation of w bits
//! ```
//!
//! Cheetah (§4.1) has `cookie = id ^ hash`. There, flipping a bit of a cookie moves its connection by
//! a known distance; here a changed cookie is some other server, each equally likely. NH is the
//! universal hash of UMAC (Black et al., CRYPTO '99); the connection's `a` and `b` never leave the
//! balancer and are seen only through `P`. What an attacker can still learn: the cookies of servers that
//! the balancer itself chose for the very same 5-tuple. So a *chosen* server is reached only by an attacker who
//! already holds a cookie of that server and 5-tuple, or by guessing: one try in 2^w.
//!
//! Cost: two 32-bit multiplications for IPv4 (five for IPv6), one of 64 bits, one load from a table of
//! 4 KiB (w = 11).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

use crate::layout::{Layout, ServerId};

/// Which of the two salts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epoch {
    /// The epoch bit is 0.
    Even,
    /// The epoch bit is 1.
    Odd,
}

impl Epoch {
    /// The epoch bit, also an index.
    pub fn bit(self) -> u32 {
        match self {
            Epoch::Even => 0,
            Epoch::Odd => 1,
        }
    }

    /// The epoch of an epoch bit.
    pub fn from_bit(bit: u32) -> Self {
        if bit & 1 == 0 { Epoch::Even } else { Epoch::Odd }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        Epoch::from_bit(self.bit() ^ 1)
    }
}

/// A connection as the balancer sees it: the same for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// The client's address.
    pub client: SocketAddr,
    /// The service's address.
    pub vip: SocketAddr,
    /// The protocol's number: 6 for TCP.
    pub protocol: u8,
}

/// The most words a tuple has (IPv6).
const WORDS: usize = 10;

impl Tuple {
    /// The words that are hashed: addresses and ports as they lie in a packet, read little-endian.
    /// One of each family never has the words of one of the other: their number differs, and the last
    /// one names the family.
    fn words(&self) -> ([u32; WORDS], usize) {
        let mut words = [0; WORDS];
        let mut length = 0;
        for address in [self.client.ip(), self.vip.ip()] {
            let (octets, bytes) = octets(address);
            for chunk in octets[..bytes].chunks_exact(4) {
                words[length] = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
                length += 1;
            }
        }
        let [c0, c1] = self.client.port().to_be_bytes();
        let [v0, v1] = self.vip.port().to_be_bytes();
        words[length] = u32::from_le_bytes([c0, c1, v0, v1]);
        words[length + 1] = u32::from(self.protocol) | (length as u32) << 8;
        (words, length + 2)
    }
}

fn octets(address: IpAddr) -> ([u8; 16], usize) {
    match address {
        IpAddr::V4(v4) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&v4.octets());
            (octets, 4)
        }
        IpAddr::V6(v6) => (v6.octets(), 16),
    }
}

/// A keyed hash of a connection: 64 bits, of which the upper ones are the best mixed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FlowHash {
    words: [u32; WORDS],
    multiplier: u64,
}

/// The key is a secret, and what is printed is logged.
impl fmt::Debug for FlowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowHash").finish_non_exhaustive()
    }
}

impl FlowHash {
    fn draw(rng: &mut ChaCha20Rng) -> Self {
        let mut words = [0; WORDS];
        words.fill_with(|| rng.next_u32());
        FlowHash { words, multiplier: rng.next_u64() | 1 }
    }

    /// The key's words, for the C side.
    pub fn words(&self) -> &[u32; 10] {
        &self.words
    }

    /// The key's odd multiplier, for the C side.
    pub fn multiplier(&self) -> u64 {
        self.multiplier
    }

    /// The hash.
    pub fn of(&self, tuple: &Tuple) -> u64 {
        let (words, length) = tuple.words();
        let sum = words[..length].chunks_exact(2).zip(self.words.chunks_exact(2)).fold(
            0u64,
            |sum, (word, key)| {
                let left = u64::from(word[0].wrapping_add(key[0]));
                let right = u64::from(word[1].wrapping_add(key[1]));
                sum.wrapping_add(left.wrapping_mul(right))
            },
        );
        (sum ^ (sum >> 32)).wrapping_mul(self.multiplier)
    }
}

/// The key by which connections without a cookie are spread. It does not rotate: a connection whose
/// packets carry no timestamp stays where it is for as long as the servers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadKey(FlowHash);

impl SpreadKey {
    /// Derives the key.
    pub fn derive(secret: &[u8; 32]) -> Self {
        SpreadKey(FlowHash::draw(&mut ChaCha20Rng::from_seed(*secret)))
    }

    /// The hash behind it, for the C side.
    pub fn hash(&self) -> &FlowHash {
        &self.0
    }

    /// A place among `slots` (fewer than 2^16): every place equally likely.
    pub fn slot(&self, tuple: &Tuple, slots: u32) -> u32 {
        (((self.0.of(tuple) >> 32) * u64::from(slots)) >> 32) as u32
    }
}

/// One epoch's secret: the hash's key and the permutation.
#[derive(Clone, PartialEq, Eq)]
pub struct Salt {
    hash: FlowHash,
    id_bits: u32,
    forward: Vec<u16>,
    inverse: Vec<u16>,
}

/// Hash and permutation are secrets.
impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salt").field("id_bits", &self.id_bits).finish_non_exhaustive()
    }
}

impl Salt {
    /// Derives a salt from 32 secret bytes, by ChaCha20 and a Fisher–Yates shuffle.
    pub fn derive(secret: &[u8; 32], layout: Layout) -> Self {
        let mut rng = ChaCha20Rng::from_seed(*secret);
        let hash = FlowHash::draw(&mut rng);
        let id_bits = layout.id_bits();
        let mut forward: Vec<u16> = (0..1 << id_bits).collect();
        for place in (1..forward.len()).rev() {
            let other = below(&mut rng, place as u32 + 1) as usize;
            forward.swap(place, other);
        }
        let mut inverse = vec![0; forward.len()];
        for (from, to) in forward.iter().enumerate() {
            inverse[usize::from(*to)] = from as u16;
        }
        Salt { hash, id_bits, forward, inverse }
    }

    /// The cookie of a server for this connection.
    pub fn hide(&self, id: ServerId, tuple: &Tuple) -> u16 {
        let (before, after) = self.tweaks(tuple);
        self.forward[usize::from((id.0 ^ before) & self.mask())].wrapping_add(after) & self.mask()
    }

    /// The id that a cookie stands for, if this salt wrote it.
    pub fn reveal(&self, cookie: u16, tuple: &Tuple) -> ServerId {
        let (before, after) = self.tweaks(tuple);
        ServerId(self.inverse[usize::from(cookie.wrapping_sub(after) & self.mask())] ^ before)
    }

    /// The hash's key, for the C side.
    pub fn hash(&self) -> &FlowHash {
        &self.hash
    }

    /// `P`, for the C side.
    pub fn forward(&self) -> &[u16] {
        &self.forward
    }

    /// `P` backwards, for the C side.
    pub fn inverse(&self) -> &[u16] {
        &self.inverse
    }

    fn mask(&self) -> u16 {
        (1 << self.id_bits) - 1
    }

    fn tweaks(&self, tuple: &Tuple) -> (u16, u16) {
        let hash = self.hash.of(tuple);
        let before = (hash >> (64 - self.id_bits)) as u16;
        let after = (hash >> (64 - 2 * self.id_bits)) as u16 & self.mask();
        (before, after)
    }
}

/// A number below `bound`, every one equally likely; written out so that no library's way of drawing
/// changes what a key means.
fn below(rng: &mut impl RngCore, bound: u32) -> u32 {
    let zone = u32::MAX - u32::MAX % bound;
    loop {
        let drawn = rng.next_u32();
        if drawn < zone {
            return drawn % bound;
        }
    }
}
