//! What a daemon keeps right from second to second: nothing is written while nothing changes, and names,
//! interfaces and MAC addresses may change under it.

mod rig;

use std::time::Duration;

use aya::maps::{Array, Map, MapData};
use plimsoll_l4::{BackendStatus, Keys, L4Config, Policy, status};
use rig::service::{Service, all_stay};
use rig::{keys, privileged};

/// The settings as the kernel holds them, without where replies go, which is said again each time.
fn settings(service: &Service) -> Vec<u8> {
    let pinned = MapData::from_pin(service.net.pins().join("maps/config")).expect("pinned");
    let map: Array<_, [u8; 1024]> =
        Map::from_map_data(pinned).expect("a map").try_into().expect("an array");
    map.get(&0, 0).expect("read")[..320].to_vec()
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
    for (new, id) in [("a1", None), ("z1", None), ("z1", Some(1))] {
        let service = Service::new(2, 2, false);
        let mut config = service.config(Policy::RoundRobin, &["s1", "s2"]);
        config.drain = Duration::from_secs(1);
        let mut balancer = service.balance(&config);
        let mut connections = service.opened(6);
        let before = server(&service, "s1").expect("there");
        config.vips[0].backends[0].name = new.to_owned();
        config.vips[0].backends[0].id = id;
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
        config.drain = Duration::from_secs(3);
        let mut balancer = service.balance(&config);
        config.vips[0].backends[0].name = new.to_owned();
        config.vips[0].backends[0].id = Some(9);
        service.apply(&mut balancer, &config);
        let mut connections = service.opened(6);
        assert!(server(&service, new).expect("there").packets_out > 0, "{new}");
        assert_eq!(server(&service, "s1").expect("drains").packets_out, 0, "{new}");
        std::thread::sleep(Duration::from_millis(3100));
        balancer.refresh().expect("refreshes");
        assert!(server(&service, "s1").is_none(), "forgotten");
        all_stay(&mut connections, "without the old name");
        assert_eq!(fallbacks(&service, "foreign_cookie"), 0, "{new}");
        drop(balancer);
        service.net.leave();
    }
}

#[test]
fn a_program_that_was_detached_is_attached_again() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    let mut balancer = service.balance(&config);
    let shown = |name: &str| {
        let output = service.net.exec("lb", &format!("ip link show {name}"));
        String::from_utf8_lossy(&output.stdout).contains("prog/xdp")
    };
    let seen = || status(&service.net.pins()).expect("status");
    assert!(shown("lb1") && seen().interfaces.contains(&"lb1".to_owned()));
    assert_eq!(seen().missing, Vec::<String>::new());
    std::fs::remove_file(service.net.pins().join("links/lb1")).expect("removed");
    let began = std::time::Instant::now();
    // The kernel takes it off a moment later.
    while shown("lb1") {
        assert!(began.elapsed() < rig::service::PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    balancer.refresh().expect("refreshes");
    assert!(shown("lb1"), "on again");
    all_stay(&mut service.opened(4), "as before");

    service.net.exec("lb", "ip link del lb2");
    assert_eq!(seen().missing, ["lb2"], "a pinned link is not yet a program on an interface");
    assert!(!seen().interfaces.contains(&"lb2".to_owned()));
    drop(balancer);
    service.net.leave();
}

/// The same servers as another service; no client asks for it.
fn another_service(config: &L4Config) -> L4Config {
    let mut other = config.clone();
    other.vips[0].name = "shed".to_owned();
    other.vips[0].address.set_port(81);
    other
}

#[test]
fn a_service_that_is_no_longer_named_drains_through_a_restart() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    config.drain = Duration::from_secs(10);
    let mut balancer = service.balance(&config);
    let mut connections = service.opened(6);
    let other = another_service(&config);
    service.apply(&mut balancer, &other);
    let removed = std::time::Instant::now();
    all_stay(&mut connections, "while its servers drain");
    drop(balancer);
    let mut balancer = service.balance(&other);
    all_stay(&mut connections, "with the next daemon");
    let names = || {
        let vips = status(&service.net.pins()).expect("status").vips;
        vips.into_iter().map(|vip| vip.name).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["shop", "shed"]);
    // Not a drain more for every daemon.
    std::thread::sleep(Duration::from_millis(10_100).saturating_sub(removed.elapsed()));
    balancer.refresh().expect("refreshes");
    assert_eq!(names(), ["shed"]);
    drop(balancer);
    service.net.leave();
}

