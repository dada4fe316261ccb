//! Whether one next hop stands for all of a family's routes, and for which clients it does not.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use super::Why;
use super::prefix::{Prefix, few};
use super::routes::{LOCAL, MAIN, Route, has_own_rules_only, routes};
use crate::layout::MAX_ASKED;

/// The next hop of the default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// The interface towards it.
    pub ifindex: u32,
    /// The router.
    pub gateway: IpAddr,
    /// The largest packet that the route takes, where it says so.
    pub mtu: Option<u32>,
    /// Clients with another way.
    pub asked: Vec<Prefix>,
}

/// What the kernel's rules and routes of a family allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The default route's next hop, or why it is not followed.
    pub followed: Result<Followed, Why>,
    /// Whether where a packet leaves depends on its destination alone.
    pub by_destination: bool,
    /// The routers of all routes, with the interfaces towards them.
    pub routers: BTreeSet<(u32, IpAddr)>,
}

/// Reads the kernel's rules and routes of a family.
pub(crate) fn follow(v4: bool) -> Told {
    let told = |error: io::Error| {
        tracing::debug!("routes: {error}");
        Why::NotTold
    };
    let routes = match routes(v4).map_err(told) {
        Ok(Some(routes)) => routes,
        Ok(None) => return Told::nothing(Why::ManyRoutes),
        Err(why) => return Told::nothing(why),
    };
    // Whatever the rules are: those of a table that no rule names are only looked for in vain.
    let routers = routes.iter().flat_map(routers).collect();
    match has_own_rules_only(v4).map_err(told) {
        Ok(true) => Told {
            followed: one_next_hop(&routes),
            by_destination: is_by_destination(&routes),
            routers,
        },
        Ok(false) => Told { routers, ..Told::nothing(Why::Rules) },
        Err(why) => Told { routers, ..Told::nothing(why) },
    }
}

impl Told {
    fn nothing(why: Why) -> Told {
        Told { followed: Err(why), by_destination: false, routers: BTreeSet::new() }
    }
}

fn routers(route: &Route) -> impl Iterator<Item = (u32, IpAddr)> {
    route.ifindex.zip(route.gateway).into_iter().chain(route.routers.iter().copied())
}

/// Of routes that are equally good IPv6 takes turns, so these are not. Link-local addresses, which every
/// interface has alike, the program never remembers.
fn is_by_destination(routes: &[Route]) -> bool {
    let mut seen = BTreeSet::new();
    routes
        .iter()
        .filter(|route| !Prefix::new(route.to.0, route.to.1).is_link_local())
        .all(|route| route.one_way && seen.insert((route.table, route.to, route.metric)))
}

