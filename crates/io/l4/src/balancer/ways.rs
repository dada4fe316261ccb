//! Where replies go: the operator's next hop, the default route's, or wherever the kernel's routes lead. What
//! is found holds for [`HOLDS`] and is said again each time the daemon looks, and so does the leave to remember
//! what the kernel's routes answered: when there is no daemon, the program asks them for each packet, so that
//! they are followed whether or not one runs.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tracing::info;

use super::{Balancer, Pending};
use crate::config::{Uplink, UplinkMode};
use crate::doctor::interface_sysctl;
use crate::error::L4Error;
use crate::layout::{By, FOR_EVER, Way};
use crate::network::{Link, Neighbour};
use crate::place::mac_of;
use crate::replies::{Followed, Told, Why, follow};

/// How long the default route's next hop holds; a daemon looks once a second.
pub(crate) const HOLDS: Duration = Duration::from_secs(5);

/// For one whose MTU is not known: what is longer asks the kernel's routes (RFC 8200, 5).
const LEAST_MTU_V6: u32 = 1280;

impl Balancer {
    pub(super) fn write_ways(
        &mut self,
        neighbours: &[Neighbour],
        pending: &mut Pending,
    ) -> Result<(), L4Error> {
        if let UplinkMode::Fixed(uplink) = &self.config.uplink {
            let way = self.to_uplink(uplink, neighbours, pending);
            let way = way.unwrap_or_else(|| Way::none(Why::UplinkNotFound));
            self.say_way(true, way.clone(), false)?;
            return self.say_way(false, way, false);
        }
        for v4 in [true, false] {
            let Told { followed, by_destination, routers } = follow(v4);
            let is_ours = |index| self.ports.values().any(|(_, link)| link.index == index);
            for (ifindex, router) in routers.into_iter().filter(|(index, _)| is_ours(*index)) {
                // Has the kernel look for one that it knows nothing new of.
                let _ = mac_of(neighbours, router, ifindex);
            }
            if self.config.uplink == UplinkMode::Ask {
                self.say_way(v4, Way::none(Why::Configured), false)?;
                continue;
            }
            let forwards = self.forwards(v4);
            let found = followed.and_then(|found| {
                // The kernel's routes hold for what comes in where it forwards.
                let found = self.by_default_route(found, neighbours)?;
                if forwards { Ok(found) } else { Err(Why::NotForwarding) }
            });
            self.say_way(v4, found.unwrap_or_else(Way::none), by_destination && forwards)?;
        }
        Ok(())
    }

    /// Has the program forget what it remembered of the kernel's routes.
    pub(super) fn forget_hops(&mut self) -> Result<(), L4Error> {
        for v4 in [true, false] {
            let held = self.maps.way(v4)?;
            if held.hops_until_ms != 0 {
                self.maps.set_way(v4, &Way { generation: held.generation + 1, ..held })?;
            }
        }
        Ok(())
    }

    fn to_uplink(
        &self,
        uplink: &Uplink,
        neighbours: &[Neighbour],
        pending: &mut Pending,
    ) -> Option<Way> {
        let (port, link) = self.ports.get(&uplink.interface)?;
        let found = uplink.gateway.and_then(|gateway| mac_of(neighbours, gateway, link.index));
        let mac = uplink.mac.or(found);
        if mac.is_none() {
            pending.0.push(format!(
                "uplink {}: no MAC address in the neighbour table yet; replies go by the kernel's \
                 routes",
                uplink.interface
            ));
        }
        let by = By::Configured;
        let way = Way { until_ms: FOR_EVER, mac: mac?, mtu: u32::MAX, by, ..by_link(*port, link) };
        Some(Way { gateway: uplink.gateway, ..way })
    }

    fn by_default_route(&self, found: Followed, neighbours: &[Neighbour]) -> Result<Way, Why> {
        let Followed { ifindex, gateway, mtu, asked } = found;
        let (port, link) = self
            .ports
            .values()
            .find(|(_, link)| link.index == ifindex)
            .ok_or(Why::OtherInterface)?;
        let mac = mac_of(neighbours, gateway, ifindex).ok_or(Why::NoNeighbour)?;
        let own = if gateway.is_ipv4() { link.mtu } else { mtu_v6(link) };
        Ok(Way {
            mac,
            mtu: mtu.map_or(own, |mtu| mtu.min(own)),
            by: By::DefaultRoute,
            asked,
            gateway: Some(gateway),
            ..by_link(*port, link)
        })
    }

    /// Whether the kernel forwards what comes in by any of the interfaces.
    fn forwards(&self, v4: bool) -> bool {
        let family = if v4 { "ipv4" } else { "ipv6" };
        self.ports.values().all(|(_, link)| {
            interface_sysctl(family, &link.name, "forwarding").is_some_and(|on| on != 0)
        })
    }

    /// Has the program follow a way, or go on following it; and forget what it remembered of the kernel's
    /// routes, for it may have changed, and remember anew where that is allowed.
    fn say_way(&mut self, v4: bool, mut way: Way, remembers: bool) -> Result<(), L4Error> {
        let held = self.maps.way(v4)?;
        let holds = self.program.clock_ms()? + HOLDS.as_millis() as u64;
        way.renewed_ms = monotonic_ms();
        way.generation = held.generation + 1;
        way.hops_until_ms = if remembers { holds } else { 0 };
        if way.by == By::DefaultRoute {
            way.until_ms = holds;
        }
        let same = Way {
            until_ms: held.until_ms,
            renewed_ms: held.renewed_ms,
            hops_until_ms: held.hops_until_ms,
            generation: held.generation,
            ..way.clone()
        };
        let (ends, remembered) = (way.by == By::DefaultRoute, held.hops_until_ms != 0);
        if same == held && !ends && !remembers && !remembered {
            return Ok(());
        }
        if same != held {
            let family = if v4 { "IPv4" } else { "IPv6" };
            let asked = if let By::Asked(why) = way.by { Some(why.words()) } else { None };
            let gateway = way.gateway.map(|gateway| gateway.to_string());
            info!(family, asked, gateway, interface = way.interface, "replies");
            // No packet leaves by half of the one and half of the other: neither is, in between.
            self.maps.set_way(v4, &Way { until_ms: 0, hops_until_ms: 0, ..held })?;
            self.maps.set_way(v4, &Way { until_ms: 0, hops_until_ms: 0, ..way.clone() })?;
        }
        self.maps.set_way(v4, &way)
    }
}

fn by_link(port: u32, link: &Link) -> Way {
    Way {
        source_mac: link.mac,
        port,
        ifindex: link.index,
        hairpin_tx: !link.veth,
        interface: link.name.clone(),
        ..Way::none(Why::NotLooked)
    }
}

/// An interface's MTU for IPv6, which may be less than its own.
fn mtu_v6(link: &Link) -> u32 {
    let told = interface_sysctl("ipv6", &link.name, "mtu").and_then(|mtu| u32::try_from(mtu).ok());
    told.map_or(LEAST_MTU_V6, |mtu| mtu.min(link.mtu))
}

/// Milliseconds by a clock that every process has alike.
pub(crate) fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