#[test]
fn a_salt_that_connections_may_have_is_not_written_over() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1"]);
    let mut balancer = service.balance(&config);
    assert!(balancer.may_rotate().expect("tells"), "there is no other salt");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later");
    let rotated = keys().rotated(now.as_millis() as u64).expect("random");
    balancer.set_keys(rotated.clone()).expect("set");
    assert!(!balancer.may_rotate().expect("tells"));
    // As a clock shows it that was set forward meanwhile.
    balancer.set_keys(Keys { since_unix_ms: 0, ..rotated.clone() }).expect("set");
    assert!(!balancer.may_rotate().expect("tells"));
    drop(balancer);
    plimsoll_l4::detach(&service.net.pins()).expect("detached");

    // The key file of another balancer tells when its epoch took over.
    service.net.enter("lb");
    let long_ago = Keys { since_unix_ms: rotated.since_unix_ms - 3_600_000, ..rotated };
    let (balancer, _) = plimsoll_l4::Balancer::start_with(&config, long_ago).expect("starts");
    assert!(balancer.may_rotate().expect("tells"), "an hour is enough");
    drop(balancer);
    service.net.leave();
}

#[test]
fn a_server_with_a_mac_address_of_this_machine_gets_nothing() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    config.vips[0].backends[0].mac = Some([2, 0, 0, 0, 2, 1]);
    service.net.enter("lb");
    let (mut balancer, first) = plimsoll_l4::Balancer::start_with(&config, keys()).expect("starts");
    let told = first.0.iter().find(|what| what.starts_with("shop/s1: ")).expect("told");
    assert!(told.contains("this machine's own lb1"), "{told}");
    let began = std::time::Instant::now();
    while balancer.refresh().expect("refreshes").0.len() > 1 {
        assert!(began.elapsed() < rig::service::PATIENCE, "the other one is found");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(service.opened(6).iter().all(|one| one.server == "s2"));
    drop(balancer);
    service.net.leave();
}

#[test]
fn of_two_names_for_one_machine_the_configured_one_is_named() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let mut config = service.config(Policy::RoundRobin, &["s1"]);
    let mut balancer = service.balance(&config);
    config.vips[0].backends[0].name = "z1".to_owned();
    config.vips[0].backends[0].id = Some(9);
    service.apply(&mut balancer, &config);
    let client = "10.0.1.2:40000".parse().expect("an address");
    let question = plimsoll_l4::Question { vip: service.vip, client, echo: None, timestamps: true };
    let answer = plimsoll_l4::ask(&service.net.pins(), question).expect("answers");
    assert_eq!((answer.backend.as_deref(), answer.id), (Some("z1"), Some(9)));
    drop(balancer);
    service.net.leave();
}

#[test]
fn a_server_that_is_replaced_at_its_address_is_found() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    // Minutes in seconds.
    service.net.exec(
        "lb",
        "sysctl -qw net.ipv4.neigh.lb1.base_reachable_time_ms=500 \
         net.ipv4.neigh.lb1.delay_first_probe_time=1 net.ipv4.neigh.lb1.ucast_solicit=1 \
         net.ipv4.neigh.lb1.retrans_time_ms=100",
    );
    let mut balancer = service.balance(&config);
    assert!(service.opened(8).iter().any(|one| one.server == "s1"));
    // Another machine, as it were: it says nothing by itself.
    service.net.exec(
        "s1",
        "ip link set e0 address 02:00:00:00:02:77 && \
         ip neigh replace 10.0.2.1 lladdr 02:00:00:00:02:01 dev e0 nud permanent",
    );
    let began = std::time::Instant::now();
    while server(&service, "s1").expect("there").mac != "02:00:00:00:02:77" {
        assert!(began.elapsed() < rig::service::PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
        balancer.refresh().expect("refreshes");
    }
    assert!(service.opened(8).iter().any(|one| one.server == "s1"));
    drop(balancer);
    service.net.leave();
}
