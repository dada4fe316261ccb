//! Where requests come from, for policies that hash: addresses out of one block, and the keys that `source` makes
//! of them.

use std::net::{IpAddr, Ipv4Addr};

use plimsoll_policy::{HashKey, KeySource, RequestView};
use rand::RngCore;

/// The first address, 10.0.0.0.
const FIRST: u32 = 0x0a00_0000;

struct From(IpAddr);

impl RequestView for From {
    fn source(&self) -> Option<IpAddr> {
        Some(self.0)
    }
}

/// The keys of all clients.
pub(super) struct Addresses {
    keys: Vec<u64>,
}

impl Addresses {
    pub(super) fn new(count: u32) -> Self {
        let by_source = HashKey::new(KeySource::Source);
        let key = |i: u32| by_source.key(&From(Ipv4Addr::from_bits(FIRST.wrapping_add(i)).into()));
        Addresses { keys: (0..count).filter_map(key).collect() }
    }

    /// The key of the next request, from any of them alike; `None` where there are no addresses.
    pub(super) fn draw(&self, rng: &mut dyn RngCore) -> Option<u64> {
        if self.keys.is_empty() {
            return None;
        }
        let at = (u128::from(rng.next_u64()) * self.keys.len() as u128) >> 64;
        self.keys.get(at as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn every_client_has_a_key_of_its_own_and_sends_as_often_as_others() {
        let addresses = Addresses::new(100);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..100_000 {
            *seen.entry(addresses.draw(&mut rng)).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 100);
        assert!(seen.values().all(|n| (800..1_200).contains(n)), "{seen:?}");
        assert_eq!(Addresses::new(0).draw(&mut rng), None);
    }
}
