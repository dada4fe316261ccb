//! Where servers are on the network: the interface towards each, and its MAC address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::config::Backend;
use crate::layout::{Mac, MemberValue};
use crate::network::{self, Link, Neighbour};

/// Why there is no place for a server.
pub(crate) struct Nowhere {
    pub(crate) why: String,
    /// Whether the place it had is of no use any more: nothing leads there.
    pub(crate) is_lost: bool,
}

/// Where a server is on the network.
pub(crate) fn place_of<'a>(
    backend: &Backend,
    ports: &BTreeMap<String, (u32, Link)>,
    neighbours: &[Neighbour],
    own: impl Fn(Mac) -> Option<&'a Link>,
) -> Result<MemberValue, Nowhere> {
    let lost = |why| Nowhere { why, is_lost: true };
    let unknown = |why| Nowhere { why, is_lost: false };
    let links: Vec<&Link> = ports.values().map(|(_, link)| link).collect();
    let route = network::route(backend.address, &links)
        .map_err(|error| unknown(error.to_string()))?
        .ok_or_else(|| lost(format!("no route to {}", backend.address)))?;
    let Some((port, link)) = ports.values().find(|(_, link)| link.index == route.ifindex) else {
        return Err(lost(format!(
            "{} is reached by an interface that l4.interfaces does not name, or that is not there",
            backend.address
        )));
    };
    if let Some(gateway) = route.gateway {
        return Err(lost(format!(
            "{} is behind the router {gateway}; direct forwarding needs servers on the link",
            backend.address
        )));
    }
    let found = || mac_of(neighbours, backend.address, link.index);
    let Some(mac) = backend.mac.or_else(found) else {
        return Err(unknown(format!(
            "{} has no MAC address in the neighbour table yet",
            backend.address
        )));
    };
    if let Some(link) = own(mac) {
        let name = &link.name;
        return Err(lost(format!(
            "{} has the MAC address of this machine's own {name}; expected another machine's, for a packet to \
             it would come back here",
            backend.address
        )));
    }
    Ok(MemberValue {
        mac,
        source_mac: link.mac,
        port: *port,
        ifindex: link.index,
        hairpin_tx: !link.veth,
        ..Default::default()
    })
}

/// A neighbour's MAC address. Nothing that the program forwards tells the kernel that the neighbour is in use:
/// another machine may have its address by now. So where what is known is old, or nothing is, the kernel is
/// asked to look; until it has, the old answer holds.
pub(crate) fn mac_of(neighbours: &[Neighbour], address: IpAddr, ifindex: u32) -> Option<Mac> {
    let held = known(neighbours, address, ifindex);
    if held.is_none_or(|one| one.stale) {
        // Refused without CAP_NET_ADMIN, and then there is no program either.
        let _ = network::use_neighbour(address, ifindex);
    }
    held.map(|one| one.mac)
}

/// What the kernel knows of a neighbour.
pub(crate) fn known(neighbours: &[Neighbour], address: IpAddr, ifindex: u32) -> Option<&Neighbour> {
    neighbours.iter().find(|one| one.address == address && one.ifindex == ifindex)
}
