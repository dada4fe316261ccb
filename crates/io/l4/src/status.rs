//! What the pinned maps say: counters by service and server. Needs no daemon; what is asked is the
//! kernel.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::balancer::ways::{HOLDS, monotonic_ms};
use crate::error::L4Error;
use crate::fill::WHOLE;
use crate::layout::{By, Mac, MemberState};
use crate::maps::Maps;
use crate::notes::{SetBy, VipNote};
use crate::program::{is_link_on, pinned_links};
use crate::reason::{REASONS, ROUTE_ASKED};
use crate::replies::{Prefix, Why};

/// The balancer at one instant.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Where it is pinned.
    pub pinned: PathBuf,
    /// The interfaces it is attached to.
    pub interfaces: Vec<String>,
    /// Those it should be on and is not: gone, or taken off by another process.
    pub missing: Vec<String>,
    /// Where replies go, by IPv4 and by IPv6.
    pub replies: [RepliesStatus; 2],
    /// The services, in the order of their numbers.
    pub vips: Vec<VipStatus>,
    /// Packets of no service that went another way, by reason.
    pub stray: BTreeMap<&'static str, u64>,
}

/// Where replies of a family go.
#[derive(Clone, Debug, Serialize)]
pub struct RepliesStatus {
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// What decides where.
    pub by: RepliesBy,
    /// Why the kernel's routes are asked for each of them.
    pub why: Option<Why>,
    /// The next hop's address, where it is known.
    pub gateway: Option<IpAddr>,
    /// The interface towards it.
    pub interface: Option<String>,
    /// Its MAC address.
    pub mac: Option<String>,
    /// Clients for which the kernel's routes are asked all the same.
    pub asked_for: Vec<Prefix>,
    /// Whether what they answer is remembered, by the client's address and for a second at most.
    pub remembered: bool,
}

/// What decides where replies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepliesBy {
    /// The configured uplink.
    Uplink,
    /// The kernel's default route.
    DefaultRoute,
    /// The kernel's routes, asked for each packet.
    RoutesAsked,
}

/// A service.
#[derive(Clone, Debug, Serialize)]
pub struct VipStatus {
    /// Its name.
    pub name: String,
    /// What clients connect to; `None` when it is no longer configured and its servers drain.
    pub address: Option<SocketAddr>,
    /// What set the weights.
    pub weights: WeightsStatus,
    /// Its servers.
    pub backends: Vec<BackendStatus>,
    /// Replies whose way the kernel's routes were asked for.
    pub routes_asked: u64,
    /// Packets that went another way, by reason; docs/l4.md says what each means.
    pub fallbacks: BTreeMap<&'static str, u64>,
}

/// What set the weights of a service.
#[derive(Clone, Debug, Serialize)]
pub struct WeightsStatus {
    /// What set them.
    pub set_by: SetBy,
    /// A controller's name for itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub who: String,
    /// The controller's plan.
    pub epoch: Option<u64>,
    /// When, in milliseconds since 1970.
    pub unix_ms: Option<u64>,
}

/// A server.
#[derive(Clone, Debug, Serialize)]
pub struct BackendStatus {
    /// Its name.
    pub name: String,
    /// Its id in cookies.
    pub id: u32,
    /// `live` serves its connections, `gone` has none, `lost` cannot be reached: no interface leads to it, or its
    /// MAC address is not known yet.
    pub state: MemberState,
    /// Its share of the SYNs as last programmed.
    pub weight: u16,
    /// How much of it counts: all is 1, less while `slow_start` spares the server.
    pub part: f64,
    /// The busy part of its CPUs, where it was asked and answered in time.
    pub load: Option<f64>,
    /// How often it was asked for its load and did not tell.
    pub load_failures: u64,
    /// Its MAC address; all zeros before it was found.
    pub mac: String,
    /// Packets from clients.
    pub packets_in: u64,
    /// Bytes from clients, headers included.
    pub bytes_in: u64,
    /// Packets to clients.
    pub packets_out: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Connections begun.
    pub new_connections: u64,
    /// Connections begun and not ended, as far as first and last packets tell.
    pub open_connections: u64,
    /// Whether its clock is known, as it is after its first reply.
    pub clock_known: bool,
    /// How often its clock was not where it had been: many a minute, where `net.ipv4.tcp_timestamps` is 1.
    pub clock_moved: u64,
}

