//! Hash functions: XXH3, and those of HAProxy (`src/hash.c`, `include/haproxy/tools.h`), which are 32
//! bits wide and known by their results, not by their quality: sdbm and djb2 mix little.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// What makes a number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HashFunction {
    /// XXH3, 64 bits.
    #[default]
    Xxh3,
    /// HAProxy's default.
    Sdbm,
    /// Bernstein's.
    Djb2,
    /// HAProxy's own, made for source addresses and cookies.
    Wt6,
    /// CRC-32 as in Ethernet.
    Crc32,
}

impl HashFunction {
    /// The hash of these bytes; `avalanche` concerns HAProxy's functions alone.
    pub(super) fn hash(self, bytes: &[u8], avalanche: bool) -> u64 {
        let hash = match self {
            HashFunction::Xxh3 => return xxh3_64(bytes),
            HashFunction::Sdbm => sdbm(bytes),
            HashFunction::Djb2 => djb2(bytes),
            HashFunction::Wt6 => wt6(bytes),
            HashFunction::Crc32 => crc32fast::hash(bytes),
        };
        u64::from(if avalanche { full_hash(hash) } else { hash })
    }

    /// The hash of an address. HAProxy takes its words together by XOR, whatever the function.
    pub(super) fn hash_address(self, octets: &[u8], avalanche: bool) -> u64 {
        if self == HashFunction::Xxh3 {
            return xxh3_64(octets);
        }
        let word = |w: &[u8]| w.iter().fold(0, |word, &octet| word << 8 | u32::from(octet));
        let hash = octets.chunks(4).map(word).fold(0, |all, word| all ^ word);
        u64::from(if avalanche { full_hash(hash) } else { hash })
    }
}

fn sdbm(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0u32, |h, &b| u32::from(b).wrapping_add(h << 6).wrapping_add(h << 16).wrapping_sub(h))
}

fn djb2(bytes: &[u8]) -> u32 {
    bytes.iter().fold(5381u32, |h, &b| (h << 5).wrapping_add(h).wrapping_add(u32::from(b)))
}

fn wt6(bytes: &[u8]) -> u32 {
    let (mut h0, mut h1) = (0xa53c_965a_u32, 0x5ca6_953a_u32);
    let (mut step0, mut step1) = (6, 18);
    for &byte in bytes {
        h0 = !(h0 ^ u32::from(byte));
        h1 = !h1.wrapping_add(u32::from(byte));
        let t = h1.rotate_left(step0);
        h1 = h0.rotate_left(step1);
        h0 = t;
        let t = ((h0 >> 16) ^ h1) & 0xffff;
        (step0, step1) = (t & 0x1f, t >> 11);
    }
    h0 ^ h1
}

/// Bob Jenkins' full avalanche, and a large factor to spread what is still near.
pub(crate) fn full_hash(mut a: u32) -> u32 {
    a = a.wrapping_add(0x7ed5_5d16).wrapping_add(a << 12);
    a = (a ^ 0xc761_c23c) ^ (a >> 19);
    a = a.wrapping_add(0x1656_67b1).wrapping_add(a << 5);
    a = a.wrapping_add(0xd3a2_646c) ^ (a << 9);
    a = a.wrapping_add(0xfd70_46c5).wrapping_add(a << 3);
    a = (a ^ 0xb55a_4f09) ^ (a >> 16);
    a.wrapping_mul(3_221_225_473)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What HAProxy 2.6.12's converters say: each function without and with avalanche.
    #[test]
    fn the_hashes_are_those_of_haproxy() {
        use HashFunction::{Crc32, Djb2, Sdbm, Wt6};
        let told: [(&str, [u32; 8]); 4] = [
            (
                "/",
                [
                    47, 2118074832, 177620, 3725504903, 1886637733, 2250254464, 2043925204,
                    2724628003,
                ],
            ),
            (
                "/index.html",
                [
                    858007926, 4217574924, 3776231887, 1889807916, 822151038, 2986733765,
                    3928116034, 571229468,
                ],
            ),
            (
                "/a/b/c",
                [
                    2313627737, 1258940775, 2088251480, 1549263910, 2692261563, 3729741480,
                    2530205716, 1862626602,
                ],
            ),
            (
                "/img/%C3%A9.png",
                [
                    2751933694, 2548830800, 3106113677, 686483464, 4046576271, 2748000201,
                    2773057145, 2007836939,
                ],
            ),
        ];
        for (path, hashes) in told {
            let functions =
                [Sdbm, Djb2, Wt6, Crc32].into_iter().flat_map(|f| [(f, false), (f, true)]);
            for ((function, avalanche), expected) in functions.zip(hashes) {
                let got = function.hash(path.as_bytes(), avalanche);
                assert_eq!(got, u64::from(expected), "{function:?} {avalanche} of {path}");
            }
        }
    }

    #[test]
    fn addresses_of_both_families() {
        assert_eq!(HashFunction::Sdbm.hash_address(&[127, 0, 0, 1], false), 0x7f00_0001);
        let mut v6 = [0; 16];
        (v6[0], v6[15]) = (0x20, 1);
        assert_eq!(HashFunction::Wt6.hash_address(&v6, false), 0x2000_0001);
    }
}
