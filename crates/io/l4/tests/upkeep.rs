//! What a daemon keeps right from second to second: nothing is written while nothing changes, and names,
//! interfaces and MAC addresses may change under it.

mod rig;

use std::time::Duration;

use aya::maps::{Array, Map, MapData};
use plimsoll_l4::{BackendStatus, Policy, status};
use rig::privileged;
use rig::service::{Service, all_stay};

/// The settings as the kernel holds them.
fn settings(service: &Service) -> [u8; 512] {
    let pinned = MapData::from_pin(service.net.pins().join("maps/config")).expect("pinned");
    let map: Array<_, [u8; 512]> =
        Map::from_map_data(pinned).expect("a map").try_into().expect("an array");
    map.get(&0, 0).expect("read")
}

fn server(service: &Service, name: &str) -> Option<BackendStatus> {
    let vips = status(&service.net.pins()).expect("status").vips;
    vips.into_iter().flat_map(|vip| vip.backends).find(|one| one.name == name)
}

fn fallbacks(service: &Service, reason: &str) -> u64 {
    let vips = status(&service.net.pins()).expect("status").vips;
    vips.iter().map(|vip| vip.fallbacks[reason]).sum()
}

#[test]
fn while_nothing_changes_nothing_is_written() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    let mut balancer = service.balance(&config);
    let mut connections = service.opened(4);
    let before = settings(&service);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        balancer.refresh().expect("refreshes");
        assert_eq!(settings(&service), before, "no half flips, no time moves");
    }
    all_stay(&mut connections, "all the time");
    drop(balancer);
    let balancer = service.balance(&config);
    let switch_ms = 80..88;
    assert_eq!(settings(&service)[switch_ms.clone()], before[switch_ms], "nor by a restart");
    drop(balancer);
    service.net.leave();
}

#[test]
fn a_server_under_another_name_is_the_same_server() {
    if !privileged() {
        return;
    }
    // Before and after the old one in the order of names.
    for new in ["a1", "z1"] {
        let service = Service::new(2, 2, false);
        let mut config = service.config(Policy::RoundRobin, &["s1", "s2"]);
        config.drain = Duration::from_secs(1);
        let mut balancer = service.balance(&config);
        let mut connections = service.opened(6);
        let before = server(&service, "s1").expect("there");
        config.vips[0].backends[0].name = new.to_owned();
        service.apply(&mut balancer, &config);
        assert!(server(&service, "s1").is_none(), "{new}: there is no such server");
        all_stay(&mut connections, "under the new name");
        connections.extend(service.opened(6));
        let after = server(&service, new).expect("there");
        assert_eq!(after.id, before.id);
        assert!(after.packets_out > before.packets_out, "{new}: {after:?}");
        assert!(after.new_connections > before.new_connections, "{new}: {after:?}");

        std::thread::sleep(Duration::from_millis(1100));
        balancer.refresh().expect("refreshes");
        all_stay(&mut connections, "when a drain would be over");
        for reason in ["foreign_cookie", "stale_cookie"] {
            assert_eq!(fallbacks(&service, reason), 0, "{new}: {reason}");
        }
        drop(balancer);
        service.net.leave();
    }
}

#[test]
fn with_another_id_the_server_that_is_configured_is_the_one_that_replies() {
    if !privileged() {
        return;
    }
    for new in ["a1", "z1"] {
        let service = Service::new(2, 2, false);
        let mut config = service.config(Policy::RoundRobin, &["s1", "s2"]);
        config.drain = Duration::from_secs(1);
        let mut balancer = service.balance(&config);
        config.vips[0].backends[0].name = new.to_owned();
        config.vips[0].backends[0].id = Some(9);
        service.apply(&mut balancer, &config);
        let mut connections = service.opened(6);
        assert!(server(&service, new).expect("there").packets_out > 0, "{new}");
        assert_eq!(server(&service, "s1").expect("drains").packets_out, 0, "{new}");
        std::thread::sleep(Duration::from_millis(1100));
        balancer.refresh().expect("refreshes");
        assert!(server(&service, "s1").is_none(), "forgotten");
        all_stay(&mut connections, "without the old name");
        assert_eq!(fallbacks(&service, "foreign_cookie"), 0, "{new}");
        drop(balancer);
        service.net.leave();
    }
}
