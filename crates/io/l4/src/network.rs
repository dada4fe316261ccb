//! What the kernel knows of the network, over netlink: links, neighbours, and routes. Asked in the
//! network namespace of the caller.

mod native;

use std::collections::BTreeSet;
use std::io::{self, Error, ErrorKind};
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkInfo, LinkMessage, LinkXdp, XdpAttached,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::config::AttachMode;
use crate::layout::Mac;
pub use native::takes_native;

/// Dumps of a few thousand neighbours fit; the kernel sends at most 32 KiB at a time.
const BUFFER_BYTES: usize = 64 * 1024;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its address.
    pub mac: Mac,
    /// The largest packet.
    pub mtu: u32,
    /// How an XDP program is attached to it.
    pub xdp: Option<AttachMode>,
    /// The kernel's numbers of the XDP programs on it.
    pub programs: Vec<u32>,
    /// The interface that it is a part of: a VRF, where that routes its packets; a bridge or a bond.
    pub master: Option<u32>,
    /// A virtual Ethernet pair, which sends back only what its peer takes by XDP, too.
    pub veth: bool,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The interface.
    pub ifindex: u32,
    /// The router, where the destination is not on the link.
    pub gateway: Option<IpAddr>,
}

/// A neighbour on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface.
    pub ifindex: u32,
    /// The address asked for.
    pub address: IpAddr,
    /// The answer.
    pub mac: Mac,
    /// Whether it is so old that the kernel would ask again before long if it sent anything there itself.
    pub stale: bool,
    /// Whether it was configured, and the kernel never asks.
    pub fixed: bool,
}

/// All interfaces.
///
/// # Errors
/// When the kernel does not answer.
pub fn links() -> io::Result<Vec<Link>> {
    let answers = ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), true)?;
    let links = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(message) => link(message),
        _ => None,
    });
    Ok(links.collect())
}

fn link(message: LinkMessage) -> Option<Link> {
    let (index, name) = (message.header.index, String::new());
    let mut link = Link {
        index,
        name,
        mac: [0; 6],
        mtu: 0,
        xdp: None,
        programs: Vec::new(),
        master: None,
        veth: false,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Address(bytes) => link.mac = bytes.try_into().unwrap_or([0; 6]),
            LinkAttribute::Controller(index) => link.master = Some(index),
            LinkAttribute::Xdp(about) => {
                link.xdp = about.iter().find_map(attached_as);
                link.programs = about.iter().filter_map(program).collect();
            }
            LinkAttribute::LinkInfo(infos) => {
                link.veth = infos.contains(&LinkInfo::Kind(InfoKind::Veth));
            }
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

fn attached_as(about: &LinkXdp) -> Option<AttachMode> {
    match about {
        LinkXdp::Attached(XdpAttached::Driver) => Some(AttachMode::Native),
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(AttachMode::Generic),
        _ => None,
    }
}

fn program(about: &LinkXdp) -> Option<u32> {
    match about {
        LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) => Some(*id),
        _ => None,
    }
}

/// All neighbours whose MAC address is known.
///
/// # Errors
/// When the kernel does not answer.
pub fn neighbours() -> io::Result<Vec<Neighbour>> {
    let answers = ask(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()), true)?;
    let found = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewNeighbour(message) => neighbour(&message),
        _ => None,
    });
    Ok(found.collect())
}

fn neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let state = message.header.state;
    if matches!(state, NeighbourState::Failed | NeighbourState::Incomplete | NeighbourState::None) {
        return None;
    }
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => Mac::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    let stale = state == NeighbourState::Stale;
    let fixed = matches!(state, NeighbourState::Permanent | NeighbourState::Noarp);
    let address = destination(message)?;
    Some(Neighbour { ifindex: message.header.ifindex, address, mac: mac?, stale, fixed })
}

fn destination(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    })
}

/// All addresses of this machine, each with the index of its interface.
///
/// # Errors
/// When the kernel does not answer.
pub fn addresses() -> io::Result<Vec<(IpAddr, u32)>> {
    let answers = ask(RouteNetlinkMessage::GetAddress(AddressMessage::default()), true)?;
    let found = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewAddress(message) => {
            // At the end of a point-to-point link `Address` is the peer's.
            let of = |is: fn(&AddressAttribute) -> Option<IpAddr>| {
                message.attributes.iter().find_map(is)
            };
            let local = of(|attribute| match attribute {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            });
            let any = of(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            });
            local.or(any).map(|address| (address, message.header.index))
        }
        _ => None,
    });
    Ok(found.collect())
}

/// Addresses that the kernel answers for in another's place (`ip neigh show proxy`), each with the index of the
/// interface that asks for it; 0 is any.
///
/// # Errors
/// When the kernel does not answer.
pub(crate) fn proxied() -> io::Result<Vec<(IpAddr, u32)>> {
    let mut message = NeighbourMessage::default();
    message.header.flags = NeighbourFlags::Proxy;
    let answers = ask(RouteNetlinkMessage::GetNeighbour(message), true)?;
    let found = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewNeighbour(message) => {
            destination(&message).map(|address| (address, message.header.ifindex))
        }
        _ => None,
    });
    Ok(found.collect())
}

