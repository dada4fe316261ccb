//! Randomness for picks and chips.

use std::hash::{BuildHasher, Hasher, RandomState};

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A generator of its own for each that asks: seeded by the system, through the keys that the standard library draws.
pub(crate) fn generator() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(RandomState::new().build_hasher().finish())
}
