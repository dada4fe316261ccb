//! Networks of addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Cidr {
    /// Whether it is a network of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether the address is in the network. An IPv4 address that arrived over IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differ = u32::from(network) ^ u32::from(address);
                differ.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differ = u128::from(network) ^ u128::from(address);
                differ.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) = text.split_once('/').ok_or(())?;
        let address: IpAddr = address.parse().map_err(drop)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let is_number = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let bits: u8 = bits.parse().map_err(drop)?;
        let host_bits_are_zero = match address {
            IpAddr::V4(v4) => u32::from(v4).checked_shl(u32::from(bits)).unwrap_or(0) == 0,
            IpAddr::V6(v6) => u128::from(v6).checked_shl(u32::from(bits)).unwrap_or(0) == 0,
        };
        if is_number && bits <= most && host_bits_are_zero {
            Ok(Cidr { address, bits })
        } else {
            Err(())
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_what_begins_like_it() {
        let holds = |network: &str, address: &str| {
            network.parse::<Cidr>().unwrap().contains(address.parse().unwrap())
        };
        assert!(holds("127.0.0.0/8", "127.9.9.9") && !holds("127.0.0.0/8", "128.0.0.1"));
        assert!(holds("127.0.0.0/8", "::ffff:127.0.0.1"));
        assert!(holds("0.0.0.0/0", "9.9.9.9") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("10.1.2.3/32", "10.1.2.3") && !holds("10.1.2.3/32", "10.1.2.2"));
        assert!(holds("fd00::/8", "fd12::1") && !holds("fd00::/8", "fe80::1"));
        assert!(holds("::/0", "::1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["10.0.0.1/8", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "::/129", "x/8", "/8"]
        {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
