//! The kernel's routes and rules, over netlink: as much of them as says where a packet leaves.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::network::dump;

/// The kernel's own addresses.
pub const LOCAL: u32 = 255;
/// The main table.
pub const MAIN: u32 = 254;
/// Empty unless an administrator fills it.
const DEFAULT: u32 = 253;

/// Routes at most: with more, they are a router's, and reading them again and again costs too much.
const MOST: usize = 1024;

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its table.
    pub table: u32,
    /// What it leads to.
    pub to: (IpAddr, u8),
    /// The lowest holds.
    pub metric: u32,
    /// The interface it leaves by, where there is one.
    pub ifindex: Option<u32>,
    /// The router.
    pub gateway: Option<IpAddr>,
    /// All of its routers where it has several next hops, with the interfaces towards them.
    pub routers: Vec<(u32, IpAddr)>,
    /// The largest packet, where it has its own.
    pub mtu: Option<u32>,
    /// Whether it has several next hops.
    pub several: bool,
    /// Whether it is for packets of every source and class.
    pub for_all: bool,
    /// Whether it leads on, and nothing else is to be known of it.
    pub plain: bool,
    /// Whether packets that it leads on all have one way, whatever else they are; so has what it leads nowhere.
    pub one_way: bool,
}

/// All routes of a family; `None`: there are too many.
///
/// # Errors
/// When the kernel does not answer.
pub fn routes(v4: bool) -> io::Result<Option<Vec<Route>>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(v4);
    let Some(answers) = dump(RouteNetlinkMessage::GetRoute(message), MOST)? else {
        return Ok(None);
    };
    let routes = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(message) => Some(route(message, v4)),
        _ => None,
    });
    Ok(Some(routes.collect()))
}

/// Whether packets are routed by the kernel's own rules: local addresses, then the main table.
///
/// # Errors
/// When the kernel does not answer.
pub fn has_own_rules_only(v4: bool) -> io::Result<bool> {
    let mut message = RuleMessage::default();
    message.header.family = family(v4);
    let answers = dump(RouteNetlinkMessage::GetRule(message), MOST)?.unwrap_or_default();
    let tables = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRule(message) => Some(looked_up(&message)),
        _ => None,
    });
    let tables: Vec<Option<u32>> = tables.collect();
    Ok(tables == [Some(LOCAL), Some(MAIN)] || tables == [Some(LOCAL), Some(MAIN), Some(DEFAULT)])
}

fn family(v4: bool) -> AddressFamily {
    if v4 { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// The table that a rule has for every packet; `None` where it has not.
fn looked_up(message: &RuleMessage) -> Option<u32> {
    let header = &message.header;
    if header.action != RuleAction::ToTable
        || header.flags.contains(RuleFlags::Invert)
        || (header.dst_len, header.src_len, header.tos) != (0, 0, 0)
    {
        return None;
    }
    let mut table = u32::from(header.table);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Priority(_) | RuleAttribute::Protocol(_) => {}
            // Of no length, and of no group: nothing is suppressed.
            RuleAttribute::SuppressPrefixLen(u32::MAX)
            | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
            _ => return None,
        }
    }
    Some(table)
}

fn route(message: RouteMessage, v4: bool) -> Route {
    let header = message.header;
    let any: IpAddr = if v4 { [0; 4].into() } else { [0; 16].into() };
    let down = RouteFlags::Dead | RouteFlags::Linkdown | RouteFlags::Unresolved;
    let leads_on = header.kind == RouteType::Unicast;
    let for_all = (header.tos, header.source_prefix_length) == (0, 0);
    let mut route = Route {
        table: header.table.into(),
        to: (any, header.destination_prefix_length),
        metric: 0,
        ifindex: None,
        gateway: None,
        routers: Vec::new(),
        mtu: None,
        several: false,
        for_all,
        plain: leads_on && !header.flags.intersects(down),
        one_way: for_all,
    };
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Table(number) => route.table = number,
            RouteAttribute::Destination(to) => match address(&to) {
                Some(to) => route.to.0 = to,
                None => route.to.1 = 0,
            },
            RouteAttribute::Priority(metric) => route.metric = metric,
            RouteAttribute::Oif(index) => route.ifindex = Some(index),
            RouteAttribute::Gateway(to) => route.gateway = address(&to),
            RouteAttribute::Metrics(metrics) => {
                for metric in metrics {
                    match metric {
                        RouteMetric::Mtu(mtu) => route.mtu = Some(mtu),
                        RouteMetric::Other(_) => route.plain = false,
                        // Of connections that end here, or whether the MTU is locked.
                        _ => {}
                    }
                }
            }
            // Ticks that are left; none is none to wait for.
            RouteAttribute::CacheInfo(info) => route.plain &= info.expires as i32 >= 0,
            RouteAttribute::MultiPath(hops) => {
                route.routers = hops.iter().filter_map(router).collect();
                route.several = true;
                route.one_way = false;
            }
            RouteAttribute::PrefSource(_) | RouteAttribute::Preference(_) => {}
            _ => {
                route.plain = false;
                route.one_way &= !leads_on;
            }
        }
    }
    route
}

fn router(hop: &RouteNextHop) -> Option<(u32, IpAddr)> {
    let gateway = hop.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(to) => address(to),
        _ => None,
    });
    gateway.map(|gateway| (hop.interface_index, gateway))
}

fn address(of: &RouteAddress) -> Option<IpAddr> {
    match of {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}
