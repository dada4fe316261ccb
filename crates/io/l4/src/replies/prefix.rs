//! Prefixes as the program compares them: of an IPv4 address all, of an IPv6 address the upper half. A
//! longer prefix is widened to that: for what a prefix holds, the kernel's routes are asked, so a wider one
//! is slower and never wrong.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Serialize, Serializer};

/// Addresses of one family that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// From the highest bit on; zeros after `bits`.
    key: u64,
    bits: u8,
    v4: bool,
}

/// Link-local and multicast addresses of IPv6, which no route leads out by.
const LOCAL_V6: Prefix = Prefix { key: 0xfe << 56, bits: 7, v4: false };

fn mask(bits: u8) -> u64 {
    u64::MAX.checked_shl(64 - u32::from(bits)).unwrap_or(0)
}

impl Prefix {
    /// Of so many bits.
    pub fn new(address: IpAddr, bits: u8) -> Prefix {
        let (key, v4) = match address {
            IpAddr::V4(v4) => (u64::from(v4.to_bits()) << 32, true),
            IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64, false),
        };
        let bits = bits.min(if v4 { 32 } else { 64 });
        let prefix = Prefix { key: key & mask(bits), bits, v4 };
        if LOCAL_V6.holds(&prefix) { LOCAL_V6 } else { prefix }
    }

    /// Its first address, and the bits that are compared, as they lie in a packet.
    pub(crate) fn words(&self) -> (u64, u64) {
        let [key, mask] = [self.key, mask(self.bits)].map(u64::swap_bytes);
        (key, mask)
    }

    pub(crate) fn from_words(prefix: u64, mask: u64, v4: bool) -> Prefix {
        Prefix { key: prefix.swap_bytes(), bits: mask.count_ones() as u8, v4 }
    }

    fn holds(&self, other: &Prefix) -> bool {
        self.v4 == other.v4 && self.bits <= other.bits && self.key == other.key & mask(self.bits)
    }

    /// The longest that holds both.
    fn joined(&self, other: &Prefix) -> Prefix {
        let alike = (self.key ^ other.key).leading_zeros() as u8;
        let bits = alike.min(self.bits).min(other.bits);
        Prefix { key: self.key & mask(bits), bits, v4: self.v4 }
    }

    /// Whether it holds nothing but link-local and multicast addresses of IPv6.
    pub(crate) fn is_link_local(&self) -> bool {
        LOCAL_V6.holds(self)
    }

    /// Whether it holds every address.
    pub(crate) fn is_all(&self) -> bool {
        self.bits == 0
    }
}

/// As few as asked for that hold all of these, of one family; neighbours that have most in common are
/// joined first.
pub(crate) fn few(mut prefixes: Vec<Prefix>, most: usize) -> Vec<Prefix> {
    let only_widest = |prefixes: &mut Vec<Prefix>| {
        prefixes.sort_unstable();
        prefixes.dedup_by(|later, before| before.holds(later));
    };
    only_widest(&mut prefixes);
    while prefixes.len() > most.max(1) {
        let joined = prefixes.windows(2).map(|two| two[0].joined(&two[1]));
        let Some((at, widest)) = joined.enumerate().max_by_key(|(_, prefix)| prefix.bits) else {
            break;
        };
        prefixes[at] = widest;
        prefixes.remove(at + 1);
        only_widest(&mut prefixes);
    }
    prefixes
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match self.v4 {
            true => IpAddr::from(((self.key >> 32) as u32).to_be_bytes()),
            false => Ipv6Addr::from_bits(u128::from(self.key) << 64).into(),
        };
        write!(f, "{address}/{}", self.bits)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Prefix {
        let (address, bits) = text.split_once('/').expect("a prefix");
        Prefix::new(address.parse().expect("an address"), bits.parse().expect("bits"))
    }

    fn shown(prefixes: &[Prefix]) -> Vec<String> {
        prefixes.iter().map(Prefix::to_string).collect()
    }

    #[test]
    fn words_are_compared_as_a_packet_has_them() {
        for (prefix, inside, outside) in [
            ("10.0.2.0/24", "10.0.2.9", "10.0.3.9"),
            ("10.0.0.0/9", "10.127.2.9", "10.128.0.1"),
            ("9.8.7.6/32", "9.8.7.6", "9.8.7.7"),
            ("2001:db8::/45", "2001:db8:7::1", "2001:db8:8::1"),
            ("2001:db8::7/128", "2001:db8::8", "2001:db8:0:1::7"),
        ] {
            let (prefix, mask) = of(prefix).words();
            for (address, expected) in [(inside, true), (outside, false)] {
                let octets = match address.parse().expect("an address") {
                    IpAddr::V4(v4) => [&v4.octets()[..], &[0; 4]].concat(),
                    IpAddr::V6(v6) => v6.octets()[..8].to_vec(),
                };
                let word = u64::from_le_bytes(octets.try_into().expect("eight"));
                assert_eq!(word & mask == prefix, expected, "{address}");
            }
        }
    }

    #[test]
    fn what_another_holds_is_not_said_again() {
        let all = ["10.0.2.0/24", "127.0.0.1/32", "10.0.2.254/32", "127.0.0.0/8", "10.0.2.0/24"];
        assert_eq!(shown(&few(all.map(of).to_vec(), 8)), ["10.0.2.0/24", "127.0.0.0/8"]);
        let all = ["fe80::/64", "ff00::/8", "::1/128", "fd00:1::1/128", "fd00:1::/64"];
        assert_eq!(shown(&few(all.map(of).to_vec(), 8)), ["::/64", "fd00:1::/64", "fe00::/7"]);
    }

    #[test]
    fn too_many_are_joined_where_they_have_most_in_common() {
        let mut all: Vec<Prefix> = (0..200).map(|n| of(&format!("10.244.{n}.0/24"))).collect();
        all.extend(["192.0.2.0/24", "127.0.0.0/8"].map(of));
        let kept = few(all.clone(), 3);
        assert_eq!(shown(&kept), ["10.244.0.0/16", "127.0.0.0/8", "192.0.2.0/24"]);
        for most in 1..=8 {
            let kept = few(all.clone(), most);
            assert!(kept.len() <= most);
            assert!(all.iter().all(|one| kept.iter().any(|wide| wide.holds(one))), "{kept:?}");
        }
        assert!(few([of("0.0.0.0/1"), of("128.0.0.0/1")].to_vec(), 1)[0].is_all());
    }
}
