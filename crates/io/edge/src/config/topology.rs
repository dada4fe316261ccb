//! Nodes: where services run.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use plimsoll_config::{Cursor, Once, quoted};
use plimsoll_l4::AttachMode;

use super::{all, mode, name};

/// CPUs of a node are numbered below this: one byte on the wire.
const MOST_CPUS: u64 = 256;

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where VXLAN packets and control reach it.
    pub address: Ipv4Addr,
    /// How its programs are attached.
    pub mode: AttachMode,
    /// The CPUs that run functions.
    pub cpus: Vec<u32>,
    /// The services that run there, by their place in [`super::EdgeConfig::services`].
    pub services: Vec<usize>,
    /// Addresses of its own for a service's NAT, by the service's place.
    pub external: BTreeMap<usize, Vec<IpAddr>>,
    /// Gets flows only while the others are overloaded.
    pub standby: bool,
}

/// What nodes have taken already.
#[derive(Default)]
pub(super) struct Taken {
    names: Once<String>,
    addresses: Once<IpAddr>,
}

impl Node {
    pub(super) fn read(
        cursor: &Cursor<'_>,
        taken: &mut Taken,
        services: Option<&[String]>,
    ) -> Option<Self> {
        let fields = cursor
            .fields(&["name", "address", "mode", "cpus", "services", "external", "standby"])?;
        let name = fields.required("name", "the node's name", |c| {
            let name = name(c, 32)?;
            taken.names.take(name.clone(), c, "a name that no other node has")?;
            Some(name)
        });
        let address = fields.required("address", "the node's IPv4 address", |c| {
            let what = "an IPv4 address such as \"10.0.3.1\"";
            let address = match c.text(what)?.parse::<Ipv4Addr>() {
                Ok(address) if !address.is_unspecified() && !address.is_multicast() => address,
                _ => return c.expected(what),
            };
            taken.addresses.take(address.into(), c, "an address that nothing else has")?;
            Some(address)
        });
        let mode = fields.or("mode", AttachMode::Native, mode);
        let cpus = fields.required("cpus", "a list of CPUs such as [0, 1]", |c| {
            let mut once = Once::default();
            all(c, "a list of CPUs", |c| {
                let cpu = c.integer(0..=MOST_CPUS - 1)? as u32;
                once.take(cpu, c, "a CPU that is not in the list yet")?;
                Some(cpu)
            })
        });
        let own = fields.required("services", "a list of services' names", |c| {
            let mut once = Once::default();
            all(c, "a list of services' names", |c| {
                let index = service(c, services)?;
                once.take(index, c, "a service that is not in the list yet")?;
                Some(index)
            })
        });
        let external = fields.or("external", BTreeMap::new(), |c| external(c, taken, services));
        let standby = fields.or("standby", false, Cursor::boolean);
        Some(Node {
            name: name?,
            address: address?,
            mode: mode?,
            cpus: cpus?,
            services: own?,
            external: external?,
            standby: standby?,
        })
    }
}

fn service(cursor: &Cursor<'_>, services: Option<&[String]>) -> Option<usize> {
    let wanted = name(cursor, 32)?;
    match services?.iter().position(|name| *name == wanted) {
        Some(index) => Some(index),
        None => cursor.problem(format!("no service is called {}", quoted(&wanted))),
    }
}

/// Two instances with one address would give the same port to two flows.
fn external(
    cursor: &Cursor<'_>,
    taken: &mut Taken,
    services: Option<&[String]>,
) -> Option<BTreeMap<usize, Vec<IpAddr>>> {
    let mut read = BTreeMap::new();
    let mut good = true;
    for entry in cursor.entries("a mapping of services to lists of addresses")? {
        let index = services.and_then(|all| all.iter().position(|name| name == entry.key));
        if index.is_none() && services.is_some() {
            good = false;
            entry.problem::<()>(format!("no service is called {}", quoted(entry.key)));
        }
        let addresses = all(&entry.value, "a list of addresses", |c| {
            let what = "an address such as \"203.0.113.1\"";
            let Ok(address) = c.text(what)?.parse::<IpAddr>() else { return c.expected(what) };
            taken.addresses.take(address, c, "an address that nothing else has")?;
            Some(address)
        });
        match (index, addresses) {
            (Some(index), Some(addresses)) => drop(read.insert(index, addresses)),
            _ => good = false,
        }
    }
    good.then_some(read)
}
