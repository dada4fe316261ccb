//! Tables that the program reads with one look: user space searches for a multiplier under which no
//! place is taken twice, so that the program never follows a chain.

use std::net::{IpAddr, SocketAddr};

use rand::RngCore;

use crate::layout::{MAC_WAYS, Mac, VipIndex};

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

/// The bit of a port, as `port_in_use` computes it.
fn port_bit(key: u32) -> u64 {
    1 << ((key & 0xffff).wrapping_mul(0x9e37_79b1) >> 26)
}

/// The place of a VIP, as `find_vip` computes it.
pub fn vip_place(words: [u32; 4], key: u32, index: &VipIndex, bits: u32) -> u32 {
    let [a, b, c, d] = words.map(u64::from);
    let [first, second, third] = index.seed;
    let key = u64::from(key);
    let sum = if key >> 24 == 4 {
        (key << 32 | a).wrapping_mul(first)
    } else {
        key.wrapping_mul(first)
            .wrapping_add((b << 32 | a).wrapping_mul(second))
            .wrapping_add((d << 32 | c).wrapping_mul(third))
    };
    (sum >> (64 - bits)) as u32
}

/// Seeds under which every VIP has a place of its own, and their ports.
pub fn vip_index(vips: &[([u32; 4], u32)], bits: u32, rng: &mut impl RngCore) -> Option<VipIndex> {
    let ports = vips.iter().fold(0, |ports, (_, key)| ports | port_bit(*key));
    let drawn = |_| VipIndex { seed: [0; 3].map(|_: u64| rng.next_u64() | 1), ports };
    (0..TRIES).map(drawn).find(|index| {
        let mut taken = vec![false; 1 << bits];
        vips.iter().all(|(words, key)| {
            let place = vip_place(*words, *key, index, bits) as usize;
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

/// The bucket of a key, as `find_source` computes it.
fn mac_place(key: u64, seed: u64, bits: u32) -> usize {
    let (mac, number) = (key & !0xffff, (key & 0xffff) - 1);
    ((mac.wrapping_mul(seed) >> (64 - bits)) ^ number) as usize
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
            let bucket = &mut buckets[mac_place(*key, seed, bits)];
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
            assert!(vip_index(&vips, vip_bits(count), &mut rng).is_some(), "{count}");
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
            let bucket = &buckets[mac_place(*key, seed, 12)];
            assert!(bucket.contains(&(*key, *id)));
        }
    }

    #[test]
    fn one_place_for_two_vips_is_none() {
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let one = (address_words(IpAddr::from([10, 0, 0, 1])), 5);
        assert_eq!(vip_index(&[one, one], 4, &mut rng), None);
    }
}
