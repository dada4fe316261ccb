//! What the agent's programs counted, read from the pinned maps: needs no agent that runs.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use serde::Serialize;

use super::maps::AgentMaps;
use super::program::attached;
use crate::error::L4Error;

/// The counters' names, in the order of `bpf/agent.h`; docs/l4.md says what each means.
pub const AGENT_COUNTS: [&str; super::layout::COUNTS] =
    ["written", "restored", "no_timestamp", "foreign_cookie", "no_socket", "syn_cookie"];

/// All that is pinned of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentStatus {
    /// Where the programs are.
    pub interfaces: Vec<String>,
    /// The epoch of new cookies.
    pub epoch: u32,
    /// Of the cookies.
    pub version_bits: u32,
    /// By service.
    pub vips: Vec<AgentVipStatus>,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentVipStatus {
    /// Its name.
    pub name: String,
    /// What clients connect to.
    pub address: SocketAddr,
    /// This server's id in its cookies.
    pub id: u32,
    /// By [`AGENT_COUNTS`].
    pub counts: BTreeMap<&'static str, u64>,
}

/// Reads what is pinned in a directory.
///
/// # Errors
/// When nothing is pinned, or it cannot be read.
pub fn agent_status(dir: &Path) -> Result<AgentStatus, L4Error> {
    let maps = AgentMaps::open(dir)?;
    let mut vips = Vec::new();
    for (key, [number, id]) in maps.vips()? {
        let counts = AGENT_COUNTS.into_iter().zip(maps.counts(number)?).collect();
        vips.push(AgentVipStatus { name: maps.name(number)?, address: address(key), id, counts });
    }
    vips.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(AgentStatus {
        interfaces: attached(dir),
        epoch: maps.settings()?.epoch.bit(),
        version_bits: maps.made_by()?.1,
        vips,
    })
}

/// Back from `vip_words`.
fn address([a, b, c, d, key]: [u32; 5]) -> SocketAddr {
    let port = (key as u16).swap_bytes();
    let ip = if key >> 24 == 4 {
        IpAddr::from(a.to_le_bytes())
    } else {
        let mut octets = [0; 16];
        for (four, word) in octets.chunks_exact_mut(4).zip([a, b, c, d]) {
            four.copy_from_slice(&word.to_le_bytes());
        }
        IpAddr::from(octets)
    };
    SocketAddr::new(ip, port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::layout::vip_words;

    #[test]
    fn an_address_comes_back_from_its_key() {
        for text in ["10.0.9.9:80", "[fd00:9::9]:8443"] {
            let address_in: SocketAddr = text.parse().expect("address");
            assert_eq!(address(vip_words(address_in)), address_in);
        }
    }
}
