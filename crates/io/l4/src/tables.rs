//! Tables that the program reads with one look: user space searches for a multiplier under which no
//! place is taken twice, so that the program never follows a chain.

use std::net::{IpAddr, SocketAddr};

use rand::RngCore;

use crate::layout::{MAC_WAYS, Mac};

/// Tries before a table is given up; with the sizes in use a few dozen suffice.
const TRIES: u32 = 20_000;

/// Places in one half of `vips` for so many VIPs: so many that a handful of tries finds a multiplier.
pub fn vip_bits(vips: u32) -> u32 {
    let vips = u64::from(vips.max(1));
    (vips * vips / 4).max(16).next_power_of_two().trailing_zeros().min(16)
}

/// Buckets in one half of `macs` for so many members.
pub fn mac_bits(members: u32) -> u32 {
    members.max(16).next_power_of_two().trailing_zeros()
}

/// The words of an address as they lie in a packet.
pub fn address_words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(v4) => [u32::from_le_bytes(v4.octets()), 0, 0, 0],
        IpAddr::V6(v6) => {
            let octets = v6.octets();
            [0, 4, 8, 12].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|byte| octets[at + byte])))
        }
    }
}

/// `vip_key` of balancer.h.
pub fn vip_key(address: SocketAddr, protocol: u8) -> u32 {
    let family = if address.is_ipv4() { 4 } else { 6 };
    u32::from(address.port().swap_bytes()) | u32::from(protocol) << 16 | family << 24
}

/// The place of a VIP, as `find_vip` computes it.
pub fn vip_place(words: [u32; 4], key: u32, seed: u64, bits: u32) -> u32 {
    let [a, b, c, d] = words.map(u64::from);
    // The other words are zero for IPv4, where the program leaves them out.
    let mixed = a
        .wrapping_add(b.wrapping_mul(0x9e37_79b1))
        .wrapping_add(c.wrapping_mul(0x85eb_ca77))
        .wrapping_add(d.wrapping_mul(0xc2b2_ae3d));
    let product = ((mixed << 24) ^ u64::from(key) ^ (mixed >> 40)).wrapping_mul(seed);
    (product >> (63 - bits) >> 1) as u32
}

/// A seed under which every VIP has a place of its own.
pub fn vip_seed(vips: &[([u32; 4], u32)], bits: u32, rng: &mut impl RngCore) -> Option<u64> {
    (0..TRIES).map(|_| rng.next_u64() | 1).find(|seed| {
        let mut taken = vec![false; 1 << bits];
        vips.iter().all(|(words, key)| {
            let place = vip_place(*words, *key, *seed, bits) as usize;
            !std::mem::replace(&mut taken[place], true)
        })
    })
}

/// The key of a server's MAC address within a VIP.
pub fn mac_key(mac: Mac, vip_number: u32) -> u64 {
    let first = u64::from(u16::from_le_bytes([mac[0], mac[1]]));
    let last = u64::from(u32::from_le_bytes([mac[2], mac[3], mac[4], mac[5]]));
    (first << 32 | last) << 16 | u64::from(vip_number + 1)
}

/// Servers that share a bucket: their keys and ids.
pub type Bucket = Vec<(u64, u16)>;

/// Buckets in which every server has a place, and the seed that makes them.
pub fn mac_buckets(
    servers: &[(u64, u16)],
    bits: u32,
    rng: &mut impl RngCore,
) -> Option<(u64, Vec<Bucket>)> {
    (0..TRIES).find_map(|_| {
        let seed = rng.next_u64() | 1;
        let mut buckets = vec![Vec::new(); 1 << bits];
        for (key, id) in servers {
            let bucket = &mut buckets[(key.wrapping_mul(seed) >> (63 - bits) >> 1) as usize];
            if bucket.len() == MAC_WAYS {
                return None;
            }
            bucket.push((*key, *id));
        }
        Some((seed, buckets))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha20Rng;

    #[test]
    fn as_many_vips_as_promised_find_places() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        for count in [1u32, 16, 64, 256] {
            let vips: Vec<_> = (0..count)
                .map(|n| {
                    let ip: IpAddr = if n % 2 == 0 {
                        IpAddr::from([10, 0, (n >> 8) as u8, n as u8])
                    } else {
                        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n as u16])
                    };
                    let address = SocketAddr::new(ip, 443);
                    (address_words(ip), vip_key(address, 6))
                })
                .collect();
            assert!(vip_seed(&vips, vip_bits(count), &mut rng).is_some(), "{count}");
        }
    }

    #[test]
    fn as_many_servers_as_there_are_buckets_find_places() {
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let servers: Vec<_> = (0..4096u32)
            .map(|n| (mac_key([2, 0, 0, 0, (n >> 8) as u8, n as u8], n % 16), n as u16))
            .collect();
        let (seed, buckets) = mac_buckets(&servers, mac_bits(4096), &mut rng).expect("room");
        for (key, id) in &servers {
            let bucket = &buckets[(key.wrapping_mul(seed) >> (63 - 12) >> 1) as usize];
            assert!(bucket.contains(&(*key, *id)));
        }
    }

    #[test]
    fn one_place_for_two_vips_is_none() {
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let one = (address_words(IpAddr::from([10, 0, 0, 1])), 5);
        assert_eq!(vip_seed(&[one, one], 4, &mut rng), None);
    }
}