/// How the kernel would reach an address by one of these interfaces: as from here, or, where they are parts of a
/// VRF, as from there. `None` where no route leads; where none does by them, one by another.
///
/// # Errors
/// When the kernel does not answer.
pub fn route(to: IpAddr, by: &[&Link]) -> io::Result<Option<Route>> {
    let is_by = |route: &Route| by.iter().any(|link| link.index == route.ifindex);
    let found = route_within(to, None)?;
    if found.as_ref().is_some_and(is_by) {
        return Ok(found);
    }
    let masters: BTreeSet<u32> = by.iter().filter_map(|link| link.master).collect();
    let mut within =
        masters.into_iter().filter_map(|master| route_within(to, Some(master)).ok().flatten());
    Ok(within.find(is_by).or(found))
}

fn route_within(to: IpAddr, vrf: Option<u32>) -> io::Result<Option<Route>> {
    match looked_up(to, vrf) {
        Ok(message) => Ok(next_hop(&message)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The route of a packet to an address from here, or from within a VRF (`ip route get`).
///
/// # Errors
/// As the kernel would refuse the packet; or when it does not answer.
pub(crate) fn looked_up(to: IpAddr, vrf: Option<u32>) -> io::Result<RouteMessage> {
    let (family, bits, address) = match to {
        IpAddr::V4(v4) => (AddressFamily::Inet, 32, RouteAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(v6)),
    };
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family,
        destination_prefix_length: bits,
        ..Default::default()
    };
    message.attributes.push(RouteAttribute::Destination(address));
    message.attributes.extend(vrf.map(RouteAttribute::Oif));
    let found =
        ask(RouteNetlinkMessage::GetRoute(message), false)?.into_iter().find_map(|answer| {
            match answer {
                RouteNetlinkMessage::NewRoute(message) => Some(message),
                _ => None,
            }
        });
    found.ok_or_else(|| Error::new(ErrorKind::InvalidData, "no route in the answer"))
}

/// Where a route leads; `None` without an interface.
pub(crate) fn next_hop(message: &RouteMessage) -> Option<Route> {
    let mut route = Route { ifindex: 0, gateway: None };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.ifindex = *index,
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => route.gateway = Some((*v4).into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => route.gateway = Some((*v6).into()),
            _ => {}
        }
    }
    (route.ifindex != 0).then_some(route)
}

/// Has the kernel use a neighbour, so that it asks for its MAC address again when the answer it has is old, or
/// there is none: packets that a program forwards are not seen by the kernel, and keep nothing alive.
///
/// # Errors
/// When the kernel refuses, as without CAP_NET_ADMIN.
pub fn use_neighbour(address: IpAddr, ifindex: u32) -> io::Result<()> {
    let mut message = about_neighbour(address, ifindex);
    message.header.flags = NeighbourFlags::Use;
    exchange(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_ACK, usize::MAX)?;
    Ok(())
}

/// Has the kernel ask all of a link for a neighbour's MAC address at once. One that it believes to know it asks
/// at the old address for seconds first, and not before that answer is old.
///
/// # Errors
/// As [`use_neighbour`], or when the kernel does not know of the neighbour.
pub fn seek_neighbour(address: IpAddr, ifindex: u32) -> io::Result<()> {
    let mut message = about_neighbour(address, ifindex);
    message.header.state = NeighbourState::Failed;
    exchange(RouteNetlinkMessage::NewNeighbour(message), NLM_F_ACK, usize::MAX)?;
    use_neighbour(address, ifindex)
}

fn about_neighbour(address: IpAddr, ifindex: u32) -> NeighbourMessage {
    let (family, address) = match address {
        IpAddr::V4(v4) => (AddressFamily::Inet, NeighbourAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, NeighbourAddress::Inet6(v6)),
    };
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.header.ifindex = ifindex;
    message.attributes.push(NeighbourAttribute::Destination(address));
    message
}

pub(crate) fn ask(
    message: RouteNetlinkMessage,
    dump: bool,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    let flags = if dump { NLM_F_DUMP } else { 0 };
    Ok(exchange(message, flags, usize::MAX)?.unwrap_or_default())
}

/// All answers to a message, unless there are more than so many.
pub(crate) fn dump(
    message: RouteNetlinkMessage,
    most: usize,
) -> io::Result<Option<Vec<RouteNetlinkMessage>>> {
    exchange(message, NLM_F_DUMP, most)
}

fn exchange(
    message: RouteNetlinkMessage,
    flags: u16,
    most: usize,
) -> io::Result<Option<Vec<RouteNetlinkMessage>>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut answers = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    // The kernel goes on with a dump as it is read: one that is left off costs no more.
    while answers.len() <= most {
        let size = socket.recv(&mut &mut buffer[..], 0)?;
        let mut at = 0;
        while at < size {
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&buffer[at..size])
                .map_err(|error| Error::new(ErrorKind::InvalidData, error.to_string()))?;
            let length = answer.header.length as usize;
            match answer.payload {
                NetlinkPayload::Done(_) => return Ok(Some(answers)),
                // Without a number it says that all is well (NLM_F_ACK).
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(Some(answers)),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                _ => {}
            }
            if flags & NLM_F_DUMP != NLM_F_DUMP {
                return Ok(Some(answers));
            }
            // Messages are aligned to four bytes.
            at += length.next_multiple_of(4).max(16);
        }
        if size == 0 {
            return Ok(Some(answers));
        }
    }
    Ok(None)
}