fn one_next_hop(routes: &[Route]) -> Result<Followed, Why> {
    let looked_up = || routes.iter().filter(|route| [LOCAL, MAIN].contains(&route.table));
    let (defaults, others): (Vec<&Route>, Vec<&Route>) =
        looked_up().partition(|route| route.to.1 == 0);
    let first = defaults.iter().min_by_key(|route| route.metric).ok_or(Why::NoDefault)?;
    let as_good = defaults.iter().filter(|route| route.metric == first.metric).count();
    if as_good > 1 || first.several {
        return Err(Why::Several);
    }
    // One for some packets only comes before one for all, whatever their metrics.
    if !first.plain || defaults.iter().any(|route| !route.for_all) {
        return Err(Why::Special);
    }
    let gateway = first.gateway.ok_or(Why::NoGateway)?;
    let ifindex = first.ifindex.ok_or(Why::Special)?;
    let same = |route: &Route| {
        let hop = (route.ifindex, route.gateway, route.mtu);
        route.plain
            && route.for_all
            && !route.several
            && hop == (first.ifindex, first.gateway, first.mtu)
    };
    let others = others.iter().filter(|route| !same(route));
    let asked = few(others.map(|route| Prefix::new(route.to.0, route.to.1)).collect(), MAX_ASKED);
    if asked.iter().any(Prefix::is_all) {
        return Err(Why::ManyRoutes);
    }
    Ok(Followed { ifindex, gateway, mtu: first.mtu, asked })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(to: &str, via: Option<&str>) -> Route {
        let (address, bits) = to.split_once('/').expect("a prefix");
        Route {
            table: MAIN,
            to: (address.parse().expect("an address"), bits.parse().expect("bits")),
            metric: 0,
            ifindex: Some(3),
            gateway: via.map(|via| via.parse().expect("an address")),
            routers: Vec::new(),
            mtu: None,
            several: false,
            for_all: true,
            plain: true,
            one_way: true,
        }
    }

    fn default() -> Route {
        route("0.0.0.0/0", Some("10.0.1.2"))
    }

    #[test]
    fn the_default_route_is_followed_but_for_clients_with_another_way() {
        let routes = [
            default(),
            route("10.0.1.0/24", None),
            Route { table: LOCAL, plain: false, ..route("127.0.0.0/8", None) },
            Route { table: LOCAL, plain: false, ..route("10.0.1.1/32", None) },
            route("172.16.0.0/12", Some("10.0.1.9")),
            // The same next hop, and a table that no rule names.
            route("192.0.2.0/24", Some("10.0.1.2")),
            Route { table: 7, ..route("203.0.113.0/24", Some("10.0.1.9")) },
        ];
        let followed = one_next_hop(&routes).expect("followed");
        assert_eq!((followed.ifindex, followed.gateway), (3, [10, 0, 1, 2].into()));
        let asked: Vec<String> = followed.asked.iter().map(Prefix::to_string).collect();
        assert_eq!(asked, ["10.0.1.0/24", "127.0.0.0/8", "172.16.0.0/12"]);
        // One by the same router with an MTU of its own is another way.
        let tunnel = Route { mtu: Some(1400), ..route("192.0.2.0/24", Some("10.0.1.2")) };
        let followed = one_next_hop(&[default(), tunnel]).expect("followed");
        assert_eq!(followed.asked[0].to_string(), "192.0.2.0/24");
    }

    #[test]
    fn every_router_of_a_route_is_known() {
        let alone = |route: &Route| routers(route).collect::<Vec<_>>();
        assert_eq!(alone(&default()), [(3, [10, 0, 1, 2].into())]);
        let two = vec![(3, [10, 0, 1, 2].into()), (4, [10, 0, 2, 2].into())];
        let several = Route { routers: two.clone(), several: true, ..route("0.0.0.0/0", None) };
        assert_eq!(alone(&several), two);
        assert_eq!(alone(&route("10.0.1.0/24", None)), []);
    }

    #[test]
    fn the_lowest_metric_holds_and_its_mtu() {
        let backup = Route { metric: 600, gateway: Some([10, 0, 9, 9].into()), ..default() };
        let first = Route { metric: 100, mtu: Some(1400), ..default() };
        let unreachable = Route { metric: 9999, gateway: None, plain: false, ..default() };
        let followed = one_next_hop(&[backup, first, unreachable]).expect("followed");
        assert_eq!((followed.gateway, followed.mtu), ([10, 0, 1, 2].into(), Some(1400)));
    }

    #[test]
    fn what_is_not_understood_is_not_followed() {
        let special = Route { plain: false, ..default() };
        let for_some = Route { metric: 9, for_all: false, ..default() };
        let halves = ["0.0.0.0/1", "128.0.0.0/1"].map(|to| route(to, Some("10.0.1.9")));
        for (routes, why) in [
            (vec![route("10.0.1.0/24", None)], Why::NoDefault),
            (vec![Route { table: 7, ..default() }], Why::NoDefault),
            (vec![default(), default()], Why::Several),
            (vec![Route { several: true, gateway: None, ..default() }], Why::Several),
            (vec![special], Why::Special),
            (vec![default(), for_some], Why::Special),
            (vec![route("0.0.0.0/0", None)], Why::NoGateway),
        ] {
            assert_eq!(one_next_hop(&routes), Err(why), "{routes:?}");
        }
        let [low, high] = halves;
        let followed = one_next_hop(&[default(), low, high]).expect("followed");
        assert_eq!(followed.asked.len(), 2, "for all clients the kernel's routes are asked");
    }

    #[test]
    fn the_destination_decides_unless_a_route_is_for_some_or_shared() {
        let via = |router: &str| route("172.16.0.0/12", Some(router));
        let local = Route { table: LOCAL, plain: false, ..route("10.0.1.1/32", None) };
        let routes = [default(), route("10.0.1.0/24", None), local, via("10.0.1.9")];
        assert!(is_by_destination(&routes));
        assert!(is_by_destination(&routes[1..]), "without a default route, too");
        for other in [
            Route { one_way: false, ..route("192.0.2.0/24", Some("10.0.1.9")) },
            Route { one_way: false, table: 7, ..via("10.0.1.9") },
            via("10.0.1.8"),
        ] {
            let routes: Vec<Route> = routes.iter().cloned().chain([other]).collect();
            assert!(!is_by_destination(&routes), "{:?}", routes.last());
        }
        let dearer = Route { metric: 7, ..via("10.0.1.8") };
        assert!(is_by_destination(&[via("10.0.1.9"), dearer]));
    }
}