/// Reads what is pinned in a directory.
///
/// # Errors
/// When nothing is, or by another version.
pub fn status(dir: &Path) -> Result<Status, L4Error> {
    let maps = Maps::open(dir)?;
    let meta = maps.meta();
    let served = maps.vips()?;
    let mut vips = Vec::new();
    for number in 0..meta.vips {
        let name = maps.vip_name(number)?;
        if name.is_empty() {
            continue;
        }
        let address = served.iter().find(|vip| vip.number == number).map(|vip| vip.address());
        let mut backends = Vec::new();
        for id in 1..meta.stride {
            backends.extend(backend(&maps, number * meta.stride + id, id)?);
        }
        let (weights, mut fallbacks) = (weights(&maps, number)?, reasons(&maps, number)?);
        // Nothing is wrong with these.
        let routes_asked = fallbacks.remove(ROUTE_ASKED).unwrap_or(0);
        vips.push(VipStatus { name, address, weights, backends, routes_asked, fallbacks });
    }
    let mut stray = reasons(&maps, meta.vips)?;
    stray.remove(ROUTE_ASKED);
    let replies = [replies(&maps, true)?, replies(&maps, false)?];
    let (interfaces, missing) =
        pinned_links(dir).into_iter().partition(|name| is_link_on(dir, name));
    Ok(Status { pinned: dir.to_owned(), interfaces, missing, replies, vips, stray })
}

fn replies(maps: &Maps, v4: bool) -> Result<RepliesStatus, L4Error> {
    let way = maps.way(v4)?;
    let expired = monotonic_ms() > way.renewed_ms + HOLDS.as_millis() as u64;
    let (by, why) = match way.by {
        By::Configured => (RepliesBy::Uplink, None),
        By::DefaultRoute if expired => (RepliesBy::RoutesAsked, Some(Why::Expired)),
        By::DefaultRoute => (RepliesBy::DefaultRoute, None),
        By::Asked(why) => (RepliesBy::RoutesAsked, Some(why)),
    };
    let family = if v4 { "ipv4" } else { "ipv6" };
    let remembered = way.hops_until_ms != 0 && !expired;
    let asked = RepliesStatus {
        family,
        by,
        why,
        gateway: None,
        interface: None,
        mac: None,
        asked_for: Vec::new(),
        remembered,
    };
    if why.is_some() {
        return Ok(asked);
    }
    let (interface, mac) = (Some(way.interface), Some(mac_text(way.mac)));
    Ok(RepliesStatus { gateway: way.gateway, interface, mac, asked_for: way.asked, ..asked })
}

fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn weights(maps: &Maps, number: u32) -> Result<WeightsStatus, L4Error> {
    let VipNote { set_by, who, epoch, unix_ms } = maps.vip_note(number)?;
    let epoch = (set_by == SetBy::Controller).then_some(epoch);
    let unix_ms = (set_by != SetBy::Configuration).then_some(unix_ms);
    Ok(WeightsStatus { set_by, who, epoch, unix_ms })
}

fn backend(maps: &Maps, place: u32, id: u32) -> Result<Option<BackendStatus>, L4Error> {
    let name = maps.member_name(place)?;
    if name.is_empty() {
        return Ok(None);
    }
    let (member, count) = (maps.member(place)?, maps.count(place)?);
    let note = maps.member_note(place)?;
    Ok(Some(BackendStatus {
        name,
        id,
        state: member.state,
        weight: member.weight,
        part: f64::from(note.part()) / f64::from(WHOLE),
        load: note.load(),
        load_failures: note.failures,
        mac: mac_text(member.mac),
        packets_in: count.packets_in,
        bytes_in: count.bytes_in,
        packets_out: count.packets_out,
        bytes_out: count.bytes_out,
        new_connections: count.opened,
        open_connections: maps.open_connections(place)?,
        clock_known: !member.agent && maps.clock(place)?.is_some(),
        clock_moved: count.clock_moved,
    }))
}

fn reasons(maps: &Maps, row: u32) -> Result<BTreeMap<&'static str, u64>, L4Error> {
    Ok(REASONS.into_iter().zip(maps.reasons(row)?).collect())
}
